"""``replace_input_embeds``: equality with masked_scatter, bits, layouts, spans, and what wrong values do."""

from __future__ import annotations

import pytest
import torch

from cann_ops_tilelang.replace_input_embeds import find_image_spans, replace_input_embeds
from cann_ops_tilelang.replace_input_embeds.reference import replace_input_embeds_reference
from cann_ops_tilelang.testing import WRONG_SPANS, Call, OperatorTests, behind, bit_equal, random_bits, spans, unchanged

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
INTEGERS = {2: torch.int16, 4: torch.int32}
IMAGE = 7


def make(*lengths: int, hidden_size: int, dtype: torch.dtype = torch.bfloat16, gaps: int = 2, spare: int = 0) -> Call:
    starts, cu, num_tokens = spans(*lengths, gaps=gaps)
    images = torch.randn(sum(lengths) + spare, hidden_size).to(dtype)
    return Call((torch.randn(num_tokens, hidden_size).to(dtype), images, starts, cu))


def check(call: Call, device: str) -> None:
    """The operator and the reference write the same bits."""
    actual, expected = call.to(device), call.clone()
    actual(replace_input_embeds)
    expected(replace_input_embeds_reference)
    assert all(bit_equal(a, e) for a, e in zip(actual.args, expected.args))


class TestReplaceInputEmbeds(OperatorTests):
    operator = staticmethod(replace_input_embeds)
    reference = staticmethod(replace_input_embeds_reference)

    def calls(self) -> list[Call]:
        wide = make(40, 3, hidden_size=100, dtype=torch.float16)
        return [
            make(3, 5, hidden_size=16),
            make(700, 1, 300, hidden_size=512, dtype=torch.float32),
            Call((torch.randn(wide.args[0].shape[0], 160).half()[:, 7:107], *wide.args[1:])),
            make(1, 2, 3, hidden_size=33, spare=4),
        ]

    def other(self) -> Call:
        return make(5, 3, hidden_size=16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden_size", [1, 3, 16, 33, 100, 256])
@pytest.mark.parametrize("tokens_per_image", [None, 3, [1, 5, 6]])
def test_equals_masked_scatter(device: str, dtype: torch.dtype, hidden_size: int, tokens_per_image: object) -> None:
    ids = torch.tensor([IMAGE] + [1] * 4 + [IMAGE] * 5 + [2] + [IMAGE] * 6)
    if tokens_per_image == 3:
        ids = torch.tensor([0] + [IMAGE] * 9 + [1, 2] + [IMAGE] * 3)
    image_embeds = random_bits(12, hidden_size, dtype=dtype)
    input_embeds = random_bits(len(ids), hidden_size, dtype=dtype)
    integer = INTEGERS[dtype.itemsize]
    expected = input_embeds.view(integer).masked_scatter((ids == IMAGE)[:, None], image_embeds.view(integer))
    starts, cu = find_image_spans(ids.to(device), IMAGE, tokens_per_image=tokens_per_image)  # type: ignore[arg-type]
    actual = input_embeds.to(device)
    replace_input_embeds(actual, image_embeds.to(device), starts, cu)
    assert bit_equal(actual.view(integer), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_acceptance_shape_keeps_every_bit(device: str, dtype: torch.dtype) -> None:
    for lengths in ([1024], [64] * 16):
        starts, cu, num_tokens = spans(*lengths)
        check(
            Call((random_bits(num_tokens, 2048, dtype=dtype), random_bits(1024, 2048, dtype=dtype), starts, cu)), device
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden_size", [1, 2, 15, 17, 31, 64, 4100])
def test_row_strides(device: str, dtype: torch.dtype, hidden_size: int) -> None:
    call = make(4, 9, hidden_size=hidden_size, dtype=dtype)
    rows = call.args[0].shape[0]
    columns = random_bits(rows, hidden_size + 5, dtype=dtype)[:, 3 : 3 + hidden_size]
    every_third = random_bits(3 * rows, hidden_size, dtype=dtype)[1::3]
    for input_embeds in (columns, every_third):
        check(Call((input_embeds, *call.args[1:])), device)


@pytest.mark.parametrize("lengths", [[8], [3, 5], [1] * 8, [0, 8, 0]])
def test_spans_at_both_ends(device: str, lengths: list[int]) -> None:
    check(make(*lengths, hidden_size=24, gaps=0), device)


def test_images_in_any_order(device: str) -> None:
    starts = torch.tensor([20, 0, 9, 30, 9], dtype=torch.int32)
    cu = torch.tensor([0, 5, 12, 15, 15, 18], dtype=torch.int32)
    starts[4] = 12
    check(Call((torch.randn(30, 40), torch.randn(18, 40), starts, cu)), device)


@pytest.mark.parametrize("count", [127, 128, 129, 1000, 2049])
def test_many_images(device: str, count: int) -> None:
    lengths = torch.randint(0, 5, (count,)).tolist()
    call = make(*lengths, hidden_size=48, gaps=1)
    check(call, device)
    order = torch.randperm(count)
    starts, n = call.args[2][order], call.args[3].diff()[order]
    cu = torch.cat([torch.zeros(1), n.cumsum(0)]).int()
    check(Call((*call.args[:2], starts.contiguous(), cu)), device)


def test_rows_behind_the_last_image_are_not_used(device: str) -> None:
    call = make(3, 2, hidden_size=16, spare=6)
    call.args[1][5:] = float("nan")
    actual = call.to(device)
    actual(replace_input_embeds)
    assert not actual.args[0].isnan().any()


@pytest.mark.parametrize("num_rows", [0, 4])
@pytest.mark.parametrize("hidden_size", [0, 8])
def test_nothing_to_replace(device: str, num_rows: int, hidden_size: int) -> None:
    empty = torch.zeros(0, dtype=torch.int32)
    zero = torch.zeros(1, dtype=torch.int32)
    check(Call((torch.randn(5, hidden_size), torch.randn(num_rows, hidden_size), empty, zero)), device)
    check(Call((torch.randn(0, hidden_size), torch.randn(num_rows, hidden_size), empty, zero)), device)
    check(
        Call((torch.randn(5, hidden_size), torch.randn(num_rows, hidden_size), zero + 5, torch.zeros(2).int())), device
    )


def test_input_embeds_may_interleave_with_image_embeds_storage(device: str) -> None:
    """Rows of one buffer that do not touch are no overlap."""
    buffer = torch.randn(20, 32).to(device)
    starts, cu = (
        torch.tensor([2], dtype=torch.int32, device=device),
        torch.tensor([0, 6], dtype=torch.int32, device=device),
    )
    images = buffer[14:]
    expected = torch.cat([buffer[:2], images, buffer[8:14]])
    replace_input_embeds(buffer[:14], images, starts, cu)
    assert torch.equal(buffer[:14], expected)


WRONG = {
    **WRONG_SPANS,
    "sums pass image_embeds": ([4, 8], [0, 3, 17], "cu_image_tokens .* 16 rows .* got 3 to 17 for image 1"),
}


@pytest.mark.on("cpu")
@pytest.mark.parametrize(("starts", "cu", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_values_name_the_image(starts: list[int], cu: list[int], message: str) -> None:
    """Behind no or many valid images, eager or compiled; nothing is written."""
    compiled = torch.compile(replace_input_embeds, backend="eager")
    for before in [0] if cu[0] else [0, 500]:
        empty = [0] * before
        indices = [torch.tensor([*empty, *values], dtype=torch.int32) for values in (starts, cu)]
        call = Call((torch.randn(20, 8), torch.randn(16, 8), *indices))
        expected = behind(message, before)
        for function in (replace_input_embeds, compiled):
            with unchanged(*call.tensors()), pytest.raises(ValueError, match=f"replace_input_embeds: {expected}"):
                call(function)


def test_find_image_spans_gives_every_run_as_one_image() -> None:
    ids = torch.tensor([IMAGE, IMAGE, 1, IMAGE, 2, 2, IMAGE, IMAGE, IMAGE])
    starts, cu = find_image_spans(ids, IMAGE)
    assert starts.dtype == cu.dtype == torch.int32
    assert (starts.tolist(), cu.tolist()) == ([0, 3, 6], [0, 2, 3, 6])


@pytest.mark.parametrize("tokens_per_image", [2, [2, 2, 2], (2, 2, 2)])
def test_find_image_spans_tells_adjoining_images_apart(tokens_per_image: object) -> None:
    ids = torch.tensor([1, IMAGE, IMAGE, IMAGE, IMAGE, 1, IMAGE, IMAGE])
    starts, cu = find_image_spans(ids, IMAGE, tokens_per_image=tokens_per_image)  # type: ignore[arg-type]
    assert (starts.tolist(), cu.tolist()) == ([1, 3, 6], [0, 2, 4, 6])


@pytest.mark.parametrize("tokens_per_image", [None, 4, []])
@pytest.mark.parametrize("ids", [[], [1, 2, 3]])
def test_find_image_spans_without_images(tokens_per_image: object, ids: list[int]) -> None:
    starts, cu = find_image_spans(torch.tensor(ids, dtype=torch.int64), IMAGE, tokens_per_image=tokens_per_image)  # type: ignore[arg-type]
    assert (starts.tolist(), cu.tolist()) == ([], [0])


@pytest.mark.parametrize(
    ("ids", "tokens_per_image", "error", "message"),
    [
        ([7, 7, 1], 3, ValueError, "must divide the 2 image tokens, got 3"),
        ([7, 7, 1], 0, ValueError, "must divide the 2 image tokens, got 0"),
        ([7, 7, 1], [1, 2], ValueError, "add up to the 2 image tokens"),
        ([7, 7, 1], [2, 0], ValueError, "must be positive"),
        ([7, 1, 7], 2, ValueError, "2 tokens for image 0, which spans tokens 0 to 2"),
        ([7, 7, 1, 7, 7], [1, 2, 1], ValueError, "2 tokens for image 1, which spans tokens 1 to 3"),
        ([[7, 7]], None, ValueError, "1 dimension"),
        ([7.0], None, TypeError, "torch.float32"),
        ([True], None, TypeError, "torch.bool"),
    ],
)
def test_find_image_spans_rejects(ids: list[object], tokens_per_image: object, error: type, message: str) -> None:
    with pytest.raises(error, match=f"find_image_spans: .*{message}"):
        find_image_spans(torch.tensor(ids), IMAGE, tokens_per_image=tokens_per_image)  # type: ignore[arg-type]


def test_find_image_spans_rejects_a_list() -> None:
    with pytest.raises(TypeError, match=r"find_image_spans: input_ids must be a torch\.Tensor, got list"):
        find_image_spans([7, 7], IMAGE)  # type: ignore[arg-type]
