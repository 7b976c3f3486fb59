"""A pytest plugin: runs the tests of tile-kernels on the simulated Ascend, with host tensors and without torch_npu.

The package is used as installed. Around it: TileLang compiles for Ascend with its Cython backend and the simulator's
toolkit, and hands tensors in host memory to the kernels. The package asks for the device in one module, so that module is
loaded first and given a host device with the cores of an Ascend 950. Of each test the smallest case runs.
"""

from __future__ import annotations

import importlib.util
import json
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
            # A kernel that allocates its results has tensors that are not known here.
            registered = [] if adapter.result_idx else [(tensor.data_ptr(), extent(tensor)) for tensor in tensors]
            for address, size in registered:
                core().asim_memory_add(address, size, b"tensor")
            try:
                return call(*arguments, **options)
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


def randn(*size: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """The package draws normal numbers with a kernel of its own, which its own test covers."""
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
        matmul=types.SimpleNamespace(allow_hf32=False),
    )
    torch.Tensor.pin_memory = lambda self: self
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
    for name, module in list(sys.modules.items()):
        if name.startswith("tile_kernels") and callable(getattr(module, "randn", None)):
            module.randn = randn


install()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    by_test: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("benchmark") is None and "benchmark" not in item.name:
            by_test.setdefault((item.path, item.originalname), []).append(item)
    items[:] = [
        min(cases, key=lambda item: max(map(int, re.findall(r"\d+", item.name)), default=0))
        for cases in by_test.values()
    ]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.split("[")[0].split("tests/", 1)[-1]
    if report.failed:
        text = str(report.longrepr)
        start = max(text.find("KernelError:"), text.find("does not compile"), text.find("InternalError"))
        outcomes[name] = "failed: " + (text[start : start + 2000] if start >= 0 else text[-2000:])
    elif report.skipped:
        outcomes.setdefault(
            name, f"skipped: {report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr}"
        )
    elif report.when == "call":
        outcomes.setdefault(name, "passed")


def pytest_sessionfinish() -> None:
    Path(os.environ["PEERS_OUTCOMES"]).write_text(json.dumps(outcomes))
