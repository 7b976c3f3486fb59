"""``check_spans`` agrees with its words, for a few images and for many."""

import re

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from cann_ops_tilelang.core import check_spans
from cann_ops_tilelang.core.spans import MANY_IMAGES

NUM_TOKENS, NUM_ROWS = 12, 10


def fault(starts: list[int], sums: list[int], groups: int) -> str | None:
    """The first thing wrong, image by image, then overlaps; by sets of tokens."""
    if sums[0] != 0:
        return "cu_image_tokens must start at 0"
    for image, start in enumerate(starts):
        n = sums[image + 1] - sums[image]
        for wrong, words in (
            (n < 0, "cu_image_tokens must not decrease"),
            (sums[image + 1] > NUM_ROWS, "cu_image_tokens must not pass the 10 rows"),
            (n % groups != 0, "groups must divide"),
            (start < 0 or start + n > NUM_TOKENS, "image_starts must keep images within"),
        ):
            if wrong:
                return f"{words}.* for image {image}\\b"
    tokens = [start + j for image, start in enumerate(starts) for j in range(sums[image + 1] - sums[image])]
    return "image_starts must keep images apart" if len(set(tokens)) < len(tokens) else None


@given(
    images=st.lists(st.tuples(st.integers(-1, 13), st.integers(-1, 5)), max_size=4),
    first=st.sampled_from([0, 0, 0, 0, 1, -1]),
    groups=st.integers(1, 3),
    many=st.booleans(),
)
@example(images=[(6, 4), (0, 4)], first=0, groups=2, many=False)
@example(images=[(6, 4), (0, 4)], first=0, groups=2, many=True)
def test_every_fault_is_found_and_nothing_else(
    images: list[tuple[int, int]], first: int, groups: int, many: bool
) -> None:
    if many:
        images = [(0, 0)] * MANY_IMAGES + images
    starts = [start for start, _ in images]
    sums = [first]
    for _, length in images:
        sums.append(sums[-1] + length)
    arguments = (torch.tensor(starts, dtype=torch.int32), torch.tensor(sums, dtype=torch.int32))
    expected = fault(starts, sums, groups)

    def check() -> None:
        check_spans("some_operator", *arguments, num_tokens=NUM_TOKENS, num_rows=NUM_ROWS, groups=groups)

    if expected is None:
        check()
    else:
        with pytest.raises(ValueError) as raised:
            check()
        assert re.match(f"some_operator: {expected}", str(raised.value)), (expected, str(raised.value))
