"""Compiling and launching kernels from Python, without torch_npu."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ascend_sim import toolchain
from ascend_sim.translate import KernelInfo, kernels


class KernelError(RuntimeError):
    """A check failed, or the kernel crashed. `report` is the report as data; `code` its kind."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report
        self.code: str = report["code"]
        super().__init__(format_report(report))


def format_report(report: dict[str, Any]) -> str:
    """A report as text: what, where, and the conflicting access."""
    text = f"{report['code']} in kernel {report['kernel']}: {report['message']}"
    if "core" in report:
        pipe = report.get("pipe", "the instruction stream")
        text += f"\n  at {pipe} of {report['core']}, block {report['block']}{_format_source(report.get('source'))}"
    other = report.get("other")
    if other:
        who = f" by {other['pipe']} of {other['core']}, block {other['block']}" if "pipe" in other else ""
        text += f"\n  earlier {other['access']}{who}{_format_source(other.get('source'))}"
    for wait in report.get("waits", []):
        who = f"{wait['core']}, block {wait['block']}, {wait['pipe']}"
        text += f"\n  {who} waits for {wait['waits_for']}{_format_source(wait.get('source'))}"
    return text


def _format_source(source: dict[str, Any] | None) -> str:
    return f"\n    line {source['line']}: {source['text']}" if source and source["line"] else ""


@lru_cache(maxsize=1)
def core() -> ctypes.CDLL:
    """The core library, loaded."""
    library = ctypes.CDLL(str(toolchain.core_library()), mode=ctypes.RTLD_GLOBAL)
    library.asim_error.restype = ctypes.c_char_p
    library.asim_trace.restype = ctypes.c_char_p
    library.asim_launch.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    library.asim_run.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t]
    library.asim_memory_add.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    library.asim_memory_remove.argtypes = [ctypes.c_void_p]
    return library


class _Descriptor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("parameters", ctypes.c_char_p),
        ("cubes", ctypes.c_uint32),
        ("vectors", ctypes.c_uint32),
        ("simt", ctypes.c_bool),
        ("body", ctypes.c_void_p),
        ("argument_count", ctypes.c_uint32),
        ("is_pointer", ctypes.POINTER(ctypes.c_uint8)),
        ("offsets", ctypes.POINTER(ctypes.c_uint32)),
        ("argument_bytes", ctypes.c_uint32),
    ]


@dataclass(frozen=True)
class Library:
    """A compiled kernel library."""

    path: Path
    kernels: tuple[KernelInfo, ...]
    handle: ctypes.CDLL = field(repr=False, compare=False)

    def descriptor(self, name: str | None = None) -> _Descriptor:
        """The descriptor of a kernel (the only one, if no name is given)."""
        names = [kernel.name for kernel in self.kernels]
        if name is None:
            if len(names) != 1:
                raise ValueError(f"the library has {len(names)} kernels, so one must be named: {', '.join(names)}")
            name = names[0]
        if name not in names:
            raise ValueError(f"no kernel {name!r} in the library, which has: {', '.join(names)}")
        return _Descriptor.in_dll(self.handle, f"asim_kernel_{name}")


def compile(source: str, *, checks: bool = True) -> Library:
    """Compile AscendC source; the result is cached on disk. Raises CompileError with the AscendC line."""
    found = tuple(kernels(source))
    if not found:
        raise toolchain.CompileError(
            "the source defines no kernel (a __global__ __vector__, __cube__ or __mix__ function)"
        )
    core()
    path = toolchain.compile_kernels(source, checks=checks)
    return Library(path, found, ctypes.CDLL(str(path)))


def _address_and_bytes(array: Any) -> tuple[int, int]:
    if isinstance(array, np.ndarray):
        if not array.flags.c_contiguous:
            raise ValueError("arrays must be contiguous")
        return array.ctypes.data, array.nbytes
    if hasattr(array, "data_ptr"):  # a torch tensor: its storage may go on past a view, but the view is what was passed
        if not array.is_contiguous():
            raise ValueError("tensors must be contiguous")
        return array.data_ptr(), array.numel() * array.element_size()
    raise TypeError(f"expected a NumPy array or a torch tensor, got {type(array).__name__}")


def launch(library: Library, kernel: str | None, blocks: int, *arguments: Any) -> None:
    """Run a kernel on `blocks` blocks.

    Arguments are contiguous arrays or tensors for pointers and numbers for scalars, in the order of the kernel's
    parameters. Raises KernelError if a check fails.
    """
    descriptor = library.descriptor(kernel)
    names = descriptor.parameters.decode().split(",") if descriptor.argument_count else []
    if len(arguments) != descriptor.argument_count:
        raise TypeError(
            f"{descriptor.name.decode()} takes {len(names)} arguments ({', '.join(names)}), got {len(arguments)}"
        )
    if isinstance(blocks, bool) or not isinstance(blocks, int) or not 1 <= blocks <= 65535:
        raise ValueError(f"blocks must be an integer in [1, 65535], got {blocks!r}")
    packed = bytearray(descriptor.argument_bytes + 8)
    ends = [*(descriptor.offsets[i] for i in range(1, len(names))), descriptor.argument_bytes]
    registered = []
    simulator = core()
    try:
        for i, (name, argument) in enumerate(zip(names, arguments)):
            offset = descriptor.offsets[i]
            if descriptor.is_pointer[i]:
                try:
                    address, size = _address_and_bytes(argument)
                except (TypeError, ValueError) as error:
                    raise type(error)(f"{descriptor.name.decode()}: {name}: {error}") from None
                packed[offset : offset + 8] = address.to_bytes(8, "little")
                registered.append((address, size, name))
            else:
                data = _scalar(descriptor.name.decode(), name, argument, ends[i] - offset)
                packed[offset : offset + len(data)] = data
        for address, size, name in registered:
            simulator.asim_memory_add(address, size, name.encode())
        buffer = (ctypes.c_char * len(packed)).from_buffer(packed)
        failed = simulator.asim_run(ctypes.byref(descriptor), blocks, buffer, descriptor.argument_bytes)
    finally:
        for address, _, _ in registered:
            simulator.asim_memory_remove(address)
    if failed:
        raise KernelError(json.loads(simulator.asim_error()))


def _scalar(kernel: str, name: str, value: Any, room: int) -> bytes:
    if isinstance(value, np.generic):
        return bytes(value.tobytes())
    if isinstance(value, (bool, int)):
        return int(value).to_bytes(min(room, 8), "little", signed=value < 0)
    if isinstance(value, float):
        return bytes(np.float32(value).tobytes())
    raise TypeError(f"{kernel}: {name} must be a number, got {type(value).__name__}")


@dataclass(frozen=True)
class CoreTrace:
    """Counts of one core.

    `kinds`: (instructions, amount) by kind of instruction, the amount in bytes (DMA), lanes (vector) or multiply-adds
    (cube); `peak`: the extent of each on-chip memory in use, in bytes; `time`: the end on the model's time line.
    """

    block: int
    core: str
    time: int
    peak: dict[str, int]
    kinds: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Trace:
    """Exact counts of one launch.

    `tensors`: bytes (read, written) by parameter; `pipes`: the pipe of each kind of instruction.
    """

    kernel: str
    blocks: int
    tensors: dict[str, tuple[int, int]]
    cores: tuple[CoreTrace, ...]
    pipes: dict[str, str]

    @property
    def kinds(self) -> dict[str, tuple[int, int]]:
        """(instructions, amount) by kind over all cores."""
        totals: dict[str, tuple[int, int]] = {}
        for core_trace in self.cores:
            for kind, (count, amount) in core_trace.kinds.items():
                before = totals.get(kind, (0, 0))
                totals[kind] = (before[0] + count, before[1] + amount)
        return dict(sorted(totals.items()))

    @property
    def peak(self) -> dict[str, int]:
        """The largest extent of each on-chip memory that a core used, in bytes."""
        peaks: dict[str, int] = {}
        for core_trace in self.cores:
            for memory, extent in core_trace.peak.items():
                peaks[memory] = max(peaks.get(memory, 0), extent)
        return dict(sorted(peaks.items()))

    @property
    def descriptors(self) -> tuple[int, float]:
        """Number of DMA descriptors and their mean size in bytes."""
        copies = [value for kind, value in self.kinds.items() if kind.startswith("copy_")]
        count = sum(c for c, _ in copies)
        return count, (sum(amount for _, amount in copies) / count if count else 0.0)

    @property
    def vector_instructions(self) -> dict[str, int]:
        """Vector instructions by kind."""
        return {kind: count for kind, (count, _) in self.kinds.items() if self.pipes[kind] == "PIPE_V"}

    @property
    def simt_instructions(self) -> dict[str, int]:
        """Instructions of SIMT threads that reach memory or other threads, by kind."""
        return {kind: count for kind, (count, _) in self.kinds.items() if kind.startswith("simt_")}

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the cube units."""
        return sum(amount for kind, (_, amount) in self.kinds.items() if kind.startswith("mmad"))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trace:
        """From the core library's JSON."""
        cores = tuple(
            CoreTrace(
                core["block"],
                core["core"],
                core["time"],
                core["peak"],
                {k: (n, a) for k, (n, a, _) in sorted(core["kinds"].items())},
            )
            for core in data["cores"]
        )
        pipes = {kind: pipe for core in data["cores"] for kind, (_, _, pipe) in core["kinds"].items()}
        return cls(
            data["kernel"],
            data["blocks"],
            {t["name"]: (t["read"], t["written"]) for t in data["tensors"]},
            cores,
            pipes,
        )


def trace() -> Trace:
    """Exact counts of the last launch in this process."""
    text = core().asim_trace()
    if not text:
        raise RuntimeError("no kernel has been launched in this process")
    return Trace.from_json(json.loads(text))
