"""Tells what the simulator finds on this machine, and what to do about what is missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata

from ascend_sim import runtime, toolchain


class Missing(Exception):
    """Something that is needed is not there; the message says what to do."""


def compiler() -> str:
    """The C++ compiler."""
    try:
        path = toolchain.compiler()
    except toolchain.CompileError as error:
        raise Missing(f"{error}. Debian and Ubuntu: apt-get install g++") from error
    version = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip()
    if int(version.split(".")[0] or 0) < 12:
        raise Missing(f"{path} is version {version}, and version 12 or later is needed. Set CXX to a newer one")
    return f"{path}, version {version}"


def package(name: str, wanted: str, why: str) -> str:
    """An installed Python package of the version that the simulator was made for."""
    if importlib.util.find_spec(name) is None:
        raise Missing(f"not installed in {sys.prefix}. {why}: pip install {name}=={wanted}")
    version = metadata.version(name)
    if version.split("+")[0] != wanted:
        raise Missing(f"version {version} is installed, and {wanted} is needed: pip install {name}=={wanted}")
    return version


def cache() -> str:
    """The directory of compiled libraries."""
    try:
        path = toolchain.cache_dir()
    except OSError as error:
        raise Missing(f"{error}. Set ASCEND_SIM_CACHE to a directory that can be written") from error
    if not os.access(path, os.W_OK):
        raise Missing(f"{path} cannot be written. Set ASCEND_SIM_CACHE to a directory that can be")
    return str(path)


def toolkit() -> str:
    """The directory that serves as the CANN toolkit."""
    return str(toolchain.toolkit())


def libraries() -> str:
    """The libraries that torch_npu loads, built now if they are not yet."""
    return str(runtime.library_directory())


def active() -> str:
    """Whether this process already runs on the simulated Ascend."""
    home = os.environ.get("ASCEND_HOME_PATH")
    if home == str(toolchain.toolkit()):
        return "yes"
    if home:
        return f"no, ASCEND_HOME_PATH is {home}; `ascend-sim run -- COMMAND` puts the simulated Ascend in front of it"
    return 'no; start a program with `ascend-sim run -- COMMAND`, or a shell with eval "$(ascend-sim env)"'


CHECKS: tuple[tuple[str, bool, Callable[[], str]], ...] = (
    # name, needed for kernels (and not only for torch_npu), check
    ("C++ compiler", True, compiler),
    ("cache directory", True, cache),
    ("toolkit directory", True, toolkit),
    ("tilelang", True, lambda: package("tilelang", "0.1.15", "It compiles the kernels")),
    ("torch", False, lambda: package("torch", "2.13.0", "It makes the tensors")),
    ("torch_npu", False, lambda: package("torch_npu", "2.13.0", "It makes the npu device")),
    ("packaging", False, lambda: package_present("packaging", "npugraph_ex imports it")),
    ("runtime libraries", False, libraries),
)


def package_present(name: str, why: str) -> str:
    """An installed Python package of any version."""
    if importlib.util.find_spec(name) is None:
        raise Missing(f"not installed in {sys.prefix}. {why}: pip install {name}")
    return metadata.version(name)


def doctor() -> int:
    """Print what is found and what is missing; 0 if everything is there."""
    kernels = tensors = True
    for name, for_kernels, check in CHECKS:
        try:
            print(f"  found    {name}: {check()}")
        except (Missing, runtime.Unavailable, toolchain.CompileError, OSError) as problem:
            print(f"  MISSING  {name}: {problem}")
            kernels = kernels and not for_kernels
            tensors = False
    print(f"Kernels by themselves (ascend_sim.compile, ascend_sim.launch): {'ready' if kernels else 'not ready'}.")
    print(f"npu tensors and npugraph_ex (under `ascend-sim run`): {'ready' if tensors else 'not ready'}.")
    if kernels:
        print(f"This command runs on the simulated Ascend: {active()}.")
    return 0 if kernels and tensors else 1
