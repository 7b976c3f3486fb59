"""Benchmark of ``attn_rel_h_rel_w``."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from cann_ops_tilelang.attn_rel_h_rel_w import attn_rel_h_rel_w
from cann_ops_tilelang.attn_rel_h_rel_w.reference import attn_rel_h_rel_w_reference
from cann_ops_tilelang.testing import calc_diff
from cann_ops_tilelang.tools.bench import Case, Scaling

HEADS, HEAD_DIM = 12, 64


def make(batch: int, side: int) -> tuple[Tensor, ...]:
    seq_len = side * side
    q, k, v = torch.randn(batch, seq_len, 3, HEADS, HEAD_DIM).bfloat16().unbind(2)
    rel_h, rel_w = torch.randn(2, batch, HEADS, seq_len, side).bfloat16()
    return q, k, v, rel_h, rel_w


def sdpa(q: Tensor, k: Tensor, v: Tensor, rel_h: Tensor, rel_w: Tensor) -> Tensor:
    """PyTorch's attention with the bias written out."""
    bias = (rel_h[..., :, None] + rel_w[..., None, :]).flatten(3)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


def flex(side: int) -> Callable[..., Tensor]:
    """PyTorch's compiled attention with the bias looked up per score."""

    def run(q: Tensor, k: Tensor, v: Tensor, rel_h: Tensor, rel_w: Tensor) -> Tensor:
        def bias(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return score + rel_h[b, h, i, j // side] + rel_w[b, h, i, j % side]

        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        return flex_attention(q, k, v, score_mod=bias).transpose(1, 2)

    return torch.compile(run, dynamic=False)


def cases() -> Iterator[Case]:
    for batch, side, target in [(2, 14, 2.5), (1, 40, 3.0), (1, 64, 2.5)]:
        arguments = make(batch, side)
        inductor = torch.compile(attn_rel_h_rel_w_reference, dynamic=False)
        candidates = {
            "eager": attn_rel_h_rel_w_reference,
            "SDPA + bias": sdpa,
            "inductor": inductor,
            "flex_attention": flex(side),
        }

        yield Case(
            f"{batch} x side {side}",
            lambda arguments=arguments: attn_rel_h_rel_w(*arguments),
            {
                name: lambda candidate=candidate, arguments=arguments: candidate(*arguments)
                for name, candidate in candidates.items()
            },
            equal=lambda _, ours, theirs: calc_diff(ours, theirs) < 1e-4,
            flops=4 * batch * HEADS * HEAD_DIM * side**4,
            targets={"best": target},
            slow=side == 64,
        )


def scaling() -> Scaling:
    calls = []
    for side in (2, 4, 8, 14, 20, 28, 40, 64, 80):
        arguments = make(1, side)
        calls.append((side * side, lambda arguments=arguments: attn_rel_h_rel_w(*arguments)))
    return Scaling("tokens", calls, power=2)
