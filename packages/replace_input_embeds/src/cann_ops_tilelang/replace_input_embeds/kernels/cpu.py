"""CPU kernel of ``replace_input_embeds``."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

# Least work worth a thread: 256 KiB copied.
GRAIN_BYTES = 1 << 18


def launch(input_embeds: Any, image_embeds: Any, image_starts: Any, cu_image_tokens: Any) -> None:
    num_rows, hidden_size = image_embeds.shape
    halves = input_embeds.element_size() // 2
    width = hidden_size * halves
    build()(
        input_embeds.data_ptr(),
        image_embeds.data_ptr(),
        image_starts.data_ptr(),
        cu_image_tokens.data_ptr(),
        input_embeds.shape[0],
        input_embeds.stride(0) * halves,
        num_rows,
        width,
        image_starts.shape[0],
        num_rows,
        GRAIN_BYTES // (2 * width + 1) + 1,
    )


@kernel("cpu")
def build() -> Any:
    """One kernel for every shape and dtype: elements are copied as 16-bit halves, so that no bit changes.

    input_embeds (num_tokens, row_stride), of which each row's first ``width`` halves are written; image_embeds
    (num_rows, width); both int16. A task is a row of image_embeds; rows that belong to no image are left out.
    """
    num_tokens = T.dynamic("num_tokens", "int64")
    row_stride = T.dynamic("row_stride", "int64")
    num_rows = T.dynamic("num_rows", "int64")
    width = T.dynamic("width", "int64")
    num_images = T.dynamic("num_images")

    @T.prim_func
    def replace_input_embeds(
        input_embeds: T.Tensor((num_tokens, row_stride), "int16"),
        image_embeds: T.Tensor((num_rows, width), "int16"),
        image_starts: T.Tensor((num_images,), "int32"),
        cu_image_tokens: T.Tensor((num_images + 1,), "int32"),
        begin: T.int32,
        end: T.int32,
    ):
        with T.Kernel(1):
            image = T.alloc_var("int32")
            row = T.alloc_var("int32")
            stop = T.alloc_var("int32")
            shift = T.alloc_var("int32")
            image = 0
            row = begin
            while row < T.min(end, cu_image_tokens[num_images]):
                while cu_image_tokens[image + 1] <= row:
                    image = image + 1
                stop = T.min(end, cu_image_tokens[image + 1])
                shift = image_starts[image] - cu_image_tokens[image]
                while row < stop:
                    for j in T.serial(width):
                        input_embeds[row + shift, j] = image_embeds[row, j]
                    row = row + 1

    return replace_input_embeds
