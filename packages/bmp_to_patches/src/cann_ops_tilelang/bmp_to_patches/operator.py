"""Contract and registration of ``bmp_to_patches``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cann_ops_tilelang.core import INT32, INT64, UINT8, operator, option, require, tensor

# Above this many crops a few dozen tensor operations cost less than a Python loop.
MANY_CROPS = 64


def check_values(
    pixels: Tensor,
    offsets: Tensor,
    sizes: Tensor,
    cu_patches: Tensor,
    total_patches: int,
    patch_size: int,
    mean: Sequence[float],
    std: Sequence[float],
    crops: Tensor | None,
) -> None:
    """Raise the ValueError that names the first image or crop whose values are not as the contract states."""
    if cu_patches.shape[0] > MANY_CROPS and _valid(
        pixels, offsets, sizes, cu_patches, total_patches, patch_size, crops
    ):
        return
    images = sizes.tolist()
    for image, (offset, (height, width)) in enumerate(zip(offsets.tolist(), images)):
        if height == 0 or width <= 0:
            raise ValueError(
                "bmp_to_patches: sizes must hold a height that is not 0 and a positive width, "
                f"got {height} x {width} for image {image}"
            )
        num_bytes = abs(height) * row_bytes(width)
        if not 0 <= offset <= len(pixels) - num_bytes:
            raise ValueError(
                f"bmp_to_patches: offsets must keep images within the {len(pixels)} bytes of pixels, "
                f"got {offset} for image {image} of {num_bytes} bytes"
            )
    if crops is None:
        boxes = [[image, 0, 0, abs(height), width] for image, (height, width) in enumerate(images)]
    else:
        boxes = crops.tolist()
    bounds = cu_patches.tolist()
    if bounds[0] != 0:
        raise ValueError(f"bmp_to_patches: cu_patches must start at 0, got {bounds[0]} for image 0")
    for crop, (image, top, left, height, width) in enumerate(boxes):
        if crops is None:
            where, source = f"image {image}", "sizes"
        else:
            where, source = f"crop {crop} of image {image}", "crops"
            if not 0 <= image < len(images):
                raise ValueError(
                    f"bmp_to_patches: crops must be of one of {len(images)} images, got image {image} for crop {crop}"
                )
            full_height, full_width = abs(images[image][0]), images[image][1]
            if not (0 <= top <= top + height <= full_height and 0 <= left <= left + width <= full_width):
                raise ValueError(
                    f"bmp_to_patches: crops must stay within their image of {full_height} x {full_width}, "
                    f"got {height} x {width} at ({top}, {left}) for {where}"
                )
        if height % patch_size or width % patch_size:
            raise ValueError(
                f"bmp_to_patches: {source} must hold multiples of patch_size {patch_size}, "
                f"got {height} x {width} for {where}"
            )
        expected = (height // patch_size) * (width // patch_size)
        if bounds[crop + 1] - bounds[crop] != expected:
            raise ValueError(
                f"bmp_to_patches: cu_patches must grow by the patches of each image, {expected} for {where}, "
                f"got {bounds[crop + 1] - bounds[crop]}"
            )
        if bounds[crop + 1] > total_patches:
            raise ValueError(
                f"bmp_to_patches: total_patches must be >= cu_patches, got {total_patches} for {bounds[crop + 1]} "
                f"patches up to {where}"
            )


def _valid(
    pixels: Tensor,
    offsets: Tensor,
    sizes: Tensor,
    cu_patches: Tensor,
    total_patches: int,
    patch_size: int,
    crops: Tensor | None,
) -> bool:
    if sizes.shape[0] == 0:
        return False
    heights, widths = sizes[:, 0].long().abs(), sizes[:, 1].long()
    # Rows are counted, not bytes: the product of a height and a width may wrap around.
    fitting = (len(pixels) - offsets) // row_bytes(widths.clamp(min=1))
    if crops is None:
        boxes = torch.stack([heights, widths], 1)
        inside = True
    else:
        image, corners, boxes = crops[:, 0].long(), crops[:, 1:3].long(), crops[:, 3:].long()
        if int(image.min()) < 0 or int(image.max()) >= len(sizes):
            return False
        limits = torch.stack([heights, widths], 1)[image]
        inside = int(crops.min()) >= 0 and bool((corners + boxes <= limits).all())
    bounds = cu_patches.long()
    return bool(
        inside
        and int(heights.min()) > 0
        and int(widths.min()) > 0
        and int(offsets.min()) >= 0
        and (heights <= fitting).all()
        and not (boxes % patch_size).any()
        and int(bounds[0]) == 0
        and int(bounds[-1]) <= total_patches
        and bounds.diff().equal((boxes // patch_size).prod(1))
    )


def row_bytes(width: Any) -> Any:
    """Bytes of one stored row: three a pixel, padded to a multiple of four."""
    return (3 * width + 3) // 4 * 4


@operator(
    tensor("pixels", "num_bytes", UINT8),
    tensor("offsets", "num_images", INT64),
    tensor("sizes", "num_images, 2", INT32),
    tensor("cu_patches", "num_crops + 1", INT32),
    option("total_patches", int, at_least=0, at_most=2**31 - 1),
    option("patch_size", int, at_least=1),
    option("mean", float, length=3),
    option("std", float, length=3),
    tensor("crops", "num_crops, 5", INT32, optional=True),
    values=check_values,
)
def bmp_to_patches(
    pixels: Tensor,
    offsets: Tensor,
    sizes: Tensor,
    cu_patches: Tensor,
    *,
    total_patches: int,
    patch_size: int,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.5, 0.5, 0.5),
    crops: Tensor | None = None,
) -> Tensor:
    """Cut the pixels of BMP files, as stored, into normalised patches for a patch embedding.

    Crops follow each other in order, the patches of a crop row by row. A patch is flattened as (channel, row, column)
    with the channels R, G, B, so that ``F.linear(patches, conv.weight.flatten(1))`` is the convolution of a patch
    embedding. A byte ``p`` becomes ``(p / 255 - mean[c]) / std[c]``, in float32 and rounded once to bfloat16.

    Args:
        pixels: (num_bytes,) uint8, pixel arrays of 24-bit uncompressed BMP files: B, G, R, rows padded to 4 bytes.
        offsets: (num_images,) int64, the first byte of each image's pixel array.
        sizes: (num_images, 2) int32, height and width in pixels with the sign of the BMP header: height > 0 where rows
            are stored bottom-up, height < 0 where they are stored top-down.
        cu_patches: (num_crops + 1,) int32, prefix sums of patches per crop, starting at 0.
        total_patches: rows of the result, at least ``cu_patches[-1]``.
        patch_size: side of a patch in pixels.
        mean, std: per channel R, G, B, in units of the full range; std is positive and finite.
        crops: (num_crops, 5) int32, (image, top, left, height, width) in pixels of the upright image; height and width
            are multiples of patch_size. None: every image, whole.

    Returns:
        (total_patches, 3 * patch_size ** 2) bfloat16; zero from ``cu_patches[-1]`` on.

    Raises:
        TypeError: an argument is not a tensor, has another dtype, or an option has another type.
        ValueError: rank, shape, device, layout or an option is not as stated; on CPU also a value in offsets, sizes,
            cu_patches or crops, naming the image.
    """
    name = "bmp_to_patches"
    if crops is None:
        require(
            cu_patches.shape[0] == sizes.shape[0] + 1,
            lambda: (
                f"{name}: cu_patches must have shape (num_images + 1,) with num_images = {sizes.shape[0]} "
                f"if crops is None, got shape {tuple(cu_patches.shape)}"
            ),
        )
    if not all(0 < value < math.inf for value in std):
        raise ValueError(f"{name}: std must be positive and finite, got {std}")
    return pixels.new_empty((total_patches, 3 * patch_size**2), dtype=torch.bfloat16)
