"""``engram_grad_w_reduce`` in plain PyTorch."""

from torch import Tensor


def engram_grad_w_reduce_reference(
    grad_w_partial: Tensor,
    weight_hidden: Tensor,
    weight_embed: Tensor,
    grad_weight_hidden: Tensor,
    grad_weight_embed: Tensor,
) -> None:
    """Same arguments and effect as ``engram_grad_w_reduce``."""
    grad_w = grad_w_partial.sum(0)
    grad_weight_hidden += grad_w * weight_embed.float()
    grad_weight_embed += grad_w * weight_hidden.float()
