import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cann_ops_tilelang.tools import bench
from cann_ops_tilelang.tools.limits import Limits
from cann_ops_tilelang.tools.tables import markdown_table

LIMITS = Limits({1 << 20: {1: 1e9}}, {1: 1e9}, {1: 2e9})


def case(**options: object) -> bench.Case:
    x = torch.arange(8.0)
    return bench.Case("case", lambda: x * 2, {"plain": lambda: x + x}, **options)  # type: ignore[arg-type]


def test_a_baseline_that_computes_something_else_ends_the_run() -> None:
    good = case()
    good.check()
    good.baselines["wrong"] = lambda: torch.zeros(8)
    with pytest.raises(SystemExit, match="case: wrong computes something else"):
        good.check()


def test_what_is_written_is_restored_between_the_calls_that_are_compared() -> None:
    x = torch.ones(4)
    in_place = bench.Case("case", lambda: x.mul_(2), {"plain": lambda: x.add_(x)}, written=(x,))
    in_place.check()
    in_place.baselines["wrong"] = lambda: x.add_(5)
    with pytest.raises(SystemExit, match="wrong"):
        in_place.check()


def test_what_misses_its_target_is_marked() -> None:
    reached = bench.measure("op", case(num_bytes=64, targets={"plain": 1e-9}), 1, LIMITS, quick=True)
    missed = bench.measure("op", case(num_bytes=64, targets={"best": 1e9}, bandwidth_target=1e9), 1, LIMITS, quick=True)
    headings, first, second = bench.report_tables([reached, missed])["op"]
    assert headings == ["case", "thr", "us", "plain", "of limit"]
    assert not any(cell.startswith("!") for cell in first)
    assert [cell.startswith("!") for cell in second] == [False, False, False, True, True]
    assert "** (missed)" in markdown_table([headings, second])


def test_cold_calls_are_timed_one_by_one_behind_emptied_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    class Timer:
        def __init__(self, stmt: str, setup: str, *, globals: dict[str, Any], num_threads: int) -> None:
            self.setup, self.flush = setup, globals["flush"]

        def timeit(self, number: int) -> SimpleNamespace:
            runs.append((number, self.setup, self.flush.nbytes))
            return SimpleNamespace(median=1e-6)

    monkeypatch.setattr(bench, "Timer", Timer)
    bench.interleaved({"call": lambda: None}, 1, cold=True, quick=True)
    assert set(runs) == {(1, "flush.add_(1)", bench.FLUSH_BYTES)}


def test_a_quick_run_leaves_json_markdown_and_a_chart(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cann_ops_tilelang.tools.bench", "--quick", "--output", str(tmp_path)]
    result = subprocess.run([*command, "shuffle_image_tokens"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "bench.json").read_text())
    assert {row["operator"] for row in report["results"]} == {"shuffle_image_tokens"}
    assert all(ratio > 0 for row in report["results"] for ratio in row["ratios"].values())
    assert "### shuffle_image_tokens" in (tmp_path / "bench.md").read_text()
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")
    result = subprocess.run([*command, "nothing"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "no operator nothing" in result.stderr
