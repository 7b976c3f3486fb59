"""Benchmark of ``prepare_image_attn_pos_id``."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.qwen2_vl.modeling_qwen2_vl import get_vision_position_ids

from cann_ops_tilelang.prepare_image_attn_pos_id import prepare_image_attn_pos_id
from cann_ops_tilelang.tools.bench import Case, Scaling

WINDOW = 2


def make(num_images: int, tokens_per_image: int) -> tuple[Tensor, Tensor, int]:
    generator = torch.Generator().manual_seed(0)
    side = round(tokens_per_image**0.5) // WINDOW
    grid_hw = WINDOW * torch.randint(max(1, side // 2), side + side // 2 + 1, (num_images, 2), generator=generator)
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), grid_hw.prod(1).cumsum(0)]).int()
    return grid_hw.int(), bounds, int(bounds[-1])


def vectorised(grid_hw: Tensor, cu_seqlens: Tensor, total: int, window: int) -> Tensor:
    """All tokens at once."""
    image = torch.repeat_interleave(torch.arange(len(grid_hw)), cu_seqlens.diff(), output_size=total)
    token = torch.arange(total, dtype=torch.int32) - cu_seqlens[image]
    columns = grid_hw[image, 1]
    inside = token % (window * window)
    index = token // (window * window)
    across = columns // window
    row = index // across * window + inside // window
    column = index % across * window + inside % window
    return torch.stack([row, column], dim=1)


def cases() -> Iterator[Case]:
    for num_images, tokens in [(1, 4096), (32, 1024), (1000, 64)]:
        grid_hw, bounds, total = make(num_images, tokens)
        grid_thw = F.pad(grid_hw, (1, 0), value=1)
        inductor = torch.compile(vectorised, dynamic=False)

        def ours(grid_hw: Tensor = grid_hw, bounds: Tensor = bounds, total: int = total) -> Tensor:
            return prepare_image_attn_pos_id(grid_hw, bounds, total_seqlens_vit=total, window_size=WINDOW)

        baselines = {
            # The loop over images of the Qwen-VL family of vision encoders.
            "transformers": lambda grid_thw=grid_thw: get_vision_position_ids(grid_thw, WINDOW),
            "eager, vectorised": lambda a=(grid_hw, bounds, total): vectorised(*a, WINDOW),
            "inductor, vectorised": lambda a=(grid_hw, bounds, total), run=inductor: run(*a, WINDOW),
        }

        yield Case(
            f"{num_images} image{'s' if num_images > 1 else ''}",
            ours,
            baselines,
            equal=lambda _, ours, theirs: torch.equal(ours, theirs.int()),
            num_bytes=8 * total,
            targets={"transformers": 20, "eager, vectorised": 1.5},
        )


def scaling() -> Scaling:
    calls = []
    for num_images in (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536):
        grid_hw, bounds, total = make(num_images, 256)
        calls.append(
            (
                total,
                lambda a=(grid_hw, bounds), total=total: prepare_image_attn_pos_id(
                    *a, total_seqlens_vit=total, window_size=WINDOW
                ),
            )
        )
    return Scaling("tokens, 256 an image", calls)
