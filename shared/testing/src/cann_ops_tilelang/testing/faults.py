"""Enumerating the calls that break exactly one requirement of a contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cann_ops_tilelang.core import Contract, DimRule, Operator, OptionSpec, TensorSpec

from .calls import Call

DTYPES = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
)


@dataclass(frozen=True)
class Fault:
    """A call with one fault: what is wrong, the error it must raise, and the arguments one of which it must name."""

    label: str
    call: Call
    error: type[Exception]
    names: tuple[str, ...]


def single_faults(function: Callable[..., Any], valid: Call) -> Iterator[Fault]:
    """Every single-fault variation of a valid call that the operator's contract implies.

    The valid call should have more than one element in every tensor, so that strides mean something.
    """
    operator: Operator = function.operator  # type: ignore[attr-defined]
    contract = operator.contract
    bound = contract.signature.bind(*valid.args, **valid.kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)

    def fault(label: str, error: type[Exception], names: tuple[str, ...], **changed: Any) -> Fault:
        bound.arguments.update(arguments)
        bound.arguments.update(changed)
        return Fault(label, Call(bound.args, dict(bound.kwargs)), error, names)

    for spec in contract.tensors:
        if arguments[spec.name] is not None:
            yield from _tensor_faults(contract, spec, arguments, fault)
    for option in contract.options:
        yield from _option_faults(option, arguments[option.name], fault)
    for rule in contract.rules:
        yield from _rule_faults(contract, rule, arguments, fault)
    for name in contract.mutated:
        for spec in contract.tensors:
            if spec.name != name and arguments[spec.name] is not None:
                for shift in (0, 1):
                    first, second = _sharing(arguments[name], arguments[spec.name], shift)
                    label = f"{name} overlaps {spec.name}" + (" partly" if shift else "")
                    yield fault(label, ValueError, (name, spec.name), **{name: first, spec.name: second})


def _tensor_faults(
    contract: Contract, spec: TensorSpec, arguments: dict[str, Any], fault: Callable[..., Fault]
) -> Iterator[Fault]:
    name, value = spec.name, arguments[spec.name]
    for wrong in [1.5, [value]] if spec.optional else [1.5, [value], None]:
        yield fault(f"{name} is {type(wrong).__name__}", TypeError, (name,), **{name: wrong})
    for dtype in DTYPES:
        if dtype not in spec.dtypes:
            yield fault(f"{name} is {dtype}", TypeError, (name,), **{name: _cast(value, dtype)})
        elif spec.same_dtype_as is not None and dtype != value.dtype:
            yield fault(
                f"{name} is {dtype}, unlike {spec.same_dtype_as}", TypeError, (name,), **{name: _cast(value, dtype)}
            )
    yield fault(f"{name} has a dimension too many", ValueError, (name,), **{name: value.unsqueeze(0)})
    yield fault(f"{name} has a dimension too few", ValueError, (name,), **{name: value[0].clone()})
    for axis, declared in enumerate(spec.dims):
        users = tuple(
            other.name
            for other in contract.tensors
            if arguments[other.name] is not None and any(d.symbol == declared.symbol for d in other.dims)
        )
        if declared.literal is not None or (declared.symbol is not None and len(users) > 1):
            shape = list(value.shape)
            shape[axis] += 1
            wrong = value.new_zeros(shape)
            names = users if declared.literal is None else (name,)
            yield fault(f"{name} has size {shape[axis]} in dimension {axis}", ValueError, names, **{name: wrong})
    if sum(other.role == "read" or other.role == "mutated" for other in contract.tensors) > 1:
        other_device = value.to("meta") if value.device.type != "meta" else value
        names = tuple(other.name for other in contract.tensors)
        yield fault(f"{name} is on another device", ValueError, names, **{name: other_device})
    spread = torch.zeros((*value.shape, 2), dtype=value.dtype, device=value.device)[..., 0]
    spread.copy_(value)
    yield fault(f"{name} has strides {spread.stride()}", ValueError, (name,), **{name: spread})
    if spec.layout == "rows" and spec.role == "mutated":
        rows = value[:1].expand(value.shape)
        yield fault(f"{name} has rows that overlap", ValueError, (name,), **{name: rows})
    if value.device.type == "cpu":
        yield fault(f"{name} is sparse", ValueError, (name,), **{name: value.to_sparse()})


def _option_faults(spec: OptionSpec, value: Any, fault: Callable[..., Fault]) -> Iterator[Fault]:
    name = spec.name
    wrong_types: list[Any] = ["text", {}]
    if not spec.optional:
        wrong_types.append(None)
    if spec.length is None:
        wrong_types += [True, (1, 2)] + ([1.5] if spec.type is int else [])
    else:
        wrong_types += [1.5, tuple("x" for _ in range(spec.length))]
        filler = value if value is not None else (spec.type(1),) * spec.length
        yield fault(f"{name} is too long", ValueError, (name,), **{name: (*filler, filler[0])})
        yield fault(f"{name} is too short", ValueError, (name,), **{name: tuple(filler)[:-1]})
    for wrong in wrong_types:
        yield fault(f"{name} is {wrong!r}", TypeError, (name,), **{name: wrong})
    outside = [spec.at_least - 1] if spec.at_least is not None else []
    outside += [spec.at_most + 1] if spec.at_most is not None else []
    for number in outside:
        out: Any = spec.type(number)
        if spec.length is not None:
            out = (out,) * spec.length
        yield fault(f"{name} is {out}", ValueError, (name,), **{name: out})
    if spec.multiple_of is not None and spec.length is None:
        yield fault(f"{name} is {value + 1}", ValueError, (name,), **{name: value + 1})


def _rule_faults(
    contract: Contract, rule: DimRule, arguments: dict[str, Any], fault: Callable[..., Fault]
) -> Iterator[Fault]:
    wrong_sizes = []
    if rule.at_least > 0:
        wrong_sizes.append(rule.at_least - rule.multiple_of)
    if rule.at_most is not None:
        wrong_sizes.append(rule.at_most + rule.multiple_of)
    if rule.multiple_of > 1:
        wrong_sizes.append(rule.multiple_of + rule.multiple_of // 2)
    for size in wrong_sizes:
        changed = {}
        for spec in contract.tensors:
            value = arguments[spec.name]
            if value is None:
                continue
            shape = [
                size + declared.offset if declared.symbol == rule.symbol else current
                for declared, current in zip(spec.dims, value.shape)
            ]
            if shape != list(value.shape):
                changed[spec.name] = value.new_zeros(shape)
        yield fault(f"{rule.symbol} is {size}", ValueError, tuple(changed), **changed)


def _sharing(first: Tensor, second: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Contiguous tensors like the two given that share memory; with ``shift``, only the end of the first one."""
    unit = max(first.element_size(), second.element_size())
    begin = (first.numel() - 1) * first.element_size() // unit * unit if shift else 0
    size = max(first.numel() * first.element_size(), begin + second.numel() * second.element_size())
    buffer = torch.zeros(-(-size // 8) * 8, dtype=torch.uint8, device=first.device)

    def view(like: Tensor, offset: int) -> Tensor:
        return buffer[offset : offset + like.numel() * like.element_size()].view(like.dtype).view(like.shape)

    return view(first, 0), view(second, begin)


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast on the host: not every device casts to every dtype."""
    return value.cpu().to(dtype).to(value.device)
