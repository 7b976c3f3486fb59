"""Streams: deferred execution, hazards between streams, and errors that surface at a synchronisation."""

from __future__ import annotations

import pytest
from runtime_kernels import require_simulated_npu, run_python

require_simulated_npu()
import torch  # noqa: E402
import torch_npu  # noqa: E402, F401

HAZARD = "hazard between streams"


def hazards(function: object) -> str:
    """The report of the hazard that a function runs into, or an empty string."""
    try:
        function()  # type: ignore[operator]
        torch.npu.synchronize()
    except RuntimeError as error:
        assert HAZARD in str(error)
        return str(error)
    finally:
        torch.npu.synchronize()
    return ""


def test_write_that_nothing_orders_after_a_read() -> None:
    side, x = torch.npu.Stream(), torch.zeros(64, device="npu")
    torch.npu.synchronize()

    def work() -> None:
        x.add(1)
        with torch.npu.stream(side):
            x.mul_(2)

    report = hazards(work)
    assert (
        "'aclnnInplaceMuls' on stream" in report and "writes 256 bytes" in report and "'aclnnAdds' on stream" in report
    )


def test_read_that_nothing_orders_after_a_write() -> None:
    side, x = torch.npu.Stream(), torch.zeros(64, device="npu")
    torch.npu.synchronize()

    def work() -> None:
        x.mul_(2)
        with torch.npu.stream(side):
            x.sum()

    assert "reads 256 bytes" in hazards(work)


@pytest.mark.parametrize("order", ["event", "wait_stream", "synchronize", "event synchronize"])
def test_ordered_streams_are_no_hazard(order: str) -> None:
    side, x = torch.npu.Stream(), torch.zeros(64, device="npu")
    torch.npu.synchronize()

    def work() -> None:
        x.add_(1)
        if order == "event":
            torch.npu.current_stream().record_event().wait(side)
        elif order == "wait_stream":
            side.wait_stream(torch.npu.current_stream())
        elif order == "synchronize":
            torch.npu.current_stream().synchronize()
        else:
            torch.npu.current_stream().record_event().synchronize()
        with torch.npu.stream(side):
            x.mul_(2)
        torch.npu.current_stream().wait_stream(side)
        x.add_(1)

    assert hazards(work) == ""
    assert x[0].item() == 3


def test_disjoint_parts_and_shared_reads_are_no_hazard() -> None:
    side, x = torch.npu.Stream(), torch.zeros(4, 64, device="npu")
    torch.npu.synchronize()

    def work() -> None:
        x[:, :32].add_(1)
        with torch.npu.stream(side):
            x[:, 32:].add_(2)

    assert hazards(work) == ""

    def read() -> None:
        x.sum()
        with torch.npu.stream(side):
            x.amax()

    assert hazards(read) == ""


def test_a_kernel_on_another_stream_is_a_hazard() -> None:
    from runtime_kernels import add_twice

    side = torch.npu.Stream()
    kernel = add_twice(256)
    x, y = torch.ones(256, device="npu"), torch.zeros(256, device="npu")
    torch.npu.synchronize()

    def forgets_the_stream() -> None:
        x.mul_(3)
        with torch.npu.stream(side):
            kernel(y, x)

    report = hazards(forgets_the_stream)
    assert "'add_twice__kernel' on stream" in report and "reads 1024 bytes" in report


DEFERRED = """
    import ctypes, torch, torch_npu
    from runtime_kernels import add_twice
    kernel, outside = add_twice(256), add_twice(256, reach=64)
    side = torch.npu.Stream()
    x, y = torch.ones(256, device="npu"), torch.zeros(256, device="npu")
    torch.npu.synchronize()
    peek = lambda t: (ctypes.c_float).from_address(t.data_ptr()).value

    kernel(y, x)
    print("before", peek(y))
    torch.npu.current_stream().synchronize()
    print("after", peek(y))

    y.add_(1)
    event = torch.npu.Event()
    event.record()
    polls = 0
    while not event.query():
        polls += 1
    print("polled", peek(y), polls > 0)

    x.mul_(5)
    with torch.npu.stream(side):
        kernel(y, x)  # knows nothing of the multiplication before it
    try:
        torch.npu.synchronize()
    except RuntimeError as error:
        print("hazard" if "hazard between streams" in str(error) else error)
    torch.npu.synchronize()

    from torch_npu._C import _npu_getCurrentRawStream as raw
    small = torch.ones(256, device="npu")
    library = outside.adapter.lib
    assert library.call(ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(small.data_ptr()), ctypes.c_void_p(raw(0))) == 0
    print("launched")
    try:
        y.cpu()
    except RuntimeError as error:
        print("out-of-bounds" in str(error) and "add_twice__kernel" in str(error), "reported")
    print("goes on", (torch.ones(2, device="npu") + 1).tolist())

    pinned = torch.arange(4.0).pin_memory()
    z = pinned.to("npu", non_blocking=True)
    pageable = torch.arange(4.0)
    w = pageable.to("npu", non_blocking=True)
    pageable.fill_(9.0)
    print("copied", z.tolist(), w.tolist())
"""


def test_deferred_execution() -> None:
    result = run_python(DEFERRED, ASCEND_SIM_ASYNC="1")
    assert result.returncode == 0, result.stderr
    for line in (
        "before 0.0",
        "after 2.0",
        "polled 3.0 True",
        "hazard",
        "launched",
        "True reported",
        "goes on [2.0, 2.0]",
    ):
        assert line in result.stdout.splitlines(), (line, result.stdout, result.stderr)
    assert "copied [0.0, 1.0, 2.0, 3.0] [0.0, 1.0, 2.0, 3.0]" in result.stdout


def test_deferred_graphs_give_the_same() -> None:
    result = run_python(
        """
        import torch, torch_npu
        with torch.inference_mode():
            f = torch.compile(lambda y, x: (y.add_(x), (x @ x.t()).sum())[1] + y.sum(), backend="npugraph_ex", fullgraph=True, dynamic=False)
            x, y = torch.ones(8, 8, device="npu"), torch.zeros(8, 8, device="npu")
            print([f(y, x * k).item() for k in (1, 2, 3)])
        """,
        ASCEND_SIM_ASYNC="1",
    )
    assert "[576.0, 2240.0, 4992.0]" in result.stdout, result.stderr
