"""``hatch run npu-sim:bench``: what each Ascend kernel does, counted by the simulator. It says nothing of time."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import ascend_sim
from cann_ops_tilelang.testing import Call

from .demo import engram_call
from .loading import operator_names, operators
from .tables import Rows, markdown_table, rich_table

console = Console()


@dataclass
class Counts:
    """Counts of one launch: ``bytes_ratio`` to the least possible; ``balance``, mean over busiest core."""

    operator: str
    case: str
    blocks: int
    bytes_moved: int
    bytes_ratio: float
    descriptors: int
    mean_dma: float
    vector: int
    vector_per_element: float
    simt: int
    multiply_adds: int
    cube_utilisation: float | None
    ub_peak: int
    balance: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="npu bench", description=__doc__)
    parser.add_argument("operators", nargs="*", help="operators to count; default: all")
    parser.add_argument("--output", type=Path, default=Path("bench_output"), help="folder for JSON and Markdown")
    arguments = parser.parse_args()
    if not (hasattr(torch, "npu") and torch.npu.is_available()):
        sys.exit("npu bench: torch_npu finds no device; run it with `hatch run npu-sim:bench`")
    if unknown := sorted(set(arguments.operators) - set(operator_names())):
        sys.exit(f"npu bench: no operator {', '.join(unknown)}; there are {', '.join(operator_names())}")
    functions = vars(operators())
    others = peers()
    found: dict[str, list[Counts]] = {}
    with (
        torch.inference_mode(),
        Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), transient=True) as progress,
    ):
        task = progress.add_task("")
        for operator, case, call, flops, minimum in cases():
            if arguments.operators and operator not in arguments.operators:
                continue
            progress.update(task, description=f"{operator} {case}")
            found.setdefault(operator, []).append(count(functions[operator], operator, case, call, flops, minimum))
            if operator in others:
                name = f"{operator}, {PEER}"
                found.setdefault(name, []).append(count(others[operator], name, case, call, flops, minimum))
    arguments.output.mkdir(parents=True, exist_ok=True)
    tables = {name: table(rows) for name, rows in found.items()}
    (arguments.output / "npu_counts.json").write_text(
        json.dumps([asdict(row) for rows in found.values() for row in rows], indent=2)
    )
    markdown = (f"### {name}\n\n{markdown_table(rows)}\n" for name, rows in tables.items())
    (arguments.output / "npu_counts.md").write_text("\n".join(markdown))
    for name, rows in tables.items():
        console.print(rich_table(name, rows))
    console.print(NOTE)


PEER = "tile-kernels 2.1.0"
NOTE = (
    "Counted per launch. least: every input read once, every output written once. a value: vector instructions for "
    "each value of the largest tensor. cube used: multiply-adds needed over those issued. balance: mean over busiest "
    "core, in the simulator's unit costs. Nothing here says anything of time."
)


def peers() -> dict[str, Callable[..., Any]]:
    """The operators for which tile-kernels has a kernel, if it is installed."""
    if find_spec("tile_kernels") is None:
        console.print(f"[dim]{PEER} is not installed: no comparison with it[/dim]")
        return {}
    exists = os.path.exists
    # The package takes its Ascend path where the driver's device file exists, which the simulator does not make.
    with mock.patch("os.path.exists", lambda path: path == "/dev/davinci_manager" or exists(path)):
        from tile_kernels.engram import grad_w_reduce
    # It tells of every kernel that it builds.
    logging.getLogger("tilelang").setLevel(logging.WARNING)
    return {"engram_grad_w_reduce": grad_w_reduce}


def count(function: Callable[..., Any], operator: str, case: str, call: Call, flops: int, minimum: int) -> Counts:
    on_npu = call.to("npu")
    result = on_npu(function)
    torch.npu.synchronize()  # type: ignore[attr-defined]
    trace = ascend_sim.trace()
    moved = sum(read + written for read, written in trace.tensors.values())
    descriptors, mean = trace.descriptors
    vector = sum(trace.vector_instructions.values())
    busy = [core.time for core in trace.cores if core.time]
    cores = 56 if not trace.multiply_adds else len(trace.cores)
    tensors = call.tensors() if result is None else (*call.tensors(), result)
    return Counts(
        operator,
        case,
        trace.blocks,
        moved,
        moved / minimum,
        descriptors,
        mean,
        vector,
        vector / max(t.numel() for t in tensors),
        sum(trace.simt_instructions.values()),
        trace.multiply_adds,
        flops / 2 / trace.multiply_adds if trace.multiply_adds else None,
        trace.peak.get("UB", 0),
        sum(busy) / cores / max(busy),
    )


def table(rows: list[Counts]) -> Rows:
    """The counts as text; a column that holds nothing is left out."""
    columns: dict[str, Callable[[Counts], str]] = {
        "case": lambda row: row.case,
        "bytes / least": lambda row: f"{row.bytes_ratio:.2f}",
        "DMAs": lambda row: short(row.descriptors),
        "mean bytes": lambda row: short(row.mean_dma),
        "vector": lambda row: short(row.vector),
        "a value": lambda row: f"{row.vector_per_element:.2g}",
        "SIMT": lambda row: short(row.simt) if row.simt else "",
        "cube used": lambda row: "" if row.cube_utilisation is None else f"{row.cube_utilisation:.2f}",
        "UB KiB": lambda row: f"{row.ub_peak / 1024:.0f}",
        "balance": lambda row: f"{row.balance:.2f}",
    }
    kept = {heading: cell for heading, cell in columns.items() if any(cell(row) for row in rows)}
    return [list(kept), *([cell(row) for cell in kept.values()] for row in rows)]


def short(number: float) -> str:
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{number / 1e3:.3g}k" if number < 999_500 else f"{number / 1e6:.3g}M"


def cases() -> Iterator[tuple[str, str, Call, int, int]]:
    """Operator, case, call, useful operations of the cube, least bytes: inputs read once, outputs written once."""
    yield from engram_cases()
    yield from span_cases()
    yield from vision_cases()


def engram_cases() -> Iterator[tuple[str, str, Call, int, int]]:
    for num_partials, hidden_size in [(1, 256), (7, 256), (37, 2560), (38, 3072), (75, 6144), (7, 4096)]:
        call = engram_call(num_partials, hidden_size)
        partial, hidden, embed, grad_hidden, grad_embed = call.args
        least = partial.nbytes + hidden.nbytes + embed.nbytes + 2 * (grad_hidden.nbytes + grad_embed.nbytes)
        yield "engram_grad_w_reduce", f"({num_partials}, {hidden_size})", call, 0, least


def span_cases() -> Iterator[tuple[str, str, Call, int, int]]:
    for spans in (1, 16):
        rows, gap = 1024, 37
        length = rows // spans
        starts = torch.arange(spans, dtype=torch.int32) * (length + gap) + gap
        bounds = torch.arange(spans + 1, dtype=torch.int32) * length
        embeds = torch.randn(spans * (length + gap) + gap, 2048).bfloat16()
        images = torch.randn(rows, 2048).bfloat16()
        yield (
            "replace_input_embeds",
            f"1024 x 2048, {spans} span{'s' if spans > 1 else ''}",
            Call((embeds, images, starts, bounds)),
            0,
            2 * images.nbytes,
        )
    for n, groups in [(1024, 2), (1024, 4), (1024, 32), (20000, 4)]:
        embeds = torch.randn(n + 10, 2048).bfloat16()
        call = Call((embeds, torch.tensor([5]).int(), torch.tensor([0, n]).int()), {"groups": groups})
        yield "shuffle_image_tokens", f"{n} x 2048, {groups} groups", call, 0, 2 * n * 2048 * 2


def vision_cases() -> Iterator[tuple[str, str, Call, int, int]]:
    for num_images, side in [(1, 64), (32, 32), (1000, 8)]:
        total = num_images * side * side
        grid = torch.full((num_images, 2), side, dtype=torch.int32)
        bounds = torch.arange(num_images + 1, dtype=torch.int32) * side * side
        call = Call((grid, bounds), {"total_seqlens_vit": total, "window_size": 2})
        yield (
            "prepare_image_attn_pos_id",
            f"{num_images} image{'s' if num_images > 1 else ''} of {side} x {side}",
            call,
            0,
            8 * total + grid.nbytes + bounds.nbytes,
        )
    for side, patch in [(1024, 16), (1022, 14), (1020, 17)]:
        row_bytes = (3 * side + 3) // 4 * 4
        patches = (side // patch) ** 2
        call = Call(
            (
                torch.randint(0, 256, (side * row_bytes,), dtype=torch.uint8),
                torch.zeros(1, dtype=torch.int64),
                torch.tensor([[side, side]], dtype=torch.int32),
                torch.tensor([0, patches], dtype=torch.int32),
            ),
            {"total_patches": patches, "patch_size": patch},
        )
        yield "bmp_to_patches", f"{side} x {side}, patch {patch}", call, 0, side * row_bytes + 6 * side * side
    for batch, side in [(2, 14), (1, 40), (1, 64)]:
        yield attention_case(batch, side)


def attention_case(batch: int, side: int, heads: int = 12, head_dim: int = 64) -> tuple[str, str, Call, int, int]:
    seq_len = side * side
    q, k, v = torch.randn(batch, seq_len, 3, heads, head_dim).bfloat16().unbind(2)
    rel: tuple[Any, ...] = tuple(torch.randn(2, batch, heads, seq_len, side).bfloat16())
    least = 4 * 2 * q.numel() + sum(bias.nbytes for bias in rel)
    flops = 4 * batch * heads * head_dim * seq_len * seq_len
    return "attn_rel_h_rel_w", f"{batch} x {heads} heads, side {side}", Call((q, k, v, *rel)), flops, least


if __name__ == "__main__":
    main()
