"""TileLang's two execution backends on npu tensors, and checks that fail inside a kernel."""

from __future__ import annotations

import ctypes

import pytest
from runtime_kernels import add_twice, require_simulated_npu

require_simulated_npu()
import torch  # noqa: E402
import torch_npu  # noqa: E402, F401

N = 256
BACKENDS = ("cython", "tvm_ffi")


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernel_on_tensors_and_views(backend: str) -> None:
    kernel = add_twice(N, backend)
    storage = torch.zeros(3 * N, device="npu")
    x = torch.arange(float(2 * N), device="npu")
    kernel(storage[N : 2 * N], x[N:])
    expected = torch.zeros(3 * N)
    expected[N : 2 * N] = 2 * torch.arange(float(N), float(2 * N))
    assert torch.equal(storage.cpu(), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernel_runs_on_the_current_stream(backend: str) -> None:
    kernel, side = add_twice(N, backend), torch.npu.Stream()
    x, y = torch.ones(N, device="npu"), torch.zeros(N, device="npu")
    torch.npu.synchronize()
    with torch.npu.stream(side):
        x.mul_(4)  # a launch elsewhere would be a hazard
        kernel(y, x)
    side.synchronize()
    assert torch.equal(y.cpu(), torch.full((N,), 8.0))


def launch(kernel: object, y: torch.Tensor, x: torch.Tensor) -> tuple[int, bytes]:
    """Calls the compiled library directly, past the shape checks of the adapter."""
    library = kernel.adapter.lib  # type: ignore[attr-defined]
    library.get_last_error.restype = ctypes.c_char_p
    stream = torch.npu.current_stream().npu_stream
    status = library.call(*(ctypes.c_void_p(address) for address in (y.data_ptr(), x.data_ptr(), stream)))
    return status, library.get_last_error()


def test_access_outside_a_tensor_is_reported_at_the_call() -> None:
    y, x = torch.zeros(N, device="npu"), torch.zeros(N, device="npu")
    status, message = launch(add_twice(N, reach=64), y, x)
    assert status != 0
    text = message.decode()
    assert (
        "out-of-bounds" in text and "add_twice__kernel" in text and " of x " in text and "asc_copy_gm2ub_align" in text
    )
    # The error belongs to that call alone.
    assert launch(add_twice(N), y, x)[0] == 0
    torch.npu.synchronize()


def test_access_to_a_freed_tensor_is_reported() -> None:
    y, x = torch.zeros(N, device="npu"), torch.zeros(N, device="npu")
    gone = torch.zeros(N, device="npu")
    address = gone.data_ptr()
    del gone

    class Freed:
        def data_ptr(self) -> int:
            return address

    status, message = launch(add_twice(N), y, Freed())  # type: ignore[arg-type]
    assert status != 0 and b"out-of-bounds" in message
    assert launch(add_twice(N), y, x)[0] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_failed_check_is_a_python_exception_with_the_report(backend: str) -> None:
    kernel = add_twice(N, backend, reach=64)
    y, x = torch.zeros(N, device="npu"), torch.zeros(N + 64, device="npu")
    kernel(y, x)
    x.untyped_storage().resize_(4 * N)  # the tensor now claims more than its memory
    with pytest.raises(RuntimeError, match="out-of-bounds") as caught:
        kernel(y, x)
    assert "add_twice__kernel" in str(caught.value) and "asc_copy_gm2ub_align" in str(caught.value)
    add_twice(N, backend)(y, x[:N])
    torch.npu.synchronize()
