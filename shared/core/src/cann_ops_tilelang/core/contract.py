"""Operator contracts as data, and the checks that follow from them.

A contract lists the arguments of an operator in order. From the one declaration come

* ``Contract.check``: explains the first violation; works on real, fake and meta tensors, with symbolic sizes,
* ``Contract.accept_condition``: a flat predicate, about two microseconds for five tensors, for the common valid call,
* the single-fault invalid inputs in ``cann_ops_tilelang.testing`` and the tables in the READMEs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

Role = Literal["read", "mutated"]
Layout = Literal["contiguous", "rows"]

BFLOAT16 = (torch.bfloat16,)
FLOAT32 = (torch.float32,)
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
INT32 = (torch.int32,)
INT64 = (torch.int64,)
UINT8 = (torch.uint8,)

DEVICES = ("cpu", "npu", "meta")
_DIM = re.compile(r"(?P<name>[a-z]\w*)( \+ (?P<offset>\d+))?$|(?P<literal>\d+)$|_$")


@dataclass(frozen=True)
class Dim:
    """One dimension of a declared shape: a symbol plus an offset, a literal size, or (neither) a free size."""

    text: str
    symbol: str | None = None
    offset: int = 0
    literal: int | None = None


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument."""

    name: str
    dims: tuple[Dim, ...]
    dtypes: tuple[torch.dtype, ...]
    role: Role
    layout: Layout
    optional: bool
    same_dtype_as: str | None

    @property
    def shape_text(self) -> str:
        """The declared shape as it appears in messages, e.g. ``(num_images + 1,)``."""
        inner = ", ".join("any" if dim.text == "_" else dim.text for dim in self.dims)
        return f"({inner},)" if len(self.dims) == 1 else f"({inner})"


@dataclass(frozen=True)
class OptionSpec:
    """A Python argument: an int or float, or a fixed-length tuple of them."""

    name: str
    type: type
    length: int | None
    optional: bool
    at_least: int | None
    at_most: int | None
    multiple_of: int | None


@dataclass(frozen=True)
class DimRule:
    """A bound on a symbol of the declared shapes."""

    symbol: str
    at_least: int
    at_most: int | None
    multiple_of: int


def tensor(
    name: str,
    dims: str,
    dtypes: tuple[torch.dtype, ...],
    *,
    role: Role = "read",
    layout: Layout = "contiguous",
    optional: bool = False,
    same_dtype_as: str | None = None,
) -> TensorSpec:
    """Declare a tensor argument.

    ``dims`` names the dimensions, separated by commas: a symbol (``hidden_size``), a symbol plus a number
    (``num_images + 1``), a number, or ``_`` for any size. A symbol has one value throughout a call.
    ``layout`` is ``contiguous``, or ``rows``: only the last dimension is contiguous, the other strides are free
    (rows of a mutated tensor must not overlap each other).
    """
    parsed = []
    for text in (part.strip() for part in dims.split(",")):
        match = _DIM.match(text)
        if match is None:
            raise ValueError(f"tensor {name}: cannot read dimension {text!r}")
        literal = match["literal"]
        parsed.append(Dim(text, match["name"], int(match["offset"] or 0), int(literal) if literal else None))
    return TensorSpec(name, tuple(parsed), dtypes, role, layout, optional, same_dtype_as)


def option(
    name: str,
    type: type,  # the word of the field
    *,
    length: int | None = None,
    optional: bool = False,
    at_least: int | None = None,
    at_most: int | None = None,
    multiple_of: int | None = None,
) -> OptionSpec:
    """Declare a Python argument of type ``int`` or ``float``; with ``length``, a sequence of that many."""
    return OptionSpec(name, type, length, optional, at_least, at_most, multiple_of)


def dim(symbol: str, *, at_least: int = 0, at_most: int | None = None, multiple_of: int = 1) -> DimRule:
    """Bound a symbol of the declared shapes."""
    return DimRule(symbol, at_least, at_most, multiple_of)


class Contract:
    """The declared arguments of one operator."""

    def __init__(
        self, name: str, signature: inspect.Signature, specs: Sequence[TensorSpec | OptionSpec | DimRule]
    ) -> None:
        self.name = name
        self.signature = signature
        self.tensors = tuple(spec for spec in specs if isinstance(spec, TensorSpec))
        self.options = tuple(spec for spec in specs if isinstance(spec, OptionSpec))
        self.rules = tuple(spec for spec in specs if isinstance(spec, DimRule))
        self.mutated = tuple(spec.name for spec in self.tensors if spec.role == "mutated")
        declared = [spec.name for spec in specs if not isinstance(spec, DimRule)]
        if declared != list(signature.parameters):
            raise ValueError(f"{name}: the contract declares {declared}, the signature {list(signature.parameters)}")
        symbols = {d.symbol for spec in self.tensors for d in spec.dims}
        for rule in self.rules:
            if rule.symbol not in symbols:
                raise ValueError(f"{name}: dim {rule.symbol!r} appears in no tensor")

    # -- the explaining check ------------------------------------------------------------------------------------

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise the TypeError or ValueError that names the first violation; return if the call is valid."""
        for spec in self.tensors:
            self._check_type(spec, arguments[spec.name], arguments)
        for option_spec in self.options:
            self._check_option(option_spec, arguments[option_spec.name])
        present = [(spec, arguments[spec.name]) for spec in self.tensors if arguments[spec.name] is not None]
        first = present[0][1]
        sizes: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for spec, value in present:
            self._check_layout_kind(spec, value)
            if value.device != first.device:
                self._fail(spec, f"must be on {first.device} like {present[0][0].name}, got {value.device}")
            self._check_shape(spec, value, sizes, origins)
            self._check_strides(spec, value)
        if first.device.type not in DEVICES:
            supported = ", ".join(DEVICES)
            self._fail(present[0][0], f"must be on a supported device ({supported}), got {first.device}")
        for rule in self.rules:
            self._check_rule(rule, sizes[rule.symbol], origins[rule.symbol])
        for spec, value in present:
            if spec.role == "mutated":
                for other_spec, other in present:
                    if other_spec is not spec and overlap(value, other):
                        self._fail(spec, f"must not overlap {other_spec.name} in memory")

    def _fail(self, spec: TensorSpec | OptionSpec, requirement: str, error: type[Exception] = ValueError) -> None:
        raise error(f"{self.name}: {spec.name} {requirement}")

    def _check_type(self, spec: TensorSpec, value: Any, arguments: Mapping[str, Any]) -> None:
        if value is None and spec.optional:
            return
        if not isinstance(value, Tensor):
            kind = "a torch.Tensor or None" if spec.optional else "a torch.Tensor"
            self._fail(spec, f"must be {kind}, got {type(value).__name__}", TypeError)
        if value.dtype not in spec.dtypes:
            self._fail(spec, f"must be {' or '.join(map(str, spec.dtypes))}, got {value.dtype}", TypeError)
        if spec.same_dtype_as is not None:
            expected = arguments[spec.same_dtype_as].dtype
            if value.dtype != expected:
                self._fail(spec, f"must be {expected} like {spec.same_dtype_as}, got {value.dtype}", TypeError)

    def _check_option(self, spec: OptionSpec, value: Any) -> None:
        if value is None and spec.optional:
            return
        kind = spec.type.__name__
        if spec.length is None:
            if not is_number(value, spec.type):
                wanted = f"{_article(kind)} or None" if spec.optional else _article(kind)
                self._fail(spec, f"must be {wanted}, got {type(value).__name__}", TypeError)
            items = [value]
        else:
            plural = f"a sequence of {spec.length} {kind}s" + (" or None" if spec.optional else "")
            if isinstance(value, (str, bytes, Tensor)) or not isinstance(value, Sequence):
                self._fail(spec, f"must be {plural}, got {type(value).__name__}", TypeError)
            if not all(is_number(item, spec.type) for item in value):
                self._fail(spec, f"must be {plural}, got {value!r}", TypeError)
            if len(value) != spec.length:
                self._fail(spec, f"must be {plural}, got {len(value)} of them")
            items = list(value)
        given = value if spec.length is None else tuple(value)
        for item in items:
            if spec.at_least is not None:
                require(
                    item >= spec.at_least, lambda: f"{self.name}: {spec.name} must be >= {spec.at_least}, got {given}"
                )
            if spec.at_most is not None:
                require(
                    item <= spec.at_most, lambda: f"{self.name}: {spec.name} must be <= {spec.at_most}, got {given}"
                )
            if spec.multiple_of is not None:
                require(
                    item % spec.multiple_of == 0,
                    lambda: f"{self.name}: {spec.name} must be a multiple of {spec.multiple_of}, got {given}",
                )

    def _check_layout_kind(self, spec: TensorSpec, value: Tensor) -> None:
        if value.layout is not torch.strided:
            self._fail(spec, f"must be a strided tensor, got layout {value.layout}")

    def _check_shape(self, spec: TensorSpec, value: Tensor, sizes: dict[str, Any], origins: dict[str, str]) -> None:
        shape = tuple(value.shape)
        if len(shape) != len(spec.dims):
            self._fail(spec, f"must have {len(spec.dims)} dimensions {spec.shape_text}, got shape {shape}")
        for declared, size in zip(spec.dims, shape):
            if declared.literal is not None:
                expected = declared.literal
            elif declared.symbol is None:
                continue
            elif declared.symbol in sizes:
                expected = sizes[declared.symbol] + declared.offset
            else:
                sizes[declared.symbol] = size - declared.offset
                origins[declared.symbol] = spec.name
                if declared.offset:
                    must = f"must have shape {spec.shape_text} with {declared.symbol} >= 0, got shape {shape}"
                    require(size >= declared.offset, partial("{}: {} {}".format, self.name, spec.name, must))
                continue
            known = f" with {declared.symbol} = {sizes[declared.symbol]}" if declared.symbol else ""
            must = f"must have shape {spec.shape_text}{known}, got shape {shape}"
            require(size == expected, partial("{}: {} {}".format, self.name, spec.name, must))

    def _check_strides(self, spec: TensorSpec, value: Tensor) -> None:
        if spec.layout == "contiguous":
            if not value.is_contiguous():
                self._fail(spec, f"must be contiguous, got shape {tuple(value.shape)} with strides {value.stride()}")
            return
        if value.shape[-1] > 1:
            require(
                value.stride(-1) == 1,
                lambda: f"{self.name}: {spec.name} must have a contiguous last dimension, got strides {value.stride()}",
            )
        # A stride may be anything where there is one row; asked last, because that size may not be known yet.
        if spec.role == "mutated" and value.stride(0) < value.shape[1] and value.shape[0] > 1:
            self._fail(
                spec,
                f"must have rows that do not overlap, got shape {tuple(value.shape)} with strides {value.stride()}",
            )

    def _check_rule(self, rule: DimRule, size: Any, origin: str) -> None:
        where = f"{self.name}: {origin} must have {rule.symbol}"
        require(size >= rule.at_least, lambda: f"{where} >= {rule.at_least}, got {size}")
        if rule.at_most is not None:
            require(size <= rule.at_most, lambda: f"{where} <= {rule.at_most}, got {size}")
        if rule.multiple_of != 1:
            require(size % rule.multiple_of == 0, lambda: f"{where} a multiple of {rule.multiple_of}, got {size}")

    # -- the accepting predicate ---------------------------------------------------------------------------------

    def accept_condition(self, scope: dict[str, Any]) -> str:
        """An expression over the arguments' names that is true for the common valid call.

        It accepts plain tensors on one device, CPU or NPU, for which ``check`` passes, when nothing (autograd, a fake
        or dispatch mode) wants to see the call. Where it says no, ``check`` decides. What it refers to is put into
        ``scope``, under names with an underscore. It is text, to be compiled into the call, because a loop over the
        specs costs three times as much as the checks themselves.
        """
        scope.update(
            _Tensor=Tensor,
            _grad=torch.is_grad_enabled,
            _modes=torch._C._len_torch_dispatch_stack,
            _overlap=overlap,
        )
        bound: dict[str, str] = {}
        required = [spec.name for spec in self.tensors if not spec.optional]
        on_cpu = " and ".join(f"{name}.is_cpu" for name in required)
        on_npu = " and ".join(
            [f"{required[0]}.device.type == 'npu'"]
            + [f"{name}.device == {required[0]}.device" for name in required[1:]]
        )
        needs_grad = " or ".join(
            f"({s.name} is not None and {s.name}.requires_grad)" if s.optional else f"{s.name}.requires_grad"
            for s in self.tensors
            if s.dtypes[0].is_floating_point
        )
        conditions = [
            "not _modes()",
            *(self._accept_type(spec, scope) for spec in self.tensors),
            *(self._accept_option(spec, scope) for spec in self.options),
            f"({on_cpu} or {on_npu})",
            *(
                f"({spec.name} is None or {spec.name}.device == {required[0]}.device)"
                for spec in self.tensors
                if spec.optional
            ),
            *self._accept_shapes(bound),
            *(self._accept_strides(spec) for spec in self.tensors),
            *self._accept_aliasing(bound),
        ]
        if needs_grad:
            conditions.append(f"not (_grad() and ({needs_grad}))")
        return "(\n    " + "\n    and ".join(conditions) + "\n)"

    def _accept_type(self, spec: TensorSpec, scope: dict[str, Any]) -> str:
        name = spec.name
        dtypes = [f"_dtype_{name}_{i}" for i in range(len(spec.dtypes))]
        scope.update(zip(dtypes, spec.dtypes))
        condition = f"type({name}) is _Tensor and "
        if spec.same_dtype_as is not None:
            condition += f"{name}.dtype is {spec.same_dtype_as}.dtype"
        elif len(dtypes) == 1:
            condition += f"{name}.dtype is {dtypes[0]}"
        else:
            condition += f"{name}.dtype in ({', '.join(dtypes)})"
        # The memory of a lazily negated or lazily zero tensor is not what it seems: the dispatcher resolves it.
        if spec.dtypes[0].is_floating_point:
            condition += f" and not {name}.is_neg()"
        if not self._has_range(spec):
            condition += f" and not {name}._is_zerotensor()"
        return f"({name} is None or ({condition}))" if spec.optional else condition

    def _accept_strides(self, spec: TensorSpec) -> str:
        name = spec.name
        if spec.layout == "contiguous":
            condition = f"{name}.is_contiguous()"
        else:
            condition = f"(_stride_{name} := {name}.stride())[-1] == 1"
            if spec.role == "mutated":
                condition += f" and _stride_{name}[0] >= {name}.shape[-1]"
        return f"({name} is None or ({condition}))" if spec.optional else condition

    def _accept_option(self, spec: OptionSpec, scope: dict[str, Any]) -> str:
        name = spec.name
        scope[f"_type_{name}"] = spec.type
        if spec.length is not None:
            # Sequences are rare and short; the full check decides in a few hundred nanoseconds.
            scope[f"_spec_{name}"] = spec
            scope["_sequence_ok"] = _sequence_ok
            return f"_sequence_ok(_spec_{name}, {name})"
        condition = f"type({name}) is _type_{name}"
        if spec.at_least is not None:
            condition += f" and {name} >= {spec.at_least}"
        if spec.at_most is not None:
            condition += f" and {name} <= {spec.at_most}"
        if spec.multiple_of is not None:
            condition += f" and {name} % {spec.multiple_of} == 0"
        return f"({name} is None or ({condition}))" if spec.optional else condition

    def _accept_shapes(self, bound: dict[str, str]) -> list[str]:
        conditions: list[str] = []
        for spec in self.tensors:
            terms = [f"len(_shape_{spec.name} := {spec.name}.shape) == {len(spec.dims)}"]
            known = [self._accept_size(declared, bound) for declared in spec.dims]
            if all(known):
                # One comparison of the whole tuple is cheaper than one per axis.
                terms = [f"{spec.name}.shape == ({', '.join(str(size) for size in known)},)"]
            else:
                for axis, declared in enumerate(spec.dims):
                    size = f"_shape_{spec.name}[{axis}]"
                    expected = self._accept_size(declared, bound)
                    if expected is not None:
                        terms.append(f"{size} == {expected}")
                    elif declared.symbol is not None:
                        # A size is not None: the comparison is there to bind it.
                        least = f"- {declared.offset}) >= 0" if declared.offset else ") is not None"
                        terms.append(f"(_size_{declared.symbol} := {size} {least}")
                        bound[declared.symbol] = f"_size_{declared.symbol}"
            condition = " and ".join(terms)
            conditions.append(f"({spec.name} is None or ({condition}))" if spec.optional else condition)
        for rule in self.rules:
            name = bound[rule.symbol]
            if rule.at_least > 0:
                conditions.append(f"{name} >= {rule.at_least}")
            if rule.at_most is not None:
                conditions.append(f"{name} <= {rule.at_most}")
            if rule.multiple_of != 1:
                conditions.append(f"{name} % {rule.multiple_of} == 0")
        return conditions

    @staticmethod
    def _accept_size(declared: Dim, bound: Mapping[str, str]) -> str | None:
        if declared.literal is not None:
            return str(declared.literal)
        if declared.symbol is not None and declared.symbol in bound:
            symbol = bound[declared.symbol]
            return f"({symbol} + {declared.offset})" if declared.offset else symbol
        return None

    def _has_range(self, spec: TensorSpec) -> bool:
        """Whether the predicate compares an argument's addresses, as it does beside arguments that are written."""
        if not self.mutated or spec.optional:
            return False
        named = all(declared.text != "_" for declared in spec.dims)
        return spec.layout == "contiguous" or (len(spec.dims) == 2 and named)

    def _accept_aliasing(self, bound: Mapping[str, str]) -> list[str]:
        if not self.mutated:
            return []
        conditions = []
        ranged = set()
        extents: dict[str, str] = {}
        for spec in self.tensors:
            name = spec.name
            if not self._has_range(spec):
                continue
            sizes = [self._accept_size(declared, bound) for declared in spec.dims]
            if spec.layout == "contiguous":
                extent = " * ".join(map(str, sizes)) if all(sizes) else f"{name}.numel()"
            else:
                extent = f"(({sizes[0]} - 1) * _stride_{name}[0] + {sizes[1]})"
            size = spec.dtypes[0].itemsize if len(spec.dtypes) == 1 else f"{name}.element_size()"
            num_bytes = f"{extent} * {size}"
            if num_bytes not in extents:
                extents[num_bytes] = f"_bytes_{name}"
                num_bytes = f"(_bytes_{name} := {num_bytes})"
            else:
                num_bytes = extents[num_bytes]
            # Binds the address range for the comparisons below.
            conditions.append(f"(_end_{name} := (_begin_{name} := {name}.data_ptr()) + {num_bytes}) is not None")
            # A lazily zero tensor has no address.
            conditions.append(f"_begin_{name}")
            ranged.add(name)
        seen: set[frozenset[str]] = set()
        for mutated in self.mutated:
            for spec in self.tensors:
                pair = frozenset((mutated, spec.name))
                if len(pair) == 1 or pair in seen:
                    continue
                seen.add(pair)
                if pair <= ranged:
                    apart = f"_end_{mutated} <= _begin_{spec.name} or _end_{spec.name} <= _begin_{mutated}"
                    # Rows of two tensors may lie in one range without touching.
                    conditions.append(f"({apart} or not _overlap({mutated}, {spec.name}))")
                else:
                    conditions.append(f"({spec.name} is None or not _overlap({mutated}, {spec.name}))")
        return conditions


def require(condition: bool | torch.SymBool, message: Callable[[], str]) -> None:
    """Raise ``ValueError(message())`` unless the condition holds.

    A symbolic condition becomes a guard, or, where the size depends on data, an assertion at run time.
    """
    if isinstance(condition, bool):
        if not condition:
            raise ValueError(message())
    else:
        torch._check_value(condition, message)


def is_number(value: Any, kind: type) -> bool:
    """Whether ``value`` can stand for an int or a float option; a bool cannot, a symbolic int or float can."""
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, (int, torch.SymInt))
    return isinstance(value, (float, int, torch.SymFloat, torch.SymInt))


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two strided tensors share memory. Rows of equal stride that interleave without touching do not."""
    begin_a: int | torch.SymInt | None = _begin(a)
    begin_b: int | torch.SymInt | None = _begin(b)
    if begin_a is None or begin_b is None:
        # Fake and meta tensors have no address; only tensors of one storage can be known to overlap.
        if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
            return False
        begin_a, begin_b = a.storage_offset() * a.element_size(), b.storage_offset() * b.element_size()
    if a.numel() == 0 or b.numel() == 0:
        return False
    if begin_a + _extent(a) <= begin_b or begin_b + _extent(b) <= begin_a:
        return False
    if a.dim() == b.dim() == 2 and a.shape[0] > 1 and b.shape[0] > 1:
        stride = a.stride(0) * a.element_size()
        if stride > 0 and stride == b.stride(0) * b.element_size():
            gap = (begin_b - begin_a) % stride
            row_a, row_b = a.shape[1] * a.element_size(), b.shape[1] * b.element_size()
            return not (row_a <= gap and gap + row_b <= stride)
    return True


def _begin(value: Tensor) -> int | None:
    if value.is_meta or type(value) not in (Tensor, torch.nn.Parameter):
        return None
    return value.data_ptr()


def _extent(value: Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
    return (last + 1) * value.element_size()


def _sequence_ok(spec: OptionSpec, value: Any) -> bool:
    if value is None:
        return spec.optional
    return (
        type(value) in (tuple, list)
        and len(value) == spec.length
        and all(type(item) is spec.type for item in value)
        and (spec.at_least is None or min(value) >= spec.at_least)
        and (spec.at_most is None or max(value) <= spec.at_most)
    )


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
