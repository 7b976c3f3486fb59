"""An Ascend 950 simulated on the host: executes, checks and counts the AscendC that TileLang generates."""

from ascend_sim.kernel import KernelError, Library, Trace, compile, launch, trace
from ascend_sim.program import Program
from ascend_sim.toolchain import CompileError

__version__ = "0.1.0"
__all__ = ["CompileError", "KernelError", "Library", "Program", "Trace", "compile", "launch", "trace"]
