"""What the tests of every operator share. Never imported by run-time code."""

from ._version import __version__
from .calls import Call
from .faults import Fault, single_faults
from .graphs import Evidence, count_nodes, graph_evidence
from .guards import Guarded, bits, unchanged
from .numerics import bit_equal, calc_diff
from .suite import OperatorTests

__all__ = [
    "Call",
    "Evidence",
    "Fault",
    "Guarded",
    "OperatorTests",
    "__version__",
    "bit_equal",
    "bits",
    "calc_diff",
    "count_nodes",
    "graph_evidence",
    "single_faults",
    "unchanged",
]
