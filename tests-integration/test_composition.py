"""Operators composed in single compiled graphs, equal to eager."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from cann_ops_tilelang.testing import Evidence, bit_equal, calc_diff, count_nodes, graph_evidence
from cann_ops_tilelang.tools.loading import operator_names, operators, references
from cann_ops_tilelang.tools.vision import Batch, Config, VisionFrontEnd, make_batch, make_front_end

BACKENDS = {"cpu": "inductor", "npu": "npugraph_ex"}
CONFIG = Config(side=8, patch_size=14, num_heads=2, head_dim=32, window=4, text_hidden_size=96, groups=4)
OPS = operators()


def compiled(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=BACKENDS[device], fullgraph=True, dynamic=False)


def run_again(run: Callable[[], Any], device: str, first: bool) -> Any:
    """The result of a compiled call that captures, or compiles, the first time alone; on NPU it is one replay."""
    results: list[Any] = []
    with torch._dynamo.config.patch(error_on_recompile=not first):
        evidence = graph_evidence(lambda: results.append(run()))
    if device == "npu":
        assert evidence == Evidence(capture=int(first), replay=1, eager=0)
    return results[0]


def images(seed: int, count: int = 2) -> list[bytes]:
    """BMP files of smooth noise."""
    files = []
    for index in range(count):
        small = np.random.default_rng([seed, index]).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        size = CONFIG.side * CONFIG.patch_size
        file = io.BytesIO()
        Image.fromarray(small).resize((size, size), Image.Resampling.BICUBIC).save(file, "BMP")
        files.append(file.getvalue())
    return files


def test_every_operator_is_in_a_composition() -> None:
    assert set(operator_names()) == {"engram_grad_w_reduce", *FRONT_END_NODES}


FRONT_END_NODES = {
    "attn_rel_h_rel_w": 2,
    "bmp_to_patches": 1,
    "prepare_image_attn_pos_id": 1,
    "replace_input_embeds": 1,
    "shuffle_image_tokens": 1,
}


# -- replace, then shuffle -------------------------------------------------------------------------------------------


def replace_and_shuffle(embeds: Tensor, images: Tensor, starts: Tensor, bounds: Tensor) -> Tensor:
    OPS.replace_input_embeds(embeds, images, starts, bounds)
    OPS.shuffle_image_tokens(embeds, starts, bounds, groups=4)
    return embeds.float().sum(1)


def test_replace_then_shuffle(device: str) -> None:
    """One graph for any spans, as long as there are as many."""
    with torch.inference_mode():
        run = compiled(replace_and_shuffle, device)
        buffers: list[Tensor] = []
        for starts, bounds in ([3, 17], [0, 12, 36]), ([30, 0], [0, 8, 36]):
            arguments = [torch.randn(50, 40).bfloat16(), torch.randn(36, 40).bfloat16()]
            arguments += [torch.tensor(values, dtype=torch.int32) for values in (starts, bounds)]
            first = not buffers
            if first:
                nodes = count_nodes(replace_and_shuffle, *[tensor.to(device, copy=True) for tensor in arguments])
                assert nodes == {"replace_input_embeds": 1, "shuffle_image_tokens": 1}
                buffers.extend(tensor.to(device, copy=True) for tensor in arguments)
            for buffer, argument in zip(buffers, arguments):
                buffer.copy_(argument)
            expected = replace_and_shuffle(*arguments)
            actual = run_again(lambda: run(*buffers), device, first)
            torch.testing.assert_close(actual.cpu(), expected)
            assert all(bit_equal(a, e) for a, e in zip(buffers, arguments))


# -- the vision front end --------------------------------------------------------------------------------------------


def front_end(device: str, ops: Any = OPS) -> VisionFrontEnd:
    return make_front_end(CONFIG, ops).to(device)


def batch(device: str, seed: int) -> Batch:
    return make_batch(CONFIG, images(seed), text_tokens=5, seed=seed).to(device)


def assert_agree(actual: tuple[Tensor, Batch], expected: tuple[Tensor, Batch]) -> None:
    """To bfloat16 accuracy; the rows of text keep every bit."""
    for a, e in ((actual[0], expected[0]), (actual[1].input_embeds, expected[1].input_embeds)):
        assert calc_diff(a, e) < 1e-4
    tokens = torch.ones(len(expected[1].input_embeds), dtype=torch.bool)
    for start in expected[1].image_starts.tolist():
        tokens[start : start + CONFIG.side**2] = False
    assert bit_equal(actual[1].input_embeds.cpu()[tokens], expected[1].input_embeds.cpu()[tokens])


def test_front_end_agrees_with_plain_pytorch(device: str) -> None:
    with torch.inference_mode():
        mine, plain = batch(device, 0), batch("cpu", 0)
        assert_agree((front_end(device)(mine), mine), (front_end("cpu", references())(plain), plain))


def test_front_end_is_one_graph(device: str) -> None:
    """No graph break, one node per call; further images of the same shape need no new graph."""
    with torch.inference_mode():
        model = front_end(device)
        assert count_nodes(model, batch(device, 0)) == FRONT_END_NODES
        run = compiled(model, device)
        buffers = batch(device, 0)
        for seed in range(3):
            fresh = batch(device, seed)
            for target, source in zip(buffers.tensors(), fresh.tensors()):
                target.copy_(source)
            result = run_again(lambda: run(buffers), device, first=seed == 0)
            expected = batch(device, seed)
            assert_agree((result, buffers), (model(expected), expected))


# -- engram between an upstream scaling and a downstream read --------------------------------------------------------


def engram(partial: Tensor, scale: Tensor, hidden: Tensor, embed: Tensor, grads: Tensor) -> Tensor:
    OPS.engram_grad_w_reduce(partial * scale, hidden, embed, grads[0], grads[1])
    return grads.square().sum((1, 2))


def engram_arguments(device: str) -> list[Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tensors = [
            torch.randn(7, 4, 256),
            torch.tensor(0.25),
            torch.randn(4, 256).bfloat16(),
            torch.randn(4, 256).bfloat16(),
            torch.randn(2, 4, 256),
        ]
    return [tensor.to(device) for tensor in tensors]


def test_engram_between_scaling_and_reading(device: str) -> None:
    with torch.inference_mode():
        mine, eager = engram_arguments(device), engram_arguments("cpu")
        assert count_nodes(engram, *engram_arguments(device)) == {"engram_grad_w_reduce": 1}
        run = compiled(engram, device)
        for step in range(3):
            actual, expected = run_again(lambda: run(*mine), device, first=step == 0), engram(*eager)
            torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)
            assert calc_diff(mine[4], eager[4]) < 1e-10


# -- all six ---------------------------------------------------------------------------------------------------------


class Everything(nn.Module):
    """The front end and Engram's reduction in one program."""

    def __init__(self) -> None:
        super().__init__()
        self.front_end = make_front_end(CONFIG, OPS)

    def forward(self, batch: Batch, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        return self.front_end(batch), engram(*arguments)


def test_all_operators_in_one_graph(device: str) -> None:
    with torch.inference_mode():
        model = Everything().to(device)
        assert count_nodes(model, batch(device, 0), *engram_arguments(device)) == {
            "engram_grad_w_reduce": 1,
            **FRONT_END_NODES,
        }
        run = compiled(model, device)
        mine, engram_mine = batch(device, 0), engram_arguments(device)
        engram_eager = engram_arguments(device)
        for seed in range(2):
            eager = batch(device, seed)
            for target, source in zip(mine.tensors(), eager.tensors()):
                target.copy_(source)
            actual = run_again(lambda: run(mine, *engram_mine), device, first=seed == 0)
            expected = model(eager, *engram_eager)
            assert_agree((actual[0], mine), (expected[0], eager))
            torch.testing.assert_close(actual[1], expected[1])
            assert calc_diff(engram_mine[4], engram_eager[4]) < 1e-10


# -- host-side checks of device values -------------------------------------------------------------------------------

CHECKED = """
import torch
from cann_ops_tilelang.replace_input_embeds import replace_input_embeds
embeds, images = torch.zeros(4, 16, device="npu"), torch.ones(2, 16, device="npu")
starts, bounds = torch.tensor([3], device="npu").int(), torch.tensor([0, 2], device="npu").int()
try:
    replace_input_embeds(embeds, images, starts, bounds)
    print("unchecked")
except ValueError as error:
    print(error)
assert not embeds.cpu().any()
"""


@pytest.mark.on("npu")
@pytest.mark.parametrize(("setting", "printed"), [("0", "unchecked"), ("1", "replace_input_embeds: image_starts")])
def test_values_are_checked_on_npu_on_request(setting: str, printed: str) -> None:
    """A span that leaves the tensor is left out, or, with CANN_OPS_TILELANG_CHECK=1, is an error."""
    environment = {**os.environ, "CANN_OPS_TILELANG_CHECK": setting}
    result = subprocess.run([sys.executable, "-c", CHECKED], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert printed in result.stdout


@pytest.mark.on("cpu")
def test_gradients_do_not_flow_silently() -> None:
    """A trained projection behind an operator without derivative raises instead of training on zeros."""
    model = front_end("cpu")
    model.embed.requires_grad_(True)
    with pytest.raises(RuntimeError, match="attn_rel_h_rel_w: no gradient is defined"):
        model(batch("cpu", 0)).float().sum().backward()
