"""``new_operator``: values, and the lowering to AscendC."""

import pytest
import torch

from cann_ops_tilelang.new_operator import new_operator
from cann_ops_tilelang.new_operator.reference import new_operator_reference
from cann_ops_tilelang.testing import Call, OperatorTests, bit_equal


class TestNewOperator(OperatorTests):
    operator = staticmethod(new_operator)
    reference = staticmethod(new_operator_reference)

    def calls(self) -> list[Call]:
        return [
            Call((torch.randn(rows, columns),), {"scale": -0.3}) for rows, columns in [(3, 64), (1, 1023), (70, 4097)]
        ]


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (8, 1024), (129, 1024)])
def test_shapes(device: str, shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    assert bit_equal(new_operator(x.to(device), scale=0.1), new_operator_reference(x, scale=0.1))


def test_special_values(device: str) -> None:
    x = torch.tensor([[0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3e38]])
    torch.testing.assert_close(new_operator(x.to(device), scale=10.0).cpu(), x * 10.0, rtol=0, atol=0, equal_nan=True)


@pytest.mark.on("cpu")
def test_lowers_for_ascend() -> None:
    from cann_ops_tilelang.new_operator.kernels import ascend

    source = ascend.build.source(56)
    assert source.count("asc_copy_gm2ub_align(") == 1
    assert source.count("asc_copy_ub2gm_align(") == 1
