"""``hatch run npu-sim:demo``: an operator captured and replayed by npugraph_ex on a simulated Ascend, and counted."""

from __future__ import annotations

import sys

import torch
from rich.console import Console
from rich.table import Table

import ascend_sim
from cann_ops_tilelang.engram_grad_w_reduce import engram_grad_w_reduce
from cann_ops_tilelang.engram_grad_w_reduce.reference import engram_grad_w_reduce_reference
from cann_ops_tilelang.testing import Call, calc_diff, graph_evidence

NUM_PARTIALS, HC_MULT, HIDDEN_SIZE = 37, 4, 2560

console = Console()


def main() -> None:
    if not (hasattr(torch, "npu") and torch.npu.is_available()):
        sys.exit("npu demo: torch_npu finds no device; run it with `hatch run npu-sim:demo`")
    with torch.inference_mode():
        console.print(capture_table())
        console.print(counts_table(ascend_sim.trace()))


def capture_table() -> Table:
    """Four calls of one compiled function, with what npugraph_ex did for each."""
    shape = (HC_MULT, HIDDEN_SIZE)
    expected = Call(
        (
            torch.randn(NUM_PARTIALS, *shape),
            torch.randn(shape).bfloat16(),
            torch.randn(shape).bfloat16(),
            torch.zeros(shape),
            torch.zeros(shape),
        )
    )
    call = expected.to("npu")
    compiled = torch.compile(engram_grad_w_reduce, backend="npugraph_ex", fullgraph=True, dynamic=False)
    device = torch.npu.get_device_name()  # type: ignore[attr-defined]
    table = Table(title=f"engram_grad_w_reduce on {device}, compiled with npugraph_ex")
    for heading in ("call", "captured", "replayed", "run eagerly", "calc_diff"):
        table.add_column(heading, justify="left" if heading == "call" else "right")
    for label in (
        "first",
        "read-only inputs updated in place",
        "read-only inputs at new addresses",
        "gradients replaced",
    ):
        if label == "read-only inputs updated in place":
            for tensor in (*call.args[:3], *expected.args[:3]):
                tensor.mul_(0.5)
        if label == "read-only inputs at new addresses":
            call = Call((*(tensor.clone() for tensor in call.args[:3]), *call.args[3:]))
        if label == "gradients replaced":
            call = Call((*call.args[:3], *(tensor.clone() for tensor in call.args[3:])))
        with console.status(f"{label}: tracing, building, simulating"):
            evidence = graph_evidence(lambda call=call: call(compiled))  # type: ignore[misc]
        expected(engram_grad_w_reduce_reference)
        difference = max(calc_diff(a, e) for a, e in zip(call.args[3:], expected.args[3:]))
        table.add_row(label, str(evidence.capture), str(evidence.replay), str(evidence.eager), f"{difference:.1e}")
    return table


def counts_table(trace: ascend_sim.Trace) -> Table:
    """What the simulator counted in the last launch."""
    table = Table(title=f"Counted in one launch of {trace.kernel}: {trace.blocks} blocks")
    table.add_column("what")
    table.add_column("count", justify="right")
    for name, (read, written) in trace.tensors.items():
        table.add_row(f"{name}: bytes read", f"{read:,}")
        if written:
            table.add_row(f"{name}: bytes written", f"{written:,}")
    descriptors, mean = trace.descriptors
    table.add_row("DMA descriptors", f"{descriptors:,}")
    table.add_row("mean DMA in bytes", f"{mean:,.0f}")
    table.add_row("vector instructions", f"{sum(trace.vector_instructions.values()):,}")
    for memory, peak in trace.peak.items():
        table.add_row(f"{memory} used at most, bytes", f"{peak:,}")
    return table


if __name__ == "__main__":
    main()
