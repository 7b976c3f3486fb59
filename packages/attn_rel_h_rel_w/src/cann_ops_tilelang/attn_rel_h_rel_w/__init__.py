"""Attention with decomposed relative position bias."""

from ._version import __version__
from .operator import attn_rel_h_rel_w

__all__ = ["__version__", "attn_rel_h_rel_w"]
