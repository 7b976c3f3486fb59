"""An Ascend 950 simulated on the host."""

__version__ = "0.1.0"
