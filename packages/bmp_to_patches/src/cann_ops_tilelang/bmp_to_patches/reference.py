"""``bmp_to_patches`` in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def bmp_to_patches_reference(
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
    """Same arguments and result as ``bmp_to_patches``."""
    if crops is None:
        whole = [(image, 0, 0, abs(height), width) for image, (height, width) in enumerate(sizes.tolist())]
    else:
        whole = crops.tolist()
    patches = torch.zeros(total_patches, 3 * patch_size**2, dtype=torch.bfloat16, device=pixels.device)
    means, stds = (torch.tensor(values, dtype=torch.float32, device=pixels.device) for values in (mean, std))
    for (image, top, left, height, width), start in zip(whole, cu_patches.tolist()):
        crop = upright(pixels, int(offsets[image]), *sizes[image].tolist())[top : top + height, left : left + width]
        normalised = ((crop / 255 - means) / stds).bfloat16()
        grid = normalised.unflatten(1, (-1, patch_size)).unflatten(0, (-1, patch_size))
        flat = grid.permute(0, 2, 4, 1, 3).flatten(2).flatten(0, 1)
        patches[start : start + len(flat)] = flat
    return patches


def upright(pixels: Tensor, offset: int, signed_height: int, width: int) -> Tensor:
    """The (height, width, RGB) image stored in a BMP's pixel array."""
    height, row_bytes = abs(signed_height), (3 * width + 3) // 4 * 4
    rows = pixels[offset : offset + height * row_bytes].view(height, row_bytes)[:, : 3 * width]
    if signed_height > 0:
        rows = rows.flip(0)
    image: Tensor = rows.unflatten(1, (width, 3)).flip(2)
    return image
