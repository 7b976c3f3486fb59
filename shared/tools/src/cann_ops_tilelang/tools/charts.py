"""Charts of a benchmark report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def draw_ratios(report: dict[str, Any], path: Path) -> None:
    """A row per case, a mark per baseline: time of the baseline over ours on one thread, on a log scale."""
    results = [result for result in report["results"] if result["threads"] == 1]
    rows = [f"{result['operator']}  {result['case']}" for result in results]
    names = sorted({name for result in results for name in result["ratios"]} - {"best"})
    colours = plt.get_cmap("tab20")
    figure, axis = plt.subplots(figsize=(11, 1.2 + 0.42 * len(rows)), layout="constrained")
    for index, name in enumerate(names):
        points = [(result["ratios"][name], row) for row, result in enumerate(results) if name in result["ratios"]]
        x, y = zip(*points)
        axis.scatter(x, y, label=name, color=colours(index % 20), s=46, zorder=3)
    axis.axvline(1, color="black", linewidth=1)
    axis.set_xscale("log")
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.invert_yaxis()
    axis.grid(axis="x", which="both", alpha=0.25)
    axis.set_xlabel("time of the baseline / time of the operator (one thread; right of 1 the operator is faster)")
    figure.legend(loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_scaling(report: dict[str, Any], path: Path) -> None:
    """Time against size for every operator, with the fitted exponent."""
    scalings = report["scaling"]
    columns = 3
    rows = -(-len(scalings) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.4 * rows), layout="constrained", squeeze=False)
    for axis, (name, scaling) in zip(axes.flat, scalings.items()):
        axis.loglog(scaling["sizes"], scaling["seconds"], marker="o", markersize=4)
        axis.set_title(f"{name}\nexponent {scaling['exponent']:.2f}", fontsize=9)
        axis.set_xlabel(scaling["axis"], fontsize=8)
        axis.set_ylabel("seconds, one thread", fontsize=8)
        axis.grid(which="both", alpha=0.25)
    for axis in list(axes.flat)[len(scalings) :]:
        axis.axis("off")
    figure.savefig(path, dpi=110)
    plt.close(figure)
