"""CPU kernel of ``bmp_to_patches``."""

from functools import lru_cache
from typing import Any

import tilelang.cpu.language as T
import torch

from cann_ops_tilelang.core import kernel

# Least work worth a thread: 128 Ki values.
GRAIN_VALUES = 1 << 17


def launch(
    patches: Any,
    pixels: Any,
    offsets: Any,
    sizes: Any,
    cu_patches: Any,
    total_patches: int,
    patch_size: int,
    mean: Any,
    std: Any,
    crops: Any,
) -> None:
    num_values = 3 * patch_size**2
    build(patch_size, crops is not None)(
        patches.data_ptr(),
        pixels.data_ptr(),
        offsets.data_ptr(),
        sizes.data_ptr(),
        cu_patches.data_ptr(),
        None if crops is None else crops.data_ptr(),
        value_table(tuple(mean), tuple(std)).data_ptr(),
        total_patches * num_values,
        pixels.shape[0],
        sizes.shape[0],
        cu_patches.shape[0] - 1,
        total_patches,
        GRAIN_VALUES // num_values + 1,
    )


@lru_cache(maxsize=64)
def value_table(mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    """The result for every channel and byte, (3, 256) bfloat16: 768 divisions instead of two a pixel, and no rounding
    that depends on how a compiler orders them."""
    levels = torch.arange(256, dtype=torch.float32, device="cpu") / 255
    means, stds = (torch.tensor(values, dtype=torch.float32, device="cpu")[:, None] for values in (mean, std))
    return ((levels - means) / stds).bfloat16()


@kernel("cpu")
def build(patch_size: int, cropped: bool) -> Any:
    """One kernel for each patch_size, with or without crops. A task is a patch."""
    num_values = T.dynamic("num_values", "int64")
    num_bytes = T.dynamic("num_bytes", "int64")
    num_images = T.dynamic("num_images")
    num_crops = T.dynamic("num_crops")
    area = patch_size * patch_size

    @T.prim_func
    def bmp_to_patches(
        patches: T.Tensor((num_values,), "int16"),
        pixels: T.Tensor((num_bytes,), "uint8"),
        offsets: T.Tensor((num_images,), "int64"),
        sizes: T.Tensor((num_images, 2), "int32"),
        cu_patches: T.Tensor((num_crops + 1,), "int32"),
        crops: T.Tensor((num_crops, 5), "int32"),
        table: T.Tensor((3, 256), "int16"),
        begin: T.int32,
        end: T.int32,
    ):
        with T.Kernel(1):
            crop = T.alloc_var("int32")
            image = T.alloc_var("int32")
            top = T.alloc_var("int32")
            left = T.alloc_var("int32")
            columns = T.alloc_var("int32")
            patch = T.alloc_var("int32")
            stop = T.alloc_var("int32")
            place = T.alloc_var("int32")
            step = T.alloc_var("int64")
            origin = T.alloc_var("int64")
            source = T.alloc_var("int64")
            target = T.alloc_var("int64")
            crop = 0
            patch = begin
            while patch < T.min(end, cu_patches[num_crops]):
                while cu_patches[crop + 1] <= patch:
                    crop = crop + 1
                if cropped:
                    image = crops[crop, 0]
                    top = crops[crop, 1]
                    left = crops[crop, 2]
                    columns = T.truncdiv(crops[crop, 4], patch_size)
                else:
                    image = crop
                    top = 0
                    left = 0
                    columns = T.truncdiv(sizes[image, 1], patch_size)
                step = T.cast(sizes[image, 1], "int64") * 3 + 3 & -4
                origin = offsets[image] + top * step
                if sizes[image, 0] > 0:
                    origin = offsets[image] + (sizes[image, 0] - 1 - top) * step
                    step = -step
                origin = origin + left * 3
                stop = T.min(end, cu_patches[crop + 1])
                while patch < stop:
                    place = patch - cu_patches[crop]
                    source = (
                        origin
                        + T.truncdiv(place, columns) * patch_size * step
                        + T.truncmod(place, columns) * (3 * patch_size)
                    )
                    target = T.cast(patch, "int64") * (3 * area)
                    for channel, row, column in T.grid(3, patch_size, patch_size):
                        patches[target + (channel * area + row * patch_size + column)] = table[
                            channel, T.cast(pixels[source + row * step + (3 * column + 2 - channel)], "int32")
                        ]
                    patch = patch + 1
            target = T.cast(patch, "int64") * (3 * area)
            for value in T.serial(T.cast(end - patch, "int64") * (3 * area)):
                patches[target + value] = T.int16(0)

    return bmp_to_patches
