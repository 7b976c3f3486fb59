"""Spans of image tokens, valid and wrong, for the operators that write them."""

from __future__ import annotations

import re

import torch
from torch import Tensor

# Starts and sums for 20 tokens and 16 rows of image embeddings, in groups of 2, and the message they give.
WRONG_SPANS = {
    "start is negative": ([4, -1], [0, 4, 6], "image_starts .* got -1 for image 1"),
    "start is past the end": ([4, 21], [0, 4, 6], "image_starts .* got 21 for image 1"),
    "span leaves the tensor": ([4, 19], [0, 4, 6], "image_starts .* got 19 for image 1"),
    "start is the largest number": ([4, 2**31 - 1], [0, 4, 6], "image_starts .* for image 1"),
    "start is the smallest number": ([-(2**31), 8], [0, 4, 6], "image_starts .* for image 0"),
    "empty image past the end": ([4, 21], [0, 4, 4], "image_starts .* got 21 for image 1"),
    "spans overlap": ([4, 6], [0, 4, 6], "image_starts .* for image 1 and up to 8 for image 0"),
    "spans overlap, later image first": ([9, 8], [0, 4, 6], "image_starts .* for image 0 and up to 10 for image 1"),
    "one span in another": ([4, 5], [0, 8, 10], "image_starts .* for image 1 and up to 12 for image 0"),
    "the same start": ([4, 4], [0, 4, 6], "image_starts .* for image 1"),
    "sums start above 0": ([4, 8], [2, 4, 6], "cu_image_tokens must start at 0, got 2 for image 0"),
    "sums start below 0": ([4, 8], [-2, 4, 6], "cu_image_tokens must start at 0, got -2 for image 0"),
    "sums decrease": ([4, 8], [0, 6, 4], "cu_image_tokens .* got 6 to 4 for image 1"),
    "sums are negative": ([4, 8], [0, -2, 4], "cu_image_tokens .* got 0 to -2 for image 0"),
    "sums wrap around": ([4, 8], [0, 2**31 - 2, -(2**31)], "(image_starts|cu_image_tokens) .* for image 0"),
}


def spans(*lengths: int, gaps: int = 2) -> tuple[Tensor, Tensor, int]:
    """Starts, prefix sums and number of tokens for images of these lengths with ``gaps`` tokens around each."""
    starts, position = [], gaps
    for length in lengths:
        starts.append(position)
        position += length + gaps
    cu = torch.tensor([0, *lengths]).cumsum(0).int()
    return torch.tensor(starts, dtype=torch.int32), cu, position


def behind(message: str, before: int) -> str:
    """The message when that many images, and a crop of each, come first."""
    return re.sub(r"(image|crop) (\d)", lambda match: f"{match[1]} {int(match[2]) + before}", message)
