"""The Ascend kernels of tile-kernels 2.1.0, run against that package's PyTorch references by that package's own tests.

The wheel and the tests, which come with the source distribution, are fetched from the package index once and kept in the
cache. ``peers_plugin`` runs the smallest case of every test. What does not lower with TileLang 0.1.15 is listed here.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ascend_sim import toolchain

PEER = "tile-kernels==2.1.0"
FAMILIES = ("quant", "mhc", "engram", "moe", "transform", "rand")  # the longest first
TESTS: tuple[str, ...] = ()
# Tests whose kernels do not lower, with a part of TileLang's message.
NOT_LOWERED: dict[str, str] = {}


def fetch(directory: Path) -> None:
    # The package declares Python 3.12; its modules import with 3.10 too.
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--ignore-requires-python",
        "-d",
        str(directory),
    ]
    for kind in (["--only-binary", ":all:"], ["--no-binary", ":all:"]):
        result = subprocess.run([*pip, *kind, PEER], capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{PEER} cannot be fetched from the package index:\n{result.stderr}"
    (wheel,), (source,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "installed")
    with tarfile.open(source) as archive:
        tests = [member for member in archive.getmembers() if member.name.split("/")[1:2] == ["tests"]]
        archive.extractall(directory / "source", members=tests)


def run_family(peer: Path, family: str) -> dict[str, str]:
    """The outcome of every test of a family, all run in one process."""
    (source,) = (peer / "source").iterdir()
    paths = [Path(toolchain.__file__).parents[1], Path(__file__).parent, peer / "installed"]
    with tempfile.TemporaryDirectory() as directory:
        result_file = Path(directory) / "outcomes.json"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PEERS_OUTCOMES": str(result_file),
            "PEERS_FAMILY": family,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }
        pytest_command = [sys.executable, "-m", "pytest", "-p", "peers_plugin", "-p", "no:cacheprovider", "-q"]
        result = subprocess.run(
            [*pytest_command, "--rootdir", str(source), f"tests/{family}"],
            cwd=source,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result_file.exists(), result.stdout[-3000:] + result.stderr[-3000:]
        data: dict[str, str] = json.loads(result_file.read_text())
        return data


@functools.cache
def outcomes() -> dict[str, str]:
    """The outcomes of all families, two at a time."""
    peer = toolchain.build_once("peer", [PEER, "1"], fetch)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(functools.partial(run_family, peer), FAMILIES))
    return {name: outcome for result in results for name, outcome in result.items()}


@pytest.mark.parametrize("name", TESTS)
def test_peer(name: str) -> None:
    assert outcomes()[name] == "passed"


@pytest.mark.parametrize("name", NOT_LOWERED)
def test_kernel_that_does_not_lower(name: str) -> None:
    outcome = outcomes()[name]
    assert outcome.startswith("failed: ") and NOT_LOWERED[name] in outcome


def test_no_test_of_the_package_is_left_out() -> None:
    assert sorted(outcomes()) == sorted([*TESTS, *NOT_LOWERED, *NOT_FOR_ASCEND])
