"""Channel shuffle of image tokens, in place."""

from ._version import __version__
from .operator import shuffle_image_tokens

__all__ = ["__version__", "shuffle_image_tokens"]
