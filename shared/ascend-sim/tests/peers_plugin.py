"""A pytest plugin: runs the tests of tile-kernels on the simulated Ascend, with host tensors and without torch_npu.

The package is used as installed. Around it: TileLang compiles for Ascend with its Cython backend and the simulator's
toolkit, and hands tensors in host memory to the kernels. The package asks for the device in one module, so that module
is loaded first and given a host device with the cores of an Ascend 950.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from ascend_sim import KernelError, toolchain
from ascend_sim.kernel import core

CUBE_CORES = 28
TOKENS = 131  # neither a multiple of the kernels' tiles nor of the cores
os.environ.update(toolchain.environment())
os.environ.update(TILELANG_EXECUTION_BACKEND="cython", TILELANG_PRINT_ON_COMPILATION="0", TK_TEST_LEVEL="0")
outcomes: dict[str, str] = {}


def host_device(adapter: Any) -> dict[str, tuple[int, torch.device]]:
    function = adapter.prim_func
    buffers = ((i, function.buffer_map.get(parameter)) for i, parameter in enumerate(function.params))
    return {buffer.name: (i, torch.device("cpu")) for i, buffer in buffers if buffer is not None}


def checked_call(make_call: Any) -> Any:
    """Calls register their tensors, so that accesses outside of them are found, and raise the simulator's report."""

    def make(adapter: Any) -> Any:
        call = make_call(adapter)

        def checked(*arguments: Any, **options: Any) -> Any:
            tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor) and argument.numel()]
            # Some kernels allocate their results or follow addresses from a table: not all of their tensors are known.
            unknown = adapter.result_idx or re.match("batched|.*multilayer", adapter.prim_func.attrs["global_symbol"])
            registered = [] if unknown else [(tensor.data_ptr(), extent(tensor)) for tensor in tensors]
            for address, size in registered:
                core().asim_memory_add(address, size, b"tensor")
            try:
                # Without validation, which insists on torch's own name of the 4-bit float type.
                return call(*arguments, **options, skip_tensor_validation=True)
            except RuntimeError:
                report = core().asim_error()
                if report:
                    raise KernelError(json.loads(report)) from None
                raise
            finally:
                for address, _ in registered:
                    core().asim_memory_remove(address)

        return checked

    return make


def extent(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to its last."""
    elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return elements * tensor.element_size()


def use_host_tensors() -> None:
    """Three functions of the package look at the type of a tensor's device, which is no npu here."""
    import tile_kernels
    from tile_kernels.quant import per_token_cast_and_cast_back_asc as ascend
    from tile_kernels.quant import per_token_cast_and_cast_back_kernel as wrapper

    def for_ascend(use_pdl: bool, **options: Any) -> Any:
        options["num_vec_cores"] = tile_kernels.config.get_num_vec_cores()
        return ascend.get_per_token_cast_and_cast_back_kernel_asc(**options)

    wrapper.get_per_token_cast_and_cast_back_kernel_cuda = for_ascend
    tile_kernels.quant.batched_transpose_weight_sf = without_asserts("quant", "batched_transpose_weight_sf")
    tile_kernels.rand.randn = without_asserts("rand", "randn")
    tile_kernels.rand.randn_like = sys.modules["tile_kernels.rand.randn_kernel"].randn_like


class TorchWithExactExp:
    """torch with a correctly rounded exp, as the simulated one: where a reference's exp is one ulp off, its bfloat16
    results differ from the kernel's in a few elements of fifty million, and the test wants all of them equal."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def exp(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x.double()).to(x.dtype)


def without_asserts(package: str, function: str) -> Any:
    """A function of the package, from its module executed anew with assertions compiled away."""
    module = sys.modules[f"tile_kernels.{package}.{function}_kernel"]
    path = Path(module.__file__)
    exec(compile(path.read_text(), str(path), "exec", optimize=1), module.__dict__)
    return getattr(module, function)


def randn(*size: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """The package's tests draw their inputs with a kernel of the package, which the family `rand` covers."""
    return torch.randn(size[0] if len(size) == 1 and isinstance(size[0], tuple) else size, dtype=dtype)


def install() -> None:
    from tilelang.jit.adapter.cython.adapter import CythonKernelAdapter

    CythonKernelAdapter._process_buffer_device = host_device
    CythonKernelAdapter._convert_torch_func = checked_call(CythonKernelAdapter._convert_torch_func)
    torch.npu = types.SimpleNamespace(
        is_available=lambda: False,
        current_device=lambda: 0,
        get_device_properties=lambda _: types.SimpleNamespace(cube_core_num=CUBE_CORES),
        synchronize=lambda: None,
        empty_cache=lambda: None,
        is_current_stream_capturing=lambda: False,
        matmul=types.SimpleNamespace(allow_hf32=False),
    )
    torch.Tensor.pin_memory = lambda self: self
    empty = torch.empty
    torch.empty = lambda *size, pin_memory=False, **options: empty(*size, **options)
    package = Path(importlib.util.find_spec("tile_kernels").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("tile_kernels.config", package / "config.py")
    config = importlib.util.module_from_spec(spec)
    sys.modules["tile_kernels.config"] = config
    spec.loader.exec_module(config)
    config.is_ascend = lambda: True
    config.get_device = lambda: "cpu"
    import tile_kernels
    from tile_kernels.testing import generator
    from tile_kernels.utils import align

    assert tile_kernels.config is config
    # The tests' sizes are a board's: thousands of tokens.
    generator.generate_num_tokens = lambda level, alignment=1, backward_only=False: [align(TOKENS, alignment)]
    experts = {"num_send_tokens": TOKENS, "num_topk": 6, "num_experts": 4, "num_ep_ranks": 8}
    generator.generate_moe_params = lambda level: [dict(experts)]
    use_host_tensors()
    sys.modules["tile_kernels.torch.swiglu"].torch = TorchWithExactExp()
    if os.environ["PEERS_FAMILY"] == "rand":
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("tile_kernels") and callable(getattr(module, "randn", None)):
            module.randn = randn


install()


def case_name(node: str) -> str:
    """`quant/test_cast.py::test_cast[e4m3]`: a test, with the number format of its case if it has one."""
    number_format = re.search(r"\bfmt=(\w+)", node)
    return node.split("[")[0].split("tests/", 1)[-1] + (f"[{number_format[1]}]" if number_format else "")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of every test, and of each of its number formats, the smallest case."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("benchmark") is None and "benchmark" not in item.name:
            cases.setdefault(case_name(item.nodeid), []).append(item)
    items[:] = [min(group, key=size) for group in cases.values()]


def size(item: pytest.Item) -> int:
    return math.prod(max(1, int(number)) for number in re.findall(r"\d+", item.name))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = case_name(report.nodeid)
    if report.failed:
        text = str(report.longrepr)
        start = max(text.find("KernelError:"), text.find("does not compile"))
        outcomes[name] = "failed: " + (text[start : start + 2000] if start >= 0 else text[-2000:])
    elif report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        outcomes.setdefault(name, f"skipped: {reason}")
    elif report.when == "call":
        outcomes.setdefault(name, "passed")


def pytest_sessionfinish() -> None:
    Path(os.environ["PEERS_OUTCOMES"]).write_text(json.dumps(outcomes))
