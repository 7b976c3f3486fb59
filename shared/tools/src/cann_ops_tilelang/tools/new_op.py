"""Create the package of a new operator: ``hatch run new-op NAME``.

The template is a working operator called ``new_operator``; a new package is that operator under another name.
"""

from __future__ import annotations

import argparse
import keyword
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Sequence
from pathlib import Path

from .workspace import distribution, find_root

TEMPLATE = Path(__file__).parent / "template"
# Lines that hold a name twice and cannot be broken must stay within the line length.
MAX_LENGTH = 40


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="new-op", description="Create the package of a new operator.")
    parser.add_argument("name", metavar="NAME", help="the operator's name, e.g. fused_rms_norm")
    name = parser.parse_args(arguments).name
    try:
        root = find_root()
        check_name(root, name)
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    package = create(root, name)
    print(
        f"created {package.relative_to(root)}\n"
        f"  its tests:  hatch run test packages/{name}\n"
        f"  its extra:  add {distribution(name)} to shared/bundle/pyproject.toml"
    )


def check_name(root: Path, name: str) -> None:
    """Raise a ValueError that says what is wrong with the name of a new operator."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ValueError(
            f"NAME must be lower-case words of letters and digits joined by single underscores, got {name!r}"
        )
    if len(name) > MAX_LENGTH:
        raise ValueError(f"NAME must have at most {MAX_LENGTH} characters, got {len(name)}: {name!r}")
    if keyword.iskeyword(name):
        raise ValueError(f"NAME must not be a keyword of Python, got {name!r}")
    if name in _identifiers(TEMPLATE):
        raise ValueError(f"NAME must not be an identifier that every operator's modules use, got {name!r}")
    taken = [*root.glob(f"packages/{name}"), *root.glob(f"shared/*/src/cann_ops_tilelang/{name}")]
    if taken:
        raise ValueError(f"NAME must be new, but {taken[0].relative_to(root)} exists")


def create(root: Path, name: str) -> Path:
    """Write ``packages/<name>``."""
    package = root / "packages" / name
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / name
        for source in sorted(TEMPLATE.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                target = draft / _renamed(str(source.relative_to(TEMPLATE)), name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(_renamed(source.read_text(encoding="utf-8"), name), encoding="utf-8")
        # The length of the name decides where lines break, its letters how imports are sorted.
        config = root / ".ruff.toml"
        for command in (["format"], ["check", "--fix"]):
            ruff = [
                sys.executable,
                "-m",
                "ruff",
                *command,
                "--quiet",
                "--no-cache",
                "--config",
                str(config),
                str(draft),
            ]
            subprocess.run(ruff, check=True)
        shutil.move(draft, package)
    return package


def _renamed(text: str, name: str) -> str:
    camel = "".join(word.capitalize() for word in name.split("_"))
    text = text.replace("new_operator", name).replace("new-operator", name.replace("_", "-"))
    return text.replace("NewOperator", camel)


def _identifiers(folder: Path) -> set[str]:
    words: set[str] = set()
    for path in folder.rglob("*.py"):
        with tokenize.open(path) as file:
            words.update(
                token.string for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.NAME
            )
    return words - {"new_operator"}


if __name__ == "__main__":
    main()
