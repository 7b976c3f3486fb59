"""Contracts: declarations, the explaining check, the accepting predicate, aliasing, symbolic sizes."""

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy.operator import toy_add_rows, toy_sum

from cann_ops_tilelang.core import FLOAT32, Contract, dim, operator, option, tensor
from cann_ops_tilelang.core.contract import overlap
from cann_ops_tilelang.testing import Call, OperatorTests, single_faults


def reference_add_rows(
    table: torch.Tensor, rows: torch.Tensor, extra: Any = None, *, shift: float = 1.0, pair: Any = None
) -> None:
    for row in rows.tolist():
        table[row] += shift


def reference_sum(x: torch.Tensor, y: torch.Tensor, *, groups: int = 2, mean: Any = (0.5, 0.25, 0.125)) -> torch.Tensor:
    return x + y + sum(mean)


class TestToyAddRows(OperatorTests):
    """The conformance suite passes for an operator with optional tensors, sequences and rows."""

    operator = staticmethod(toy_add_rows)
    reference = staticmethod(reference_add_rows)

    def calls(self) -> list[Call]:
        return [
            Call((torch.randn(5, 8), torch.tensor([0, 3], dtype=torch.int32), torch.randn(3, 2)), {"pair": (1, 2)}),
            Call((torch.randn(7, 32)[:, :16], torch.tensor([6, 1, 2], dtype=torch.int32)), {"shift": 2.0}),
        ]

    def other(self) -> Call:
        return Call((torch.randn(5, 8), torch.tensor([4, 2], dtype=torch.int32), torch.randn(3, 2)), {"pair": (1, 2)})


class TestToySum(OperatorTests):
    operator = staticmethod(toy_sum)
    reference = staticmethod(reference_sum)

    def calls(self) -> list[Call]:
        return [
            Call((torch.randn(3, 4), torch.randn(3, 4))),
            Call((torch.randn(2, 6).half(), torch.randn(2, 12).half()[:, :6]), {"groups": 4, "mean": [1.0, 2.0, 3.0]}),
        ]


@pytest.mark.parametrize("dims", ["Name", "a + b", "a, , b", "a * 2", "-1", ""])
def test_unreadable_dimensions_are_refused(dims: str) -> None:
    with pytest.raises(ValueError, match="cannot read dimension"):
        tensor("x", dims, FLOAT32)


def test_a_contract_must_match_the_signature() -> None:
    with pytest.raises(ValueError, match=r"the contract declares \['y'\], the signature \['x'\]"):

        @operator(tensor("y", "n", FLOAT32))
        def toy_mismatch(x: torch.Tensor) -> None: ...

    signature = inspect.Signature([inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
    with pytest.raises(ValueError, match="'m' appears in no tensor"):
        Contract("op", signature, [tensor("x", "n", FLOAT32), dim("m", at_least=1)])


@pytest.mark.parametrize("function", [toy_add_rows, toy_sum])
def test_accept_takes_no_single_fault(function: Any) -> None:
    """The predicate may say no to a valid call, which ``check`` then decides; never yes to an invalid one."""
    suite = TestToyAddRows() if function is toy_add_rows else TestToySum()
    for call in suite.calls():
        named = suite.named(call)
        assert function.operator.accept(*named.values())
        for fault in single_faults(function, call):
            bad = suite.named(fault.call)
            try:
                accepted = function.operator.accept(*bad.values())
            except (AttributeError, TypeError, IndexError, RuntimeError):
                accepted = False
            assert not accepted, fault.label


@given(data=st.data())
@settings(max_examples=300)
def test_overlap_is_exact_for_rows(data: st.DataObject) -> None:
    """Against sets of byte addresses, for pairs of 2-D views with equal or different strides."""
    buffer = torch.zeros(200)

    def view() -> torch.Tensor:
        rows, columns = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 8))
        stride = data.draw(st.sampled_from([8, 12, 16]))
        return buffer.as_strided((rows, columns), (stride, 1), data.draw(st.integers(0, 80)))

    a, b = view(), view()
    index = torch.arange(200)
    shared = set(index.as_strided(a.shape, a.stride(), a.storage_offset()).flatten().tolist()) & set(
        index.as_strided(b.shape, b.stride(), b.storage_offset()).flatten().tolist()
    )
    assert overlap(a, b) == overlap(b, a)
    if shared:
        assert overlap(a, b)
    elif a.stride(0) == b.stride(0) and a.shape[0] > 1 and b.shape[0] > 1:
        assert not overlap(a, b)


def test_overlap_sees_memory_shared_with_other_libraries() -> None:
    array = torch.zeros(16).numpy()
    assert overlap(torch.from_numpy(array[:10]), torch.from_numpy(array[4:]))
    assert not overlap(torch.from_numpy(array[:4]), torch.from_numpy(array[4:]))


def test_sizes_that_depend_on_data_are_checked_at_run_time() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            picked = x[mask]
            return toy_sum(picked, picked)

    x = torch.randn(6, 4)
    mask = torch.tensor([True, False, True, True, False, False])
    exported = torch.export.export(Module(), (x, mask)).module()
    torch.testing.assert_close(exported(x, ~mask), reference_sum(x[~mask], x[~mask]))


def test_values_are_checked_before_any_write() -> None:
    table = torch.zeros(4, 8)
    with pytest.raises(ValueError, match=r"rows\[1\] must be in \[0, 4\), got 9"):
        toy_add_rows(table, torch.tensor([0, 9], dtype=torch.int32))
    assert not table.any()


def test_option_declared_for_something_else() -> None:
    with pytest.raises(TypeError, match="toy_sum: groups must be an int, got str"):
        toy_sum(torch.randn(2, 2), torch.randn(2, 2), groups="2")  # type: ignore[arg-type]
    assert option("x", int, at_least=2).at_least == 2
