"""What the tests of the runtime share: kernels, and a Python process of its own."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

LANES = 64


def require_simulated_npu() -> None:
    """Skip a module where torch_npu is absent; where it is installed the simulator must be in front of it."""
    import importlib.util

    if importlib.util.find_spec("torch_npu") is None:
        pytest.skip(
            "torch_npu is not installed here; `ascend-sim run` in its environment runs these tests",
            allow_module_level=True,
        )
    if "ASCEND_HOME_PATH" not in os.environ:
        pytest.fail("run these tests with `ascend-sim run -- pytest`", pytrace=False)


@functools.cache
def add_twice(n: int, backend: str = "cython", reach: int = 0) -> Any:
    """A compiled kernel: y += 2 * x for n floats. `reach` shifts what it reads of x by that many floats."""
    import tilelang
    import tilelang.ascend.language as T
    from tilelang.ascend.language import simd as S

    @T.prim_func
    def add_twice_(y: T.Tensor((n,), "float32"), x: T.Tensor((n + reach,), "float32")):
        with T.Kernel(n // LANES) as block:
            a = T.alloc_shared((LANES,), "float32")
            b = T.alloc_shared((LANES,), "float32")
            first = block * LANES
            T.copy(y[first : first + LANES], a)
            T.copy(x[first + reach : first + reach + LANES], b)
            with T.SimdVF():
                every = S.pset(32)
                twice = S.vadd(S.vld(b[0]), S.vld(b[0]), every)
                S.vsts(a[0], S.vadd(S.vld(a[0]), twice, every), every)
            T.copy(a, y[first : first + LANES])

    return tilelang.compile(add_twice_, target="ascend", execution_backend=backend)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter on the simulated device, with these environment variables besides."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
