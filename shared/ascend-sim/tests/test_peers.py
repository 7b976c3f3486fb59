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
import zipfile
from pathlib import Path

import pytest

from ascend_sim import toolchain

PEER = "tile-kernels==2.1.0"
FAMILIES = ("engram", "mhc", "moe", "quant", "rand", "transform")
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


@functools.cache
def outcomes(family: str) -> dict[str, str]:
    """The outcome of every test of a family, all run in one process."""
    peer = toolchain.build_once("peer", [PEER, "1"], fetch)
    (source,) = (peer / "source").iterdir()
    result_file = toolchain.cache_dir() / f"peer-outcomes-{family}-{os.getpid()}.json"
    paths = [Path(toolchain.__file__).parents[1], Path(__file__).parent, peer / "installed"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PEERS_OUTCOMES": str(result_file),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "peers_plugin",
        "-p",
        "no:cacheprovider",
        "-q",
        "--rootdir",
        str(source),
    ]
    result = subprocess.run(
        [*command, f"tests/{family}"], cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert result_file.exists(), result.stdout[-3000:] + result.stderr[-3000:]
    data: dict[str, str] = json.loads(result_file.read_text())
    result_file.unlink()
    return data


@pytest.mark.parametrize("name", TESTS)
def test_peer(name: str) -> None:
    assert outcomes(name.split("/")[0])[name] == "passed"


@pytest.mark.parametrize("name", NOT_LOWERED)
def test_kernel_that_does_not_lower(name: str) -> None:
    outcome = outcomes(name.split("/")[0])[name]
    assert outcome.startswith("failed: ") and NOT_LOWERED[name] in outcome


@pytest.mark.parametrize("family", FAMILIES)
def test_no_test_of_a_family_is_left_out(family: str) -> None:
    ran = {name for name, outcome in outcomes(family).items() if not outcome.startswith("skipped")}
    assert ran == {name for name in (*TESTS, *NOT_LOWERED) if name.startswith(f"{family}/")}
