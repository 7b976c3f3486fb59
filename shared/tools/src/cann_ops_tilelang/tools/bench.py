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
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch.utils.benchmark import Timer

from .limits import Limits, measure_limits
from .workspace import find_root, operators

# Larger than the last-level cache share of any one core here; written between calls to empty the caches.
FLUSH_BYTES = 256 << 20
# A spread (interquartile range over median) above this is a machine that was busy with something else.
CONTENDED = 0.2

console = Console()


@dataclass
class Case:
    """One comparison. ``targets`` maps a baseline's name, or ``best``, to the ratio to reach on one thread."""

    name: str
    ours: Callable[[], Any]
    baselines: dict[str, Callable[[], Any]]
    check: Callable[[], None]
    num_bytes: int = 0
    flops: int = 0
    targets: dict[str, float] = field(default_factory=dict)
    bandwidth_target: float | None = None
    cold: bool = False


@dataclass
class Scaling:
    """Time against size: the axis and, per size, a call and the bytes it touches."""

    axis: str
    calls: list[tuple[int, Callable[[], Any]]]


@dataclass
class Result:
    operator: str
    case: str
    threads: int
    cache: str
    medians: dict[str, float]
    spreads: dict[str, float]
    ratios: dict[str, float]
    limit: str
    limit_fraction: float | None
    missed: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("operators", nargs="*", help="operators to measure; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no scaling: under three minutes")
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
    with torch.inference_mode():
        run(root, chosen, arguments.quick, arguments.output)


def run(root: Path, chosen: list[str], quick: bool, output: Path) -> None:
    results: list[Result] = []
    scalings: dict[str, dict[str, Any]] = {}
    overheads: list[dict[str, Any]] = []
    threads = sorted({1, torch.get_num_threads()})
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("machine limits")
        limits = measure_limits(quick)
        for name in chosen:
            if name == "vision_front_end":
                continue
            module = load_cases(root, name)
            for case in module.cases():
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
    print_report(limits, results, overheads, composed)
    if results:
        from .charts import draw_ratios, draw_scaling

        draw_ratios(report, output / "ratios.png")
        if scalings:
            draw_scaling(report, output / "scaling.png")
    console.print(f"JSON and charts: {output}")


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
    missed = [f"{name} {ratios[name]:.2f} < {target}" for name, target in case.targets.items() if ratios[name] < target]
    if case.bandwidth_target is not None and fraction is not None and fraction < case.bandwidth_target:
        missed.append(f"{limit} {fraction:.2f} < {case.bandwidth_target}")
    if threads > 1:
        missed = []
    cache = "cold" if case.cold else "warm"
    return Result(operator, case.name, threads, cache, medians, spreads, ratios, limit, fraction, missed)


def interleaved(
    candidates: dict[str, Callable[[], Any]], threads: int, cold: bool, quick: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds and spread of each candidate, over rounds in which they run in random order."""
    timers = {name: Timer("call()", globals={"call": call}, num_threads=threads) for name, call in candidates.items()}
    flush = torch.zeros(FLUSH_BYTES // 4) if cold else None
    counts = {}
    for name, timer in timers.items():
        timer.timeit(1)
        once = timer.timeit(1).median
        counts[name] = 1 if cold else max(1, round((0.004 if quick else 0.01) / max(once, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in timers}
    order = list(timers)
    shuffler = random.Random(0)
    rounds = 7 if quick else 25
    slowest = max(counts[name] * timers[name].timeit(1).median for name in timers)
    rounds = max(3, min(rounds, int((2 if quick else 12) / max(slowest, 1e-4))))
    for _ in range(rounds):
        shuffler.shuffle(order)
        for name in order:
            if flush is not None:
                flush.add_(1)
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
        peak = limits.bf16_flops[threads]
        return "bf16 peak", case.flops / seconds / peak
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
    return {"axis": scaling.axis, "sizes": sizes, "seconds": seconds, "exponent": exponent}


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
    side = 32 if quick else 64
    command = [sys.executable, "-m", "cann_ops_tilelang.tools.composed", str(side)]
    result: dict[str, Any] = {"side": side}
    for kind in ("operators", "plain"):
        output = subprocess.run([*command, kind], capture_output=True, text=True, check=True).stdout
        result[kind] = json.loads(output.splitlines()[-1])
    result["ratio"] = result["plain"]["seconds"] / result["operators"]["seconds"]
    return result


# -- report --------------------------------------------------------------------------------------------------------


def print_report(
    limits: Limits, results: Iterable[Result], overheads: list[dict[str, Any]], composed: dict[str, Any] | None
) -> None:
    console.print(limits.describe())
    table = Table(title="ratio: time of a baseline over ours; spread: interquartile range over median of ours")
    for heading in ("operator", "case", "threads", "cache", "ours", "best baseline", "ratio", "limit", "spread"):
        table.add_column(heading, no_wrap=heading in ("operator", "ours", "ratio"))
    contended = False
    for result in results:
        best = min((name for name in result.ratios if name != "best"), key=lambda name: result.ratios[name])
        fraction = "" if result.limit_fraction is None else f"{result.limit_fraction:.2f} of {result.limit}"
        spread = result.spreads["ours"]
        contended |= spread > CONTENDED
        colour = "red" if result.missed else "green"
        table.add_row(
            result.operator,
            result.case,
            str(result.threads),
            result.cache,
            f"{result.medians['ours'] * 1e6:.1f} us",
            best,
            f"[{colour}]{result.ratios['best']:.2f}[/{colour}]",
            fraction,
            f"{spread:.0%}",
        )
    console.print(table)
    for result in results:
        for miss in result.missed:
            console.print(f"[red]missed[/red]: {result.operator} {result.case}: {miss}")
    for row in overheads:
        colour = "red" if row["value"] > row["most"] else "green"
        console.print(f"{row['what']}: [{colour}]{row['value']:.2f} {row['unit']}[/{colour}] (at most {row['most']})")
    if composed:
        colour = "red" if composed["ratio"] < 1.8 else "green"
        ours, plain = composed["operators"], composed["plain"]
        console.print(
            f"Vision front end at side {composed['side']} under inductor: "
            f"[{colour}]{composed['ratio']:.2f}x[/{colour}] as fast as plain PyTorch "
            f"({ours['seconds']:.3f} s, {plain['seconds']:.3f} s); peak memory "
            f"{ours['peak_mib']:.0f} MiB, {plain['peak_mib']:.0f} MiB"
        )
    if contended:
        console.print(
            "[yellow]The machine was busy with something else (spreads above 20 %): repeat when it is quiet.[/]"
        )


if __name__ == "__main__":
    main()
