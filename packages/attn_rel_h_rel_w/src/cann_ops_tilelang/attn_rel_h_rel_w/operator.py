"""Contract and registration of ``attn_rel_h_rel_w``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cann_ops_tilelang.core import BFLOAT16, dim, operator, option, require, tensor


@operator(
    tensor("q", "batch, seq_len, heads, head_dim", BFLOAT16, layout="rows"),
    tensor("k", "batch, seq_len, heads, head_dim", BFLOAT16, layout="rows"),
    tensor("v", "batch, seq_len, heads, head_dim", BFLOAT16, layout="rows"),
    tensor("rel_h", "batch, heads, seq_len, _", BFLOAT16, layout="rows"),
    tensor("rel_w", "batch, heads, seq_len, _", BFLOAT16, layout="rows"),
    option("scale", float, optional=True),
    option("grid_hw", int, length=2, optional=True, at_least=0),
    dim("head_dim", at_least=16, at_most=128, multiple_of=16),
)
def attn_rel_h_rel_w(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel_h: Tensor,
    rel_w: Tensor,
    *,
    scale: float | None = None,
    grid_hw: Sequence[int] | None = None,
) -> Tensor:
    """Attention over a grid of tokens with a decomposed relative position bias, without materialising the bias.

    The tokens are the cells of a grid of ``grid_h`` rows and ``grid_w`` columns, row by row. For query i and key j::

        score[i, j] = scale * q[i] . k[j] + rel_h[i, j // grid_w] + rel_w[i, j % grid_w]

    The result is the softmax of the scores over j times v, as in the image encoder of Segment Anything
    (https://arxiv.org/abs/2304.02643). Scores, softmax and sums are float32; the weights are rounded to bfloat16 before
    they meet v, and the result is rounded once.

    Args:
        q: (batch, seq_len, heads, head_dim) bfloat16; head_dim is a multiple of 16, at most 128.
        k: like q.
        v: like q.
        rel_h: (batch, heads, seq_len, grid_h or more) bfloat16. Columns past the grid are never used.
        rel_w: (batch, heads, seq_len, grid_w or more) bfloat16. Columns past the grid are never used.
        scale: factor of the dot products; head_dim ** -0.5 if None.
        grid_hw: (grid_h, grid_w) with grid_h * grid_w == seq_len; a square grid if None.

    The last dimension of every tensor is contiguous; the other strides are free. A bias of -inf removes the key; a
    query that is left without keys gives NaN, as in ``torch.softmax``.

    Returns:
        (batch, seq_len, heads, head_dim) bfloat16, contiguous.

    Raises:
        TypeError: an argument is not a tensor or number as stated, or has another dtype.
        ValueError: rank, shape, device, layout or grid is not as stated; on NPU also a grid of more than about 14,000
            rows and columns together, as the bias of 16 queries must fit the memory of a core.
    """
    seq_len = q.shape[1]
    if grid_hw is None:
        grid_h = grid_w = torch.sym_int(torch.sym_sqrt(seq_len))
        require(
            grid_h * grid_w == seq_len,
            lambda: (
                f"attn_rel_h_rel_w: grid_hw must be given unless seq_len is a square, got None for {seq_len} tokens"
            ),
        )
    else:
        grid_h, grid_w = grid_hw
        require(
            grid_h * grid_w == seq_len,
            lambda: (
                "attn_rel_h_rel_w: grid_hw must be (grid_h, grid_w) with grid_h * grid_w == seq_len, "
                f"got {tuple(grid_hw)} for {seq_len} tokens"
            ),
        )
    _require_columns("rel_h", rel_h, grid_h)
    _require_columns("rel_w", rel_w, grid_w)
    return q.new_empty(q.shape)


def _require_columns(name: str, bias: Tensor, size: int) -> None:
    require(
        bias.shape[3] >= size,
        lambda: (
            f"attn_rel_h_rel_w: {name} must have at least grid_{name[-1]} = {size} columns, "
            f"got shape {tuple(bias.shape)}"
        ),
    )
