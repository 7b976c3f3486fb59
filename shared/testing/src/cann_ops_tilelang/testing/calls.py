"""The arguments of one call, kept together so that a test can move, copy and compare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Call:
    """Positional and keyword arguments of an operator."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def map(self, transform: Callable[[Tensor], Any]) -> Call:
        """The same call with every tensor replaced; arguments that are one tensor stay one tensor."""
        done: dict[int, Any] = {}

        def visit(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) not in done:
                done[id(value)] = transform(value)
            return done[id(value)]

        return Call(tuple(visit(v) for v in self.args), {k: visit(v) for k, v in self.kwargs.items()})

    def to(self, device: str) -> Call:
        return self.map(lambda t: copy_to(t, device))

    def clone(self) -> Call:
        """New storage, same strides."""
        return self.map(lambda t: copy_to(t, t.device))

    def tensors(self) -> list[Tensor]:
        return [v for v in (*self.args, *self.kwargs.values()) if isinstance(v, Tensor)]

    def with_args(self, **named: Any) -> Call:
        """Keyword arguments replaced."""
        return replace(self, kwargs={**self.kwargs, **named})

    def __call__(self, function: Callable[..., Any]) -> Any:
        return function(*self.args, **self.kwargs)


def copy_to(tensor: Tensor, device: str | torch.device) -> Tensor:
    """A copy on ``device`` that keeps the strides."""
    copied = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    copied.copy_(tensor)
    return copied
