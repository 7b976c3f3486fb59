"""CPU kernel of ``engram_grad_w_reduce``."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

# A task is one group of columns; the contract makes the number of columns a multiple of it.
GROUP = 64
# Columns reduced together: one page of every partial, an accumulator that stays in the first-level cache.
WIDTH = 1024
# Least work worth a thread: about 128 KiB of partials.
GRAIN_BYTES = 1 << 17


def launch(
    grad_w_partial: Any, weight_hidden: Any, weight_embed: Any, grad_weight_hidden: Any, grad_weight_embed: Any
) -> None:
    num_partials = grad_w_partial.shape[0]
    columns = weight_hidden.numel()
    build()(
        grad_w_partial.data_ptr(),
        weight_hidden.data_ptr(),
        weight_embed.data_ptr(),
        grad_weight_hidden.data_ptr(),
        grad_weight_embed.data_ptr(),
        num_partials,
        columns,
        columns // GROUP,
        GRAIN_BYTES // (4 * GROUP * num_partials) + 1,
    )


@kernel("cpu")
def build() -> Any:
    """One kernel for every shape.

    grad_w_partial (num_partials, columns) float32; weights (columns,) bfloat16 as int16; gradients (columns,) float32.
    Four partials are added at a time: the accumulator passes through the first-level cache a quarter as often. Widths
    are multiples of the vector length, so every column is summed by the same instructions, whichever thread runs them.
    """
    num_partials = T.dynamic("num_partials")
    columns = T.dynamic("columns", "int64")

    @T.prim_func
    def engram_grad_w_reduce(
        grad_w_partial: T.Tensor((num_partials, columns), "float32"),
        weight_hidden: T.Tensor((columns,), "int16"),
        weight_embed: T.Tensor((columns,), "int16"),
        grad_weight_hidden: T.Tensor((columns,), "float32"),
        grad_weight_embed: T.Tensor((columns,), "float32"),
        begin: T.int32,
        end: T.int32,
    ):
        with T.Kernel(1):
            total = T.alloc_local((WIDTH,), "float32")
            for block in T.serial(T.ceildiv((end - begin) * GROUP, WIDTH)):
                first = begin * GROUP + block * WIDTH
                width = T.min(WIDTH, end * GROUP - first)
                for j in T.serial(width):
                    total[j] = grad_w_partial[0, first + j]
                for q in T.serial(T.truncdiv(num_partials - 1, 4)):
                    for j in T.serial(width):
                        total[j] = (
                            total[j]
                            + grad_w_partial[4 * q + 1, first + j]
                            + grad_w_partial[4 * q + 2, first + j]
                            + grad_w_partial[4 * q + 3, first + j]
                            + grad_w_partial[4 * q + 4, first + j]
                        )
                for p in T.serial(num_partials - T.truncmod(num_partials - 1, 4), num_partials):
                    for j in T.serial(width):
                        total[j] = total[j] + grad_w_partial[p, first + j]
                for j in T.serial(width):
                    embed = T.reinterpret(T.cast(weight_embed[first + j], "int32") << 16, "float32")
                    grad_weight_hidden[first + j] = grad_weight_hidden[first + j] + total[j] * embed
                for j in T.serial(width):
                    hidden = T.reinterpret(T.cast(weight_hidden[first + j], "int32") << 16, "float32")
                    grad_weight_embed[first + j] = grad_weight_embed[first + j] + total[j] * hidden

    return engram_grad_w_reduce
