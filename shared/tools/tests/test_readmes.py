"""Every code block of every README is run: Python here, commands by .ci/run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cann_ops_tilelang.tools.workspace import find_root

# Run, in other words, by a check of its own.
ELSEWHERE = {
    "pip install hatch": "CI has a hatch of its own",
    "pip install --find-links dist cann-ops-tilelang-engram-grad-w-reduce": "packaging installs every operator",
}

ROOT = find_root(Path(__file__))
READMES = sorted([ROOT / "README.md", *ROOT.glob("packages/*/README.md"), *ROOT.glob("shared/*/README.md")])
BLOCK = re.compile(r"^```(?P<kind>.*)\n(?P<code>(?:.*\n)*?)```$", re.MULTILINE)


def blocks(readme: Path, kind: str) -> list[str]:
    return [match["code"] for match in BLOCK.finditer(readme.read_text()) if match["kind"] == kind]


def name(readme: Path) -> str:
    return str(readme.parent.relative_to(ROOT))


@pytest.mark.parametrize("readme", READMES, ids=name)
def test_python_blocks(readme: Path, device: str, tmp_path: Path) -> None:
    """Each README's blocks in order, in a fresh interpreter and folder; those marked npu on npu tensors."""
    code = blocks(readme, "python" if device == "cpu" else "python npu")
    script = tmp_path / "blocks.py"
    script.write_text("\n\n".join(code))
    result = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.mark.on("cpu")
@pytest.mark.parametrize("readme", READMES, ids=name)
def test_commands_are_run_by_ci(readme: Path) -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    for block in blocks(readme, "bash"):
        for command in block.splitlines():
            assert command in ELSEWHERE or command in ci, f"{readme}: {command!r} is not in .ci/run"


@pytest.mark.on("cpu")
@pytest.mark.parametrize("readme", READMES, ids=name)
def test_blocks_have_a_kind(readme: Path) -> None:
    """A block that is neither run nor plain output would go unnoticed."""
    for match in BLOCK.finditer(readme.read_text()):
        assert match["kind"] in ("python", "python npu", "bash", ""), match["kind"]
