"""``replace_input_embeds`` in plain PyTorch."""

from torch import Tensor


def replace_input_embeds_reference(
    input_embeds: Tensor, image_embeds: Tensor, image_starts: Tensor, cu_image_tokens: Tensor
) -> None:
    """Same arguments and effect as ``replace_input_embeds``."""
    bounds = cu_image_tokens.tolist()
    for start, first, last in zip(image_starts.tolist(), bounds, bounds[1:]):
        input_embeds[start : start + last - first] = image_embeds[first:last]
