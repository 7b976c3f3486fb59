"""What the tests of every operator share. Never imported by run-time code."""

from ._version import __version__
from .calls import Call
from .faults import Fault, single_faults
from .graphs import Evidence, count_nodes, graph_evidence
from .guards import Guarded, bits, unchanged
from .numerics import bit_equal, calc_diff, random_bits
from .spans import WRONG_SPANS, behind, spans
from .suite import OperatorTests

__all__ = [
    "WRONG_SPANS",
    "Call",
    "Evidence",
    "Fault",
    "Guarded",
    "OperatorTests",
    "__version__",
    "behind",
    "bit_equal",
    "bits",
    "calc_diff",
    "count_nodes",
    "graph_evidence",
    "random_bits",
    "single_faults",
    "spans",
    "unchanged",
]
