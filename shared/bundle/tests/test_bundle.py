"""The bundle names every operator, in a range of versions that holds the one of the workspace."""

import runpy
import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from cann_ops_tilelang.tools.workspace import distribution, find_root, operators

ROOT = find_root(Path(__file__))
BUILDER = WheelBuilder(str(ROOT / "shared" / "bundle"))
EXTRAS = BUILDER.metadata.core.optional_dependencies


def test_every_operator_is_in_one_extra() -> None:
    named = [Requirement(text).name for extra, texts in EXTRAS.items() if extra not in ("all", "npu") for text in texts]
    assert sorted(named) == sorted(distribution(name) for name in operators(ROOT))


def test_all_holds_every_extra_but_torch_npu() -> None:
    others = {text for extra, texts in EXTRAS.items() if extra not in ("all", "npu") for text in texts}
    assert set(EXTRAS["all"]) == others


def test_npu_is_torch_npu() -> None:
    assert [Requirement(text).name for text in EXTRAS["npu"]] == ["torch-npu"]


def test_the_versions_of_the_workspace_are_in_range() -> None:
    ranges = {
        requirement.name: requirement.specifier for texts in EXTRAS.values() for requirement in map(Requirement, texts)
    }
    for name in operators(ROOT):
        version = runpy.run_path(str(ROOT / f"packages/{name}/src/cann_ops_tilelang/{name}/_version.py"))["__version__"]
        assert version in ranges[distribution(name)], f"{name} {version} is not in {ranges[distribution(name)]}"


def test_the_wheel_has_no_files_of_its_own(tmp_path: Path) -> None:
    (wheel,) = BUILDER.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if ".dist-info/" not in name] == []
