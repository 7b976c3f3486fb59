"""The ``operator`` decorator: from an annotated function and its contract to a registered PyTorch operator."""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from textwrap import indent
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .contract import Contract, DimRule, OptionSpec, TensorSpec
from .kernels import build_only, ensure_cache_directory

P = ParamSpec("P")
R = TypeVar("R")

NAMESPACE = "cann_ops_tilelang"
KERNEL_MODULES = {"cpu": "cpu", "npu": "ascend"}

_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_check_values_on_npu = os.environ.get("CANN_OPS_TILELANG_CHECK") == "1"


def operator(
    *specs: TensorSpec | OptionSpec | DimRule, values: Callable[..., None] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register the decorated function as ``torch.ops.cann_ops_tilelang.<its name>`` and return the public function.

    The decorated function's signature is the operator's schema. Its body states what the call returns, from metadata
    alone: nothing for an operator that only mutates its arguments, new uninitialised tensors otherwise; it may raise
    ValueError for what the contract cannot express. ``values(*arguments)``, if given, checks the values of index
    tensors on the host: always on CPU, on NPU when ``CANN_OPS_TILELANG_CHECK=1``.

    The kernels are the ``launch`` functions of the modules ``kernels.cpu`` and ``kernels.ascend`` beside the
    module of the function, imported at the first call. They receive the outputs, then the arguments.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        return cast("Callable[P, R]", _register(function, specs, values))

    return register


class Operator:
    """One registered operator: what the public function, the dispatcher's kernels and the tests share."""

    def __init__(self, function: Callable[..., Any], contract: Contract, values: Callable[..., None] | None) -> None:
        self.function = function
        self.body = _positional(function, contract.signature)
        self.contract = contract
        self.values = values
        self.name = contract.name
        self.package = function.__module__.rpartition(".")[0]
        self.launches: dict[str, Callable[..., None]] = {}
        names = list(contract.signature.parameters)
        self.first = names.index(contract.tensors[0].name)
        self.mutated = tuple(names.index(name) for name in contract.mutated)
        self.returns_tensor = contract.signature.return_annotation is not None
        self.compiled = self._compile()
        # Whether the call is the common valid one; where it says no, ``check`` decides.
        self.accept: Callable[..., bool] = self.compiled["accept"]

    def check(self, *args: Any) -> None:
        self.contract.check(dict(zip(self.contract.signature.parameters, args)))

    def fake(self, *args: Any) -> Any:
        """Metadata only: the checks and the outputs, for fake and meta tensors."""
        self.check(*args)
        result = self.body(*args)
        if args[self.first].device.type == "npu":
            self._build_for(result, *args)
        return result

    def _build_for(self, *args: Any) -> None:
        """Build the kernels that a call with these fake tensors would launch, if its sizes are known."""
        tensors = [value for value in args if isinstance(value, Tensor)]
        known = all(isinstance(size, int) for value in tensors for size in (*value.shape, *value.stride()))
        if not known or not torch.npu.is_available():  # type: ignore[attr-defined]
            return
        with _disable_current_modes(), build_only():
            # Launches look at metadata alone; the address of a meta tensor is 0.
            stand_ins = [
                torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
                if isinstance(value, Tensor)
                else value
                for value in (args if args[0] is not None else args[1:])
            ]
            (self.launches.get("npu") or self._load("npu"))(*stand_ins)

    def _compile(self) -> dict[str, Any]:
        """The functions through which calls come, by name.

        They are compiled from the declaration, each with the checks and the launch in its own body: binding
        ``*args, **kwargs`` and calling from one to the other would cost more than all checks together.
        """
        parameters = self.contract.signature.parameters.values()
        header: list[str] = []
        node_call: list[str] = []
        for p in parameters:
            if p.kind is p.KEYWORD_ONLY and "*" not in header:
                header.append("*")
            header.append(p.name if p.default is p.empty else f"{p.name}=_default_{p.name}")
            node_call.append(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name)
        names = ", ".join(p.name for p in parameters)
        # A node needs arguments of the schema's types; everything else is found by the fake implementation.
        typed = " and ".join(
            [_is_tensor(spec) for spec in self.contract.tensors] + [_is_option(s) for s in self.contract.options]
        )
        scope: dict[str, Any] = {
            "_body": self.body,
            "_check": self.check,
            "_increment_version": torch.autograd.graph.increment_version,
            "_is_compiling": torch.compiler.is_compiling,
            "_launches": self.launches,
            "_load": self._load,
            "_values": self.values,
            **{f"_default_{p.name}": p.default for p in parameters if p.default is not p.empty},
        }
        accepted = self.contract.accept_condition(scope)
        first = self.contract.tensors[0].name
        values = f"_values({names})" if self.values is not None else "pass"
        run = f"""
_result = _body({names})
if {first}.is_cpu:
    {values}
    _launch = _launches.get("cpu") or _load("cpu")
else:
    {values if _check_values_on_npu else "pass"}
    _launch = _launches.get({first}.device.type) or _load({first}.device.type)
_launch({"_result, " if self.returns_tensor else ""}{names})
{f"_increment_version(({', '.join(self.contract.mutated)},))" if self.mutated else ""}
return _result
"""
        source = f"""
def in_order({", ".join(header)}):
    return {names},

def dispatch({names}):
    return _overload({", ".join(node_call)})

def accept({names}):
    return {accepted}

def kernel({", ".join(header)}):
    if not {accepted}:
        _check({names})
{indent(run, "    ")}

def autograd({", ".join(header)}):
    if {accepted}:
{indent(run, "        ")}
    return _tracked({names})

def public({", ".join(header)}):
    if _is_compiling():
        if not ({typed}):
            _check({names})
        return _overload({", ".join(node_call)})
    if {accepted}:
{indent(run, "        ")}
    return _slow({names})
"""
        exec(compile(source, f"<{self.name}>", "exec"), scope)
        return scope

    def _load(self, device: str) -> Callable[..., None]:
        ensure_cache_directory()
        module = import_module(f"{self.package}.kernels.{KERNEL_MODULES[device]}")
        launch: Callable[..., None] = module.launch
        self.launches[device] = launch
        return launch


def _register(
    function: Callable[..., Any],
    specs: tuple[TensorSpec | OptionSpec | DimRule, ...],
    values: Callable[..., None] | None,
) -> Callable[..., Any]:
    name = function.__name__
    signature = inspect.signature(function, eval_str=True)
    op = Operator(function, Contract(name, signature, specs), values)
    _library.define(name + _schema(function, signature, op.contract.mutated))
    overload = getattr(getattr(torch.ops, NAMESPACE), name).default
    compiled = op.compiled

    def fake(*args: Any, **kwargs: Any) -> Any:
        return op.fake(*compiled["in_order"](*args, **kwargs))

    def tracked(*args: Any) -> Any:
        """The dispatcher's call that may have to be recorded for a backward pass."""
        if torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in args):
            _refuse_leaves(op, args)
            results = node.apply(*args)
            return results[0] if op.returns_tensor else None
        return below_autograd(*args)

    def below_autograd(*args: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return compiled["dispatch"](*args)

    def slow(*args: Any) -> Any:
        """The public call that is not the common valid one: invalid, or one that the dispatcher has to see."""
        op.check(*args)
        return compiled["dispatch"](*args)

    node = _not_differentiable(op, below_autograd)
    compiled.update(_overload=overload, _slow=slow, _tracked=tracked)
    _library.impl(name, compiled["kernel"], "CompositeExplicitAutograd")
    _library.impl(name, compiled["autograd"], "Autograd")
    torch.library.register_fake(overload, fake, lib=_library)
    public: Callable[..., Any] = update_wrapper(compiled["public"], function)
    public.operator = op  # type: ignore[attr-defined]
    return public


def _positional(function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """The function with every parameter positional."""
    parameters = signature.parameters.values()
    if all(p.kind is not p.KEYWORD_ONLY for p in parameters):
        return function
    call = ", ".join(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in parameters)
    positional: Callable[..., Any] = eval(
        f"lambda {', '.join(signature.parameters)}: function({call})", {"function": function}
    )
    return positional


def _is_tensor(spec: TensorSpec) -> str:
    return (
        f"({spec.name} is None or isinstance({spec.name}, _Tensor))"
        if spec.optional
        else f"isinstance({spec.name}, _Tensor)"
    )


def _is_option(spec: OptionSpec) -> str:
    kinds = "(int,)" if spec.type is int else "(int, float)"
    number = "isinstance({0}, " + kinds + ") and not isinstance({0}, bool)"
    if spec.length is None:
        condition = number.format(spec.name)
    else:
        condition = f"isinstance({spec.name}, (tuple, list)) and all({number.format('item')} for item in {spec.name})"
    return f"({spec.name} is None or ({condition}))" if spec.optional else f"({condition})"


def _schema(function: Callable[..., Any], signature: inspect.Signature, mutated: tuple[str, ...]) -> str:
    """The operator schema of an annotated function.

    ``infer_schema`` does not take tuple defaults, though the schema language has them; they are put in afterwards.
    """
    tuples = {p.name: p.default for p in signature.parameters.values() if isinstance(p.default, tuple)}

    def prototype() -> None: ...

    prototype.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[p.replace(default=p.empty) if p.name in tuples else p for p in signature.parameters.values()]
    )
    prototype.__annotations__ = typing.get_type_hints(function)
    schema = torch.library.infer_schema(prototype, mutates_args=mutated)
    for parameter, default in tuples.items():
        schema = schema.replace(f"[] {parameter}", f"[] {parameter}={list(default)}")
    return schema


def _refuse_leaves(op: Operator, args: tuple[Any, ...]) -> None:
    """What autograd says of an in-place write to a leaf, said before the write instead of after it."""
    for index in op.mutated:
        value = args[index]
        base = value if value._base is None else value._base
        if base.is_leaf and base.requires_grad:
            name = list(op.contract.signature.parameters)[index]
            raise RuntimeError(
                f"{op.name}: {name} is a leaf tensor that requires grad, or a view of one, and would be written in "
                "place; call inside torch.no_grad() or pass a tensor that does not require grad"
            )


def _not_differentiable(op: Operator, forward_call: Callable[..., Any]) -> type[torch.autograd.Function]:
    """The autograd node of an operator that has no derivative: it runs forward and raises in backward."""

    class NotDifferentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
            result = forward_call(*args)
            mutated = [args[i] for i in op.mutated]
            ctx.mark_dirty(*mutated)
            return (result, *mutated) if op.returns_tensor else tuple(mutated)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> NoReturn:
            raise RuntimeError(
                f"{op.name}: no gradient is defined for this operator; a backward pass reached it. "
                "Detach its inputs or call it inside torch.no_grad()"
            )

    NotDifferentiable.__name__ = f"{op.name}_not_differentiable"
    return NotDifferentiable
