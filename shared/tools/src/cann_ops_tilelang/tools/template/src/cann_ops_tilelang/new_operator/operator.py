"""Contract and registration of ``new_operator``."""

import torch
from torch import Tensor

from cann_ops_tilelang.core import FLOAT32, operator, option, tensor


@operator(
    tensor("x", "rows, columns", FLOAT32),
    option("scale", float),
)
def new_operator(x: Tensor, *, scale: float) -> Tensor:
    """Multiply every element by a number.

    Args:
        x: (rows, columns) float32, contiguous.
        scale: the factor, rounded to float32.

    Returns:
        (rows, columns) float32, new and contiguous.

    Raises:
        TypeError: an argument has another type or dtype.
        ValueError: rank, layout or device is not as stated.
    """
    return torch.empty_like(x)
