"""The table of aclnn functions and the doctor; neither needs torch_npu."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ascend_sim.runtime.build import TABLE, functions, generate


def test_the_table_lists_every_function_once() -> None:
    names = [function.name for function in functions(TABLE.read_text())]
    assert len(names) == len(set(names)) > 200
    assert {"aclnnInplaceCopy", "aclnnMatmul", "aclnnSoftmax", "aclnnLayerNorm", "aclnnIndex"} <= set(names)


def test_a_line_becomes_the_two_calls_of_the_c_interface() -> None:
    source = generate(
        "# words\n\nAdds(in self, scalar other, out out) = at::add(self, other)\nZero(out self): self.zero_()\n"
    )
    assert (
        "int aclnnAddsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t*"
        in source
    )
    assert "int aclnnAdds(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream)" in source
    assert "give(at::add(self, other), out);" in source and "self.zero_();" in source


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Add(in self, out out)", r"aclnn.table:1: expected NAME\(PARAMETERS\) = VALUE"),
        ("Add(tensor self) = self", r"aclnn.table:1: unknown kind of parameter 'tensor'"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        functions(line)


def doctor(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from ascend_sim.cli import main; sys.exit(main(['doctor']))"]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )


def test_doctor_says_what_to_do_about_a_missing_compiler(tmp_path: Path) -> None:
    result = doctor(CXX="no-such-compiler", ASCEND_SIM_CACHE=str(tmp_path))
    assert result.returncode == 1
    assert "MISSING  C++ compiler" in result.stdout and "apt-get install g++" in result.stdout
    assert "Kernels by themselves (ascend_sim.compile, ascend_sim.launch): not ready." in result.stdout
    assert not result.stderr


def test_doctor_says_what_to_do_about_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = doctor(ASCEND_SIM_CACHE=str(tmp_path / "file" / "cache"))
    assert result.returncode == 1
    assert "MISSING  cache directory" in result.stdout and "Set ASCEND_SIM_CACHE" in result.stdout
    assert not result.stderr
