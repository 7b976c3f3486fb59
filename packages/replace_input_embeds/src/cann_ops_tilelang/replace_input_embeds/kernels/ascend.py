"""Ascend 950 kernel of ``replace_input_embeds``."""

from typing import Any

import tilelang.ascend.language as T
from tilelang.ascend.language import simd as S

from cann_ops_tilelang.core import kernel, num_vector_cores

# int32 lanes of a vector register, and int16 elements of UB's 32-byte blocks.
LANES, BLOCK = 64, 16
# Images looked at together: a core reads their prefix sums with two DMAs of 8 KiB.
IMAGES = 2048
# int16 elements of a piece, 32 KiB. Three pieces are in flight: one loading, one storing, one between.
PIECE = 1 << 14
INT32_MAX = 2**31 - 1


def launch(input_embeds: Any, image_embeds: Any, image_starts: Any, cu_image_tokens: Any) -> None:
    if not (input_embeds.numel() and image_embeds.numel() and image_starts.numel()):
        return
    num_rows, hidden_size = image_embeds.shape
    halves = input_embeds.element_size() // 2
    build(hidden_size * halves, num_vector_cores())(
        input_embeds.data_ptr(),
        image_embeds.data_ptr(),
        image_starts.data_ptr(),
        cu_image_tokens.data_ptr(),
        input_embeds.shape[0],
        num_rows,
        image_starts.shape[0],
        input_embeds.stride(0) * halves,
    )


@kernel("ascend")
def build(width: int, num_cores: int) -> Any:
    """A kernel for rows of ``width`` int16: elements are copied as 16-bit halves, so that no bit changes.

    input_embeds (num_tokens, width), rows ``row_stride`` apart; image_embeds (num_rows, width); indices int32.

    Pure DMA. The rows of image_embeds that belong to images are dealt out evenly, a contiguous share a core, so one
    large image and many small ones balance alike: 1024 rows give the busiest of 56 cores 19, 0.96 of the mean. A core
    finds the images that meet its share by comparing the prefix sums, 64 at a time, and copies the rows they have in
    common through UB in pieces of 32 KiB (8 rows of 4 KiB): every row is moved once in each direction, by DMAs of
    many rows.

    An image whose prefix sums decrease or pass image_embeds, or whose span leaves input_embeds, is left out as a
    whole; all others are copied whatever stands next to them. The last core also looks past the last prefix sum,
    which may be one of the wrong values.
    """
    columns = min(width, PIECE)
    pitch = -(-columns // BLOCK) * BLOCK
    rows = PIECE // pitch
    slices = -(-width // columns)
    num_tokens = T.dynamic("num_tokens")
    row_stride = T.dynamic("row_stride", "int64")
    num_rows = T.dynamic("num_rows")
    num_images = T.dynamic("num_images")

    @T.prim_func
    def replace_input_embeds(
        input_embeds: T.StridedTensor((num_tokens, width), (row_stride, 1), "int16"),
        image_embeds: T.Tensor((num_rows, width), "int16"),
        image_starts: T.Tensor((num_images,), "int32"),
        cu_image_tokens: T.Tensor((num_images + 1,), "int32"),
    ):
        with T.Kernel(num_cores) as core:
            firsts = T.alloc_shared((IMAGES,), "int32")
            lasts = T.alloc_shared((IMAGES,), "int32")
            found = T.alloc_shared((2, LANES), "int32")
            piece = T.alloc_shared((rows, pitch), "int16")

            used = T.alloc_var("int32")
            begin = T.alloc_var("int32")
            end = T.alloc_var("int32")
            lowest_image = T.alloc_var("int32")
            highest_image = T.alloc_var("int32")
            first = T.alloc_var("int32")
            last = T.alloc_var("int32")
            start = T.alloc_var("int32")
            n = T.alloc_var("int32")
            used = cu_image_tokens[num_images]
            if used < 0 or used > num_rows:
                used = num_rows
            begin = T.min(core * T.ceildiv(used, num_cores), num_rows)
            end = T.min(begin + T.ceildiv(used, num_cores), num_rows)
            if core == num_cores - 1:
                end = num_rows
            for block in T.serial(T.ceildiv(num_images, IMAGES)):
                base = block * IMAGES
                count = T.min(IMAGES, num_images - base)
                T.copy(cu_image_tokens[base : base + count], firsts[0:count])
                T.copy(cu_image_tokens[base + 1 : base + 1 + count], lasts[0:count])
                with T.SimdVF():
                    all32 = S.pset(32)
                    lowest = S.alloc_local((1,), "int32")
                    highest = S.alloc_local((1,), "int32")
                    lowest[0] = S.vdup(T.int32(IMAGES), "int32", all32)
                    highest[0] = S.vdup(T.int32(-1), "int32", all32)
                    for i in T.serial(T.ceildiv(count, LANES)):
                        index = S.vci(i * LANES, "int32")
                        present = S.vcmps(index, count, all32, "lt")
                        starts_before = S.vcmps(S.vld(firsts[i * LANES]), end, present, "lt")
                        mine = S.vcmps(S.vld(lasts[i * LANES]), begin, starts_before, "gt")
                        lowest[0] = S.vmin(lowest[0], S.vsel(index, lowest[0], mine), all32)
                        highest[0] = S.vmax(highest[0], S.vsel(index, highest[0], mine), all32)
                    S.vsts(found[0, 0], S.vcmin(lowest[0], all32), all32)
                    S.vsts(found[1, 0], S.vcmax(highest[0], all32), all32)
                lowest_image = found[0, 0]
                highest_image = found[1, 0]
                for i in T.serial(lowest_image, highest_image + 1):
                    first = firsts[i]
                    last = lasts[i]
                    start = image_starts[base + i]
                    n = 0
                    if (
                        first >= 0
                        and first <= last
                        and last <= num_rows
                        and start >= 0
                        and start <= num_tokens - (last - first)
                    ):
                        start = start - first
                        first = T.max(first, begin)
                        n = T.max(T.min(last, end) - first, 0)
                    for p in T.Pipelined(T.ceildiv(n, rows) * slices, num_stages=3):
                        row = first + p // slices * rows
                        m = T.min(rows, first + n - row)
                        left = p % slices * columns
                        right = T.min(left + columns, width)
                        target = start + row
                        T.copy(image_embeds[row : row + m, left:right], piece[0:m, 0 : right - left])
                        T.assume_no_conflict(input_embeds)
                        T.copy(piece[0:m, 0 : right - left], input_embeds[target : target + m, left:right])

    return replace_input_embeds
