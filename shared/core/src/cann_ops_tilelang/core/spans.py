"""The check of spans of image tokens, for the operators that write them."""

from __future__ import annotations

from torch import Tensor

# Above this many images a dozen tensor operations cost less than a Python loop.
MANY_IMAGES = 128


def check_spans(
    operator: str,
    image_starts: Tensor,
    cu_image_tokens: Tensor,
    *,
    num_tokens: int,
    num_rows: int | None = None,
    groups: int = 1,
) -> None:
    """Raise the ValueError that names the first image whose span is not as it should be.

    Image i has ``n = cu_image_tokens[i + 1] - cu_image_tokens[i]`` tokens from ``image_starts[i]`` on. The sums start
    at 0, do not decrease and stay within ``num_rows`` rows of image_embeds, if given; ``groups`` divides every n; the
    spans lie within ``num_tokens`` rows of input_embeds and do not overlap.
    """
    in_order = _in_order if image_starts.shape[0] <= MANY_IMAGES else _many_in_order
    if in_order(image_starts, cu_image_tokens, num_tokens, num_rows, groups):
        return
    bounds = cu_image_tokens.tolist()
    if bounds[0] != 0:
        raise ValueError(f"{operator}: cu_image_tokens must start at 0, got {bounds[0]} for image 0")
    spans = []
    for image, start in enumerate(image_starts.tolist()):
        first, last = bounds[image], bounds[image + 1]
        n = last - first
        if n < 0:
            raise ValueError(f"{operator}: cu_image_tokens must not decrease, got {first} to {last} for image {image}")
        if num_rows is not None and last > num_rows:
            raise ValueError(
                f"{operator}: cu_image_tokens must not pass the {num_rows} rows of image_embeds, "
                f"got {first} to {last} for image {image}"
            )
        if n % groups:
            raise ValueError(
                f"{operator}: groups must divide the tokens of every image, got {groups} for image {image} "
                f"of {n} tokens"
            )
        if not 0 <= start <= num_tokens - n:
            raise ValueError(
                f"{operator}: image_starts must keep images within the {num_tokens} rows of input_embeds, "
                f"got {start} for image {image} of {n} tokens"
            )
        if n:
            spans.append((start, start + n, image))
    end, owner = 0, 0
    for start, stop, image in sorted(spans):
        if start < end:
            raise ValueError(
                f"{operator}: image_starts must keep images apart, "
                f"got tokens {start} to {stop} for image {image} and up to {end} for image {owner}"
            )
        end, owner = stop, image


def _in_order(starts: Tensor, sums: Tensor, num_tokens: int, num_rows: int | None, groups: int) -> bool:
    """Whether the spans are valid and in ascending order, as they nearly always are."""
    bounds = sums.tolist()
    first = end = 0
    for start, last in zip(starts.tolist(), bounds[1:]):
        if start < end or last < first or last % groups:
            return False
        end = start + last - first
        first = last
    return bounds[0] == 0 and end <= num_tokens and (num_rows is None or first <= num_rows)


def _many_in_order(starts: Tensor, sums: Tensor, num_tokens: int, num_rows: int | None, groups: int) -> bool:
    starts, bounds = starts.long(), sums.long()
    lengths = bounds.diff()
    ends = starts + lengths
    return bool(
        int(bounds[0]) == 0
        and (num_rows is None or int(bounds[-1]) <= num_rows)
        and int(lengths.min()) >= 0
        and int(starts[0]) >= 0
        and int(ends[-1]) <= num_tokens
        and (starts[1:] >= ends[:-1]).all()
        and (groups == 1 or not (bounds % groups).any())
    )
