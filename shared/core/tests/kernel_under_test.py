"""A kernel for tests and for the processes they start."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

BUILDS: list[int] = []


@kernel("cpu")
def scale(factor: int) -> Any:
    BUILDS.append(factor)
    n = T.dynamic("n")

    @T.prim_func
    def scale(x: T.Tensor((n,), "float32"), begin: T.int32, end: T.int32):
        with T.Kernel(1):
            for i in T.serial(begin, end):
                x[i] = x[i] * factor

    return scale
