"""``shuffle_image_tokens`` in plain PyTorch."""

from torch import Tensor


def shuffle_image_tokens_reference(
    input_embeds: Tensor, image_starts: Tensor, cu_image_tokens: Tensor, *, groups: int
) -> None:
    """Same arguments and effect as ``shuffle_image_tokens``."""
    for start, n in zip(image_starts.tolist(), cu_image_tokens.diff().tolist()):
        span = input_embeds[start : start + n]
        span.copy_(span.unflatten(0, (groups, n // groups)).transpose(0, 1).flatten(0, 1))
