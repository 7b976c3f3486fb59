"""pytest plugin: test levels, the device under test, and seeds.

``OPS_TILELANG_TEST_LEVEL``: 0 core, 1 default, 2 full. ``@pytest.mark.level(2)`` marks what runs from that level on.
``--device npu`` runs the tests on NPU tensors; ``@pytest.mark.on("cpu")`` marks what belongs to one device.
Tests that do not belong to a run are deselected, and counted by pytest as such.
Random inputs, those of hypothesis too, follow from the test alone; ``OPS_TILELANG_TEST_SEED`` varies them.
"""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", choices=("cpu", "npu"), help="device of the tensors under test")


@pytest.hookimpl(tryfirst=True)  # hypothesis applies its command line after this
def pytest_configure(config: pytest.Config) -> None:
    variation = _variation()
    settings.register_profile("ops-tilelang", deadline=None, database=None, derandomize=variation == 0)
    settings.load_profile("ops-tilelang")
    if variation and config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(variation)
    config.addinivalue_line("markers", "level(n): run from OPS_TILELANG_TEST_LEVEL n on (default 1)")
    config.addinivalue_line("markers", "on(device): run only with --device DEVICE")
    if config.getoption("--device") == "npu":
        import torch

        if not (hasattr(torch, "npu") and torch.npu.is_available()):
            raise pytest.UsageError("--device npu: torch_npu finds no device; run under `hatch run npu-sim:test`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    level = test_level()
    device = config.getoption("--device")
    selected: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        required = max((mark.args[0] for mark in item.iter_markers("level")), default=1)
        devices = {mark.args[0] for mark in item.iter_markers("on")}
        (selected if required <= level and devices <= {device} else deselected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected


def test_level() -> int:
    """The level asked for by ``OPS_TILELANG_TEST_LEVEL``."""
    text = os.environ.get("OPS_TILELANG_TEST_LEVEL", "1")
    if text not in ("0", "1", "2"):
        raise pytest.UsageError(f"OPS_TILELANG_TEST_LEVEL must be 0, 1 or 2, got {text!r}")
    return int(text)


test_level.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """The device under test, ``cpu`` or ``npu``."""
    name: str = request.config.getoption("--device")
    return name


def _variation() -> int:
    text = os.environ.get("OPS_TILELANG_TEST_SEED", "0")
    try:
        return int(text)
    except ValueError:
        raise pytest.UsageError(f"OPS_TILELANG_TEST_SEED must be an integer, got {text!r}") from None


def _seed(item: pytest.Item) -> int:
    return zlib.crc32(item.nodeid.encode()) ^ _variation()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    import torch

    torch.manual_seed(_seed(item))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections.append(("seed", f"torch seed {_seed(item)}, from OPS_TILELANG_TEST_SEED={_variation()}"))
