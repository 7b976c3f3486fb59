"""``engram_grad_w_reduce``: values, state over several calls, composition."""

import pytest
import torch
from torch import Tensor

from cann_ops_tilelang.engram_grad_w_reduce import engram_grad_w_reduce
from cann_ops_tilelang.engram_grad_w_reduce.reference import engram_grad_w_reduce_reference
from cann_ops_tilelang.testing import Call, OperatorTests, calc_diff, count_nodes

ACCEPTANCE = [(1, 256), (7, 256), (37, 2560), (38, 3072), (75, 6144), (7, 4096)]


def make(num_partials: int, hidden_size: int, hc_mult: int = 4) -> Call:
    return Call(
        (
            torch.randn(num_partials, hc_mult, hidden_size),
            torch.randn(hc_mult, hidden_size).bfloat16(),
            torch.randn(hc_mult, hidden_size).bfloat16(),
            torch.randn(hc_mult, hidden_size),
            torch.randn(hc_mult, hidden_size),
        )
    )


def assert_close(actual: Tensor, expected: Tensor) -> None:
    assert calc_diff(actual, expected) < 1e-10


class TestEngramGradWReduce(OperatorTests):
    operator = staticmethod(engram_grad_w_reduce)
    reference = staticmethod(engram_grad_w_reduce_reference)

    def calls(self) -> list[Call]:
        return [make(3, 128), make(37, 2560), make(1, 64, hc_mult=1), make(5, 4160, hc_mult=3)]

    def assert_close(self, actual: Tensor, expected: Tensor) -> None:
        assert_close(actual, expected)


@pytest.mark.parametrize(("num_partials", "hidden_size"), ACCEPTANCE)
def test_acceptance_shapes(device: str, num_partials: int, hidden_size: int) -> None:
    """The reference evolves on its own through non-zero gradients, updates in place and new addresses."""
    expected = make(num_partials, hidden_size)
    call = expected.to(device)
    for step in range(4):
        if step == 1:
            for tensor in (*call.args[:3], *expected.args[:3]):
                tensor.mul_(0.5)
        if step == 2:
            call = Call((*(tensor.clone() for tensor in call.args[:3]), *call.args[3:]))
        if step == 3:
            call = Call((*call.args[:3], *(tensor.clone() for tensor in call.args[3:])))
        addresses = [tensor.data_ptr() for tensor in call.args]
        call(engram_grad_w_reduce)
        expected(engram_grad_w_reduce_reference)
        for actual, reference in zip(call.args[3:], expected.args[3:]):
            assert_close(actual, reference)
        for actual, reference in zip(call.args[:3], expected.args[:3]):
            assert torch.equal(actual.cpu(), reference)
        assert [tensor.data_ptr() for tensor in call.args] == addresses


@pytest.mark.parametrize("num_partials", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 1000])
@pytest.mark.parametrize(("hc_mult", "hidden_size"), [(1, 64), (3, 192), (1, 1088)])
def test_tails(device: str, num_partials: int, hc_mult: int, hidden_size: int) -> None:
    expected = make(num_partials, hidden_size, hc_mult)
    call = expected.to(device)
    call(engram_grad_w_reduce)
    expected(engram_grad_w_reduce_reference)
    for actual, reference in zip(call.args[3:], expected.args[3:]):
        assert_close(actual, reference)


def test_not_finite_values_propagate(device: str) -> None:
    call = make(3, 64, 1)
    call.args[0][1, 0, 5] = float("nan")
    call.args[0][0, 0, 6] = float("inf")
    call.args[0][1, 0, 7], call.args[0][2, 0, 7] = float("inf"), float("-inf")
    call.args[1][0, 8] = float("inf")
    actual = call.to(device)
    actual(engram_grad_w_reduce)
    call(engram_grad_w_reduce_reference)
    for a, e in zip(actual.args[3:], call.args[3:]):
        torch.testing.assert_close(a.cpu(), e, equal_nan=True)


def train_step(partial: Tensor, scale: Tensor, *rest: Tensor) -> Tensor:
    """An upstream scaling, the reduction, a downstream read of both gradients."""
    engram_grad_w_reduce(partial * scale, *rest)
    return rest[2].square().sum() + rest[3].abs().amax()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.on("cpu")
def test_composition_in_one_graph(backend: str) -> None:
    call = make(7, 256)
    scale = torch.tensor(0.25)
    arguments = (call.args[0], scale, *call.args[1:])
    assert count_nodes(train_step, *Call(arguments).clone().args) == {"engram_grad_w_reduce": 1}
    torch._dynamo.reset()
    compiled = torch.compile(train_step, backend=backend, fullgraph=True, dynamic=False)
    mine, eager = Call(arguments).clone(), Call(arguments).clone()
    for _ in range(3):
        actual, expected = compiled(*mine.args), train_step(*eager.args)
        for a, e in zip(mine.args, eager.args):
            assert torch.equal(a, e)
        torch.testing.assert_close(actual, expected)
