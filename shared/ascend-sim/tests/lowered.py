"""Kernels written in TileLang, lowered to AscendC and compiled together, since compiling takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ascend_sim


def lower(function: Any, name: str) -> str:
    """The AscendC source of a prim_func named `main`, its kernel renamed to `name`."""
    import tilelang
    from tvm.target import Target

    with Target("ascend"):
        source = tilelang.lower(function, target="ascend").kernel_source
    return source.replace("main_kernel", name)


def compile_together(sources: Mapping[str, str], *, checks: bool = True) -> ascend_sim.Library:
    """One library of several lowered kernels."""
    return ascend_sim.compile("\n".join(sources.values()), checks=checks)
