"""Gradient reduction of Engram's gating weights."""

from ._version import __version__
from .operator import engram_grad_w_reduce

__all__ = ["__version__", "engram_grad_w_reduce"]
