"""The compiler driver, the toolkit directory, the cache, and the command line."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest

import ascend_sim
from ascend_sim import cli, driver, toolchain
from ascend_sim.translate import KernelInfo, kernels, translate

SOURCE = """
#include "c_api/asc_simd.h"
__simd_vf__ inline void doubled_simd_vf_0(__ubuf__ float* ub) {
  vector_f32 value;
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  asc_loadalign(value, ub);
  asc_add(value, value, value, all);
  asc_storealign(ub, value, all);
}
extern "C" __global__ __vector__ void doubled_kernel(__gm__ float* x, __gm__ float* y) {
  asc_init();
  __ubuf__ float *ub = (__ubuf__ float *)0;
  asc_copy_gm2ub_align(ub, x + 64 * block_idx, 256);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  doubled_simd_vf_0(ub);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_copy_ub2gm_align(y + 64 * block_idx, ub, 256);
}
"""
HOST = """
#define ERROR_BUF_SIZE 1024
static char error_buf[ERROR_BUF_SIZE];
extern "C" const char* get_last_error() { return error_buf; }
extern "C" int call(float* __restrict__ x, float* __restrict__ y, int n, void* stream=nullptr) {
\tdoubled_kernel<<<((n + 63) / 64 * 1 * 1), 0, stream>>>(x, y);
\tTILELANG_CHECK_LAST_ERROR("doubled_kernel");
\treturn 0;
}
"""
# What TileLang 0.1.15 puts before the file names.
OPTIONS = ["-O2", "-fPIC", "-std=c++20", "-mllvm", "-cce-aicore-dcpreload-args=false", "--npu-arch=dav-3510"]


@pytest.fixture
def tools() -> Path:
    return toolchain.toolkit() / "bin"


def execute(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **options)


def test_command_line_of_the_cython_backend(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "kernel.asc").write_text(SOURCE + HOST)
    library = tmp_path / "kernel.so"
    command = [*OPTIONS, "-Wl,--no-mmap-output-file", "--shared", tmp_path / "kernel.asc"]
    result = execute(tools / "bisheng", *command, f"-I{toolchain.template_dir()}", "-o", library)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    host = ctypes.CDLL(str(library))
    x, y = np.arange(100, dtype=np.float32).repeat(2)[:192], np.zeros(192, np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y)]
    assert host.call(*pointers, 192, None) == 0
    np.testing.assert_array_equal(y, 2 * x)


def test_command_lines_of_the_tvm_ffi_backend(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "kernel.asc").write_text(SOURCE)
    relocatable, binary = tmp_path / "kernel.rel.o", tmp_path / "kernel.aibin"
    result = execute(tools / "bisheng", *OPTIONS, "--cce-aicore-only", tmp_path / "kernel.asc", "-o", relocatable)
    assert result.returncode == 0, result.stderr
    link = ["-m", "aicorelinux", "-Ttext", "0", "--no-mmap-output-file"]
    result = execute(tools / "ld.lld", *link, relocatable, "-o", binary)
    assert result.returncode == 0, result.stderr
    # The device binary is a library that exports a descriptor a kernel.
    assert ctypes.c_char_p.in_dll(ctypes.CDLL(str(binary)), "asim_kernel_doubled_kernel").value == b"doubled_kernel"


def test_error_of_a_launch_reaches_the_host_code(tools: Path, tmp_path: Path) -> None:
    broken = SOURCE.replace("asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));", "") + HOST
    (tmp_path / "kernel.asc").write_text(broken)
    library = tmp_path / "kernel.so"
    templates = f"-I{toolchain.template_dir()}"
    assert execute(tools / "bisheng", tmp_path / "kernel.asc", templates, "-o", library).returncode == 0
    host = ctypes.CDLL(str(library))
    host.get_last_error.restype = ctypes.c_char_p
    x = np.zeros(64, np.float32)
    assert host.call(*[ctypes.c_void_p(x.ctypes.data)] * 2, 64, None) == -1
    assert b"hazard" in host.get_last_error()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage:"),
        (["missing.asc", "-o", "out.so"], "missing.asc"),
        (["kernel.asc"], "usage:"),
        (["kernel.asc", "other.asc", "-o", "out.so"], "unexpected argument 'other.asc'"),
        (["kernel.asc", "-o", "out.so", "--unheard-of"], "unexpected argument '--unheard-of'"),
    ],
)
def test_wrong_command_lines(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.asc").write_text(SOURCE)
    assert driver.bisheng(arguments) != 0
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.so").exists()


def test_linker_needs_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert driver.linker(["-o", "out"]) == 2
    assert "usage:" in capsys.readouterr().err


def test_unsupported_intrinsic_is_named_with_its_line() -> None:
    source = SOURCE.replace("asc_add(value, value, value, all)", "asc_frobnicate(value, value, all)")
    with pytest.raises(ascend_sim.CompileError) as error:
        ascend_sim.compile(source)
    line = source.splitlines().index("  asc_frobnicate(value, value, all);") + 1
    assert f"line {line}: asc_frobnicate is not supported by the simulator" in str(error.value)
    assert "asc_frobnicate(value, value, all);" in str(error.value)


def test_unsupported_type_of_an_intrinsic_is_named_with_its_line() -> None:
    source = SOURCE.replace("asc_add(value, value, value, all)", "asc_squeeze(value, all, all, all)")
    with pytest.raises(ascend_sim.CompileError, match=r"line 7: asc_squeeze is not supported"):
        ascend_sim.compile(source)


def test_source_without_a_kernel() -> None:
    with pytest.raises(ascend_sim.CompileError, match="defines no kernel"):
        ascend_sim.compile("int main() { return 0; }")


def test_kernel_for_another_version_of_the_running_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_SIM_CORE", "asim-of-another-version")
    with pytest.raises(ascend_sim.CompileError, match="sources have changed since `ascend-sim run` started"):
        ascend_sim.compile(SOURCE)


def test_missing_compiler_is_a_clear_error(tmp_path: Path) -> None:
    environment = {**os.environ, "CXX": "g++-of-another-world", "ASCEND_SIM_CACHE": str(tmp_path)}
    result = execute(sys.executable, "-m", "ascend_sim", "env", env=environment)
    assert result.returncode == 1
    assert "needs the GNU C++ compiler" in result.stderr
    assert "g++-of-another-world" in result.stderr


def test_translation_keeps_lines_and_makes_launches_explicit() -> None:
    source = SOURCE + HOST
    lines = translate(source).splitlines()
    assert len(lines) == len(source.splitlines()) + 2  # an empty line and the kernel's descriptor
    assert "  __ubuf__ float *ub = ((__ubuf__ float *)(asim_ub + 0));" in lines
    launch = "asim::launch<&doubled_kernel>(asim_kernel_doubled_kernel, ((n + 63) / 64 * 1 * 1), stream, x, y);"
    assert f"\t{launch}" in lines
    assert lines[-1] == 'ASIM_KERNEL(doubled_kernel, 0, 1, false, "x,y")'


def test_kernels_of_a_source() -> None:
    source = """
    extern "C" __global__ __cube__ void only_declared(int a);
    extern "C" __global__ __mix__(1, 2) void both(__gm__ half* a, const int32_t n) { /* } */ const char* s = "}"; asc_vf_call<f>(d); }
    extern "C" __global__ __cube__ void cube() {}
    """
    assert kernels(source) == [KernelInfo("both", 1, 2, ("a", "n"), True), KernelInfo("cube", 1, 0, (), False)]


BUILD = """
import ascend_sim, sys
from ascend_sim import toolchain
real = toolchain.run_compiler
def counted(command, directory):
    with open(sys.argv[1], "a") as file:
        file.write("x")
    return real(command, directory)
toolchain.run_compiler = counted
print(ascend_sim.compile(open(sys.argv[2]).read()).path)
"""


def test_concurrent_builders_build_once(tmp_path: Path) -> None:
    (tmp_path / "kernel.asc").write_text(SOURCE)
    environment = {**os.environ, "ASCEND_SIM_CACHE": str(tmp_path / "cache")}
    # The core library takes longest; it comes from the usual cache.
    core = toolchain.core_library().parent
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / core.name).symlink_to(core)
    words = [sys.executable, "-c", BUILD, str(tmp_path / "count"), str(tmp_path / "kernel.asc")]
    builders = [subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {builder.communicate()[0].strip() for builder in builders}
    assert [builder.returncode for builder in builders] == [0, 0, 0]
    assert len(paths) == 1
    assert (tmp_path / "count").read_text() == "xx"  # compiled and linked once
    assert not list((tmp_path / "cache").glob(".build-*"))


def test_env_prints_shell_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("export ") for line in lines)
    assert f"export BISHENG_HOME={toolchain.toolkit()}" in lines


RUN = """
import sys, numpy, ascend_sim
library = ascend_sim.compile(open(sys.argv[1]).read(), checks=sys.argv[2] == "on")
x, y = numpy.ones(128, numpy.float32), numpy.zeros(128, numpy.float32)
for _ in range(2):
    ascend_sim.launch(library, None, 2, x, y)
print(y[0], y[127])
"""


def ascend_sim_run(*words: object) -> subprocess.CompletedProcess[str]:
    return execute(sys.executable, "-m", "ascend_sim", "run", *words)


def test_run_with_a_report(tmp_path: Path) -> None:
    (tmp_path / "kernel.asc").write_text(SOURCE)
    command = [sys.executable, "-c", RUN, tmp_path / "kernel.asc", "on"]
    result = ascend_sim_run("--report", tmp_path / "report", "--", *command)
    assert result.returncode == 0, result.stderr
    assert "2.0 2.0" in result.stdout
    header, row = (
        line.split()
        for line in result.stdout.splitlines()
        if "kernel" in line and "report.json" not in line and "counts" not in line
    )
    assert header[0] == "kernel"
    assert row[:5] == ["doubled_kernel", "2", "2", "512", "512"]
    data = json.loads((tmp_path / "report" / "report.json").read_text())
    assert "not time" in data["note"]
    (kernel,) = data["kernels"]
    assert kernel["tensors"] == {"x": {"read": 512, "written": 0}, "y": {"read": 0, "written": 512}}
    assert kernel["dma"] == {"descriptors": 4, "mean_bytes": 256.0}
    assert kernel["vector_instructions"] == {"pset": 2, "vadd": 2, "vld": 2, "vst": 2}
    assert kernel["peak_bytes"] == {"UB": 256}
    picture = xml.etree.ElementTree.parse(tmp_path / "report" / "doubled_kernel.svg").getroot()
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"block 1, vector core 0, MTE3", "instructions of V", "vadd"} <= set(texts)
    assert any("not time" in text for text in texts)


@pytest.mark.parametrize("checks", ["on", "off"])
def test_run_hands_on_the_exit_code_and_the_switch(checks: str) -> None:
    code = f"import os, sys; sys.exit(7 if os.environ['ASCEND_SIM_CHECKS'] == {checks!r} else 1)"
    assert ascend_sim_run(f"--checks={checks}", "--", sys.executable, "-c", code).returncode == 7


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--checks=maybe", "--", "true"], 2, "invalid choice"),
        ([], 2, "a command is required"),
        (["--", "no-such-command-here"], 127, "command not found: no-such-command-here"),
    ],
)
def test_wrong_runs(words: list[str], code: int, message: str) -> None:
    result = ascend_sim_run(*words)
    assert result.returncode == code
    assert message in result.stderr


def test_a_killed_command_gives_the_shell_s_exit_code() -> None:
    assert ascend_sim_run("--", "sh", "-c", "kill -9 $$").returncode == 137
