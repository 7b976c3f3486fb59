"""Image embeddings put into the places of their tokens."""

from ._version import __version__
from .operator import find_image_spans, replace_input_embeds

__all__ = ["__version__", "find_image_spans", "replace_input_embeds"]
