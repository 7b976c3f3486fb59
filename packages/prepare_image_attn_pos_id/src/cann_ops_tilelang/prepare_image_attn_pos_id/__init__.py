"""Row and column of every vision token."""

from ._version import __version__
from .operator import prepare_image_attn_pos_id

__all__ = ["__version__", "prepare_image_attn_pos_id"]
