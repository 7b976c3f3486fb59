"""The layers of the workspace: who may import whom."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from cann_ops_tilelang.tools.workspace import find_root, operators

ROOT = find_root(Path(__file__))
SHARED = ROOT / "shared"


def imports(folder: Path) -> Iterator[tuple[Path, str]]:
    """The absolute imports of every module of a folder, wherever they stand in it."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "cann_ops_tilelang":
                yield from ((path, f"cann_ops_tilelang.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield path, str(node.module)


def is_within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def own(module: str) -> bool:
    return is_within(module, "cann_ops_tilelang", "ascend_sim")


@pytest.mark.parametrize("name", operators(ROOT))
def test_an_operator_imports_the_core_and_itself_alone(name: str) -> None:
    package = ROOT / "packages" / name / "src/cann_ops_tilelang" / name
    found = list(imports(package))
    assert any(is_within(module, "cann_ops_tilelang.core") for _, module in found)
    allowed = ("cann_ops_tilelang.core", f"cann_ops_tilelang.{name}")
    assert [(path, module) for path, module in found if own(module) and not is_within(module, *allowed)] == []


@pytest.mark.parametrize("name", operators(ROOT))
def test_semantics_know_nothing_of_tilelang_and_kernels_nothing_of_torch(name: str) -> None:
    package = ROOT / "packages" / name / "src/cann_ops_tilelang" / name
    kernels = package / "kernels"
    found = list(imports(package))
    assert [(path, module) for path, module in found if kernels in path.parents and is_within(module, "torch")] == []
    assert [
        (path, module) for path, module in found if kernels not in path.parents and is_within(module, "tilelang", "tvm")
    ] == []


def test_the_core_imports_nothing_of_the_workspace_but_itself() -> None:
    found = [(path, module) for path, module in imports(SHARED / "core/src") if own(module)]
    assert [(path, module) for path, module in found if not is_within(module, "cann_ops_tilelang.core")] == []


def test_an_import_is_seen_wherever_it_stands(tmp_path: Path) -> None:
    text = (
        "from cann_ops_tilelang import other\ndef f():\n    import tilelang.language\n    from torch.nn import Linear\n"
    )
    (tmp_path / "module.py").write_text(text)
    assert [module for _, module in imports(tmp_path)] == ["cann_ops_tilelang.other", "tilelang.language", "torch.nn"]


def test_no_distribution_owns_the_namespace() -> None:
    assert sorted(ROOT.glob("*/*/src/cann_ops_tilelang/__init__.py")) == []
