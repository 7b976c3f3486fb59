"""Benchmark of ``replace_input_embeds``."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from cann_ops_tilelang.replace_input_embeds import replace_input_embeds
from cann_ops_tilelang.tools.bench import Case, Scaling

GAP = 37


def make(rows: int, spans: int, hidden: int = 2048) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Spans of equal length with text between them."""
    length = rows // spans
    starts = torch.arange(spans, dtype=torch.int32) * (length + GAP) + GAP
    bounds = torch.arange(spans + 1, dtype=torch.int32) * length
    embeds = torch.randn(spans * (length + GAP) + GAP, hidden).bfloat16()
    return embeds, torch.randn(rows, hidden).bfloat16(), starts, bounds


def cases() -> Iterator[Case]:
    for spans in (1, 16):
        embeds, images, starts, bounds = make(1024, spans)
        length = len(images) // spans
        rows = torch.cat([torch.arange(start, start + length) for start in starts.tolist()])
        mask = torch.zeros(len(embeds), 1, dtype=torch.bool)
        mask[rows] = True
        pairs = [(start, index * length) for index, start in enumerate(starts.tolist())]

        def slices(embeds: Tensor, images: Tensor, pairs: Any = pairs, length: int = length) -> None:
            for start, first in pairs:
                embeds[start : start + length] = images[first : first + length]

        inductor = torch.compile(slices, dynamic=False)
        baselines: dict[str, Callable[[], Any]] = {
            "index_copy_": lambda e=embeds, i=images, rows=rows: e.index_copy_(0, rows, i),
            "masked_scatter_": lambda e=embeds, i=images, mask=mask: e.masked_scatter_(mask, i),
            "slice copies": lambda e=embeds, i=images, slices=slices: slices(e, i),
            "inductor": lambda e=embeds, i=images, inductor=inductor: inductor(e, i),
        }

        def ours(arguments: Any = (embeds, images, starts, bounds)) -> None:
            replace_input_embeds(*arguments)

        yield Case(
            f"{spans} span{'s' if spans > 1 else ''}",
            ours,
            baselines,
            written=(embeds,),
            num_bytes=2 * images.nbytes,
            targets={"index_copy_": 4, "masked_scatter_": 25, "slice copies": 1.2},
        )


def scaling() -> Scaling:
    calls = []
    for rows in (16, 64, 256, 1024, 4096, 16384, 65536):
        arguments = make(rows, 4)
        calls.append((rows, lambda arguments=arguments: replace_input_embeds(*arguments)))
    return Scaling("rows of 2048 bfloat16", calls)
