from collections.abc import Sequence

from torch import Tensor

from cann_ops_tilelang.core import FLOAT32, FLOATS, INT32, dim, operator, option, tensor


def check_rows(table: Tensor, rows: Tensor, extra: Tensor | None, shift: float, pair: Sequence[int] | None) -> None:
    for index, row in enumerate(rows.tolist()):
        if not 0 <= row < table.shape[0]:
            raise ValueError(f"toy_add_rows: rows[{index}] must be in [0, {table.shape[0]}), got {row}")


@operator(
    tensor("table", "num_rows, width", FLOAT32, role="mutated", layout="rows"),
    tensor("rows", "num_picks", INT32),
    tensor("extra", "num_picks + 1, 2", FLOAT32, optional=True),
    option("shift", float),
    option("pair", int, length=2, optional=True, at_least=1, at_most=9),
    dim("width", at_least=4, at_most=64, multiple_of=4),
    values=check_rows,
)
def toy_add_rows(
    table: Tensor,
    rows: Tensor,
    extra: Tensor | None = None,
    *,
    shift: float = 1.0,
    pair: Sequence[int] | None = None,
) -> None:
    """Add ``shift`` to the picked rows, in place."""


@operator(
    tensor("x", "batch, width", FLOATS),
    tensor("y", "batch, width", FLOATS, same_dtype_as="x", layout="rows"),
    option("groups", int, at_least=1, at_most=64, multiple_of=2),
    option("mean", float, length=3),
)
def toy_sum(x: Tensor, y: Tensor, *, groups: int = 2, mean: Sequence[float] = (0.5, 0.25, 0.125)) -> Tensor:
    """``x + y + sum(mean)``."""
    return x.new_empty(x.shape)
