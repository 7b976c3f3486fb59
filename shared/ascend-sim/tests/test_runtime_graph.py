"""Capture and replay: the real npugraph_ex, with operators that launch TileLang kernels, and with planted faults."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from runtime_kernels import add_twice, require_simulated_npu

require_simulated_npu()
import torch  # noqa: E402
import torch_npu  # noqa: E402, F401

N = 256
library = torch.library.Library("ascend_sim_tests", "DEF")
side = torch.npu.Stream()


def operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the npu implementation of an operator; gives the operator."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        name = schema.split("(")[0]
        library.define(schema)
        library.impl(name, implementation, "PrivateUse1")
        library.impl(name, fake, "Meta")
        return getattr(torch.ops.ascend_sim_tests, name)

    return register


@operator("accumulate_(Tensor(a!) y, Tensor x) -> ()", lambda y, x: None)
def accumulate_(y: torch.Tensor, x: torch.Tensor) -> None:
    add_twice(N)(y, x)


@operator("twice(Tensor x) -> Tensor", torch.empty_like)
def twice(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    add_twice(N)(y, x)
    return y


@operator("mutates_input(Tensor x) -> Tensor", torch.empty_like)
def mutates_input(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    add_twice(N)(y, x)
    add_twice(N)(x, y)
    return y


@operator("synchronizes(Tensor x) -> Tensor", torch.empty_like)
def synchronizes(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    add_twice(N)(y, x)
    torch.npu.current_stream().synchronize()
    return y


@operator("reads_on_host(Tensor x) -> Tensor", torch.empty_like)
def reads_on_host(x: torch.Tensor) -> torch.Tensor:
    return x * (2 if x[0].item() >= 0 else 3)


@operator("other_stream(Tensor x) -> Tensor", torch.empty_like)
def other_stream(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    with torch.npu.stream(side):
        add_twice(N)(y, x)
    return y


@operator("outside_pool(Tensor x) -> Tensor", torch.empty_like)
def outside_pool(x: torch.Tensor) -> torch.Tensor:
    with torch.npu.stream(side):
        y = torch.empty_like(x)
    y.zero_()
    add_twice(N)(y, x)
    return y


@operator("driver_memory(Tensor x) -> Tensor", torch.empty_like)
def driver_memory(x: torch.Tensor) -> torch.Tensor:
    address = ctypes.c_void_p()
    ctypes.CDLL("libascendcl.so").aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(4 * N), 0)
    return x * 2


@operator("late_build(Tensor x) -> Tensor", torch.empty_like)
def late_build(x: torch.Tensor) -> torch.Tensor:
    add_twice(3 * N)  # no other test has this size
    return x * 2


@operator("late_load(Tensor x) -> Tensor", torch.empty_like)
def late_load(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(5 * N, device="npu")
    add_twice(5 * N, "tvm_ffi")(y, x.repeat(5))  # this backend loads at the first call
    return y[:N].clone()


def counts(call: Callable[[], Any]) -> tuple[Any, tuple[int, int, int]]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = call()
    names = [event.name for event in profile.events()]
    return result, tuple(names.count(name) for name in ("acl_graph_capture", "acl_graph_replay", "fx_run_eagerly"))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="npugraph_ex", fullgraph=True, dynamic=False)


@pytest.fixture(autouse=True)
def kernels_are_built() -> None:
    add_twice(N)
    torch.npu.synchronize()


def test_an_operator_is_captured_and_replayed() -> None:
    @compiled
    def step(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        accumulate_(y, x)
        return y * 10

    with torch.inference_mode():
        x, y = torch.arange(float(N), device="npu"), torch.zeros(N, device="npu")
        expected = torch.zeros(N)
        address = y.data_ptr()

        def check(values: torch.Tensor, graph: tuple[int, int, int]) -> None:
            expected.add_(values.cpu(), alpha=2)
            result, ranges = counts(lambda: step(y, values))
            assert ranges == graph
            assert torch.equal(y.cpu(), expected)
            assert torch.equal(result.cpu(), expected * 10)

        check(x, (1, 1, 0))
        x.fill_(3.0)
        check(x, (0, 1, 0))
        elsewhere = torch.full((N,), -1.5, device="npu")
        check(elsewhere, (0, 1, 0))
        assert torch.equal(elsewhere.cpu(), torch.full((N,), -1.5))
        assert y.data_ptr() == address
        y, expected = torch.ones(N, device="npu"), torch.ones(N)
        check(elsewhere, (1, 1, 0))
        check(elsewhere, (0, 1, 0))


def test_an_operator_that_allocates_is_captured() -> None:
    with torch.inference_mode():
        function = compiled(lambda x: twice(twice(x)) + 1)
        for value in (1.0, 2.0, -3.0):
            assert torch.equal(function(torch.full((N,), value, device="npu")).cpu(), torch.full((N,), 4 * value + 1))


@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        (synchronizes, "synchronising the host with a stream is not allowed while a stream is captured"),
        (reads_on_host, "synchronising the host with a stream is not allowed while a stream is captured"),
        (other_stream, "'add_twice__kernel' on a stream that takes no part in the capture"),
        (outside_pool, "was allocated during the capture, outside the graph's pool"),
        (driver_memory, "allocating device memory with aclrtMalloc is not allowed while a stream is captured"),
        (late_build, "loading a kernel library is not allowed while a stream is captured"),
        (late_load, "loading a device module is not allowed while a stream is captured"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_faulty_operator_fails_its_capture(faulty: Callable[..., Any], message: str) -> None:
    with torch.inference_mode():
        x = torch.ones(N, device="npu")
        with pytest.raises(RuntimeError, match="the capture failed") as caught:
            compiled(lambda x: faulty(x) + 1)(x)
        assert message in str(caught.value)
        # The device is as usable as before, and a correct operator is captured.
        assert torch.equal(compiled(lambda x: twice(x) + 1)(x).cpu(), torch.full((N,), 3.0))


def test_a_mutation_that_the_schema_does_not_declare_is_caught() -> None:
    x = torch.ones(N, device="npu")
    torch.library.opcheck(twice, (x,))
    torch.library.opcheck(accumulate_, (torch.zeros(N, device="npu"), x))
    with pytest.raises(Exception, match="mutat"):
        torch.library.opcheck(mutates_input, (x,), test_utils="test_schema")


def captured(work: Callable[[], Any]) -> Any:
    graph, stream = torch.npu.NPUGraph(), torch.npu.Stream()
    stream.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(stream):
        graph.capture_begin()
        try:
            work()
        finally:
            graph.capture_end()
    torch.npu.current_stream().wait_stream(stream)
    return graph


def test_a_capture_records_and_does_not_run() -> None:
    x = torch.ones(N, device="npu")
    graph = captured(lambda: x.mul_(3))
    assert x[0].item() == 1
    graph.replay()
    graph.replay()
    assert x[0].item() == 9


def test_replay_after_a_tensor_was_freed_is_reported() -> None:
    x, y = [torch.ones(N, device="npu")], torch.zeros(N, device="npu")
    graph = captured(lambda: add_twice(N)(y, x[0]))
    graph.replay()
    assert y[0].item() == 2
    x.clear()
    with pytest.raises(RuntimeError, match=r"replay of graph .* uses memory at 0x[0-9a-f]+ whose tensor was freed"):
        graph.replay()
    assert y[0].item() == 2


def test_replay_after_memory_went_back_to_the_device_is_reported() -> None:
    torch.npu.empty_cache()
    x = [torch.ones(16 << 20, device="npu")]  # a segment of its own
    graph = captured(lambda: x[0].mul_(2))
    graph.replay()
    x.clear()
    torch.npu.empty_cache()
    with pytest.raises(RuntimeError, match="given back to the device"):
        graph.replay()


def test_streams_that_join_a_capture_must_be_joined_again() -> None:
    x = torch.ones(N, device="npu")

    def fork(join: bool) -> None:
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with torch.npu.stream(side):
            x.add_(1)
        if join:
            main.wait_stream(side)
            x.mul_(2)

    graph = captured(lambda: fork(True))
    graph.replay()
    assert x[0].item() == 4
    with pytest.raises(RuntimeError, match="the first stream does not wait for its work"):
        captured(lambda: fork(False))


def test_replay_is_ordered_with_its_stream() -> None:
    x = torch.zeros(N, device="npu")
    graph = captured(lambda: x.add_(1))
    for _ in range(3):
        x.mul_(2)
        graph.replay()
    assert x[0].item() == 7
