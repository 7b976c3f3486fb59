"""Ascend 950 kernel of ``prepare_image_attn_pos_id``."""

from typing import Any

import tilelang.ascend.language as T

from cann_ops_tilelang.core import kernel, num_vector_cores

# Least tokens worth a core: their positions fill a DMA of 512 bytes.
MIN_SHARE = 64
# Tokens of a chunk: 64 KiB of positions. Two take turns: one is computed while the other is stored.
CHUNK = 8192
THREADS = 512


def launch(positions: Any, grid_hw: Any, cu_seqlens_vit: Any, total_seqlens_vit: int, window_size: int) -> None:
    if total_seqlens_vit == 0:
        return
    build(window_size, num_vector_cores())(
        positions.data_ptr(),
        grid_hw.data_ptr(),
        cu_seqlens_vit.data_ptr(),
        total_seqlens_vit,
        grid_hw.shape[0],
    )


@kernel("ascend", auto_schedule=False)
def build(window_size: int, num_cores: int) -> Any:
    """One kernel for each window_size, 1 or 2.

    positions (total_seqlens_vit, 2); indices int32. The tokens are dealt out evenly, a contiguous share a core. A core
    finds the images of its share by a binary search in global memory and computes their positions in UB, one thread a
    token. So each position is stored once, by DMAs as large as the share, and of the indices only those of the core's
    own images are read: 32 images of 1024 tokens cost 1.01 times the bytes that must move, by 56 DMAs of 4.7 KB.

    Paths: shares inside an image, over several images, behind the last; images without tokens; wrong values. An image
    is written if its rows and columns are multiples of the window and make up its tokens. Where one is not, or the
    search finds none, the prefix sums may have misled the search, and the core tries every image. What no image
    claims holds (-1, -1).
    """
    assert window_size in (1, 2), "the bit operations below know no other window"
    shift = window_size - 1
    total_seqlens_vit = T.dynamic("total_seqlens_vit")
    num_images = T.dynamic("num_images")

    @T.prim_func
    def prepare_image_attn_pos_id(
        positions: T.Tensor((total_seqlens_vit, 2), "int32"),
        grid_hw: T.Tensor((num_images, 2), "int32"),
        cu_seqlens_vit: T.Tensor((num_images + 1,), "int32"),
    ):
        with T.Kernel(num_cores) as core:
            chunk = T.alloc_shared((2, CHUNK, 2), "int32")
            share = T.alloc_var("int32")
            begin = T.alloc_var("int32")
            size = T.alloc_var("int32")
            image = T.alloc_var("int32")
            stop = T.alloc_var("int32")
            value = T.alloc_var("int32")
            trusted = T.alloc_var("bool")
            first = T.alloc_var("int32")
            last = T.alloc_var("int32")
            rows = T.alloc_var("int32")
            columns = T.alloc_var("int32")
            low = T.alloc_var("int32")
            high = T.alloc_var("int32")

            T.ascend_set_flag("MTE3_V", 0)
            T.ascend_set_flag("MTE3_V", 1)
            share = T.max(T.ceildiv(total_seqlens_vit, num_cores), MIN_SHARE)
            begin = core * share
            share = T.min(share, total_seqlens_vit - begin)
            for part in T.serial(T.ceildiv(share, CHUNK)):
                slot = part % 2
                size = T.min(share - part * CHUNK, CHUNK)
                T.ascend_wait_flag("MTE3_V", slot)
                with T.SimtVF(threads=THREADS):
                    for step in T.serial(T.ceildiv(size, THREADS)):
                        for thread in T.Parallel(THREADS):
                            i = step * THREADS + thread
                            if i < size:
                                chunk[slot, i, 0] = -1
                                chunk[slot, i, 1] = -1
                # The last image that begins at or before the first token, and where it begins.
                image = -1
                stop = num_images
                while stop - image > 1:
                    value = cu_seqlens_vit[(image + stop) >> 1]
                    if value <= begin:
                        image = (image + stop) >> 1
                        last = value
                    else:
                        stop = (image + stop) >> 1
                trusted = True
                if image < 0:
                    trusted = False
                    image = 0
                    last = cu_seqlens_vit[0]
                while image < num_images and (last < begin + size or not trusted):
                    first = last
                    last = cu_seqlens_vit[image + 1]
                    rows = grid_hw[image, 0]
                    columns = grid_hw[image, 1]
                    if (
                        rows >= 0
                        and columns >= 0
                        and (rows | columns) & shift == 0
                        and T.cast(rows, "int64") * columns == T.cast(last, "int64") - first
                    ):
                        low = T.max(first, begin) - begin
                        high = T.min(last, begin + size) - begin
                        if low < high:
                            with T.SimtVF(threads=THREADS):
                                for step in T.serial(T.ceildiv(high - low, THREADS)):
                                    for thread in T.Parallel(THREADS):
                                        i = low + step * THREADS + thread
                                        if i < high:
                                            place = begin + i - first
                                            row = T.truncdiv(place, columns * window_size)
                                            rest = place - row * (columns * window_size)
                                            chunk[slot, i, 0] = row * window_size + ((rest >> shift) & shift)
                                            chunk[slot, i, 1] = ((rest >> (2 * shift)) << shift) | (rest & shift)
                    elif trusted:
                        trusted = False
                        image = -1
                        last = cu_seqlens_vit[0]
                    image = image + 1
                T.ascend_set_flag("V_MTE3", slot)
                T.ascend_wait_flag("V_MTE3", slot)
                T.copy(chunk[slot, 0:size, 0:2], positions[begin : begin + size, 0:2])
                T.ascend_set_flag("MTE3_V", slot)
                begin = begin + size
            T.ascend_wait_flag("MTE3_V", 0)
            T.ascend_wait_flag("MTE3_V", 1)

    return prepare_image_attn_pos_id
