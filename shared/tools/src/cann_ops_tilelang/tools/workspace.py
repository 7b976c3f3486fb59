"""Where things are in the workspace."""

from pathlib import Path


def find_root(start: Path | None = None) -> Path:
    """The workspace that holds ``start``, by default the current directory."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "hatch.toml").is_file() and (folder / "packages").is_dir():
            return folder
    raise FileNotFoundError(f"no workspace (a folder with hatch.toml and packages) at or above {start}")


def operators(root: Path) -> list[str]:
    """The operators of the workspace: the names of the folders under ``packages``."""
    return sorted(project.parent.name for project in root.glob("packages/*/pyproject.toml"))


def projects(root: Path) -> list[Path]:
    """Every project of the workspace."""
    return sorted(
        project.parent for pattern in ("packages/*", "shared/*") for project in root.glob(f"{pattern}/pyproject.toml")
    )


def distribution(operator: str) -> str:
    """The distribution of an operator."""
    return "cann-ops-tilelang-" + operator.replace("_", "-")
