"""Evidence about compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Evidence:
    """How often a call captured an ACL graph, replayed one, or fell back to running the FX graph eagerly."""

    capture: int
    replay: int
    eager: int


def graph_evidence(function: Callable[[], Any]) -> Evidence:
    """Run a callable under the CPU profiler and count the ranges that npugraph_ex emits."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    names = [event.name for event in profile.events()]
    return Evidence(names.count("acl_graph_capture"), names.count("acl_graph_replay"), names.count("fx_run_eagerly"))


def count_nodes(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, int]:
    """Trace a call as one graph (a graph break raises) and count its ``cann_ops_tilelang`` nodes by name."""
    counts: dict[str, int] = {}

    def backend(module: torch.fx.GraphModule, _: Any) -> Any:
        for node in module.graph.nodes:
            name = str(node.target)
            if node.op == "call_function" and name.startswith("cann_ops_tilelang."):
                name = name.split(".")[1]
                counts[name] = counts.get(name, 0) + 1
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(*args, **kwargs)
    return counts
