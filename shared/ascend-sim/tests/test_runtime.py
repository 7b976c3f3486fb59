"""The runtime under the real torch_npu: device, memory, streams, events, errors."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import inspect
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from runtime_kernels import require_simulated_npu, run_python

require_simulated_npu()
import torch  # noqa: E402
import torch_npu  # noqa: E402

API_NOT_SUPPORTED = 200001


@pytest.fixture(scope="module")
def acl() -> ctypes.CDLL:
    library = ctypes.CDLL("libascendcl.so")
    library.aclGetRecentErrMsg.restype = ctypes.c_char_p
    return library


def test_device_is_an_ascend_950() -> None:
    assert torch.npu.is_available()
    assert torch.npu.device_count() == 1
    properties = torch.npu.get_device_properties(0)
    assert properties.name.startswith("Ascend950")
    assert (properties.cube_core_num, properties.vector_core_num) == (28, 56)


def test_settings_come_from_the_environment() -> None:
    result = run_python(
        """
        import torch, torch_npu
        p = torch.npu.get_device_properties(0)
        print("cores", p.cube_core_num, p.vector_core_num, torch.npu.mem_get_info()[1])
        try:
            torch.empty(64 << 20, dtype=torch.uint8, device="npu")
        except torch.OutOfMemoryError as error:
            print("OOM", type(error).__name__)
        print("after", torch.ones(4, device="npu").sum().item())
        """,
        ASCEND_SIM_CUBE_CORES="3",
        ASCEND_SIM_VECTOR_CORES="6",
        ASCEND_SIM_MEMORY="48M",
    )
    assert f"cores 3 6 {48 << 20}" in result.stdout, result.stderr
    assert "OOM OutOfMemoryError" in result.stdout
    assert "after 4.0" in result.stdout


def test_wrong_setting_is_an_error_that_names_it() -> None:
    result = run_python("import torch, torch_npu; torch.empty(1, device='npu')", ASCEND_SIM_MEMORY="plenty")
    assert result.returncode != 0
    assert "ASCEND_SIM_MEMORY" in result.stderr and "plenty" in result.stderr


def test_torch_npu_is_the_wheel_and_npugraph_ex_is_not_patched() -> None:
    distribution = metadata.distribution("torch_npu")
    assert distribution.version == "2.13.0"
    files = [file for file in distribution.files or [] if file.suffix == ".py" and "npugraph_ex" in file.parts]
    assert len(files) > 50
    for file in files:
        digest = hashlib.sha256(Path(file.locate()).read_bytes()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value, file
    # What runs is what is in those files: every function of every loaded module was defined by one of them.
    torch.compile(lambda x: x + 1, backend="npugraph_ex", fullgraph=True, dynamic=False)(torch.ones(4, device="npu"))
    root = str(Path(torch_npu.__file__).parent)
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "npugraph_ex"}
    assert len(modules) > 20
    checked = 0
    for name, module in modules.items():
        classes = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == name]
        for owner in (module, *classes):
            for attribute, value in list(vars(owner).items()):
                function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else value
                code = getattr(function, "__code__", None)
                if code is None or getattr(value, "__module__", None) != name or code.co_filename.startswith("<"):
                    continue
                assert code.co_filename.startswith(root), f"{name}.{attribute} comes from {code.co_filename}"
                checked += 1
    assert checked > 200


def test_the_simulator_is_no_part_of_the_process() -> None:
    """torch_npu finds it by environment variables alone."""
    code = "import sys, torch; assert torch.npu.is_available(); assert 'ascend_sim' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool],
)
def test_round_trip_of_a_dtype(dtype: torch.dtype) -> None:
    host = (torch.arange(24) % 7).reshape(4, 6).to(dtype)
    device = host.to("npu")
    assert device.device.type == "npu" and device.dtype == dtype
    assert torch.equal(device.cpu(), host)
    assert torch.equal(device.t()[1:, ::2].cpu(), host.t()[1:, ::2])


def test_copies_cast_and_stride() -> None:
    source = torch.randn(5, 8)
    target = torch.full((8, 10), 7.0, dtype=torch.bfloat16, device="npu")
    target[:, ::2].copy_(source.npu().t())
    expected = torch.full((8, 10), 7.0, dtype=torch.bfloat16)
    expected[:, ::2].copy_(source.t())
    assert torch.equal(target.cpu(), expected)


def test_fresh_memory_is_not_zero() -> None:
    torch.npu.empty_cache()
    assert torch.empty(8 << 20, device="npu").isnan().all()


def test_unsupported_function_fails_with_its_name(acl: ctypes.CDLL) -> None:
    assert acl.aclrtMapMem(None, 0, 0, None, 0) == API_NOT_SUPPORTED
    assert acl.aclGetRecentErrMsg() == b"ascend-sim: aclrtMapMem is not simulated"


def test_function_outside_the_table_is_named() -> None:
    with pytest.raises(RuntimeError, match="aclnnErfinv"):
        torch.erfinv(torch.zeros(3, device="npu"))


def test_wrong_addresses_and_handles_are_errors(acl: ctypes.CDLL) -> None:
    assert acl.aclrtFree(ctypes.c_void_p(4096)) != 0
    assert b"aclrtMalloc" in acl.aclGetRecentErrMsg()
    assert acl.aclrtSynchronizeStream(ctypes.c_void_p(4096)) != 0
    assert b"never created" in acl.aclGetRecentErrMsg()
    assert acl.aclrtSetDevice(1) != 0
    assert b"device 1 does not exist" in acl.aclGetRecentErrMsg()
    buffer = ctypes.create_string_buffer(8)
    assert acl.aclrtMemcpy(buffer, ctypes.c_size_t(8), buffer, ctypes.c_size_t(9), 0) != 0
    assert b"9 bytes do not fit" in acl.aclGetRecentErrMsg()


def test_events_order_streams_and_measure() -> None:
    side = torch.npu.Stream()
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    x = torch.zeros(1000, device="npu")
    start.record()
    x.add_(1)
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        x.mul_(3)
        end.record()
    end.synchronize()
    assert end.query() and side.query()
    assert start.elapsed_time(end) >= 0
    assert torch.equal(x.cpu(), torch.full((1000,), 3.0))


def test_host_functions_run_in_stream_order(acl: ctypes.CDLL) -> None:
    seen: list[float] = []
    x = torch.zeros(4, device="npu")
    x.add_(5)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(1.0))
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    assert acl.aclrtLaunchHostFunc(stream, callback, None) == 0
    torch.npu.synchronize()
    assert seen == [1.0]


def test_a_process_that_ends_in_a_capture_leaves_nothing_behind(tmp_path: Path) -> None:
    places = [Path(os.environ.get("TMPDIR", "/tmp")), Path("/dev/shm"), tmp_path]
    before = [set(place.iterdir()) for place in places]
    result = run_python(
        """
        import os, torch, torch_npu
        stream, graph = torch.npu.Stream(), torch.npu.NPUGraph()
        x = torch.ones(8, device="npu")
        torch.npu.synchronize()
        with torch.npu.stream(stream):
            graph.capture_begin()
            y = x + 1
            print("capturing", flush=True)
            os._exit(7)
        """,
        TMPDIR=str(tmp_path),
    )
    assert result.returncode == 7 and "capturing" in result.stdout, result.stderr
    mine = [path for place, names in zip(places, before) for path in set(place.iterdir()) - names]
    assert not [path for path in mine if "asim" in path.name or "ascend" in path.name or path.parent == tmp_path]
