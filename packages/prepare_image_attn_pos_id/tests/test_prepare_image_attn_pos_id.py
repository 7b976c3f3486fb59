"""``prepare_image_attn_pos_id``: both orders, Qwen2-VL's own positions, padding, and what wrong values do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cann_ops_tilelang.prepare_image_attn_pos_id import prepare_image_attn_pos_id
from cann_ops_tilelang.prepare_image_attn_pos_id.reference import prepare_image_attn_pos_id_reference
from cann_ops_tilelang.testing import Call, OperatorTests, behind

Grids = list[tuple[int, int]]


def make(grids: Grids, window_size: int = 1, padding: int = 0) -> Call:
    areas = [rows * columns for rows, columns in grids]
    return Call(
        (
            torch.tensor(grids, dtype=torch.int32).view(-1, 2),
            torch.tensor([0, *areas]).cumsum(0).int(),
        ),
        {"total_seqlens_vit": sum(areas) + padding, "window_size": window_size},
    )


def check(call: Call, device: str) -> Tensor:
    """The operator and the reference give the same positions."""
    actual = call.to(device)(prepare_image_attn_pos_id).cpu()
    assert torch.equal(actual, call(prepare_image_attn_pos_id_reference))
    return actual


class TestPrepareImageAttnPosId(OperatorTests):
    operator = staticmethod(prepare_image_attn_pos_id)
    reference = staticmethod(prepare_image_attn_pos_id_reference)

    def calls(self) -> list[Call]:
        return [
            make([(4, 6), (2, 8)], window_size=2, padding=3),
            make([(200, 300), (1, 7), (3, 50000)], padding=1),
            make([(200, 300), (2, 8), (4, 40000)], window_size=2),
            make([(5, 7), (1, 1), (3, 2)]),
        ]

    def other(self) -> Call:
        return make([(2, 8), (4, 6)], window_size=2, padding=3)


@pytest.mark.parametrize("grids", [[(4, 6)], [(2, 2)] * 3, [(16, 16), (2, 40), (38, 26), (64, 64)]])
def test_equals_the_vision_tower_of_qwen2_vl(device: str, grids: Grids) -> None:
    """The positions that transformers' model hands to its rotary embedding."""
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

    config = Qwen2VLVisionConfig(
        depth=1, embed_dim=32, num_heads=2, hidden_size=32, patch_size=2, temporal_patch_size=2
    )
    tower = Qwen2VisionTransformerPretrainedModel(config).eval()
    seen: list[Tensor] = []
    tower.rotary_pos_emb.register_forward_pre_hook(lambda module, args: seen.append(args[1]))
    call = make(grids, window_size=config.spatial_merge_size)
    grid_thw = torch.tensor([(1, rows, columns) for rows, columns in grids])
    with torch.no_grad():
        tower(torch.randn(call.kwargs["total_seqlens_vit"], 3 * 2 * 2 * 2), grid_thw=grid_thw)
    assert torch.equal(call.to(device)(prepare_image_attn_pos_id).cpu().long(), seen[0])


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 9), (9, 1), (3, 5), (40, 40)])
def test_window_1_is_row_order(device: str, rows: int, columns: int) -> None:
    positions = make([(rows, columns)]).to(device)(prepare_image_attn_pos_id).cpu()
    assert positions.tolist() == [[row, column] for row in range(rows) for column in range(columns)]


def test_window_2_by_hand(device: str) -> None:
    positions = make([(2, 4)], window_size=2).to(device)(prepare_image_attn_pos_id).cpu()
    assert positions.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [0, 3], [1, 2], [1, 3]]


def test_window_size_is_1_unless_given(device: str) -> None:
    call = make([(2, 4)]).to(device)
    expected = call(prepare_image_attn_pos_id)
    del call.kwargs["window_size"]
    assert torch.equal(call(prepare_image_attn_pos_id), expected)


@pytest.mark.parametrize("window_size", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, 100])
class TestSizes:
    def test_no_images(self, device: str, window_size: int, padding: int) -> None:
        assert (check(make([], window_size, padding), device) == -1).all()

    def test_images_without_tokens(self, device: str, window_size: int, padding: int) -> None:
        w = window_size
        check(make([(0, 0), (w, 2 * w), (0, 4 * w), (w, w), (2 * w, 0)], window_size, padding), device)

    def test_images_of_one_window(self, device: str, window_size: int, padding: int) -> None:
        check(make([(window_size, window_size)] * 20, window_size, padding), device)

    @pytest.mark.parametrize("count", [127, 128, 129, 1000])
    def test_many_small_images(self, device: str, window_size: int, padding: int, count: int) -> None:
        grids = (torch.randint(1, 5, (count, 2)) * window_size).tolist()
        check(make(grids, window_size, padding), device)

    def test_images_of_every_shape(self, device: str, window_size: int, padding: int) -> None:
        grids = [(window_size * a, window_size * b) for a in range(1, 9) for b in range(1, 35)]
        check(make(grids, window_size, padding), device)


@pytest.mark.on("npu")
@pytest.mark.parametrize("window_size", [1, 2])
@pytest.mark.parametrize("cores", [1, 3])
def test_shares_of_several_chunks(monkeypatch: pytest.MonkeyPatch, window_size: int, cores: int) -> None:
    """Few cores have what many have of a long sequence."""
    from cann_ops_tilelang.prepare_image_attn_pos_id.kernels import ascend

    monkeypatch.setattr(ascend, "num_vector_cores", lambda: cores)
    check(make([(6, 3000), (130, 130), (0, 2), (2, 6000)], window_size, padding=9991), "npu")


@pytest.mark.on("cpu")
@pytest.mark.parametrize("window_size", [1, 2])
def test_threads_begin_inside_images_and_inside_bands(window_size: int) -> None:
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3, 5, 8):
            torch.set_num_threads(count)
            check(make([(6, 20000), (514, 514), (2, 100000), (30, 2)], window_size, padding=99991), "cpu")
    finally:
        torch.set_num_threads(threads)


WRONG = {
    "rows are negative": ([(-2, -2)], [0, 4], 2, "grid_hw .* got -2 x -2 for image 0"),
    "columns are negative": ([(2, 2), (4, -2)], [0, 4, -4], 1, "grid_hw .* got 4 x -2 for image 1"),
    "rows are odd": ([(2, 2), (3, 2)], [0, 4, 10], 2, "grid_hw .* window_size 2 .* got 3 x 2 for image 1"),
    "columns are odd": ([(2, 5), (2, 2)], [0, 10, 14], 2, "grid_hw .* got 2 x 5 for image 0"),
    "sums do not start at 0": ([(2, 2)], [1, 5], 1, "cu_seqlens_vit must start at 0, got 1 for image 0"),
    "an image has too many tokens": ([(2, 2), (2, 2)], [0, 4, 9], 1, r"cu_seqlens_vit .* 2 \* 2 for image 1, got 5"),
    "an image has too few tokens": ([(2, 4), (2, 2)], [0, 4, 8], 1, r"cu_seqlens_vit .* 2 \* 4 for image 0, got 4"),
    "sums decrease": ([(2, 2), (2, 2)], [0, 4, 0], 2, "cu_seqlens_vit .* for image 1, got -4"),
    "the product wraps around": ([(2**16, 2**16)], [0, 0], 2, "cu_seqlens_vit .* for image 0, got 0"),
    "tokens do not fit": ([(2, 2), (8, 8)], [0, 4, 68], 2, "total_seqlens_vit .* got 20 for 68 tokens up to image 1"),
}


@pytest.mark.on("cpu")
@pytest.mark.parametrize(("grids", "cu", "window_size", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_values_name_the_image(grids: Grids, cu: list[int], window_size: int, message: str) -> None:
    """Behind no or many valid images, eager or compiled."""
    compiled = torch.compile(prepare_image_attn_pos_id, backend="eager")
    for before in [0] if cu[0] else [0, 500]:
        call = Call(
            (
                torch.tensor([*[(0, 0)] * before, *grids], dtype=torch.int32),
                torch.tensor([*[0] * before, *cu], dtype=torch.int32),
            ),
            {"total_seqlens_vit": 20, "window_size": window_size},
        )
        expected = behind(message, before)
        for function in (prepare_image_attn_pos_id, compiled):
            with pytest.raises(ValueError, match=f"prepare_image_attn_pos_id: {expected}"):
                call(function)
