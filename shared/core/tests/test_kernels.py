"""Building kernels: caches, threads and processes, messages, missing tools, floating-point state."""

import concurrent.futures
import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_under_test import BUILDS, scale

from cann_ops_tilelang.core import Kernel, kernel
from cann_ops_tilelang.core.kernels import ascend_generator

SCRIPT = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from cann_ops_tilelang.core.kernels import ensure_cache_directory
ensure_cache_directory()
from kernel_under_test import scale
x = torch.ones(10)
scale(int(sys.argv[1]))(x.data_ptr(), 10, 10, 1)
assert x.tolist() == [float(sys.argv[1])] * 10
"""


def run_script(factor: int, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(factor)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_kernels_are_built_once_per_constants() -> None:
    BUILDS.clear()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        built = list(pool.map(lambda _: scale(3), range(16)))
    assert len({id(launch) for launch in built}) == 1
    assert scale(4) is not built[0]
    assert BUILDS == [3, 4]


def test_launch_runs_every_task_for_every_grain() -> None:
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            for tasks in (0, 1, 2, 7, 1000):
                for grain in (0, 1, 3, 10_000):
                    x = torch.ones(1000)
                    scale(3)(x.data_ptr(), 1000, tasks, grain)
                    assert x[:tasks].eq(3).all() and x[tasks:].eq(1).all()
    finally:
        torch.set_num_threads(threads)


def test_more_than_one_thread_is_used_and_the_setting_respected() -> None:
    """Counted by the threads that appear in a fresh process."""
    code = f"""
import sys, os; sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from kernel_under_test import scale
x = torch.ones(100)
run = scale(3)
torch.set_num_threads(int(sys.argv[1]))
before = len(os.listdir("/proc/self/task"))
run(x.data_ptr(), 100, 100, 1)
print(len(os.listdir("/proc/self/task")) - before)
"""
    started = {}
    for count in (1, 3):
        result = subprocess.run([sys.executable, "-c", code, str(count)], capture_output=True, text=True, check=True)
        started[count] = int(result.stdout)
    assert started[1] == 0
    assert started[3] >= 2


def test_a_cpu_kernel_must_take_a_range() -> None:
    @kernel("cpu")
    def no_range() -> Any:
        import tilelang.cpu.language as T

        @T.prim_func
        def no_range(x: T.Tensor((4,), "float32")):
            with T.Kernel(1):
                x[0] = 1.0

        return no_range

    with pytest.raises(TypeError, match="begin"):
        no_range()


def test_nothing_on_stdout_and_messages_in_logging(caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    with caplog.at_level("INFO"):
        scale(1000 + os.getpid() % 1000)
    assert any("TileLang" in record.message for record in caplog.records)
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == ""


def test_processes_share_a_cold_cache(tmp_path: Path) -> None:
    """Four processes build the same kernel at once; a fifth finds it and does not compile."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: run_script(5, TILELANG_CACHE_DIR=str(tmp_path)), range(4)))
    for result in results:
        assert result.returncode == 0, result.stderr
        assert result.stdout == ""
    result = run_script(5, TILELANG_CACHE_DIR=str(tmp_path), CXX="/bin/false")
    assert result.returncode == 0, result.stderr
    assert run_script(8, TILELANG_CACHE_DIR=str(tmp_path), CXX="/bin/false").returncode != 0


@pytest.mark.parametrize("directory", ["/proc/cannot", "/dev/full", "/sys"])
def test_an_unusable_cache_directory_is_no_error(directory: str) -> None:
    result = run_script(6, TILELANG_CACHE_DIR=directory)
    assert result.returncode == 0, result.stderr
    assert "cache cannot be used" in result.stderr


def test_a_missing_compiler_says_what_to_install(tmp_path: Path) -> None:
    result = run_script(7, TILELANG_CACHE_DIR=str(tmp_path), PATH="/nonexistent")
    assert result.returncode == 1
    assert "RuntimeError: building a CPU kernel needs a C++ compiler" in result.stderr
    assert "apt-get install g++" in result.stderr
    result = run_script(7, TILELANG_CACHE_DIR=str(tmp_path), CXX="/nonexistent/g++")
    assert "looked for CXX=/nonexistent/g++" in result.stderr


def test_the_floating_point_state_stays(tmp_path: Path) -> None:
    """A library linked with -ffast-math would flush subnormal numbers to zero in the whole process."""
    subnormal = torch.tensor([1e-40])
    scale(3)
    assert (subnormal * 0.5).item() > 0
    result: list[float] = []
    thread = threading.Thread(target=lambda: result.append((subnormal * 0.5).item()))
    thread.start()
    thread.join()
    assert result[0] > 0


def test_source_and_library() -> None:
    assert "scale_kernel" in scale.source(3)
    assert ctypes.CDLL(scale.library_path(3)).launch
    assert isinstance(scale, Kernel) and scale.__name__ == "scale"


def test_the_ascend_code_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted, generator in [(None, "ascend"), ("auto", "ascend"), ("ascend", "ascend"), ("asc", "asc")]:
        if wanted is None:
            monkeypatch.delenv("TILELANG_DEFAULT_TARGET", raising=False)
        else:
            monkeypatch.setenv("TILELANG_DEFAULT_TARGET", wanted)
        assert ascend_generator() == generator
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "pto")
    with pytest.raises(RuntimeError, match="TILELANG_DEFAULT_TARGET=pto asks for a code generator that tilelang"):
        ascend_generator()
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda")
    with pytest.raises(RuntimeError, match="must be auto, ascend, asc or pto for an NPU kernel, got 'cuda'"):
        ascend_generator()
