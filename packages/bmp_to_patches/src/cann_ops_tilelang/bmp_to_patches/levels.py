"""What ``bmp_to_patches`` makes of every byte, computed once per normalisation, for the CPU kernel."""

from functools import lru_cache

import torch
from torch import Tensor


def has_vbmi() -> bool:
    """Whether the processor, for which kernels are compiled, permutes bytes of 512-bit registers."""
    return bool(torch.cpu.get_capabilities().get("avx512_vbmi", False))


@lru_cache(maxsize=64)
def value_table(mean: tuple[float, ...], std: tuple[float, ...], split: bool) -> Tensor:
    """The result for every channel and byte: (3, 256) bfloat16, or (3, 2, 256) uint8, split into low and high bytes.

    768 exact divisions instead of two a pixel, and no rounding that depends on how a compiler orders them.
    """
    levels = torch.arange(256, dtype=torch.float32, device="cpu") / 255
    means, stds = (torch.tensor(values, dtype=torch.float32, device="cpu")[:, None] for values in (mean, std))
    table = ((levels - means) / stds).bfloat16()
    return table.view(torch.uint8).view(3, 256, 2).transpose(1, 2).contiguous() if split else table
