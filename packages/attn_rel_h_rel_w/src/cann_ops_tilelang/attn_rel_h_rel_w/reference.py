"""``attn_rel_h_rel_w`` in plain PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def attn_rel_h_rel_w_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel_h: Tensor,
    rel_w: Tensor,
    *,
    scale: float | None = None,
    grid_hw: Sequence[int] | None = None,
) -> Tensor:
    """Same arguments and result as ``attn_rel_h_rel_w``, in any floating-point dtype."""
    seq_len, head_dim = q.shape[1], q.shape[3]
    grid_h, grid_w = grid_hw or (math.isqrt(seq_len), math.isqrt(seq_len))
    scale = head_dim**-0.5 if scale is None else scale
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    bias = rel_h[..., :grid_h, None] + rel_w[..., None, :grid_w]
    scores = scale * q @ k.transpose(2, 3) + bias.flatten(3)
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(q.dtype, torch.float32))
    return (weights.to(v.dtype) @ v).transpose(1, 2).contiguous()
