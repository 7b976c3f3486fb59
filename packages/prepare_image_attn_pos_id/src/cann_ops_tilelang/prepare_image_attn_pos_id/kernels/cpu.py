"""CPU kernel of ``prepare_image_attn_pos_id``."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

# Least work worth a thread: 256 KiB of positions.
GRAIN = 1 << 15


def launch(positions: Any, grid_hw: Any, cu_seqlens_vit: Any, total_seqlens_vit: int, window_size: int) -> None:
    build(window_size)(
        positions.data_ptr(),
        grid_hw.data_ptr(),
        cu_seqlens_vit.data_ptr(),
        total_seqlens_vit,
        grid_hw.shape[0],
        total_seqlens_vit,
        GRAIN,
    )


@kernel("cpu")
def build(window_size: int) -> Any:
    """One kernel for each window_size, 1 or 2.

    positions (total_seqlens_vit,) int64: a position is one number, the row in its low half and the column in its high
    half. A task is a token. An image's tokens fall into bands, the tokens of one row of windows: ``columns``
    times ``window_size`` of them, written by one loop without divisions.

    Paths: a range of tasks that begins inside an image, or inside a band; one that ends there; whole images;
    images without tokens; padding behind the last image.
    """
    assert window_size in (1, 2), "the bit operations below know no other window"
    shift = window_size - 1
    total_seqlens_vit = T.dynamic("total_seqlens_vit")
    num_images = T.dynamic("num_images")

    @T.prim_func
    def prepare_image_attn_pos_id(
        positions: T.Tensor((total_seqlens_vit,), "int64"),
        grid_hw: T.Tensor((num_images, 2), "int32"),
        cu_seqlens_vit: T.Tensor((num_images + 1,), "int32"),
        begin: T.int32,
        end: T.int32,
    ):
        with T.Kernel(1):
            image = T.alloc_var("int32")
            token = T.alloc_var("int32")
            stop = T.alloc_var("int32")
            band = T.alloc_var("int32")
            first = T.alloc_var("int32")
            last = T.alloc_var("int32")
            row = T.alloc_var("int64")
            image = 0
            token = begin
            while token < T.min(end, cu_seqlens_vit[num_images]):
                while cu_seqlens_vit[image + 1] <= token:
                    image = image + 1
                stop = T.min(end, cu_seqlens_vit[image + 1])
                band = grid_hw[image, 1] * window_size
                row = T.truncdiv(token - cu_seqlens_vit[image], band) * window_size
                first = T.truncmod(token - cu_seqlens_vit[image], band)
                while token < stop:
                    last = T.min(band, first + stop - token)
                    for k in T.serial(last - first):
                        place = T.cast(first + k, "int64")
                        column = ((place >> (2 * shift)) << shift) | (place & shift)
                        positions[token + k] = (column << 32) | (row + ((place >> shift) & shift))
                    token = token + last - first
                    row = row + window_size
                    first = 0
            for k in T.serial(end - token):
                positions[token + k] = T.int64(-1)

    return prepare_image_attn_pos_id
