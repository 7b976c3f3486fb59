"""The operators that are installed, and their references."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any


def operator_names() -> list[str]:
    """The installed parts of the namespace that hold an operator."""
    namespace = import_module("cann_ops_tilelang")
    names = (module.name for module in pkgutil.iter_modules(namespace.__path__))
    return sorted({name for name in names if find_spec(f"cann_ops_tilelang.{name}.operator")})


def operators() -> SimpleNamespace:
    """Every operator by name."""
    return SimpleNamespace(**{name: _attribute(name, name) for name in operator_names()})


def references() -> SimpleNamespace:
    """Every operator's plain PyTorch reference, under the operator's name."""
    return SimpleNamespace(**{name: _attribute(f"{name}.reference", f"{name}_reference") for name in operator_names()})


def _attribute(module: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(import_module(f"cann_ops_tilelang.{module}"), name)
    return function
