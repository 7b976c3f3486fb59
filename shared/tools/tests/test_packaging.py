"""The packaging check: what is wrong with a distribution is found and named."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from cann_ops_tilelang.tools import packaging
from cann_ops_tilelang.tools.packaging import CheckError, build, check_contents, read_metadata

NAME = "zz_scaled_copy"
CORE = "Requires-Dist: cann-ops-tilelang-core<0.2,>=0.1\n"


@pytest.fixture(scope="module")
def root(make_workspace: Callable[..., Path]) -> Path:
    return make_workspace(NAME)


@pytest.fixture(scope="module")
def wheel(root: Path) -> Path:
    build(root / "packages" / NAME, root / "built" / NAME)
    (wheel,) = (root / "built" / NAME).glob("*.whl")
    return wheel


def contents(root: Path, wheel: Path) -> str:
    return check_contents(wheel, NAME, root / "LICENSE", root / "packages" / NAME / "CHANGELOG.md")


def altered(wheel: Path, target: Path, alter: Callable[[dict[str, str]], object]) -> Path:
    """A copy of the wheel after ``alter`` changed its files."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    alter(files)
    with zipfile.ZipFile(target / wheel.name, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return target / wheel.name


def edit_metadata(old: str, new: str) -> Callable[[dict[str, str]], None]:
    def edit(files: dict[str, str]) -> None:
        (name,) = (name for name in files if name.endswith("/METADATA"))
        assert old in files[name]
        files[name] = files[name].replace(old, new)

    return edit


def remove(end: str) -> Callable[[dict[str, str]], None]:
    def edit(files: dict[str, str]) -> None:
        (name,) = (name for name in files if name.endswith(end))
        del files[name]

    return edit


def test_a_good_wheel_passes(root: Path, wheel: Path) -> None:
    assert contents(root, wheel).endswith(" KiB")


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda files: files.update({"cann_ops_tilelang/__init__.py": ""}), "ships cann_ops_tilelang/__init__.py"),
        (lambda files: files.update({"stray.txt": ""}), "not the operator's: stray.txt"),
        (
            lambda files: files.update({"cann_ops_tilelang/other/operator.py": ""}),
            "cann_ops_tilelang/other/operator.py",
        ),
        (lambda files: files.update({f"cann_ops_tilelang/{NAME}/tests/test_x.py": ""}), "tests/test_x.py"),
        (lambda files: files.update({f"cann_ops_tilelang/{NAME}/conftest.py": ""}), "conftest.py"),
        (remove("/py.typed"), "py.typed"),
        (remove("/LICENSE"), "LICENSE"),
        (lambda files: files.update({next(n for n in files if n.endswith("/LICENSE")): "mine"}), "LICENSE"),
        (edit_metadata("License-Expression: Apache-2.0", "License-Expression: MIT"), "must be Apache-2.0, got MIT"),
        (edit_metadata("Version: 0.1.0", "Version: 0.3.0"), "CHANGELOG.md has no section 0.3.0"),
        (edit_metadata("Name: cann-ops-tilelang-zz", "Name: cann-ops-tilelang-yy"), "got cann-ops-tilelang-yy"),
        (edit_metadata(CORE, "Requires-Dist: torch\n"), "must require cann-ops-tilelang-core"),
        (edit_metadata(CORE, f"{CORE}Requires-Dist: cann-ops-tilelang-testing\n"), "cann-ops-tilelang-testing"),
        (edit_metadata("core<0.2,>=0.1", "core>=0.1"), "must require a range of the core"),
        (edit_metadata("core<0.2,>=0.1", "core<0.2"), "must require a range of the core"),
    ],
)
def test_a_bad_wheel_is_named(
    root: Path, wheel: Path, tmp_path: Path, alter: Callable[[dict[str, str]], object], message: str
) -> None:
    with pytest.raises(CheckError) as error:
        contents(root, altered(wheel, tmp_path, alter))
    assert message in str(error.value)
    assert wheel.name in str(error.value)


def test_a_project_that_does_not_build_is_named(make_workspace: Callable[..., Path], tmp_path: Path) -> None:
    root = make_workspace(NAME)
    (root / "packages" / NAME / "README.md").unlink()
    (report, *others) = packaging.run(root, [NAME], tmp_path, lambda text: None)
    assert [column for column, _ in report.failures] == ["wheel"]
    assert "README.md" in report.failures[0][1]
    assert all(other.failures == [] for other in others)


def test_a_bad_operator_fails_where_it_is_bad(make_workspace: Callable[..., Path], tmp_path: Path) -> None:
    """They work in the workspace; alone, with any core of their range, by README and tests of their own they do not."""
    names = ["bad", "good", "needy"]
    root = make_workspace(*names)
    bad = root / "packages" / "bad"
    edit(bad / "pyproject.toml", "core>=0.1,<0.2", "core>=0.1")
    edit(bad / "README.md", "scale=0.5), x * 0.5)", "scale=0.5), x * 0.25)")
    edit(bad / "src/cann_ops_tilelang/bad/reference.py", "return x * scale", "return x")
    edit(bad / "src/cann_ops_tilelang/bad/_version.py", "0.1.0", "0.4.0")
    needy = root / "packages/needy/src/cann_ops_tilelang/needy/operator.py"
    edit(needy, "import torch\n", "import torch\nimport cann_ops_tilelang.good\n")

    reports = {report.project.name: report for report in packaging.run(root, names, tmp_path, lambda text: None)}
    assert reports["good"].failures == []
    assert set(reports["good"].cells) == set(packaging.COLUMNS)
    failures = dict(reports["bad"].failures)
    assert list(failures) == ["wheel", "core", "example", "tests"]
    assert "CHANGELOG.md has no section 0.4.0" in failures["wheel"]
    assert "must require a range of the core" in failures["wheel"]
    assert "pip combines cann-ops-tilelang-bad with cann-ops-tilelang-core 9999.0" in failures["core"]
    assert "AssertionError" in failures["example"]
    assert "test_matches_the_reference" in failures["tests"]
    failures = dict(reports["needy"].failures)
    assert list(failures) == ["alone"]
    assert "No module named 'cann_ops_tilelang.good'" in failures["alone"]

    console = Console(record=True, width=120)
    assert packaging.show(list(reports.values()), console) == 1
    assert packaging.show([reports["good"]], Console(quiet=True)) == 0
    assert "FAILED" in console.export_text()


def test_what_was_built_replaces_what_an_earlier_run_left(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "old.whl").touch()
    packaging.collect(wheel.parents[1], tmp_path / "dist")
    assert sorted(file.name for file in (tmp_path / "dist").iterdir()) == sorted(
        file.name for file in wheel.parent.iterdir()
    )
    assert wheel.name in {file.name for file in (tmp_path / "dist").iterdir()}


def test_an_unknown_operator(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(root)
    with pytest.raises(SystemExit):
        packaging.main(["nothing"])
    assert f"no such operator: nothing; the workspace has {NAME}" in capsys.readouterr().err


def test_metadata_is_read_from_the_wheel(wheel: Path) -> None:
    assert read_metadata(wheel)["Name"] == "cann-ops-tilelang-zz-scaled-copy"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
