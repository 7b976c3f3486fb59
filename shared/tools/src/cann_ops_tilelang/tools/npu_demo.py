"""``hatch run npu-sim:demo``: the operators captured and replayed by npugraph_ex on a simulated Ascend."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor

import ascend_sim
from cann_ops_tilelang.testing import Call, Evidence, calc_diff, count_nodes, graph_evidence

from .demo import Case, agreement, cases, draw_page
from .tables import rich_table
from .vision import Config

CONFIG = Config(side=16, num_heads=2, text_hidden_size=256)
COUNTED = "engram_grad_w_reduce"

console = Console()


def main() -> None:
    if not (hasattr(torch, "npu") and torch.npu.is_available()):
        sys.exit("npu demo: torch_npu finds no device; run it with `hatch run npu-sim:demo`")
    rows = []
    with (
        torch.inference_mode(),
        Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
        ) as progress,
    ):
        task = progress.add_task("recording calls")
        page = draw_page().resize((CONFIG.side * CONFIG.patch_size,) * 2)
        for case in cases(CONFIG, [page, page.transpose(Image.Transpose.ROTATE_90)], "npu"):
            progress.update(task, description=f"{case.name}: tracing, building, simulating")
            rows.append(measure(case))
            if case.name == COUNTED:
                trace = ascend_sim.trace()
    console.print(capture_table(rows))
    console.print(counts_table(trace))


@dataclass
class Row:
    """``evidence``: of the first call, other values, other storage, and, if there is one, another written argument."""

    name: str
    nodes: int
    evidence: list[Evidence]
    difference: float


def measure(case: Case) -> Row:
    call = case.calls[0].to("npu")
    nodes = sum(count_nodes(case.function, *call.clone().args, **call.kwargs).values())
    torch._dynamo.reset()
    compiled = torch.compile(case.function, backend="npugraph_ex", fullgraph=True, dynamic=False)
    row = Row(case.name, nodes, [], 0.0)

    def step() -> None:
        expected = call.to("cpu")
        wanted = [expected(case.reference), *expected.tensors()]
        results: list[Any] = []
        row.evidence.append(graph_evidence(lambda: results.append(call(compiled))))
        for actual, value in zip([*results, *call.tensors()], wanted):
            if isinstance(value, Tensor):
                row.difference = max(row.difference, calc_diff(actual, value))

    step()
    for target, source in zip(call.tensors(), case.calls[1].tensors()):
        target.copy_(source)
    step()
    for moved in (False, True):
        if moved and not case.written:
            break
        fresh = call.clone()
        call = Call(
            tuple(
                new if (index in case.written) is moved else old
                for index, (new, old) in enumerate(zip(fresh.args, call.args))
            ),
            call.kwargs,
        )
        step()
    return row


def capture_table(rows: list[Row]) -> Table:
    device = torch.npu.get_device_name()  # type: ignore[attr-defined]
    headings = ["compiled", "nodes", "first", "values", "storage", "written", "calc_diff"]
    cells = []
    for row in rows:
        evidence = [f"{e.capture}/{e.replay}/{e.eager}" for e in row.evidence]
        evidence += [""] * (4 - len(evidence))
        cells.append([row.name, str(row.nodes), *evidence, agreement(row.difference)])
    table = rich_table(f"Compiled with npugraph_ex for {device}, simulated", [headings, *cells])
    table.caption = (
        "captures/replays/eager runs of the first call, with other values, with\n"
        "inputs in new storage, with the written argument replaced."
    )
    return table


def counts_table(trace: ascend_sim.Trace) -> Table:
    """What the simulator counted in one launch."""
    rows = [["what", "count"]]
    for name, (read, written) in trace.tensors.items():
        rows.append([f"{name}: bytes read", f"{read:,}"])
        if written:
            rows.append([f"{name}: bytes written", f"{written:,}"])
    descriptors, mean = trace.descriptors
    rows.append(["DMA descriptors", f"{descriptors:,}"])
    rows.append(["mean DMA in bytes", f"{mean:,.0f}"])
    rows.append(["vector instructions", f"{sum(trace.vector_instructions.values()):,}"])
    rows += [[f"{memory} used at most, bytes", f"{peak:,}"] for memory, peak in trace.peak.items()]
    return rich_table(f"Counted in one launch of {trace.kernel}: {trace.blocks} blocks", rows)


if __name__ == "__main__":
    main()
