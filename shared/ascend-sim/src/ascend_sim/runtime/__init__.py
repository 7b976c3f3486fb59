"""The runtime: libraries that torch_npu and TileLang load in place of CANN's."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from importlib import metadata
from pathlib import Path

from ascend_sim.runtime.build import build_libraries

TORCH_NPU_VERSION = "2.13.0"


class Unavailable(RuntimeError):
    """The libraries cannot be built here; the message says what is missing."""


def package_directory(name: str) -> Path:
    """Where a package is installed; it is not imported, which torch_npu would not survive without its libraries."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(f"the Python package {name} is not installed in {sysconfig.get_path('purelib')}")
    return Path(spec.submodule_search_locations[0])


def library_directory() -> Path:
    """The directory with libascendcl.so, libopapi.so and the others, built at the first call and cached."""
    torch, torch_npu = package_directory("torch"), package_directory("torch_npu")
    version = metadata.version("torch_npu")
    if version != TORCH_NPU_VERSION:
        raise Unavailable(
            f"the runtime stands in for what torch_npu {TORCH_NPU_VERSION} needs, but {version} is installed"
        )
    return build_libraries(torch, torch_npu)


def environment() -> dict[str, str]:
    """Environment variables that put the libraries in front of torch_npu."""
    path = [str(library_directory())]
    if "LD_LIBRARY_PATH" in os.environ:
        path.append(os.environ["LD_LIBRARY_PATH"])
    return {
        "LD_LIBRARY_PATH": os.pathsep.join(path),
        # Without its queue torch_npu makes every call in the calling thread, so that an error surfaces at the call.
        "TASK_QUEUE_ENABLE": os.environ.get("TASK_QUEUE_ENABLE", "0"),
    }
