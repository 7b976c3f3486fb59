"""What every operator of cann-ops-tilelang is built from: contracts, registration, and kernels."""

from ._version import __version__
from .contract import (
    BFLOAT16,
    FLOAT32,
    FLOATS,
    INT32,
    INT64,
    UINT8,
    Contract,
    DimRule,
    OptionSpec,
    TensorSpec,
    dim,
    option,
    require,
    tensor,
)
from .kernels import Kernel, kernel, num_cube_cores, num_vector_cores
from .registration import Operator, operator
from .spans import check_spans

__all__ = [
    "BFLOAT16",
    "FLOAT32",
    "FLOATS",
    "INT32",
    "INT64",
    "UINT8",
    "Contract",
    "DimRule",
    "Kernel",
    "Operator",
    "OptionSpec",
    "TensorSpec",
    "__version__",
    "check_spans",
    "dim",
    "kernel",
    "num_cube_cores",
    "num_vector_cores",
    "operator",
    "option",
    "require",
    "tensor",
]
