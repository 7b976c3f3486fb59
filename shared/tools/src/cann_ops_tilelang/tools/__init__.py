"""Developer commands of the workspace."""

from ._version import __version__

__all__ = ["__version__"]
