"""Running a TileLang program directly: lowered by TileLang, compiled and launched here, without torch_npu."""

from __future__ import annotations

from typing import Any

from ascend_sim import kernel


class Program:
    """A TileLang prim_func on the simulated Ascend.

    `source` is the AscendC that TileLang generates. Calls take the prim_func's arguments in order, and bind its dynamic
    symbols from the arguments' shapes.
    """

    def __init__(self, prim_func: Any, *, checks: bool = True) -> None:
        import tilelang
        from tvm.target import Target

        with Target("ascend"):
            artifact = tilelang.lower(prim_func, target="ascend")
        functions = list(artifact.device_mod.functions.values())
        if len(functions) != 1:
            raise ValueError(f"the program lowers to {len(functions)} kernels, expected 1")
        self.source: str = artifact.kernel_source
        self._checks = checks
        self._library: kernel.Library | None = None
        self._grid = [
            extent for tag, extent in functions[0].attrs["thread_extent"].items() if tag.startswith("blockIdx.")
        ]
        self._kernel_parameters = list(functions[0].params)
        self._buffers = [dict(prim_func.buffer_map.items()).get(p) for p in prim_func.params]
        self._names = [b.name if b is not None else p.name for b, p in zip(self._buffers, prim_func.params)]

    def __call__(self, *arguments: Any) -> None:
        """Run; raises KernelError if a check fails."""
        if len(arguments) != len(self._names):
            raise TypeError(
                f"the program takes {len(self._names)} arguments ({', '.join(self._names)}), got {len(arguments)}"
            )
        values = dict(zip(self._names, arguments))
        for name, buffer, argument in zip(self._names, self._buffers, arguments):
            if buffer is not None:
                self._bind(name, buffer, argument, values)
        if self._library is None:
            self._library = kernel.compile(self.source, checks=self._checks)
        descriptor = self._library.kernels[0]
        kernel.launch(
            self._library, descriptor.name, self.blocks(values), *(values[name] for name in descriptor.parameters)
        )

    def blocks(self, values: dict[str, Any]) -> int:
        """The number of blocks for given values of the dynamic symbols."""
        from tvm import arith, tirx

        numbers = {
            p: tirx.IntImm(p.dtype, int(values[p.name]))
            for p in self._kernel_parameters
            if isinstance(values.get(p.name), int)
        }
        count = 1
        for extent in self._grid:
            bound = tirx.stmt_functor.substitute(extent, numbers) if numbers else extent
            count *= int(arith.Analyzer().simplify(bound))
        return count

    @staticmethod
    def _bind(name: str, buffer: Any, argument: Any, values: dict[str, Any]) -> None:
        shape = tuple(argument.shape)
        if len(shape) != len(buffer.shape):
            raise ValueError(f"{name} must have {len(buffer.shape)} dimensions, got shape {shape}")
        for given, declared in zip(shape, buffer.shape):
            symbol = getattr(declared, "name", None)
            if symbol is None:
                try:
                    required = int(declared)
                except TypeError:
                    continue  # an expression of symbols
            else:
                required = values.setdefault(symbol, given)
            if required != given:
                raise ValueError(f"{name} must have shape {tuple(map(str, buffer.shape))}, got {shape}")
