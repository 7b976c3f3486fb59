"""Build every distribution of the workspace and try each operator's wheel alone: ``hatch run packaging``.

Every project's sdist is built, and its wheel from that sdist. Then, for each operator, a fresh virtual environment
gets the operator's wheel and what it requires from the built wheels, and nothing else of the workspace; there it is
imported, the example of its README is run, and so are its tests, those of the sdist. Third-party packages (PyTorch,
TileLang, pytest) are not downloaded again; they come from the environment that runs this command. What was built is
left in ``dist``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import ParamSpec

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from .workspace import distribution, find_root, operators, projects

CORE = "cann-ops-tilelang-core"
TESTING = "cann-ops-tilelang-testing"
TOOLS = "cann-ops-tilelang-tools"
BUNDLE = "cann-ops-tilelang"
P = ParamSpec("P")

COLUMNS = ("wheel", "alone", "example", "tests", "core")

# Run in an environment that should hold one operator and the core, nothing else of the workspace.
ALONE = """
import pkgutil, sys
from importlib import import_module, metadata

operator, distribution = sys.argv[1:]
package = import_module(f"cann_ops_tilelang.{operator}")
namespace = sys.modules["cann_ops_tilelang"]
found = {module.name for module in pkgutil.iter_modules(namespace.__path__)}
assert found == {"core", operator}, f"cann_ops_tilelang holds {sorted(found)}"
outside = [path for path in namespace.__path__ if not path.startswith(sys.prefix)]
assert not outside, f"cann_ops_tilelang extends outside the environment: {outside}"
assert callable(getattr(package, operator))
installed = metadata.version(distribution)
assert package.__version__ == installed, f"__version__ is {package.__version__}, the metadata says {installed}"
"""


class CheckError(Exception):
    """What a check found wrong."""


@dataclass
class Report:
    """The results of one project, by column."""

    project: Path
    name: str = ""
    version: str = ""
    cells: dict[str, str] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def check(self, column: str, function: Callable[P, str | None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Fill the column with what the check returns, or note why it failed; whether it passed."""
        try:
            self.cells[column] = function(*args, **kwargs) or "ok"
        except CheckError as error:
            self.cells[column] = "FAILED"
            self.failures.append((column, str(error)))
        return self.cells[column] != "FAILED"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="packaging", description="Build and try every distribution of the workspace.")
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="try these alone; by default every operator")
    chosen = parser.parse_args(arguments).operators
    try:
        root = find_root()
    except FileNotFoundError as error:
        parser.error(str(error))
    unknown = sorted(set(chosen) - set(operators(root)))
    if unknown:
        parser.error(f"no such operator: {', '.join(unknown)}; the workspace has {', '.join(operators(root))}")
    console = Console()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with tempfile.TemporaryDirectory() as folder, Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        reports = run(
            root, chosen or operators(root), Path(folder), lambda text: progress.update(task, description=text)
        )
        collect(Path(folder) / "dist", root / "dist")
    return show(reports, console)


def show(reports: Sequence[Report], console: Console) -> int:
    """Print the table and what failed; the exit code of the command."""
    table = Table(Column("project", no_wrap=True), "version", *COLUMNS, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.caption = "core: pip refuses a core outside the range that the operator asks for"
    for report in reports:
        cells = [report.cells.get(column, "") for column in COLUMNS]
        styled = [f"[red]{cell}[/red]" if cell == "FAILED" else cell for cell in cells]
        table.add_row(report.project.name, report.version, *styled)
    console.print(table)
    failed = False
    for report in reports:
        for column, text in report.failures:
            console.print(f"[bold red]{report.project.name}: {column}[/bold red]")
            console.print(text, markup=False, highlight=False, soft_wrap=True)
            failed = True
    if not failed:
        console.print(f"{len(reports)} distributions: every check passed")
    return 1 if failed else 0


def run(root: Path, chosen: Sequence[str], folder: Path, say: Callable[[str], object]) -> list[Report]:
    """Build all projects, try the chosen operators, resolve the bundle."""
    dist = folder / "dist"
    reports = [Report(project) for project in projects(root)]
    for report in reports:
        say(f"{report.project.name}: build")
        report.check("wheel", build_and_read, report, root, dist)
    if not all(report.name for report in reports):
        return reports  # without every wheel there is nothing to install
    third_party = link_third_party(folder / "third-party", {report.name for report in reports})
    cores = {version: rebuild(root / "shared/core", version, folder) for version in ("0.0.1", "9999.0")}
    for report in reports:
        operator = report.project.name
        if report.name == distribution(operator) and operator in chosen:
            try_operator(report, operator, dist, cores, Environment(folder / operator, third_party), say)
        if report.name == BUNDLE:
            say(f"{operator}: compositions of the installed wheels")
            report.check(
                "tests", check_bundle, Environment(folder / operator, third_party), reports, root, dist, folder
            )
    return reports


def build_and_read(report: Report, root: Path, dist: Path) -> str:
    """Build a project and check the contents of its wheel."""
    build(report.project, dist / report.project.name)
    (wheel,) = (dist / report.project.name).glob("*.whl")
    info = read_metadata(wheel)
    report.name, report.version = str(info["Name"]), str(info["Version"])
    operator = report.project.name if report.project.parent.name == "packages" else None
    return check_contents(wheel, operator, root / "LICENSE", report.project / "CHANGELOG.md")


def try_operator(
    report: Report,
    operator: str,
    dist: Path,
    cores: dict[str, Path],
    environment: Environment,
    say: Callable[[str], object],
) -> None:
    """Install one operator from its wheel into an environment of its own, and use it there."""
    (sdist,) = (dist / operator).glob("*.tar.gz")
    source = unpack(sdist, environment.folder / "sdist")
    say(f"{operator}: resolve with an incompatible core")
    report.check("core", check_refusal, environment, report.name, dist, cores)
    say(f"{operator}: install")
    if report.check("alone", check_alone, environment, operator, dist):
        say(f"{operator}: example of the README")
        report.check("example", run_example, environment, source / "README.md", operator)
        say(f"{operator}: tests")
        report.check("tests", run_tests, environment, source, dist)


# -- building --------------------------------------------------------------------------------------------------------


def build(project: Path, target: Path) -> None:
    """Build the sdist, and the wheel from the sdist."""
    command(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(project))


def collect(built: Path, target: Path) -> None:
    """Replace what an earlier run left."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for file in built.glob("*/*"):
        shutil.copy(file, target)


def rebuild(project: Path, version: str, folder: Path) -> Path:
    """The folder with the distributions of a project as they would be at another version."""
    copy = folder / f"{project.name}-{version}"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (version_file,) = copy.glob("src/cann_ops_tilelang/*/_version.py")
    version_file.write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    build(copy, copy / "dist")
    return copy / "dist"


# -- contents --------------------------------------------------------------------------------------------------------


def check_contents(wheel: Path, operator: str | None, license_file: Path, changelog: Path) -> str:
    """Raise a CheckError that lists everything wrong with a wheel; its size otherwise."""
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        licenses = [archive.read(name).decode() for name in files if name.endswith(".dist-info/licenses/LICENSE")]
    info = read_metadata(wheel)
    code = [name for name in files if ".dist-info/" not in name]
    problems = []
    if "cann_ops_tilelang/__init__.py" in code:
        problems.append(
            "ships cann_ops_tilelang/__init__.py, which would hide every other distribution of the namespace"
        )
    if licenses != [license_file.read_text(encoding="utf-8")]:
        problems.append("does not ship the LICENSE of the workspace")
    if info["License-Expression"] != "Apache-2.0":
        problems.append(f"its license expression must be Apache-2.0, got {info['License-Expression']}")
    if any(name.endswith(".py") for name in code) and not any(name.endswith("/py.typed") for name in code):
        problems.append("does not ship py.typed")
    if f"\n## {info['Version']}\n" not in changelog.read_text(encoding="utf-8"):
        problems.append(f"its CHANGELOG.md has no section {info['Version']}")
    if operator is not None:
        problems += operator_problems(operator, code, info)
    if problems:
        raise CheckError("\n".join(f"{wheel.name} {problem}" for problem in problems))
    return f"{wheel.stat().st_size / 1024:.0f} KiB"


def operator_problems(operator: str, code: Sequence[str], info: Message) -> list[str]:
    problems = []
    if info["Name"] != distribution(operator):
        problems.append(f"must be of the distribution {distribution(operator)}, got {info['Name']}")
    stray = [name for name in code if not name.startswith(f"cann_ops_tilelang/{operator}/") or _is_test(name)]
    if stray:
        problems.append(f"ships files that are not the operator's: {', '.join(stray)}")
    if f"cann_ops_tilelang/{operator}/py.typed" not in code:
        problems.append(f"does not ship cann_ops_tilelang/{operator}/py.typed")
    requirements = [Requirement(text) for text in info.get_all("Requires-Dist", [])]
    own = [requirement for requirement in requirements if requirement.name.startswith("cann-ops-tilelang")]
    if [requirement.name for requirement in own] != [CORE]:
        found = ", ".join(requirement.name for requirement in own) or "none"
        problems.append(f"must require {CORE} and no other distribution of the workspace, got {found}")
    elif not _is_range(own[0].specifier):
        problems.append(f"must require a range of the core such as {CORE}>=0.1,<0.2, got {own[0]}")
    return problems


def _is_test(name: str) -> bool:
    parts = Path(name).parts
    return "tests" in parts or parts[-1].startswith("test_") or parts[-1] == "conftest.py"


def _is_range(specifier: SpecifierSet) -> bool:
    kinds = {clause.operator for clause in specifier}
    return "~=" in kinds or ({">=", ">"} & kinds and {"<", "<="} & kinds) != set()


def read_metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


# -- environments ----------------------------------------------------------------------------------------------------


class Environment:
    """A virtual environment that sees the third-party packages, and what is installed into it."""

    def __init__(self, folder: Path, third_party: Path) -> None:
        self.folder = folder
        venv.create(folder, symlinks=True)
        self.executable = folder / "bin" / "python"
        (site,) = folder.glob("lib/python*/site-packages")
        # The .pth files of a folder that a .pth file names are not read: editable installs stay outside.
        (site / "third-party.pth").write_text(f"{third_party}\n", encoding="utf-8")

    def python(self, *arguments: str, cwd: Path, **variables: str) -> str:
        return command(str(self.executable), *arguments, cwd=cwd, **variables)

    def install(self, dists: Iterable[Path], *requirements: str, dry_run: bool = False) -> str:
        """Install from built distributions alone; what pip says."""
        links = [f"--find-links={folder}" for dist in dists for folder in (dist, *dist.glob("*/"))]
        pip = [sys.executable, "-m", "pip", "--isolated", "--python", str(self.executable), "install", "--no-index"]
        return command(*pip, "--only-binary=:all:", *(["--dry-run"] if dry_run else []), *links, *requirements)


def link_third_party(folder: Path, own: set[str]) -> Path:
    """A folder with links to the installed packages except those of the workspace, editable or not."""
    folder.mkdir()
    hidden: set[str] = set()
    for installed in metadata.distributions():
        if canonicalize_name(installed.metadata["Name"]) in own:
            hidden.update(file.parts[0] for file in installed.files or ())
    for path in sys.path:
        if Path(path).name in ("site-packages", "dist-packages"):
            for entry in Path(path).iterdir():
                if entry.name not in hidden and not (folder / entry.name).exists():
                    (folder / entry.name).symlink_to(entry)
    return folder


def unpack(sdist: Path, folder: Path) -> Path:
    """The sources of an sdist, without the code that should come from the wheel."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    shutil.rmtree(source / "src")
    return source


# -- trying ----------------------------------------------------------------------------------------------------------


def check_refusal(environment: Environment, name: str, dist: Path, others: dict[str, Path]) -> None:
    """pip must not combine the operator with a core outside its range, though both wheels are at hand."""
    for version, folder in others.items():
        try:
            environment.install([dist, folder], name, f"{CORE}=={version}", dry_run=True)
        except CheckError as error:
            if "ResolutionImpossible" not in str(error):
                raise
        else:
            raise CheckError(f"pip combines {name} with {CORE} {version}; its range of the core is too wide")


def check_alone(environment: Environment, operator: str, dist: Path) -> None:
    """Install the operator and look at what the environment then holds."""
    environment.install([dist], distribution(operator))
    environment.python("-c", ALONE, operator, distribution(operator), cwd=environment.folder)


def check_bundle(environment: Environment, reports: Sequence[Report], root: Path, dist: Path, folder: Path) -> str:
    """``[all]`` gives every operator, with newer compatible versions of the core and of one operator; they compose."""
    names = operators(root)
    versions = {report.name: report.version for report in reports}
    dists = [dist]
    for project, name in ((root / "shared/core", CORE), (root / "packages" / names[0], distribution(names[0]))):
        release = Version(versions[name])
        versions[name] = f"{release.major}.{release.minor}.{release.micro + 1}"
        dists.append(rebuild(project, versions[name], folder))
    said = environment.install(dists, f"{BUNDLE}[all]", TOOLS)
    (line,) = (line for line in said.splitlines() if line.startswith("Successfully installed "))
    for name in [CORE, *map(distribution, names)]:
        if f"{name}-{versions[name]}" not in line.split():
            raise CheckError(f"{BUNDLE}[all] does not install {name} {versions[name]}: {line}")
    compositions = shutil.copytree(root / "tests-integration", environment.folder / "tests")
    said = environment.python("-m", "pytest", "-q", "--import-mode=importlib", str(compositions), cwd=compositions)
    return " ".join(re.findall(r"\d+ (?:passed|skipped|xfailed)", said.splitlines()[-1]))


def run_example(environment: Environment, readme: Path, operator: str) -> None:
    """Run the first example of the README that calls the operator."""
    blocks = re.findall(r"^```python\n(.*?)^```", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    example = next((block for block in blocks if f"{operator}(" in block), None)
    if example is None:
        raise CheckError(f"README.md has no ```python block that calls {operator}")
    script = readme.with_name("example.py")
    script.write_text(example, encoding="utf-8")
    environment.python(script.name, cwd=readme.parent)


def run_tests(environment: Environment, source: Path, dist: Path) -> str:
    """Run the operator's tests of the lowest level."""
    environment.install([dist], TESTING)
    pytest = ("-m", "pytest", "-q", "--import-mode=importlib", "tests")
    said = environment.python(*pytest, cwd=source, OPS_TILELANG_TEST_LEVEL="0")
    return " ".join(re.findall(r"\d+ (?:passed|skipped|xfailed)", said.splitlines()[-1]))


def command(*arguments: str, cwd: Path | None = None, **variables: str) -> str:
    """The output of a command; a CheckError with it if the command fails."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment = {**inherited, "PYTHONNOUSERSITE": "1", "NO_COLOR": "1", **variables}
    done = subprocess.run(
        arguments,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise CheckError(f"$ {' '.join(arguments)}\n{done.stdout[-8000:]}(exit code {done.returncode})")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
