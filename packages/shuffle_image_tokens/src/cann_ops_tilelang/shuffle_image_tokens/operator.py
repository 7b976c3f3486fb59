"""Contract and registration of ``shuffle_image_tokens``."""

from torch import Tensor

from cann_ops_tilelang.core import FLOATS, INT32, operator, option, tensor

# Above this many images a dozen tensor operations cost less than a Python loop.
MANY_IMAGES = 128


def check_values(input_embeds: Tensor, image_starts: Tensor, cu_image_tokens: Tensor, groups: int) -> None:
    """Raise the ValueError that names the first image whose span is not as the contract states."""
    num_tokens = input_embeds.shape[0]
    in_order = _in_order if image_starts.shape[0] <= MANY_IMAGES else _many_in_order
    if in_order(image_starts, cu_image_tokens, num_tokens, groups):
        return
    bounds = cu_image_tokens.tolist()
    if bounds[0] != 0:
        raise ValueError(f"shuffle_image_tokens: cu_image_tokens must start at 0, got {bounds[0]} for image 0")
    spans = []
    for image, start in enumerate(image_starts.tolist()):
        n = bounds[image + 1] - bounds[image]
        if n < 0:
            raise ValueError(
                "shuffle_image_tokens: cu_image_tokens must not decrease, "
                f"got {bounds[image]} to {bounds[image + 1]} for image {image}"
            )
        if n % groups:
            raise ValueError(
                f"shuffle_image_tokens: groups must divide the tokens of every image, got {groups} for image {image} "
                f"of {n} tokens"
            )
        if not 0 <= start <= num_tokens - n:
            raise ValueError(
                f"shuffle_image_tokens: image_starts must keep images within the {num_tokens} rows of input_embeds, "
                f"got {start} for image {image} of {n} tokens"
            )
        spans.append((start, start + n, image))
    _check_apart(spans)


def _in_order(image_starts: Tensor, cu_image_tokens: Tensor, num_tokens: int, groups: int) -> bool:
    """Whether the spans are valid and in ascending order, as they nearly always are."""
    bounds = cu_image_tokens.tolist()
    first = end = 0
    for start, last in zip(image_starts.tolist(), bounds[1:]):
        if start < end or last < first or last % groups:
            return False
        end = start + last - first
        first = last
    return bounds[0] == 0 and end <= num_tokens


def _many_in_order(image_starts: Tensor, cu_image_tokens: Tensor, num_tokens: int, groups: int) -> bool:
    starts, bounds = image_starts.long(), cu_image_tokens.long()
    lengths = bounds.diff()
    ends = starts + lengths
    return bool(
        int(bounds[0]) == 0
        and int(lengths.min()) >= 0
        and int(starts[0]) >= 0
        and int(ends[-1]) <= num_tokens
        and (starts[1:] >= ends[:-1]).all()
        and not (bounds % groups).any()
    )


def _check_apart(spans: list[tuple[int, int, int]]) -> None:
    end, owner = 0, 0
    for start, stop, image in sorted(span for span in spans if span[0] < span[1]):
        if start < end:
            raise ValueError(
                f"shuffle_image_tokens: image_starts must keep images apart, "
                f"got tokens {start} to {stop} for image {image} and up to {end} for image {owner}"
            )
        end, owner = stop, image


@operator(
    tensor("input_embeds", "num_tokens, hidden_size", FLOATS, role="mutated", layout="rows"),
    tensor("image_starts", "num_images", INT32),
    tensor("cu_image_tokens", "num_images + 1", INT32),
    option("groups", int, at_least=1),
    values=check_values,
)
def shuffle_image_tokens(input_embeds: Tensor, image_starts: Tensor, cu_image_tokens: Tensor, *, groups: int) -> None:
    """Interleave the groups of every image's tokens, in place: the channel shuffle on the token axis.

    The ``n`` tokens of an image, seen as (groups, n / groups), are transposed::

        new[j * groups + g] = old[g * (n / groups) + j]

    A copy of bits: NaN payloads and signed zeros pass unchanged, tokens outside the images keep their bits. Shuffling
    with ``groups`` and then with ``n / groups`` is the identity. There is no limit on ``n``.

    Args:
        input_embeds: (num_tokens, hidden_size) bfloat16, float16 or float32, written in place. The last dimension is
            contiguous; the row stride is free.
        image_starts: (num_images,) int32, the first token of every image. Images may come in any order, but their spans
            may neither overlap nor leave input_embeds.
        cu_image_tokens: (num_images + 1,) int32, prefix sums of tokens per image: starts at 0, does not decrease.
        groups: at least 1; divides the number of tokens of every image.

    Zero images, or images of zero tokens, do nothing.

    Raises:
        TypeError: an argument is not a tensor, has another dtype, or groups is not an int.
        ValueError: rank, shape, device, layout, aliasing or groups is not as stated; on CPU also a value in
            image_starts or cu_image_tokens, naming the image. Nothing has been written.

    The shuffle of X. Zhang et al., "ShuffleNet", https://arxiv.org/abs/1707.01083, as
    ``torch.nn.functional.channel_shuffle`` does it.
    """
