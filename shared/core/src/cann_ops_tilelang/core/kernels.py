"""Building TileLang kernels and calling them through the compiled library's C entry.

A kernel module holds a factory, decorated with ``kernel``, whose arguments are the compile-time constants and
whose result is a TileLang ``prim_func``. Calling the factory gives the compiled kernel; it is built once per set of
constants, kept for the life of the process, and found again in TileLang's cache on disk by the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec

import torch

P = ParamSpec("P")
Target = Literal["cpu", "ascend"]

logger = logging.getLogger(__name__)

# Never -ffast-math: loading such a library switches the whole process to flush-to-zero.
CPU_FLAGS = (
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fassociative-math",
    "-freciprocal-math",
)
PASS_CONFIGS = {"tl.disable_safe_memory_legalize": True}

_CTYPES = {
    "int32": (ctypes.c_int32, "int32_t"),
    "int64": (ctypes.c_int64, "int64_t"),
    "float32": (ctypes.c_float, "float"),
    "float64": (ctypes.c_double, "double"),
}

_build_lock = threading.RLock()


def kernel(target: Target, *, auto_schedule: bool = True) -> Callable[[Callable[P, Any]], Kernel[P]]:
    """Decorate a kernel factory: compile-time constants in, ``prim_func`` out.

    ``cpu``: the prim_func's parameters ``begin`` and ``end`` (int32) are the range of independent tasks to run. The
    compiled kernel is called as ``build(...)(*arguments, *dynamic, tasks, grain)``: addresses and numbers in the order
    of the prim_func, then the values of its ``T.dynamic`` symbols (those of shapes, then those of strides), then the
    number of tasks and the least number of tasks that is worth a thread.

    ``ascend``: called as ``build(...)(*arguments, *dynamic)``; the launch goes to the current stream. Without
    ``auto_schedule`` instructions stay in the order of the source and the kernel synchronises its pipes itself, as a
    barrier between cores needs.
    """

    def decorate(factory: Callable[P, Any]) -> Kernel[P]:
        return Kernel(factory, target, auto_schedule)

    return decorate


class Kernel(Generic[P]):
    """A kernel factory and the kernels built from it."""

    def __init__(self, factory: Callable[P, Any], target: Target, auto_schedule: bool = True) -> None:
        functools.update_wrapper(self, factory)
        self.factory = factory
        self.target = target
        self.pass_configs = PASS_CONFIGS if auto_schedule else {**PASS_CONFIGS, "tl.enable_auto_schedule": False}
        self._launches: dict[tuple[Any, ...], Callable[..., None]] = {}
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *constants: P.args, **_: P.kwargs) -> Callable[..., None]:
        """The compiled kernel for these constants, given by position."""
        try:
            return self._launches[constants]
        except KeyError:
            return self._build(constants)

    def prim_func(self, *constants: P.args, **_: P.kwargs) -> Any:
        """The TileLang program, not compiled."""
        return self.factory(*constants, **_)

    def source(self, *constants: P.args, **_: P.kwargs) -> str:
        """The generated code. For Ascend this needs neither CANN nor a device."""
        if self.target == "ascend":
            source: str = self.lower(*constants, **_).kernel_source
            return source
        self._build(constants)
        source = self._compiled[constants].get_kernel_source()
        return source

    def lower(self, *constants: P.args, **_: P.kwargs) -> Any:
        """TileLang's artifact for Ascend: ``kernel_source``, and the lowered functions in ``device_mod``."""
        import tilelang
        from tvm.ir.transform import PassContext
        from tvm.target import Target as TvmTarget

        with _tilelang_messages(), TvmTarget("ascend"), PassContext(opt_level=3, config=self.pass_configs):
            return tilelang.lower(self.factory(*constants, **_), target="ascend")

    def library_path(self, *constants: P.args, **_: P.kwargs) -> str:
        """The file of the compiled library."""
        self._build(constants)
        path: str = self._compiled[constants].adapter.lib._name
        return path

    def _build(self, constants: tuple[Any, ...]) -> Callable[..., None]:
        with _build_lock:
            if constants not in self._launches:
                with _tilelang_messages():
                    compile_for = _compile_cpu if self.target == "cpu" else _compile_ascend
                    prim_func = self.factory(*constants)  # type: ignore[call-arg]
                    launch, self._compiled[constants] = compile_for(prim_func, self.pass_configs)
                    self._launches[constants] = launch
            return self._launches[constants]


# -- CPU -----------------------------------------------------------------------------------------------------------


_forked = False


def _after_fork() -> None:
    # libgomp cannot start another parallel region in a child that was forked after one: run on one thread there.
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def _compile_cpu(prim_func: Any, pass_configs: dict[str, bool]) -> tuple[Callable[..., None], Any]:
    parameters = _parameters(prim_func)
    if not {"begin", "end"} <= {name for name, _, _ in parameters}:
        raise TypeError("a CPU kernel must take the range of its tasks as begin: T.int32, end: T.int32")
    try:
        flags = [*CPU_FLAGS, f"-DHOST_{_host_tag()}"]
        compiled = _compile(_with_launcher(prim_func, parameters), "c", flags, pass_configs)
    except Exception as error:
        _require_compiler(error)
        raise
    entry = compiled.adapter.lib.launch
    entry.restype = None
    arguments = [ctype for name, ctype, _ in parameters if name not in ("begin", "end")]
    entry.argtypes = [*arguments, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]

    def launch(*args: Any) -> None:
        entry(*args, 1 if _forked else torch.get_num_threads())

    return launch, compiled


def _with_launcher(prim_func: Any, parameters: list[tuple[str, Any, str]]) -> Any:
    """Put an OpenMP launcher in front of the kernel: it splits the tasks over threads and calls the kernel's ``call``.

    Each thread gets one contiguous range, so results do not depend on the number of threads as long as tasks are
    independent. With one thread no parallel region is entered.
    """
    from tvm import tirx

    declared = ", ".join(ctype for _, _, ctype in parameters)
    outer = ", ".join(f"{ctype} {name}" for name, _, ctype in parameters if name not in ("begin", "end"))
    ranges = {"begin": "(int32_t)begin", "end": "(int32_t)end"}
    inner = ", ".join(ranges.get(name, name) for name, _, _ in parameters)
    source = f"""
#include <omp.h>
extern "C" int32_t call({declared});
extern "C" void launch({outer}, int32_t tasks, int32_t grain, int32_t max_threads) {{
  int64_t useful = tasks / (grain < 1 ? 1 : grain);
  int64_t threads = useful < max_threads ? useful : max_threads;
  if (threads <= 1) {{
    const int64_t begin = 0, end = tasks;
    call({inner});
    return;
  }}
#pragma omp parallel num_threads(threads)
  {{
    // The kernel's parameters must not be hidden by a name of this block.
    const int64_t omp_count = omp_get_num_threads(), omp_index = omp_get_thread_num();
    const int64_t begin = tasks * omp_index / omp_count, end = tasks * (omp_index + 1) / omp_count;
    call({inner});
  }}
}}
"""
    # TileLang's own `prelude` is this attribute; setting it here keeps threads out of the kernels.
    attribute = tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_c", tirx.StringImm(source), prim_func.body)
    return prim_func.with_body(attribute)


def _require_compiler(cause: Exception) -> None:
    """Say what to install, if what failed is that there is no compiler."""
    compiler = os.environ.get("CXX") or os.environ.get("CC")
    candidates = [compiler] if compiler else ["g++", "clang++", "c++"]
    if not any(shutil.which(candidate) for candidate in candidates):
        looked_for = f"CXX={compiler}" if compiler else "g++, clang++ and c++ on PATH"
        raise RuntimeError(
            "building a CPU kernel needs a C++ compiler with OpenMP, and none was found "
            f"(looked for {looked_for}); install one, e.g. `apt-get install g++` or `dnf install gcc-c++`"
        ) from cause


@functools.cache
def _host_tag() -> str:
    """Names the processor: code built with -march=native must not be found in a cache shared with another kind."""
    description = platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as cpuinfo:
        description += next((line for line in cpuinfo if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(description.encode()).hexdigest()[:16]


# -- Ascend --------------------------------------------------------------------------------------------------------


class _Mode(threading.local):
    build_only = False


_mode = _Mode()


@contextlib.contextmanager
def build_only() -> Iterator[None]:
    """Within the block, launches on NPU build and load their kernels and stop there.

    A library that is loaded while a stream is being captured would break the capture, so kernels are built when a
    graph is traced.
    """
    _mode.build_only = True
    try:
        yield
    finally:
        _mode.build_only = False


@functools.cache
def num_cube_cores() -> int:
    """The number of cube cores of the current NPU."""
    return int(torch.npu.get_device_properties().cube_core_num)  # type: ignore[attr-defined]


@functools.cache
def num_vector_cores() -> int:
    """The number of vector cores to use: two per cube core, capped by ``OPS_TILELANG_NUM_VECTOR_CORES``."""
    available = 2 * num_cube_cores()
    cap = os.environ.get("OPS_TILELANG_NUM_VECTOR_CORES")
    if cap is None:
        return available
    if not cap.isdigit() or int(cap) < 1:
        raise ValueError(f"OPS_TILELANG_NUM_VECTOR_CORES must be a positive integer, got {cap!r}")
    return min(available, int(cap))


def _compile_ascend(prim_func: Any, pass_configs: dict[str, bool]) -> tuple[Callable[..., None], Any]:
    compiled = _compile(prim_func, ascend_generator(), None, pass_configs)
    entry = compiled.adapter.lib.call
    entry.restype = ctypes.c_int
    entry.argtypes = [*(ctype for _, ctype, _ in _parameters(prim_func)), ctypes.c_void_p]
    last_error = compiled.adapter.lib.get_last_error
    last_error.restype = ctypes.c_char_p
    current_stream = torch.npu.current_stream  # type: ignore[attr-defined]

    def launch(*args: Any) -> None:
        if not _mode.build_only and entry(*args, current_stream().npu_stream) != 0:
            raise RuntimeError(last_error().decode(errors="replace"))

    return launch, compiled


def ascend_generator() -> str:
    """TileLang's code generator for Ascend. ``TILELANG_DEFAULT_TARGET``: ``auto``, ``ascend``/``asc`` or ``pto``."""
    import tilelang
    from tilelang.backend.target import determine_target

    wanted = os.environ.get("TILELANG_DEFAULT_TARGET", "auto")
    if wanted not in ("auto", "ascend", "asc", "pto"):
        raise RuntimeError(
            f"TILELANG_DEFAULT_TARGET must be auto, ascend, asc or pto for an NPU kernel, got {wanted!r}"
        )
    generator = "ascend" if wanted == "auto" else wanted
    try:
        determine_target(generator)
    except Exception as error:
        raise RuntimeError(
            f"TILELANG_DEFAULT_TARGET={wanted} asks for a code generator that tilelang {tilelang.__version__} "
            "does not have"
        ) from error
    return generator


# -- TileLang ------------------------------------------------------------------------------------------------------


def ensure_cache_directory() -> None:
    """Call before TileLang is first imported: its import fails where its cache directory cannot be created."""
    if "tilelang" in sys.modules:
        return
    directory = Path(os.environ.get("TILELANG_CACHE_DIR") or "~/.tilelang/cache").expanduser()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return
    except OSError as error:
        # A read-only cache that somebody filled is of use as it is.
        if any(directory.glob(f"{version('tilelang')}*")):
            return
        logger.warning("TileLang's kernel cache cannot be used (%s); kernels are kept for this process only", error)
    temporary = tempfile.mkdtemp(prefix="cann_ops_tilelang_")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    os.environ["TILELANG_CACHE_DIR"] = temporary


def _compile(prim_func: Any, target: str, flags: list[str] | None, pass_configs: dict[str, bool]) -> Any:
    import tilelang

    def compile_once() -> Any:
        return tilelang.compile(
            prim_func, target=target, execution_backend="cython", compile_flags=flags, pass_configs=pass_configs
        )

    try:
        return compile_once()
    except OSError as error:
        # A cache directory that is read-only or full must not stop anybody: keep the kernel in memory alone.
        logger.warning("TileLang's kernel cache cannot be used (%s); kernels are kept in memory only", error)
        tilelang.disable_cache()
        try:
            return compile_once()
        finally:
            tilelang.enable_cache()


def _parameters(prim_func: Any) -> list[tuple[str, Any, str]]:
    """Name, ctypes type and C type of each parameter of the library's ``call``: declared ones, then dynamic symbols."""
    parameters = []
    for variable in prim_func.params:
        if variable in prim_func.buffer_map:
            buffer = prim_func.buffer_map[variable]
            parameters.append((buffer.data.name, ctypes.c_void_p, _C_POINTERS[str(buffer.dtype)]))
        else:
            parameters.append((variable.name, *_CTYPES[str(variable.dtype)]))
    parameters += [(symbol.name, *_CTYPES[str(symbol.dtype)]) for symbol in _dynamic_symbols(prim_func)]
    return parameters


_C_POINTERS = {
    "int8": "int8_t*",
    "uint8": "uint8_t*",
    "int16": "int16_t*",
    "uint16": "uint16_t*",
    "int32": "int32_t*",
    "int64": "int64_t*",
    "float16": "half_t*",
    "bfloat16": "bfloat16_t*",
    "float32": "float*",
    "float64": "double*",
}


def _dynamic_symbols(prim_func: Any) -> list[Any]:
    """In TileLang's order: the symbols of all shapes, then those of all strides."""
    from tvm import tirx

    buffers = [prim_func.buffer_map[variable] for variable in prim_func.params if variable in prim_func.buffer_map]
    extents = [extent for buffer in buffers for extent in buffer.shape]
    extents += [stride for buffer in buffers for stride in buffer.strides]
    declared = {variable.name for variable in prim_func.params}
    symbols = {extent.name: extent for extent in extents if isinstance(extent, tirx.Var)}
    return [symbol for name, symbol in symbols.items() if name not in declared]


@contextlib.contextmanager
def _tilelang_messages() -> Iterator[None]:
    """Send TileLang's progress messages to ``logging`` instead of the console."""
    import tilelang

    handlers, propagate = tilelang.logger.handlers[:], tilelang.logger.propagate
    tilelang.logger.handlers[:], tilelang.logger.propagate = [], True
    try:
        yield
    finally:
        tilelang.logger.handlers[:], tilelang.logger.propagate = handlers, propagate
