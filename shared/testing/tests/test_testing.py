"""The helpers notice what they are there to notice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cann_ops_tilelang.core import FLOAT32, INT32, dim, operator, option, tensor
from cann_ops_tilelang.testing import (
    Call,
    Evidence,
    Guarded,
    bit_equal,
    calc_diff,
    count_nodes,
    graph_evidence,
    single_faults,
    unchanged,
)


def test_calc_diff() -> None:
    x = torch.randn(100)
    assert calc_diff(x, x) == 0
    assert calc_diff(x, -x) == pytest.approx(2)
    assert calc_diff(torch.zeros(3), torch.zeros(3)) == 0
    assert calc_diff(x, x + 1e-3) == pytest.approx(1e-6 * 100 / (2 * x.square().sum().item()), rel=0.1)
    assert calc_diff(x, torch.full_like(x, float("nan"))) != calc_diff(x, x)
    with pytest.raises(ValueError, match="shapes differ"):
        calc_diff(x, x[:3])


def test_bit_equal_tells_apart_what_equal_does_not() -> None:
    assert not bit_equal(torch.tensor([0.0]), torch.tensor([-0.0]))
    nan = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert bit_equal(nan, nan.clone())
    assert not bit_equal(nan, torch.tensor([float("nan")]))
    assert not bit_equal(torch.zeros(2), torch.zeros(2, 1))
    assert not bit_equal(torch.zeros(2), torch.zeros(2, dtype=torch.int32))


@pytest.mark.parametrize("strided", [False, True])
def test_guard_sees_a_write_next_to_the_tensor(strided: bool) -> None:
    tensor = torch.randn(4, 6)[:, :4] if strided else torch.randn(4, 4)
    guard = Guarded(tensor)
    assert torch.equal(guard.tensor, tensor) and guard.tensor.stride() == tensor.stride()
    assert guard.tensor.storage_offset() > 0
    guard.tensor.fill_(1)
    guard.check()
    offset = guard.tensor.storage_offset()
    for place in (offset - 1, offset + guard.tensor.stride(0) * 4, *([offset + 4] if strided else [])):
        guard = Guarded(tensor)
        guard.tensor.as_strided((1,), (1,), place).fill_(0)
        with pytest.raises(AssertionError, match="outside the tensor"):
            guard.check()


def test_unchanged_sees_writes_anywhere_in_the_storage() -> None:
    whole = torch.zeros(8)
    with unchanged(whole[2:4]):
        pass
    with pytest.raises(AssertionError, match="tensor 0"), unchanged(whole[2:4]):
        whole[7] = 1


def test_graph_evidence_counts_ranges() -> None:
    def work() -> None:
        for name in ("acl_graph_capture", "acl_graph_replay", "acl_graph_replay"):
            with torch.profiler.record_function(name):
                torch.ones(2).sum()

    assert graph_evidence(work) == Evidence(capture=1, replay=2, eager=0)


@operator(
    tensor("values", "n, width", FLOAT32, role="mutated"),
    tensor("index", "n + 1", INT32),
    option("groups", int, at_least=1),
    dim("width", at_least=2, multiple_of=2),
)
def testing_example(values: torch.Tensor, index: torch.Tensor, *, groups: int) -> None:
    """An operator without kernels: only its contract is used."""


testing_example.__test__ = False  # type: ignore[attr-defined]


def test_single_faults_cover_every_requirement() -> None:
    valid = Call((torch.randn(3, 4), torch.zeros(4, dtype=torch.int32)), {"groups": 2})
    labels = {fault.label for fault in single_faults(testing_example, valid)}
    for part in (
        "values is torch.float64",
        "index is torch.int64",
        "values has a dimension too many",
        "values has a dimension too few",
        "values has size 4 in dimension 0",
        "index has size 5 in dimension 0",
        "values is on another device",
        "values is sparse",
        "width is 0",
        "width is 3",
        "groups is 0",
        "groups is 'text'",
        "groups is True",
        "values overlaps index",
        "values overlaps index partly",
    ):
        assert part in labels, part


def test_count_nodes_refuses_a_graph_break() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(Exception, match="graph_break"):
        count_nodes(broken, torch.ones(2))


SUITE = """
import pytest, torch

def test_default(): pass
@pytest.mark.level(0)
def test_core(): pass
@pytest.mark.level(2)
def test_full(): pass
@pytest.mark.on("npu")
def test_npu(): pass
def test_fails(device): assert torch.rand(1).item() < 0, "drawn"
"""


@pytest.mark.parametrize(("level", "passed", "deselected"), [("0", 1, 4), ("1", 2, 2), ("2", 3, 1)])
def test_levels_devices_and_seeds(tmp_path: Path, level: str, passed: int, deselected: int) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    result = run_pytest(tmp_path, OPS_TILELANG_TEST_LEVEL=level)
    assert f"{passed} passed" in result.stdout and f"{deselected} deselected" in result.stdout, result.stdout
    if level != "0":
        assert "torch seed" in result.stdout and "OPS_TILELANG_TEST_SEED=0" in result.stdout


DRAW = """
import torch
from hypothesis import given, strategies as st

def test_torch(): print("torch drew", torch.rand(1).item())
@given(value=st.integers())
def test_hypothesis(value): print("hypothesis drew", value)
"""


def test_seeds_are_fixed_and_can_be_varied(tmp_path: Path) -> None:
    (tmp_path / "test_draw.py").write_text(DRAW)
    runs = [run_pytest(tmp_path, "-s", OPS_TILELANG_TEST_SEED=seed).stdout for seed in ("0", "0", "1", "1")]
    for source in ("torch", "hypothesis"):
        drawn = [[line for line in text.splitlines() if f"{source} drew" in line] for text in runs]
        assert drawn[0]
        assert drawn[0] == drawn[1] != drawn[2] == drawn[3]


def test_bad_settings_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    for name, value, message in [
        ("LEVEL", "3", "must be 0, 1 or 2, got '3'"),
        ("SEED", "x", "must be an integer, got 'x'"),
    ]:
        variable = f"OPS_TILELANG_TEST_{name}"
        assert f"{variable} {message}" in run_pytest(tmp_path, **{variable: value}).stderr


def run_pytest(folder: Path, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
