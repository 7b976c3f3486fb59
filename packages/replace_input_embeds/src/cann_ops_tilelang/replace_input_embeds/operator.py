"""Contract and registration of ``replace_input_embeds``, and the helper that finds the spans of images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cann_ops_tilelang.core import FLOATS, INT32, check_spans, operator, tensor


def check_values(input_embeds: Tensor, image_embeds: Tensor, image_starts: Tensor, cu_image_tokens: Tensor) -> None:
    """Raise the ValueError that names the first image whose span is not as the contract states."""
    check_spans(
        "replace_input_embeds",
        image_starts,
        cu_image_tokens,
        num_tokens=input_embeds.shape[0],
        num_rows=image_embeds.shape[0],
    )


@operator(
    tensor("input_embeds", "num_tokens, hidden_size", FLOATS, role="mutated", layout="rows"),
    tensor("image_embeds", "num_image_tokens, hidden_size", FLOATS, same_dtype_as="input_embeds"),
    tensor("image_starts", "num_images", INT32),
    tensor("cu_image_tokens", "num_images + 1", INT32),
    values=check_values,
)
def replace_input_embeds(
    input_embeds: Tensor, image_embeds: Tensor, image_starts: Tensor, cu_image_tokens: Tensor
) -> None:
    """Copy the embeddings of every image over the span of tokens that stands for it, in place.

    For image ``i`` and ``j < cu_image_tokens[i + 1] - cu_image_tokens[i]``::

        input_embeds[image_starts[i] + j] = image_embeds[cu_image_tokens[i] + j]

    A copy of bits: NaN payloads and signed zeros pass unchanged, every other token keeps its bits.

    Args:
        input_embeds: (num_tokens, hidden_size) bfloat16, float16 or float32, written in place. The last dimension is
            contiguous; the row stride is free.
        image_embeds: (num_image_tokens, hidden_size), the dtype of input_embeds, contiguous. Rows from
            ``cu_image_tokens[-1]`` on are not used.
        image_starts: (num_images,) int32, the first token of every image. Images may come in any order, but their spans
            may neither overlap nor leave input_embeds.
        cu_image_tokens: (num_images + 1,) int32, prefix sums of tokens per image: starts at 0, does not decrease.

    input_embeds may not overlap image_embeds in memory. Zero images, or images of zero tokens, do nothing.

    Raises:
        TypeError: an argument is not a tensor or has another dtype.
        ValueError: rank, shape, device, layout or aliasing is not as stated; on CPU also a value in image_starts or
            cu_image_tokens, naming the image. Nothing has been written.
    """


def find_image_spans(
    input_ids: Tensor, image_token_id: int, *, tokens_per_image: int | Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Find the spans of image tokens in a sequence of token ids.

    Every run of ``image_token_id`` is one image, unless ``tokens_per_image`` tells images in one run apart.

    Args:
        input_ids: (num_tokens,) of an integer dtype.
        image_token_id: the id that stands for one token of an image.
        tokens_per_image: the number of tokens of every image, or one number for each image in order.

    Returns:
        ``(image_starts, cu_image_tokens)``, (num_images,) and (num_images + 1,) int32 on the device of input_ids, as
        ``replace_input_embeds`` takes them. Their sizes depend on the ids, so a device is synchronised with.

    Raises:
        TypeError: input_ids is not a tensor of integers.
        ValueError: input_ids is not 1-D, or its runs are not made of images of tokens_per_image tokens.
    """
    if not isinstance(input_ids, Tensor):
        raise TypeError(f"find_image_spans: input_ids must be a torch.Tensor, got {type(input_ids).__name__}")
    if input_ids.dtype.is_floating_point or input_ids.dtype.is_complex or input_ids.dtype == torch.bool:
        raise TypeError(f"find_image_spans: input_ids must hold integers, got {input_ids.dtype}")
    if input_ids.dim() != 1:
        raise ValueError(f"find_image_spans: input_ids must have 1 dimension, got shape {tuple(input_ids.shape)}")
    places = (input_ids == image_token_id).nonzero().flatten()
    if tokens_per_image is None:
        first = torch.ones_like(places, dtype=torch.bool)
        first[1:] = places.diff() != 1
        bounds = first.nonzero().flatten()
        cu_image_tokens = torch.cat([bounds, bounds.new_full((1,), len(places))])
    else:
        cu_image_tokens = _split(len(places), tokens_per_image).to(places.device)
        firsts, lasts = places[cu_image_tokens[:-1]], places[cu_image_tokens[1:] - 1]
        broken = (lasts - firsts + 1 != cu_image_tokens.diff()).nonzero()
        if len(broken):
            image = int(broken[0])
            raise ValueError(
                f"find_image_spans: tokens_per_image must match the runs of id {image_token_id} in input_ids, got "
                f"{int(cu_image_tokens.diff()[image])} tokens for image {image}, which spans tokens "
                f"{int(firsts[image])} to {int(lasts[image])}"
            )
    return places[cu_image_tokens[:-1]].int(), cu_image_tokens.int()


def _split(num_places: int, tokens_per_image: int | Sequence[int]) -> Tensor:
    """Prefix sums of the tokens of images that together have ``num_places`` tokens."""
    if isinstance(tokens_per_image, int):
        if tokens_per_image < 1 or num_places % tokens_per_image:
            raise ValueError(
                f"find_image_spans: tokens_per_image must divide the {num_places} image tokens, got {tokens_per_image}"
            )
        return torch.arange(0, num_places + 1, tokens_per_image)
    counts = torch.tensor(list(tokens_per_image), dtype=torch.int64)
    if (counts < 1).any() or int(counts.sum()) != num_places:
        raise ValueError(
            f"find_image_spans: tokens_per_image must be positive and add up to the {num_places} image tokens, "
            f"got {list(tokens_per_image)}"
        )
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
