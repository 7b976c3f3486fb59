"""The vision front end of an OCR model in small, from BMP bytes to image tokens in the language model's embeddings.

It is the program that the operators were made for. Which operators it calls is an argument: the kernels, or the plain
PyTorch references for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes of the front end. ``side``: patches per image side."""

    side: int = 16
    patch_size: int = 16
    num_heads: int = 12
    head_dim: int = 64
    window: int = 8
    text_hidden_size: int = 1024
    groups: int = 4

    @property
    def hidden_size(self) -> int:
        return self.num_heads * self.head_dim


@dataclass
class Batch:
    """Inputs of one call. ``input_embeds`` is written."""

    pixels: Tensor
    offsets: Tensor
    sizes: Tensor
    cu_patches: Tensor
    grid_hw: Tensor
    input_embeds: Tensor
    image_starts: Tensor

    def to(self, device: str | torch.device) -> Batch:
        return Batch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    def clone(self) -> Batch:
        return Batch(**{field.name: getattr(self, field.name).clone() for field in fields(self)})

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


class Attention(nn.Module):
    """Self-attention of a SAM-style encoder with rotary phases and decomposed relative positions."""

    def __init__(self, config: Config, side: int, ops: SimpleNamespace) -> None:
        super().__init__()
        self.config, self.side, self.ops = config, side, ops
        hidden, head_dim = config.hidden_size, config.head_dim
        self.norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        with torch.no_grad():
            # Equal queries and keys: without any training a token attends to what looks like it.
            self.qkv.weight[:hidden] *= 2
            self.qkv.weight[hidden : 2 * hidden] = self.qkv.weight[:hidden]
        self.out = nn.Linear(hidden, hidden)
        self.rel_pos_h = nn.Parameter(0.05 * torch.randn(2 * side - 1, head_dim))
        self.rel_pos_w = nn.Parameter(0.05 * torch.randn(2 * side - 1, head_dim))

    def heads(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        """(batch, side * side, hidden) to q, k, v, rel_h and rel_w as the operator takes them."""
        batch, side = x.shape[0], self.side
        qkv = self.qkv(self.norm(x)).view(batch, side * side, 3, self.config.num_heads, self.config.head_dim)
        q, k, v = qkv.unbind(2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        distance = torch.arange(side, device=x.device)
        distance = distance[:, None] - distance[None, :] + side - 1
        grid = q.reshape(batch, side, side, self.config.num_heads, self.config.head_dim)
        rel_h = torch.einsum("bhwnc,hkc->bnhwk", grid, self.rel_pos_h[distance]).flatten(2, 3)
        rel_w = torch.einsum("bhwnc,wkc->bnhwk", grid, self.rel_pos_w[distance]).flatten(2, 3)
        return q, k, v, rel_h, rel_w

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        attended = self.ops.attn_rel_h_rel_w(*self.heads(x, cos, sin), scale=self.config.head_dim**-0.5)
        result: Tensor = x + self.out(attended.flatten(2))
        return result


class VisionFrontEnd(nn.Module):
    """BMP bytes to patches, patch embedding, a windowed and a global attention block, projection into the language
    model's embeddings, replacement and shuffle of the image tokens."""

    def __init__(self, config: Config, ops: SimpleNamespace) -> None:
        super().__init__()
        self.config, self.ops = config, ops
        hidden = config.hidden_size
        self.embed = nn.Linear(3 * config.patch_size**2, hidden)
        self.windowed = Attention(config, config.window, ops)
        self.whole = Attention(config, config.side, ops)
        self.project = nn.Linear(hidden, config.text_hidden_size)
        frequencies = 10000.0 ** -(torch.arange(config.head_dim // 4) / (config.head_dim // 4))
        self.register_buffer("frequencies", frequencies)

    def patches(self, batch: Batch) -> Tensor:
        """(num_images * side * side, 3 * patch_size ** 2)."""
        total = batch.sizes.shape[0] * self.config.side**2
        result: Tensor = self.ops.bmp_to_patches(
            batch.pixels,
            batch.offsets,
            batch.sizes,
            batch.cu_patches,
            total_patches=total,
            patch_size=self.config.patch_size,
        )
        return result

    def phases(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Rotary cosines and sines by row and column of the token; (num_images, side * side, 1, head_dim / 2)."""
        total = batch.sizes.shape[0] * self.config.side**2
        position = self.ops.prepare_image_attn_pos_id(batch.grid_hw, batch.cu_patches, total_seqlens_vit=total)
        angle = (position.float()[:, :, None] * self.frequencies.float()).flatten(1)
        angle = angle.view(batch.sizes.shape[0], self.config.side**2, 1, -1)
        return angle.cos(), angle.sin()

    def forward(self, batch: Batch) -> Tensor:
        """Write the image tokens into ``batch.input_embeds``; returns them as the encoder left them."""
        side, window = self.config.side, self.config.window
        num_images = batch.sizes.shape[0]
        x = self.embed(self.patches(batch)).view(num_images, side * side, -1)
        cos, sin = self.phases(batch)
        split = [partition(value, side, window) for value in (x, cos, sin)]
        x = merge(self.windowed(*split), side, window)
        x = self.whole(x, cos, sin)
        image_embeds = self.project(x).flatten(0, 1)
        spans = (batch.image_starts, batch.cu_patches)
        self.ops.replace_input_embeds(batch.input_embeds, image_embeds, *spans)
        self.ops.shuffle_image_tokens(batch.input_embeds, *spans, groups=self.config.groups)
        result: Tensor = image_embeds
        return result


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding: pairs (i, i + head_dim / 2) turned by the phases, in float32."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def partition(x: Tensor, side: int, window: int) -> Tensor:
    """(batch, side * side, ...) to windows, (batch * windows, window * window, ...)."""
    count = side // window
    x = x.view(x.shape[0], count, window, count, window, *x.shape[2:])
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def merge(x: Tensor, side: int, window: int) -> Tensor:
    """The inverse of ``partition``."""
    count = side // window
    x = x.view(-1, count, count, window, window, *x.shape[2:])
    return x.transpose(2, 3).flatten(1, 4)


def make_batch(config: Config, files: list[Any], *, text_tokens: int = 48, seed: int = 0) -> Batch:
    """The inputs for BMP images of side * patch_size pixels: spans of image tokens between stretches of text."""
    from cann_ops_tilelang.bmp_to_patches import pack_bmps

    packed = pack_bmps(files, patch_size=config.patch_size)
    tokens = config.side**2
    starts = [text_tokens + index * (tokens + text_tokens) for index in range(len(files))]
    total = len(files) * (tokens + text_tokens) + text_tokens
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        pixels=packed.pixels,
        offsets=packed.offsets,
        sizes=packed.sizes,
        cu_patches=packed.cu_patches,
        grid_hw=packed.sizes.abs() // config.patch_size,
        input_embeds=torch.randn(total, config.text_hidden_size, generator=generator).bfloat16(),
        image_starts=torch.tensor(starts, dtype=torch.int32),
    )


def make_front_end(config: Config, ops: SimpleNamespace, *, seed: int = 0) -> VisionFrontEnd:
    """A front end in bfloat16 with weights that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VisionFrontEnd(config, ops).bfloat16().eval().requires_grad_(False)
