"""Benchmark of ``shuffle_image_tokens``."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from cann_ops_tilelang.shuffle_image_tokens import shuffle_image_tokens
from cann_ops_tilelang.tools.bench import Case, Scaling

START = 37


def make(n: int, hidden: int = 2048) -> tuple[Tensor, Tensor, Tensor]:
    embeds = torch.randn(n + 2 * START, hidden).bfloat16()
    return embeds, torch.tensor([START], dtype=torch.int32), torch.tensor([0, n], dtype=torch.int32)


def clone_and_copy(embeds: Tensor, n: int, groups: int) -> None:
    span = embeds[START : START + n]
    span.copy_(span.clone().view(groups, n // groups, -1).transpose(0, 1).reshape(n, -1))


def gather(embeds: Tensor, n: int, groups: int) -> None:
    """One temporary: PyTorch gathers it in order, and copies it back."""
    span = embeds[START : START + n]
    span.copy_(span.view(groups, n // groups, -1).transpose(0, 1).reshape(n, -1))


def cases() -> Iterator[Case]:
    """No inductor: torch 2.13.0 drops the clone and computes something else."""
    n = 1024
    for groups in (2, 4, 32):
        embeds, starts, bounds = make(n)
        baselines: dict[str, Callable[[], Any]] = {
            "clone + copy": lambda e=embeds, g=groups: clone_and_copy(e, n, g),
            "gather + copy": lambda e=embeds, g=groups: gather(e, n, g),
        }

        def ours(arguments: Any = (embeds, starts, bounds), groups: int = groups) -> None:
            shuffle_image_tokens(*arguments, groups=groups)

        yield Case(
            f"{groups} groups",
            ours,
            baselines,
            written=(embeds,),
            num_bytes=2 * n * 2048 * 2,
            targets={"best": 2.0},
        )


def scaling() -> Scaling:
    calls = []
    for n in (16, 64, 256, 1024, 4096, 16384, 65536):
        arguments = make(n)
        calls.append((n, lambda arguments=arguments: shuffle_image_tokens(*arguments, groups=4)))
    return Scaling("tokens of 2048 bfloat16", calls)
