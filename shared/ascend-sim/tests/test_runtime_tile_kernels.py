"""A peer: the engram family of tile-kernels 2.1.0, called through its public functions on simulated npu tensors.

The package takes the Ascend path where the driver's device file /dev/davinci_manager exists. The simulator makes no
device file, so these tests answer that one question of ``os.path.exists`` in their own process; the package is used as
it was installed. Its results are compared with its own PyTorch references, run on the host.
"""

from __future__ import annotations

import importlib.util
import os
from importlib import metadata
from unittest import mock

import pytest
from runtime_kernels import require_simulated_npu

require_simulated_npu()
if importlib.util.find_spec("tile_kernels") is None:
    pytest.skip("tile-kernels 2.1.0 is not installed here", allow_module_level=True)
import torch  # noqa: E402
import torch_npu  # noqa: E402, F401

EXISTS = os.path.exists
# The package asks when it is imported, and remembers the answer.
with mock.patch("os.path.exists", lambda path: path == "/dev/davinci_manager" or EXISTS(path)):
    from tile_kernels import config, engram
    from tile_kernels.testing.numeric import calc_diff
    from tile_kernels.torch import engram as reference

HC = 4


def test_the_package_takes_the_ascend_path() -> None:
    assert metadata.version("tile_kernels") == "2.1.0"
    assert config.is_ascend() and config.get_device() == "npu"
    assert config.get_num_vec_cores() == 56


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


@pytest.mark.parametrize("hidden", [2048, 7168])
def test_fused_weight(hidden: int) -> None:
    a, b = random(HC, hidden, dtype=torch.bfloat16, seed=1), random(HC, hidden, dtype=torch.bfloat16, seed=2)
    assert torch.equal(engram.fused_weight(a.npu(), b.npu()).cpu(), a.float() * b.float())


@pytest.mark.parametrize(("partials", "hidden"), [(14, 2048), (56, 2560), (1, 7168)])
def test_grad_w_reduce(partials: int, hidden: int) -> None:
    partial = random(partials, HC, hidden)
    weights = [random(HC, hidden, dtype=torch.bfloat16, seed=k) for k in (1, 2)]
    gradients = [random(HC, hidden, seed=k) for k in (3, 4)]
    results = [gradient.npu() for gradient in gradients]
    engram.grad_w_reduce(partial.npu(), *(weight.npu() for weight in weights), *results)
    for gradient, result, weight in zip(gradients, results, reversed(weights)):
        assert calc_diff(result.cpu(), gradient + partial.sum(0) * weight.float()) < 1e-10


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [1, 130])
def test_hash(tokens: int, masked: bool) -> None:
    layers, ngram, tables = 2, 3, 8
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(0, 100000, (tokens, ngram), dtype=torch.int32, generator=generator)
    multipliers = torch.randint(0, 100000, (layers, ngram), dtype=torch.int64, generator=generator)
    sizes = torch.randint(100000, 1000000, (layers, ngram - 1, tables), dtype=torch.int32, generator=generator)
    offsets = reference.make_offsets(sizes)
    mask = torch.rand(tokens, generator=generator) < 0.4 if masked else None
    expected = reference.engram_hash_ref(ids, multipliers, sizes, offsets, mask)
    result = engram.engram_hash(
        ids.npu(), multipliers.npu(), sizes.npu(), offsets.npu(), mask.npu() if masked else None
    )
    assert torch.equal(result.cpu(), expected)


def gate_inputs(tokens: int, hidden: int, masked: bool) -> tuple[list[torch.Tensor], torch.Tensor | None]:
    inputs = [
        random(tokens, HC, hidden, dtype=torch.bfloat16, seed=1),
        random(tokens, HC + 1, hidden, dtype=torch.bfloat16, seed=2),
        random(HC, hidden, dtype=torch.bfloat16, seed=3),
        random(HC, hidden, dtype=torch.bfloat16, seed=4),
    ]
    mask = torch.arange(tokens) % 3 == 1 if masked else None
    return inputs, mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [1, 35])
def test_gate_forward(tokens: int, masked: bool) -> None:
    (x, kv, wh, we), mask = gate_inputs(tokens, 2048, masked)
    expected = reference.engram_gate_ref(x, kv, wh, we, 1e-6, 1e-5, save_for_backward=True, image_token_mask=mask)
    fused = engram.fused_weight(wh.npu(), we.npu())
    results = engram.engram_gate_fwd(
        x.npu(), kv.npu(), fused, 1e-5, 1e-6, image_token_mask=mask.npu() if masked else None
    )
    shown = torch.ones(tokens, dtype=torch.bool) if mask is None else ~mask
    assert calc_diff(results[0].cpu(), expected[0]) < 2e-8
    for result, value in zip(results[1:], expected[1:]):
        assert calc_diff(result.cpu()[shown], value[shown]) < 1e-9
    bare = engram.engram_gate_fwd(x.npu(), kv.npu(), fused, 1e-5, 1e-6, False, mask.npu() if masked else None)
    assert torch.equal(bare[0].cpu(), results[0].cpu()) and bare[1] is None


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [1, 35])
def test_gate_backward(tokens: int, masked: bool) -> None:
    (x, kv, wh, we), mask = gate_inputs(tokens, 2048, masked)
    grad = random(tokens, HC, 2048, dtype=torch.bfloat16, seed=5)
    leaves = [tensor.float().requires_grad_() for tensor in (x, kv, wh, we)]
    out = reference.engram_gate_ref(*leaves, 1e-6, 1e-5, image_token_mask=mask)
    out.backward(grad.to(out.dtype))
    device_mask = mask.npu() if masked else None
    fused = engram.fused_weight(wh.npu(), we.npu())
    _, *saved = engram.engram_gate_fwd(x.npu(), kv.npu(), fused, 1e-5, 1e-6, image_token_mask=device_mask)
    grad_x, grad_kv, partial = engram.engram_gate_bwd(grad.npu(), x.npu(), kv.npu(), fused, *saved, 1e-6, device_mask)
    grad_wh, grad_we = torch.zeros(HC, 2048, device="npu"), torch.zeros(HC, 2048, device="npu")
    engram.grad_w_reduce(partial, wh.npu(), we.npu(), grad_wh, grad_we)
    for result, leaf, limit in zip((grad_x, grad_kv, grad_wh, grad_we), leaves, (1e-5, 1e-5, 1e-8, 1e-8)):
        assert calc_diff(result.float().cpu(), leaf.grad) < limit


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinkhorn_momentum_update(dtype: torch.dtype, nesterov: bool) -> None:
    grad, momentum = random(256 * 70, dtype=dtype, seed=1), random(256 * 70, dtype=dtype, seed=2)
    device = momentum.npu()
    result = engram.engram_sinkhorn_momentum_update(grad.npu(), device, 0.9, nesterov)
    expected = reference.engram_sinkhorn_momentum_update_ref(grad, momentum, 0.9, nesterov)
    assert calc_diff(result.cpu(), expected) < 1e-12
    assert calc_diff(device.cpu().float(), momentum.float()) < 1e-6


def test_sinkhorn_step_and_finalize() -> None:
    rows, width = 300, 256
    matrix, row_scale, col_scale = random(rows, width), random(rows).abs() + 0.5, random(width).abs() + 0.5
    device = [tensor.npu() for tensor in (matrix, row_scale, col_scale)]
    row_norm, partial = engram.engram_sinkhorn_step(*device, 1e-6)
    col_sumsq = torch.empty(width, device="npu")
    engram.engram_sinkhorn_step_reduce(partial, col_sumsq)
    expected_sumsq = torch.empty(width)
    expected_norm = reference.engram_sinkhorn_step_ref(matrix, row_scale, col_scale, expected_sumsq, 1e-6)
    for result, value in ((row_norm, expected_norm), (device[1], row_scale), (col_sumsq, expected_sumsq)):
        assert calc_diff(result.cpu(), value) < 1e-11
    result = engram.engram_sinkhorn_finalize(*device, 1e-6, 0.3)
    assert (
        calc_diff(result.cpu(), reference.engram_sinkhorn_finalize_ref(matrix, row_scale, col_scale, 1e-6, 0.3)) < 1e-11
    )
