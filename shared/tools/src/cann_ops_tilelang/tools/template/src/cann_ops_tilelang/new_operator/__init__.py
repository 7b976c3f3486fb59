"""Multiplication by a number."""

from ._version import __version__
from .operator import new_operator

__all__ = ["__version__", "new_operator"]
