"""The vision front end under inductor, with the operators and in plain PyTorch.

``python -m cann_ops_tilelang.tools.composed SIDE operators|plain`` prints the peak memory of a call in MiB, which takes
a process of its own.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from .loading import operators
from .vision import Config, make_batch, make_front_end


def plain_operators(config: Config) -> SimpleNamespace:
    """What a model would do without the operators: well-written PyTorch for images of one known size."""
    pixels_per_side = config.side * config.patch_size

    def bmp_to_patches(pixels: Tensor, *_: Any, total_patches: int, patch_size: int) -> Tensor:
        images = pixels.view(-1, pixels_per_side, pixels_per_side, 3).flip(1, 3)
        normalised = ((images / 255 - 0.5) / 0.5).bfloat16()
        grid = normalised.unflatten(2, (-1, patch_size)).unflatten(1, (-1, patch_size))
        result: Tensor = grid.permute(0, 1, 3, 5, 2, 4).reshape(total_patches, -1)
        return result

    def prepare_image_attn_pos_id(grid_hw: Tensor, *_: Any, total_seqlens_vit: int) -> Tensor:
        index = torch.arange(total_seqlens_vit, device=grid_hw.device) % config.side**2
        return torch.stack([index // config.side, index % config.side], dim=1).int()

    def attn_rel_h_rel_w(q: Tensor, k: Tensor, v: Tensor, rel_h: Tensor, rel_w: Tensor, *, scale: float) -> Tensor:
        bias = (rel_h[..., :, None] + rel_w[..., None, :]).flatten(3)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        result: Tensor = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale).transpose(1, 2)
        return result

    def spans(embeds: Tensor, starts: Tensor) -> Tensor:
        return (starts[:, None] + torch.arange(config.side**2, device=embeds.device)).flatten()

    def replace_input_embeds(embeds: Tensor, images: Tensor, starts: Tensor, _: Tensor) -> None:
        embeds.index_copy_(0, spans(embeds, starts), images)

    def shuffle_image_tokens(embeds: Tensor, starts: Tensor, _: Tensor, *, groups: int) -> None:
        rows = spans(embeds, starts)
        tokens = embeds[rows].view(len(starts), groups, -1, embeds.shape[1])
        embeds.index_copy_(0, rows, tokens.transpose(1, 2).reshape(-1, embeds.shape[1]))

    local = locals()
    return SimpleNamespace(**{name: local[name] for name in vars(operators()) if name in local})


def front_end(side: int, kind: str) -> Callable[[], Tensor]:
    """A call of the compiled front end on an image of noise; ``kind``: operators or plain."""
    config = Config(side=side)
    size = side * config.patch_size
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "BMP")
    batch = make_batch(config, [file.getvalue()])
    ops = operators() if kind == "operators" else plain_operators(config)
    compiled = torch.compile(make_front_end(config, ops), fullgraph=True, dynamic=False)
    return lambda: compiled(batch)


def peak_mib(call: Callable[[], Any]) -> float:
    """The most memory resident during a call; Linux forgets earlier peaks when asked to."""
    call()
    Path("/proc/self/clear_refs").write_text("5")
    call()
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    with torch.inference_mode():
        print(peak_mib(front_end(int(sys.argv[1]), sys.argv[2])))
