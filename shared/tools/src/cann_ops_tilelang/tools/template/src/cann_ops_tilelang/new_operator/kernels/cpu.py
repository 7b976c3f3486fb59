"""CPU kernel of ``new_operator``."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

# Elements of a task.
BLOCK = 1024
# Least number of tasks worth a thread: 256 KiB of input.
GRAIN = 64


def launch(y: Any, x: Any, scale: float) -> None:
    numel = x.numel()
    build()(x.data_ptr(), y.data_ptr(), scale, numel, -(-numel // BLOCK), GRAIN)


@kernel("cpu")
def build() -> Any:
    """One kernel for every shape. x, y (numel,) float32."""
    numel = T.dynamic("numel", "int64")

    @T.prim_func
    def new_operator(
        x: T.Tensor((numel,), "float32"),
        y: T.Tensor((numel,), "float32"),
        scale: T.float32,
        begin: T.int32,
        end: T.int32,
    ):
        with T.Kernel(1):
            for task in T.serial(begin, end):
                first = T.cast(task, "int64") * BLOCK
                for i in T.serial(T.min(BLOCK, numel - first)):
                    y[first + i] = x[first + i] * scale

    return new_operator
