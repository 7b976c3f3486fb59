"""``hatch run bench [OPERATOR ...]``: every operator against what one would call otherwise, side by side in one run.

Cases live in ``packages/<operator>/benchmarks/cases.py``: ``cases()`` yields ``Case``, ``scaling()`` returns a
``Scaling``. Candidates of a case run in the same process on equal inputs, in random order, round after round, so that
what disturbs the machine disturbs all of them. Agreement is checked before anything is timed.
``torch.utils.benchmark`` does the timing.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor
from torch.utils.benchmark import Timer

from cann_ops_tilelang.testing import calc_diff

from .limits import Limits, measure_limits
from .tables import Rows, markdown_table, markdown_text, rich_table, rich_text
from .workspace import find_root, operators

# Larger than the last-level cache share of any one core here; written between calls to empty the caches.
FLUSH_BYTES = 256 << 20
# A spread above this is a machine that was busy with something else.
CONTENDED = 0.2
# The front end with the operators against plain PyTorch.
COMPOSED_TARGET = 1.8

console = Console()


@dataclass
class Case:
    """One comparison. ``targets`` maps a baseline's name, or ``best``, to the ratio to reach on one thread.

    ``written``: what the calls write, restored before each call whose results are compared; a call that writes nothing
    returns its result. ``equal(baseline, ours, theirs)`` decides on agreement. ``slow``: takes more than a minute.
    """

    name: str
    ours: Callable[[], Any]
    baselines: dict[str, Callable[[], Any]]
    written: tuple[Tensor, ...] = ()
    equal: Callable[[str, Tensor, Tensor], bool] = lambda _, ours, theirs: torch.equal(ours, theirs)
    num_bytes: int = 0
    flops: int = 0
    targets: dict[str, float] = field(default_factory=dict)
    bandwidth_target: float | None = None
    cold: bool = False
    slow: bool = False

    def check(self) -> None:
        """Exit unless every baseline computes what the operator computes."""
        before = [value.clone() for value in self.written]

        def outcome(call: Callable[[], Any]) -> list[Tensor]:
            for value, saved in zip(self.written, before):
                value.copy_(saved)
            result = call()
            return [value.clone() for value in self.written] if self.written else [result]

        ours = outcome(self.ours)
        for name, baseline in self.baselines.items():
            if not all(self.equal(name, a, b) for a, b in zip(ours, outcome(baseline))):
                sys.exit(f"bench: {self.name}: {name} computes something else than the operator")


@dataclass
class Scaling:
    """Time against size: the axis and a call per size; work grows with the size to the ``power``."""

    axis: str
    calls: list[tuple[int, Callable[[], Any]]]
    power: int = 1


@dataclass
class Result:
    operator: str
    case: str
    threads: int
    medians: dict[str, float]
    spreads: dict[str, float]
    ratios: dict[str, float]
    limit: str
    limit_fraction: float | None
    missed: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("operators", nargs="*", help="operators to measure; default: all")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, no slow cases, no scaling: under three minutes"
    )
    parser.add_argument("--output", type=Path, default=Path("bench_output"), help="folder for JSON and charts")
    arguments = parser.parse_args()
    try:
        root = find_root()
    except FileNotFoundError as error:
        sys.exit(f"bench: {error}")
    known = operators(root)
    chosen = arguments.operators or [*known, "vision_front_end"]
    unknown = sorted(set(chosen) - {*known, "vision_front_end"})
    if unknown:
        sys.exit(f"bench: no operator {', '.join(unknown)}; there are {', '.join(known)} and vision_front_end")
    arguments.output.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", category=UserWarning)
    # One function is compiled for several shapes and thread counts; past the limit it would silently run eagerly.
    torch._dynamo.config.recompile_limit = 100
    with torch.inference_mode():
        run(root, chosen, arguments.quick, arguments.output)


def run(root: Path, chosen: list[str], quick: bool, output: Path) -> None:
    results: list[Result] = []
    scalings: dict[str, dict[str, Any]] = {}
    overheads: list[dict[str, Any]] = []
    threads = sorted({1, torch.get_num_threads()})
    with Progress(
        BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}"), console=console, transient=True
    ) as progress:
        task = progress.add_task("machine limits", total=len(chosen) + 1)
        limits = measure_limits(quick)
        for name in chosen:
            progress.advance(task)
            if name == "vision_front_end":
                continue
            module = load_cases(root, name)
            for case in module.cases():
                if quick and case.slow:
                    continue
                progress.update(task, description=f"{name} {case.name}")
                case.check()
                for count in threads if not quick else threads[:1]:
                    results.append(measure(name, case, count, limits, quick))
            if not quick:
                progress.update(task, description=f"{name}: scaling")
                scalings[name] = measure_scaling(module.scaling())
        progress.update(task, description="call overhead")
        if "engram_grad_w_reduce" in chosen:
            overheads = measure_overheads()
        composed = None
        if "vision_front_end" in chosen:
            progress.update(task, description="vision front end in one graph")
            composed = measure_composed(quick)
    report = {
        "machine": platform.platform(),
        "torch": torch.__version__,
        "limits": asdict(limits),
        "results": [asdict(result) for result in results],
        "scaling": scalings,
        "overheads": overheads,
        "vision_front_end": composed,
    }
    (output / "bench.json").write_text(json.dumps(report, indent=2))
    tables = report_tables(results)
    lines = [*contended(results), *report_lines(scalings, overheads, composed)]
    print_report(limits, tables, lines)
    write_markdown(output / "bench.md", limits, tables, lines)
    if results:
        from .charts import draw_ratios, draw_scaling

        draw_ratios(report, output / "ratios.png")
        if scalings:
            draw_scaling(report, output / "scaling.png")
    console.print(f"JSON, Markdown and charts: {output}")


def load_cases(root: Path, name: str) -> Any:
    path = root / "packages" / name / "benchmarks" / "cases.py"
    if not path.is_file():
        sys.exit(f"bench: {name} has no benchmarks/cases.py")
    spec = spec_from_file_location(f"cases_{name}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- timing --------------------------------------------------------------------------------------------------------


def measure(operator: str, case: Case, threads: int, limits: Limits, quick: bool) -> Result:
    candidates = {"ours": case.ours, **case.baselines}
    medians, spreads = interleaved(candidates, threads, case.cold, quick)
    ratios = {name: medians[name] / medians["ours"] for name in case.baselines}
    ratios["best"] = min(ratios.values())
    limit, fraction = limit_fraction(case, threads, medians["ours"], limits)
    missed = {name: target for name, target in case.targets.items() if ratios[name] < target}
    if case.bandwidth_target is not None and fraction is not None and fraction < case.bandwidth_target:
        missed["limit"] = case.bandwidth_target
    # What is to be reached is said for one thread.
    missed = missed if threads == 1 else {}
    return Result(
        operator,
        case.name + (", cold" if case.cold else ""),
        threads,
        medians,
        spreads,
        ratios,
        limit,
        fraction,
        missed,
    )


def interleaved(
    candidates: dict[str, Callable[[], Any]], threads: int, cold: bool, quick: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds and spread of each candidate, over rounds in which they run in random order.

    With ``cold`` a buffer larger than the caches is written before every call.
    """
    flush = torch.zeros(FLUSH_BYTES // 4 if cold else 1)
    timers = {
        # A timer runs its setup directly before its timed loop, whose length is one call if the caches are to be cold.
        name: Timer("call()", "flush.add_(1)", globals={"call": call, "flush": flush}, num_threads=threads)
        for name, call in candidates.items()
    }
    seconds = {name: timer.timeit(1).median for name, timer in timers.items()}
    counts = {name: 1 if cold else max(1, round((0.004 if quick else 0.01) / seconds[name])) for name in timers}
    slowest = max(counts[name] * seconds[name] for name in timers)
    rounds = max(3, min(7 if quick else 25, int((1 if quick else 10) / slowest)))
    samples: dict[str, list[float]] = {name: [] for name in timers}
    order = list(timers)
    shuffler = random.Random(0)
    for _ in range(rounds):
        shuffler.shuffle(order)
        for name in order:
            samples[name].append(timers[name].timeit(counts[name]).median)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    spreads = {}
    for name, values in samples.items():
        low, _, high = statistics.quantiles(values, n=4)
        spreads[name] = (high - low) / medians[name]
    gc.collect()
    return medians, spreads


def limit_fraction(case: Case, threads: int, seconds: float, limits: Limits) -> tuple[str, float | None]:
    if case.flops:
        return "bf16 peak", case.flops / seconds / limits.bf16_flops[threads]
    if case.num_bytes:
        return "copy", case.num_bytes / seconds / limits.bandwidth(case.num_bytes, threads, case.cold)
    return "", None


def measure_scaling(scaling: Scaling) -> dict[str, Any]:
    """Median seconds per size, on one thread, and the exponent of a power law fitted to the larger half."""
    import numpy as np

    sizes, seconds = [], []
    for size, call in scaling.calls:
        timer = Timer("call()", globals={"call": call}, num_threads=1)
        timer.timeit(1)
        sizes.append(size)
        seconds.append(timer.blocked_autorange(min_run_time=0.15).median)
    half = len(sizes) // 2
    exponent = float(np.polyfit(np.log(sizes[half:]), np.log(seconds[half:]), 1)[0])
    per_unit = np.array(seconds) / np.array(sizes, dtype=float) ** scaling.power
    steps = per_unit[1:] / per_unit[:-1]
    cliffs = [(size, float(step)) for size, step in zip(sizes[1:], steps) if step > 2]
    return {"axis": scaling.axis, "sizes": sizes, "seconds": seconds, "exponent": exponent, "cliffs": cliffs}


def measure_overheads() -> list[dict[str, Any]]:
    """What a call costs beyond its kernel, what a first call costs, and what an import costs."""
    from cann_ops_tilelang.engram_grad_w_reduce import engram_grad_w_reduce
    from cann_ops_tilelang.engram_grad_w_reduce.kernels import cpu

    weights = torch.randn(2, 1, 64).bfloat16()
    arguments = (torch.randn(1, 1, 64), weights[0], weights[1], torch.zeros(1, 64), torch.zeros(1, 64))
    kernels: list[tuple[Any, tuple[Any, ...]]] = []
    original = cpu.build
    try:
        # Catch the kernel's own arguments on their way.
        cpu.build = lambda *constants: lambda *args: kernels.append((original(*constants), args))  # type: ignore[assignment]
        engram_grad_w_reduce(*arguments)
    finally:
        cpu.build = original
    (kernel, kernel_arguments), *_ = kernels
    node = torch.ops.cann_ops_tilelang.engram_grad_w_reduce.default
    medians, _ = interleaved(
        {
            "kernel": lambda: kernel(*kernel_arguments),
            "eager": lambda: engram_grad_w_reduce(*arguments),
            "graph node": lambda: node(*arguments),
        },
        1,
        False,
        False,
    )
    rows = [
        {
            "what": f"{name} over the bare kernel",
            "unit": "us",
            "value": 1e6 * (medians[name] - medians["kernel"]),
            "most": most,
        }
        for name, most in (("eager", 3.5), ("graph node", 6.0))
    ]
    cold, warm = first_calls()
    rows.append({"what": "first call, kernel built", "unit": "s", "value": cold, "most": 2.5})
    rows.append({"what": "first call, kernel in the disk cache", "unit": "s", "value": warm, "most": 1.2})
    rows.append({"what": "import over `import torch`", "unit": "ms", "value": 1e3 * import_seconds(), "most": 60})
    return rows


FIRST_CALL = """
import time, torch
from cann_ops_tilelang.engram_grad_w_reduce import engram_grad_w_reduce
weights = torch.randn(2, 1, 64).bfloat16()
start = time.perf_counter()
engram_grad_w_reduce(torch.randn(1, 1, 64), weights[0], weights[1], torch.zeros(1, 64), torch.zeros(1, 64))
print(time.perf_counter() - start)
"""
IMPORT = """
import time, torch
start = time.perf_counter()
import cann_ops_tilelang.engram_grad_w_reduce
print(time.perf_counter() - start)
"""


def first_calls() -> tuple[float, float]:
    """Seconds of a first call in a fresh process with an empty cache, and with the cache that it left."""
    import os
    import tempfile

    cold, warm = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "TILELANG_CACHE_DIR": cache}
            cold.append(child_seconds(FIRST_CALL, environment))
            warm.append(child_seconds(FIRST_CALL, environment))
    return statistics.median(cold), statistics.median(warm)


def import_seconds() -> float:
    return statistics.median(child_seconds(IMPORT, None) for _ in range(5))


def child_seconds(code: str, environment: dict[str, str] | None) -> float:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return float(result.stdout)


def measure_composed(quick: bool) -> dict[str, Any]:
    """The vision front end under inductor, with the operators and in plain PyTorch: seconds and peak memory."""
    from .composed import front_end

    side = 64
    kinds = ("operators", "plain")
    calls = {kind: front_end(side, kind) for kind in kinds}
    first, second = (call().float() for call in calls.values())
    if calc_diff(first, second) > 1e-3:
        sys.exit("bench: vision_front_end: plain PyTorch computes something else than the operators")
    threads = torch.get_num_threads()
    seconds, spreads = interleaved(calls, threads, cold=False, quick=quick)
    command = [sys.executable, "-m", "cann_ops_tilelang.tools.composed", str(side)]
    peaks = {
        kind: float(subprocess.run([*command, kind], capture_output=True, text=True, check=True).stdout.split()[-1])
        for kind in kinds
    }
    ratio = seconds["plain"] / seconds["operators"]
    return {"side": side, "threads": threads, "seconds": seconds, "spreads": spreads, "ratio": ratio, "peak_mib": peaks}


# -- report --------------------------------------------------------------------------------------------------------


def report_tables(results: Iterable[Result]) -> dict[str, Rows]:
    """A table of text per operator, its first row the headings; ``!`` begins what misses its target."""
    tables: dict[str, Rows] = {}
    for result in results:
        names = [name for name in result.ratios if name != "best"]
        best = min(names, key=lambda name: result.ratios[name])
        if result.operator not in tables:
            tables[result.operator] = [["case", "thr", "us", *names, "of limit"]]
        ratios = []
        for name in names:
            below = name in result.missed or (name == best and "best" in result.missed)
            ratios.append(f"{'!' if below else ''}{result.ratios[name]:.2f}")
        fraction = "" if result.limit_fraction is None else f"{result.limit_fraction:.2f}"
        tables[result.operator].append(
            [
                result.case,
                str(result.threads),
                f"{result.medians['ours'] * 1e6:,.1f}",
                *ratios,
                ("!" if "limit" in result.missed else "") + fraction,
            ]
        )
    return tables


def contended(results: Iterable[Result]) -> Iterator[str]:
    """A sentence for each case that was disturbed: spread is the interquartile range over the median."""
    for result in results:
        if result.spreads["ours"] > CONTENDED:
            yield (
                f"{result.operator} {result.case}, {result.threads} threads: spread {result.spreads['ours']:.0%}: the "
                "machine was busy with something else, repeat when it is quiet"
            )


def report_lines(
    scalings: dict[str, dict[str, Any]], overheads: list[dict[str, Any]], composed: dict[str, Any] | None
) -> Iterator[str]:
    """What is not in the tables, a sentence each; ``!`` begins what misses its target."""
    for name, scaling in scalings.items():
        for size, step in scaling["cliffs"]:
            yield f"{name}: {step:.1f} times the time per unit of work from {size} {scaling['axis']} on"
    for row in overheads:
        sign = "!" if row["value"] > row["most"] else ""
        yield f"{sign}{row['what']}: {row['value']:.2f} {row['unit']} (at most {row['most']})"
    if composed:
        seconds, peaks = composed["seconds"], composed["peak_mib"]
        sign = "!" if composed["ratio"] < COMPOSED_TARGET or peaks["operators"] > peaks["plain"] else ""
        yield (
            f"{sign}vision front end of side {composed['side']} under inductor, {composed['threads']} threads: "
            f"{composed['ratio']:.2f} times as fast as in plain PyTorch (at least {COMPOSED_TARGET}; "
            f"{seconds['operators']:.3f} s, {seconds['plain']:.3f} s); peak memory {peaks['operators']:.0f} MiB, "
            f"{peaks['plain']:.0f} MiB"
        )


NOTE = (
    "us: the operator's time, median. Columns named after a baseline: its time over the operator's. of limit: of the "
    "machine's copy bandwidth for that size, or of its bfloat16 peak for attention. thr: threads. cold: the caches are "
    "emptied before every call."
)


def print_report(limits: Limits, tables: dict[str, Rows], lines: list[str]) -> None:
    console.print(limits.describe())
    for operator, rows in tables.items():
        console.print(rich_table(operator, rows))
    console.print(f"[dim]{NOTE} Red: the figure to reach is missed.[/dim]")
    for line in lines:
        console.print(rich_text(line))


def write_markdown(path: Path, limits: Limits, tables: dict[str, Rows], lines: list[str]) -> None:
    parts = [limits.describe(), f"{NOTE} **(missed)**: the figure to reach is missed."]
    for operator, rows in tables.items():
        parts += [f"### {operator}", markdown_table(rows)]
    if lines:
        parts.append("\n".join(f"- {markdown_text(line)}" for line in lines))
    path.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
