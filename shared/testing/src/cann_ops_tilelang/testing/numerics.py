"""Comparing results."""

from __future__ import annotations

import torch
from torch import Tensor

from .guards import bits


def calc_diff(x: Tensor, y: Tensor) -> float:
    """``sum((x - y)^2) / sum(x^2 + y^2)`` in float64: 0 for equal tensors, about 1 for unrelated ones."""
    x, y = x.detach().cpu().double(), y.detach().cpu().double()
    if x.shape != y.shape:
        raise ValueError(f"calc_diff: shapes differ, {tuple(x.shape)} and {tuple(y.shape)}")
    scale = (x * x + y * y).sum().item()
    difference = ((x - y) ** 2).sum().item()
    return difference / scale if scale != 0 else difference


def bit_equal(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bits; NaNs with equal payloads are equal."""
    return x.dtype == y.dtype and x.shape == y.shape and torch.equal(bits(x), bits(y))


def random_bits(*shape: int, dtype: torch.dtype) -> Tensor:
    """Every pattern of bits: NaNs with payloads, infinities, subnormal numbers, negative zero."""
    return torch.randint(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), dtype=torch.uint8).view(dtype)
