"""Contract and registration of ``engram_grad_w_reduce``."""

from torch import Tensor

from cann_ops_tilelang.core import BFLOAT16, FLOAT32, dim, operator, tensor


@operator(
    tensor("grad_w_partial", "num_partials, hc_mult, hidden_size", FLOAT32),
    tensor("weight_hidden", "hc_mult, hidden_size", BFLOAT16),
    tensor("weight_embed", "hc_mult, hidden_size", BFLOAT16),
    tensor("grad_weight_hidden", "hc_mult, hidden_size", FLOAT32, role="mutated"),
    tensor("grad_weight_embed", "hc_mult, hidden_size", FLOAT32, role="mutated"),
    dim("num_partials", at_least=1),
    dim("hc_mult", at_least=1),
    dim("hidden_size", at_least=64, multiple_of=64),
)
def engram_grad_w_reduce(
    grad_w_partial: Tensor,
    weight_hidden: Tensor,
    weight_embed: Tensor,
    grad_weight_hidden: Tensor,
    grad_weight_embed: Tensor,
) -> None:
    """Sum the partial gradients of Engram's fused gating weight and accumulate them into its two factors, in place.

    With ``s = grad_w_partial.sum(0)``::

        grad_weight_hidden += s * weight_embed.float()
        grad_weight_embed += s * weight_hidden.float()

    All tensors are contiguous and on one device. The gradients may overlap neither each other nor an input.

    Args:
        grad_w_partial: (num_partials, hc_mult, hidden_size) float32, num_partials >= 1.
        weight_hidden: (hc_mult, hidden_size) bfloat16.
        weight_embed: (hc_mult, hidden_size) bfloat16.
        grad_weight_hidden: (hc_mult, hidden_size) float32, accumulated into.
        grad_weight_embed: (hc_mult, hidden_size) float32, accumulated into.

    hc_mult is at least 1; hidden_size is a positive multiple of 64.

    Raises:
        TypeError: an argument is not a tensor or has another dtype.
        ValueError: rank, shape, device, layout or aliasing is not as stated. Nothing has been written.
    """
