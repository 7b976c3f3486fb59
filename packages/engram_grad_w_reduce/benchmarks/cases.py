"""Benchmark of ``engram_grad_w_reduce``."""

from collections.abc import Iterator

import torch
from torch import Tensor

from cann_ops_tilelang.engram_grad_w_reduce import engram_grad_w_reduce
from cann_ops_tilelang.engram_grad_w_reduce.reference import engram_grad_w_reduce_reference
from cann_ops_tilelang.testing import calc_diff
from cann_ops_tilelang.tools.bench import Case, Scaling

HC_MULT = 4


def make(num_partials: int, hidden_size: int) -> tuple[Tensor, ...]:
    shape = (HC_MULT, hidden_size)
    weights = torch.randn(2, *shape).bfloat16()
    return torch.randn(num_partials, *shape), weights[0], weights[1], torch.randn(shape), torch.randn(shape)


def well_written(partial: Tensor, hidden: Tensor, embed: Tensor, grad_hidden: Tensor, grad_embed: Tensor) -> None:
    """One reduction, and no temporary but its result and the widened weights."""
    total = partial.sum(0)
    grad_hidden.addcmul_(total, embed.float())
    grad_embed.addcmul_(total, hidden.float())


def cases() -> Iterator[Case]:
    """The last shape is larger than the caches; the largest of the others is also measured with empty ones."""
    for num_partials, hidden_size in [(7, 4096), (37, 2560), (38, 3072), (75, 6144), (1000, 2560)]:
        arguments = make(num_partials, hidden_size)
        inductor = torch.compile(engram_grad_w_reduce_reference, dynamic=False)
        size = HC_MULT * hidden_size
        for cold in (False, True) if num_partials == 75 else (False,):
            yield Case(
                f"({num_partials}, {hidden_size})",
                lambda arguments=arguments: engram_grad_w_reduce(*arguments),
                {
                    "eager": lambda arguments=arguments: engram_grad_w_reduce_reference(*arguments),
                    "eager, well written": lambda arguments=arguments: well_written(*arguments),
                    "inductor": lambda arguments=arguments, inductor=inductor: inductor(*arguments),
                },
                written=arguments[3:],
                equal=lambda _, ours, theirs: calc_diff(ours, theirs) < 1e-10,
                num_bytes=4 * size * num_partials + 2 * 2 * size + 2 * 2 * 4 * size,
                targets={} if cold else {"best": 1.5},
                bandwidth_target=0.7 if num_partials == 1000 else None,
                cold=cold,
            )


def scaling() -> Scaling:
    calls = []
    for num_partials in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
        arguments = make(num_partials, 6144)
        calls.append((num_partials, lambda arguments=arguments: engram_grad_w_reduce(*arguments)))
    return Scaling("partials of 4 x 6144 float32", calls)
