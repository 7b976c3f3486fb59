import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cann_ops_tilelang.tools.new_op import create
from cann_ops_tilelang.tools.workspace import find_root

ROOT = find_root(Path(__file__))


@pytest.fixture(scope="session")
def make_workspace(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that makes a workspace with the shared packages that an operator needs, and new operators."""

    def make(*names: str) -> Path:
        root = tmp_path_factory.mktemp("workspace")
        for file in ("hatch.toml", ".ruff.toml", ".mypy.ini", ".pytest.ini", "LICENSE"):
            shutil.copy(ROOT / file, root)
        for project in ("core", "testing"):
            ignore = shutil.ignore_patterns("__pycache__", "tests")
            shutil.copytree(ROOT / "shared" / project, root / "shared" / project, ignore=ignore)
        (root / "packages").mkdir()
        for name in names:
            create(root, name)
        return root

    return make
