"""``shuffle_image_tokens``: equality with channel_shuffle, inverses, bits, layouts, and what wrong values do."""

from __future__ import annotations

import random

import pytest
import torch

from cann_ops_tilelang.shuffle_image_tokens import shuffle_image_tokens
from cann_ops_tilelang.shuffle_image_tokens.reference import shuffle_image_tokens_reference
from cann_ops_tilelang.testing import WRONG_SPANS, Call, OperatorTests, behind, bit_equal, random_bits, spans, unchanged

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
INTEGERS = {2: torch.int16, 4: torch.int32}


def make(*lengths: int, hidden_size: int, groups: int, dtype: torch.dtype = torch.bfloat16, gaps: int = 2) -> Call:
    starts, cu, num_tokens = spans(*lengths, gaps=gaps)
    return Call((torch.randn(num_tokens, hidden_size).to(dtype), starts, cu), {"groups": groups})


def check(call: Call, device: str) -> None:
    """The operator and the reference write the same bits."""
    actual, expected = call.to(device), call.clone()
    actual(shuffle_image_tokens)
    expected(shuffle_image_tokens_reference)
    assert all(bit_equal(a, e) for a, e in zip(actual.args, expected.args))


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


class TestShuffleImageTokens(OperatorTests):
    operator = staticmethod(shuffle_image_tokens)
    reference = staticmethod(shuffle_image_tokens_reference)

    def calls(self) -> list[Call]:
        wide = make(40, 24, hidden_size=100, groups=8, dtype=torch.float16)
        return [
            make(6, 12, hidden_size=16, groups=3),
            make(700, 4, 300, hidden_size=515, groups=4, dtype=torch.float32),
            Call((torch.randn(wide.args[0].shape[0], 160).half()[:, 7:107], *wide.args[1:]), wide.kwargs),
            make(10, 20, 30, hidden_size=33, groups=10),
        ]

    def other(self) -> Call:
        return make(12, 6, hidden_size=16, groups=3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "groups"), [(1, 1), (2, 2), (12, 3), (12, 4), (36, 6), (100, 5), (96, 32)])
@pytest.mark.parametrize("hidden_size", [1, 3, 16, 33, 100, 256])
def test_equals_channel_shuffle(device: str, dtype: torch.dtype, n: int, groups: int, hidden_size: int) -> None:
    starts, cu, num_tokens = spans(n)
    input_embeds = torch.randn(num_tokens, hidden_size).to(dtype)
    expected = input_embeds.clone()
    expected[2 : 2 + n] = torch.nn.functional.channel_shuffle(input_embeds[None, 2 : 2 + n, :, None], groups)[0, ..., 0]
    actual = input_embeds.clone().to(device)
    shuffle_image_tokens(actual, starts.to(device), cu.to(device), groups=groups)
    assert bit_equal(actual, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2, 4, 32, 1024])
def test_acceptance_shape_keeps_every_bit(device: str, dtype: torch.dtype, groups: int) -> None:
    starts, cu, num_tokens = spans(1024)
    check(Call((random_bits(num_tokens, 2048, dtype=dtype), starts, cu), {"groups": groups}), device)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 24, 60, 97, 360, 4097, 5040, 16384, 19997, 20000])
def test_every_number_of_groups_and_its_inverse(device: str, n: int) -> None:
    starts, cu, num_tokens = spans(n, gaps=1)
    starts, cu = starts.to(device), cu.to(device)
    input_embeds = torch.arange(num_tokens * 2, dtype=torch.float32).view(num_tokens, 2)
    groups_of = divisors(n)
    for groups in groups_of if n < 100 else random.Random(n).sample(groups_of, min(12, len(groups_of))):
        expected = input_embeds.clone()
        expected[1 : 1 + n] = input_embeds[1 : 1 + n].view(groups, -1, 2).transpose(0, 1).reshape(n, 2)
        actual = input_embeds.clone().to(device)
        shuffle_image_tokens(actual, starts, cu, groups=groups)
        assert torch.equal(actual.cpu(), expected)
        shuffle_image_tokens(actual, starts, cu, groups=n // groups)
        assert torch.equal(actual.cpu(), input_embeds)


@pytest.mark.level(2)
def test_every_n_with_every_number_of_groups(device: str) -> None:
    for n in range(1, 400):
        starts, cu, num_tokens = spans(n, gaps=0)
        input_embeds = torch.arange(n, dtype=torch.float32)[:, None]
        for groups in divisors(n):
            actual = input_embeds.clone().to(device)
            shuffle_image_tokens(actual, starts.to(device), cu.to(device), groups=groups)
            assert torch.equal(actual.cpu(), input_embeds.view(groups, -1).T.reshape(num_tokens, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden_size", [1, 2, 15, 17, 31, 64, 127, 129, 2049, 4100])
def test_row_strides(device: str, dtype: torch.dtype, hidden_size: int) -> None:
    call = make(8, 12, hidden_size=hidden_size, groups=4, dtype=dtype)
    rows = call.args[0].shape[0]
    columns = random_bits(rows, hidden_size + 5, dtype=dtype)[:, 3 : 3 + hidden_size]
    every_third = random_bits(3 * rows, hidden_size, dtype=dtype)[1::3]
    for input_embeds in (columns, every_third):
        check(Call((input_embeds, *call.args[1:]), call.kwargs), device)


@pytest.mark.parametrize("lengths", [[8], [4, 12], [4] * 8, [0, 8, 0]])
def test_spans_at_both_ends(device: str, lengths: list[int]) -> None:
    check(make(*lengths, hidden_size=24, groups=4, gaps=0), device)


def test_images_in_any_order(device: str) -> None:
    starts = torch.tensor([20, 0, 9, 30, 12], dtype=torch.int32)
    cu = torch.tensor([0, 6, 12, 15, 15, 18], dtype=torch.int32)
    check(Call((torch.randn(30, 40), starts, cu), {"groups": 3}), device)


@pytest.mark.parametrize("count", [127, 128, 129, 1000, 2049])
def test_many_images(device: str, count: int) -> None:
    lengths = (torch.randint(0, 5, (count,)) * 4).tolist()
    call = make(*lengths, hidden_size=48, groups=4, gaps=1)
    check(call, device)
    order = torch.randperm(count)
    cu = torch.cat([torch.zeros(1), call.args[2].diff()[order].cumsum(0)]).int()
    check(Call((call.args[0], call.args[1][order].contiguous(), cu), call.kwargs), device)


@pytest.mark.parametrize("groups", [1, 3, 2**31, 2**40])
@pytest.mark.parametrize("hidden_size", [0, 8])
def test_nothing_to_shuffle(device: str, groups: int, hidden_size: int) -> None:
    zero = torch.zeros(1, dtype=torch.int32)
    check(Call((torch.randn(5, hidden_size), zero[:0], zero), {"groups": groups}), device)
    check(Call((torch.randn(0, hidden_size), zero[:0], zero), {"groups": groups}), device)
    check(Call((torch.randn(5, hidden_size), zero + 5, torch.zeros(2).int()), {"groups": groups}), device)


@pytest.mark.on("npu")
@pytest.mark.parametrize(
    ("lengths", "hidden_size", "cores"),
    [([240, 16], 2048, 1), ([1200], 512, 3), ([7200], 33, 1), ([4800, 2500, 40], 16, 1), ([14400], 40, 2)],
    ids=["slices", "slices of many cores", "cycles", "cycles of images", "cycles in strips"],
)
def test_more_rows_than_the_cores_hold(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], hidden_size: int, cores: int
) -> None:
    """With few cores small images reach what long ones take: rows move in slices, or along cycles."""
    from cann_ops_tilelang.shuffle_image_tokens.kernels import ascend

    monkeypatch.setattr(ascend, "num_vector_cores", lambda: cores)
    check(make(*lengths, hidden_size=hidden_size, groups=4), "npu")


@pytest.mark.on("cpu")
def test_large_rows_are_moved_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wider than the scratch, on one thread and on several."""
    from cann_ops_tilelang.shuffle_image_tokens.kernels import cpu

    monkeypatch.setattr(cpu, "GRAIN_BYTES", 1)
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            check(make(30, hidden_size=9001, groups=5, dtype=torch.float32), "cpu")
    finally:
        torch.set_num_threads(threads)


WRONG = {
    **WRONG_SPANS,
    "more tokens than there are": ([0, 0], [0, 22, 22], "image_starts .* for image 0 of 22 tokens"),
    "groups divide no image": ([4, 8], [0, 3, 5], "groups .* got 2 for image 0 of 3 tokens"),
    "groups do not divide one image": ([4, 8], [0, 4, 7], "groups .* got 2 for image 1 of 3 tokens"),
}


@pytest.mark.on("cpu")
@pytest.mark.parametrize(("starts", "cu", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_values_name_the_image(starts: list[int], cu: list[int], message: str) -> None:
    """Behind no or many valid images, eager or compiled; nothing is written."""
    compiled = torch.compile(shuffle_image_tokens, backend="eager")
    for before in [0] if cu[0] else [0, 500]:
        empty = [0] * before
        indices = [torch.tensor([*empty, *values], dtype=torch.int32) for values in (starts, cu)]
        call = Call((torch.randn(20, 8), *indices), {"groups": 2})
        expected = behind(message, before)
        for function in (shuffle_image_tokens, compiled):
            with unchanged(*call.tensors()), pytest.raises(ValueError, match=f"shuffle_image_tokens: {expected}"):
                call(function)
