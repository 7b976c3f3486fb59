"""CPU kernel of ``shuffle_image_tokens``."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

# A task is this many columns of every row of every image: 256 bytes, so that threads share no cache line for long.
COLUMNS = 128
# Columns moved at a time: one page of a row, in a scratch that stays in the first-level cache.
WIDTH = 2048
# Only images without tokens are divided by more groups than this.
INT32_MAX = 2**31 - 1
# Least work worth a thread: 4 MiB moved. Threads share the pages of a row: while the caches hold the rows, what one
# core fetches ahead of need it takes from the other.
GRAIN_BYTES = 1 << 22


def launch(input_embeds: Any, image_starts: Any, cu_image_tokens: Any, groups: int) -> None:
    num_tokens, hidden_size = input_embeds.shape
    halves = input_embeds.element_size() // 2
    width = hidden_size * halves
    build()(
        input_embeds.data_ptr(),
        image_starts.data_ptr(),
        cu_image_tokens.data_ptr(),
        min(groups, INT32_MAX),
        width,
        num_tokens,
        input_embeds.stride(0) * halves,
        image_starts.shape[0],
        -(-width // COLUMNS),
        GRAIN_BYTES // (2 * COLUMNS * num_tokens + 1) + 1,
    )


@kernel("cpu")
def build() -> Any:
    """One kernel for every shape, dtype and number of groups.

    input_embeds: rows of ``width`` int16, ``row_stride`` apart: elements move as 16-bit halves, so that no bit changes.
    The rows of an image move along the cycles of the permutation. A cycle starts at its smallest row; a row that leads
    to a smaller one belongs to a cycle that has been moved already.

    Paths: images that the shuffle leaves as they are; a row that stays; two rows that swap; longer cycles, which pass
    through a scratch of one row; rows wider than the scratch.
    """
    num_tokens = T.dynamic("num_tokens", "int64")
    row_stride = T.dynamic("row_stride", "int64")
    num_images = T.dynamic("num_images")

    @T.prim_func
    def shuffle_image_tokens(
        input_embeds: T.Tensor((num_tokens, row_stride), "int16"),
        image_starts: T.Tensor((num_images,), "int32"),
        cu_image_tokens: T.Tensor((num_images + 1,), "int32"),
        groups: T.int32,
        width: T.int64,
        begin: T.int32,
        end: T.int32,
    ):
        with T.Kernel(1):
            saved = T.alloc_local((WIDTH,), "int16")
            per_group = T.alloc_var("int32")
            left = T.alloc_var("int32")
            leader = T.alloc_var("int32")
            row = T.alloc_var("int32")
            columns = T.alloc_var("int64")
            start = T.alloc_var("int32")
            target = T.alloc_var("int32")
            for block in T.serial(T.ceildiv((end - begin) * COLUMNS, WIDTH)):
                first = T.cast(begin, "int64") * COLUMNS + T.cast(block, "int64") * WIDTH
                columns = T.min(WIDTH, T.min(width, T.cast(end, "int64") * COLUMNS) - first)
                for image in T.serial(num_images):
                    per_group = T.truncdiv(cu_image_tokens[image + 1] - cu_image_tokens[image], groups)
                    start = image_starts[image]
                    # The first and the last row stay; one group, or groups of one row, change nothing.
                    left = T.if_then_else(T.min(groups, per_group) > 1, groups * per_group - 2, 0)
                    leader = 1
                    while left > 0:
                        row = T.truncmod(leader, groups) * per_group + T.truncdiv(leader, groups)
                        while row > leader:
                            row = T.truncmod(row, groups) * per_group + T.truncdiv(row, groups)
                        if row == leader:
                            row = T.truncmod(leader, groups) * per_group + T.truncdiv(leader, groups)
                            if row == leader:
                                left = left - 1
                            elif T.truncmod(row, groups) * per_group + T.truncdiv(row, groups) == leader:
                                for j in T.serial(columns):
                                    swapped = input_embeds[start + leader, first + j]
                                    input_embeds[start + leader, first + j] = input_embeds[start + row, first + j]
                                    input_embeds[start + row, first + j] = swapped
                                left = left - 2
                            else:
                                target = leader
                                for j in T.serial(columns):
                                    saved[j] = input_embeds[start + target, first + j]
                                while row != leader:
                                    for j in T.serial(columns):
                                        input_embeds[start + target, first + j] = input_embeds[start + row, first + j]
                                    target = row
                                    row = T.truncmod(row, groups) * per_group + T.truncdiv(row, groups)
                                    left = left - 1
                                for j in T.serial(columns):
                                    input_embeds[start + target, first + j] = saved[j]
                                left = left - 1
                        leader = leader + 1

    return shuffle_image_tokens
