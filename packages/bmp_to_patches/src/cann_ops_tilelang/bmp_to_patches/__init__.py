"""Normalised patches from the pixels of BMP files."""

from ._version import __version__
from .bmp import BmpBatch, pack_bmps
from .operator import bmp_to_patches

__all__ = ["BmpBatch", "__version__", "bmp_to_patches", "pack_bmps"]
