"""``new-op``: the package it creates passes lint and its tests; bad names are refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cann_ops_tilelang.tools import new_op
from cann_ops_tilelang.tools.workspace import operators

NAME = "zz_scaled_copy"


@pytest.fixture(scope="module")
def root(make_workspace: Callable[..., Path]) -> Path:
    return make_workspace(NAME)


def python(root: Path, *arguments: str, **variables: str) -> str:
    path = os.pathsep.join(map(str, root.glob("*/*/src")))
    environment = {**os.environ, "PYTHONPATH": path, "MYPYPATH": path, **variables}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_passes_lint(root: Path) -> None:
    python(root, "-m", "ruff", "check", "--no-cache", "packages")
    python(root, "-m", "ruff", "format", "--check", "--no-cache", "packages")


@pytest.mark.parametrize("name", ["a", "operator_with_the_longest_of_legal_names"])
def test_passes_lint_whatever_the_length_of_its_name(make_workspace: Callable[..., Path], name: str) -> None:
    test_passes_lint(make_workspace(name))


def test_passes_the_type_checker(root: Path) -> None:
    python(root, "-m", "mypy", "--cache-dir", str(root / ".mypy_cache"), f"packages/{NAME}/src")


def test_passes_its_tests(root: Path) -> None:
    said = python(root, "-m", "pytest", "-q", "-p", "no:cacheprovider", "packages")
    assert " passed" in said
    assert "skipped" not in said


def test_leaves_nothing_of_the_template(root: Path) -> None:
    package = root / "packages" / NAME
    for file in package.rglob("*"):
        text = str(file.relative_to(root)) + (file.read_text() if file.is_file() and file.suffix != ".pyc" else "")
        assert "new_operator" not in text
        assert "new-operator" not in text
        assert "NewOperator" not in text


def test_the_command_creates_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root / "shared")
    new_op.main(["another"])
    assert operators(root) == ["another", NAME]
    assert "hatch run test packages/another" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("FusedNorm", "lower-case words"),
        ("fused-norm", "lower-case words"),
        ("_fused", "lower-case words"),
        ("fused__norm", "lower-case words"),
        ("2fused", "lower-case words"),
        ("größe", "lower-case words"),
        ("../fused", "lower-case words"),
        ("", "lower-case words"),
        ("x" * 41, "at most 40 characters, got 41"),
        ("yield", "keyword"),
        ("launch", "identifier"),
        ("torch", "identifier"),
        ("core", "identifier"),
        ("testing", "identifier"),
        (NAME, f"packages/{NAME} exists"),
    ],
)
def test_bad_names_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    monkeypatch.chdir(root)
    before = sorted(root.rglob("*"))
    with pytest.raises(SystemExit) as exit_code:
        new_op.main([name])
    assert exit_code.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert name in said
    assert sorted(root.rglob("*")) == before


def test_outside_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        new_op.main(["fused_norm"])
    assert f"no workspace (a folder with hatch.toml and packages) at or above {tmp_path}" in capsys.readouterr().err
