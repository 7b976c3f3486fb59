import sys
from pathlib import Path

# The toy operators find their kernels as a package does.
sys.path.insert(0, str(Path(__file__).parent))
