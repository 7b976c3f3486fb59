"""Contract and registration of ``shuffle_image_tokens``."""

from torch import Tensor

from cann_ops_tilelang.core import FLOATS, INT32, check_spans, operator, option, tensor


def check_values(input_embeds: Tensor, image_starts: Tensor, cu_image_tokens: Tensor, groups: int) -> None:
    """Raise the ValueError that names the first image whose span is not as the contract states."""
    num_tokens = input_embeds.shape[0]
    check_spans("shuffle_image_tokens", image_starts, cu_image_tokens, num_tokens=num_tokens, groups=groups)


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
