"""In the place of the attention of Hugging Face transformers' SAM vision encoder."""

from __future__ import annotations

import copy
import types

import pytest
import torch
from torch import Tensor
from transformers import SamVisionConfig, SamVisionModel
from transformers.models.sam.modeling_sam import SamVisionAttention

from cann_ops_tilelang.attn_rel_h_rel_w import attn_rel_h_rel_w

CONFIG = SamVisionConfig(
    hidden_size=128,
    num_attention_heads=4,
    num_hidden_layers=4,
    global_attn_indexes=[1, 3],
    window_size=5,  # windows of the grid of 12 x 12 are padded to 15 x 15
    image_size=192,
    patch_size=16,
    mlp_dim=256,
    output_channels=64,
    attn_implementation="eager",
)


def model() -> SamVisionModel:
    model = SamVisionModel(CONFIG).eval()
    for name, parameter in model.named_parameters():
        if "rel_pos" in name or "pos_embed" in name:
            torch.nn.init.normal_(parameter, std=0.5)
        elif parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return model


def fuse(model: SamVisionModel, device: str) -> list[tuple[int, int]]:
    """Put the operator in place of the attention of every layer; the grids it sees are appended to the result."""
    grids: list[tuple[int, int]] = []

    def forward(self: SamVisionAttention, hidden_states: Tensor) -> tuple[Tensor, None]:
        batch, height, width, _ = hidden_states.shape
        qkv = self.qkv(hidden_states).view(batch, height * width, 3, self.num_attention_heads, -1)
        q, k, v = qkv.unbind(2)
        grid = q.unflatten(1, (height, width))
        relative_h = self.get_rel_pos(height, height, self.rel_pos_h)
        relative_w = self.get_rel_pos(width, width, self.rel_pos_w)
        rel_h = torch.einsum("bhwnc,hkc->bnhwk", grid, relative_h).flatten(2, 3)
        rel_w = torch.einsum("bhwnc,wkc->bnhwk", grid, relative_w).flatten(2, 3)
        arguments = [x.to(device) for x in (q, k, v, rel_h.contiguous(), rel_w.contiguous())]
        out = attn_rel_h_rel_w(*arguments, scale=self.scale, grid_hw=(height, width)).cpu()
        grids.append((height, width))
        return self.proj(out.view(batch, height, width, -1)), None

    for layer in model.vision_encoder.layers:
        layer.attn.forward = types.MethodType(forward, layer.attn)
    return grids


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_whole_encoder(device: str) -> None:
    """As close to the encoder in float32 as the encoder in bfloat16 is."""
    single = model()
    half = copy.deepcopy(single).bfloat16()
    fused = copy.deepcopy(half)
    grids = fuse(fused, device)
    pixels = torch.randn(2, 3, 192, 192).bfloat16()
    with torch.no_grad():
        # The weights of all three are the same numbers.
        expected = copy.deepcopy(half).float()(pixels.float()).last_hidden_state.double()
        plain = half(pixels).last_hidden_state.double()
        ours = fused(pixels).last_hidden_state.double()
    assert grids == [(5, 5), (12, 12), (5, 5), (12, 12)]
    error, allowed = (ours - expected).square().mean(), (plain - expected).square().mean()
    assert error <= 1.1 * allowed
    assert error / expected.square().mean() < 1e-3


def test_the_encoder_notices_wrong_attention() -> None:
    """With the two biases exchanged the comparison above fails by far."""
    half = model().bfloat16()
    wrong = copy.deepcopy(half)
    for layer in wrong.vision_encoder.layers:
        layer.attn.rel_pos_h, layer.attn.rel_pos_w = layer.attn.rel_pos_w, layer.attn.rel_pos_h
    pixels = torch.randn(1, 3, 192, 192).bfloat16()
    with torch.no_grad():
        expected = half(pixels).last_hidden_state.float()
        actual = wrong(pixels).last_hidden_state.float()
    assert (actual - expected).square().mean() / expected.square().mean() > 1e-2
