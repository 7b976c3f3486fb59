"""The report of `ascend-sim run --report`: a table, JSON, and a picture of each kernel's pipes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ascend_sim.kernel import Trace

NOTE = "model: one unit an instruction and one more for every 256 bytes or 4096 multiply-adds; not time"
_COLUMNS = (
    "kernel",
    "launches",
    "blocks",
    "read",
    "written",
    "DMAs",
    "mean DMA",
    "vector",
    "SIMT",
    "multiply-adds",
    "UB",
    "L1",
    "L0A/B/C",
    "model",
)


def write(directory: Path) -> str:
    """Turn the launches recorded in `directory` into report.json and a picture per kernel, and return the table."""
    launches = []
    for path in sorted(directory.glob("launches-*.jsonl")):
        launches += [json.loads(line) for line in path.read_text().splitlines()]
    if not launches:
        return "no kernel was launched"
    by_kernel: dict[str, list[dict[str, Any]]] = {}
    for launch in launches:
        by_kernel.setdefault(launch["kernel"], []).append(launch)
    rows, data = [], []
    for name, group in sorted(by_kernel.items()):
        last = Trace.from_json(group[-1])
        rows.append(_row(last, len(group)))
        data.append(
            {
                **summary(last),
                "launches": len(group),
                "errors": [launch["error"] for launch in group if launch["error"]],
            }
        )
        (directory / f"{name}.svg").write_text(picture(name, group[-1]["segments"]))
    (directory / "report.json").write_text(json.dumps({"note": NOTE, "kernels": data}, indent=1) + "\n")
    return (
        f"{_table([_COLUMNS, *rows])}\n(counts of each kernel's last launch; {NOTE})\n{directory}: report.json, "
        + ", ".join(f"{k}.svg" for k in sorted(by_kernel))
    )


def summary(trace: Trace) -> dict[str, Any]:
    """The counts of a launch as JSON data, in total and per core."""
    count, mean = trace.descriptors
    return {
        "kernel": trace.kernel,
        "blocks": trace.blocks,
        "tensors": {name: {"read": read, "written": written} for name, (read, written) in trace.tensors.items()},
        "dma": {"descriptors": count, "mean_bytes": mean},
        "vector_instructions": trace.vector_instructions,
        "simt_instructions": trace.simt_instructions,
        "multiply_adds": trace.multiply_adds,
        "peak_bytes": trace.peak,
        "cores": [
            {
                "block": core.block,
                "core": core.core,
                "model_end": core.time,
                "peak_bytes": core.peak,
                "instructions": {k: n for k, (n, _) in core.kinds.items()},
            }
            for core in trace.cores
        ],
    }


def _row(trace: Trace, launches: int) -> tuple[str, ...]:
    count, mean = trace.descriptors
    peak = Counter(trace.peak)
    return (
        trace.kernel,
        str(launches),
        str(trace.blocks),
        _bytes(sum(read for read, _ in trace.tensors.values())),
        _bytes(sum(written for _, written in trace.tensors.values())),
        str(count),
        _bytes(mean),
        str(sum(trace.vector_instructions.values())),
        str(sum(trace.simt_instructions.values())),
        str(trace.multiply_adds),
        _bytes(peak["UB"]),
        _bytes(peak["L1"]),
        "/".join(_bytes(peak[memory]) for memory in ("L0A", "L0B", "L0C")),
        str(max((core.time for core in trace.cores), default=0)),
    )


def _bytes(count: float) -> str:
    for unit in ("", "K", "M"):
        if count < 1024:
            return f"{count:.4g}{unit}"
        count /= 1024
    return f"{count:.4g}G"


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


_PALETTE = (
    "#4878a8",
    "#d1834b",
    "#62a05f",
    "#b65d60",
    "#8171a8",
    "#d38cc0",
    "#b8a54a",
    "#55a8b5",
)
_OTHERS = "#b0b0b0"
_LEFT, _WIDTH, _ROW = 190, 1200, 18


def picture(kernel: str, segments: list[list[Any]]) -> str:
    """An SVG of the pipes of the first blocks: [block, core, pipe, kind, start, end] bars in dependency order.

    Of a pipe's kinds of instructions those that take most have a colour of their own, the others share one.
    """
    end = max((segment[5] for segment in segments), default=1)
    extents: dict[str, Counter[str]] = {}
    for _, _, pipe, kind, start, stop in segments:
        extents.setdefault(pipe, Counter())[kind] += stop - start
    colours = {
        pipe: {kind: shade for (kind, _), shade in zip(extent.most_common(), _PALETTE)}
        for pipe, extent in sorted(extents.items())
    }
    shapes = [_text(8, 18, kernel, 'font-weight="bold"'), _text(8, 34, NOTE)]
    y, previous = 60, None
    lanes = sorted({(block, core, pipe) for block, core, pipe, *_ in segments})
    bars = []
    for block, core, pipe in lanes:
        y += 6 if previous not in (None, block) else 0
        previous = block
        bars.append(_text(8, y + 12, f"block {block}, {core}, {pipe.removeprefix('PIPE_')}"))
        bars.append(_bar(_LEFT, y + _ROW - 2, _WIDTH, 1, "#ddd"))
        for kind, start, stop in _merged([s for s in segments if tuple(s[:3]) == (block, core, pipe)], end / _WIDTH):
            x, width = _LEFT + start / end * _WIDTH, max((stop - start) / end * _WIDTH, 0.3)
            bars.append(_bar(x, y, width, _ROW - 4, colours[pipe].get(kind, _OTHERS), f"{kind} {start}-{stop}"))
        y += _ROW
    for tick in range(5):
        x = _LEFT + tick / 4 * _WIDTH
        shapes += [
            _text(x, 54, f"{end * tick // 4}" + " units" * (tick == 4), 'text-anchor="middle"'),
            _bar(x, 58, 1, y - 58, "#ddd"),
        ]
    shapes += bars
    y += 10
    for pipe, colour in colours.items():
        y += _ROW
        shapes.append(_text(8, y, f"instructions of {pipe.removeprefix('PIPE_')}"))
        legend = list(colour.items()) + [("others", _OTHERS)] * (len(extents[pipe]) > len(colour))
        for i, (kind, shade) in enumerate(legend):
            x = _LEFT + i * 133
            shapes += [_bar(x, y - 9, 10, 10, shade), _text(x + 14, y, kind)]
    size = f'width="{_LEFT + _WIDTH + 30}" height="{y + 14}"'
    style = 'font-family="sans-serif" font-size="11"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', background, *shapes, "</svg>", ""])


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" {style}>{escape(text)}</text>'


def _bar(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}">{inside}</rect>'


def _merged(segments: list[list[Any]], pixel: float) -> list[tuple[str, int, int]]:
    """Bars of a lane; what is narrower than a pixel joins its neighbour."""
    bars: list[tuple[str, int, int]] = []
    for _, _, _, kind, start, end in segments:
        if bars and start - bars[-1][1] < pixel and start <= bars[-1][2]:
            bars[-1] = (bars[-1][0], bars[-1][1], max(end, bars[-1][2]))
        else:
            bars.append((kind, start, end))
    return bars
