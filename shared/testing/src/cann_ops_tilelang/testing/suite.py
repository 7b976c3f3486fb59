"""The conformance tests every operator passes. An operator's test module subclasses ``OperatorTests``."""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from cann_ops_tilelang.core import Operator

from .calls import Call, copy_to
from .faults import single_faults
from .graphs import Evidence, count_nodes, graph_evidence
from .guards import Guarded, unchanged
from .numerics import bit_equal

# Small numbers hit neighbouring images, large ones overflow.
INDEX_VALUES = st.one_of(
    st.sampled_from([-(2**31), -(2**31) + 1, -1, 0, 1, 2**30, 2**31 - 1]),
    st.integers(-60, 120),
    st.integers(-(2**31), 2**31 - 1),
)

BACKENDS = {"cpu": ("eager", "aot_eager", "inductor"), "npu": ("npugraph_ex",)}


class OperatorTests:
    """Shared tests. Subclasses set ``operator``, ``reference`` and ``calls``, and may override the other two.

    ``calls`` returns valid calls on CPU of different sizes; the first is small, with more than one element per tensor.
    ``other`` returns a call like the first whose values differ, those of index tensors too.
    """

    operator: Callable[..., Any]
    reference: Callable[..., Any]

    def calls(self) -> list[Call]:
        raise NotImplementedError

    def other(self) -> Call:
        return self.calls()[0]

    def assert_close(self, actual: Tensor, expected: Tensor) -> None:
        """Compare an output or a mutated argument with the reference's. Bit for bit unless overridden."""
        assert bit_equal(actual, expected)

    # -- what the subclass gave, in convenient form --------------------------------------------------------------

    @property
    def op(self) -> Operator:
        operator: Operator = type(self).operator.operator  # type: ignore[attr-defined]
        return operator

    @property
    def overload(self) -> Any:
        return getattr(torch.ops.cann_ops_tilelang, self.op.name).default

    def valid_calls(self) -> list[Call]:
        """``calls`` with the same values every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.calls()

    def update(self, *calls: dict[str, Any]) -> None:
        """Write the values of ``other`` into the read-only tensors of calls like the first, in place."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            other = self.named(self.other())
        for name in [spec.name for spec in self.op.contract.tensors if spec.role == "read"]:
            for arguments in calls:
                if arguments[name] is not None:
                    assert not torch.equal(arguments[name].cpu(), other[name]), f"other: {name} has the same values"
                    arguments[name].copy_(other[name])

    def call(self, device: str, index: int = 0) -> Call:
        return self.valid_calls()[index].to(device)

    def named(self, call: Call) -> dict[str, Any]:
        """The call's arguments by name, defaults included."""
        bound = self.op.contract.signature.bind(*call.args, **call.kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def mutated(self, call: Call) -> list[Tensor]:
        return [self.named(call)[name] for name in self.op.contract.mutated]

    def read(self, call: Call) -> list[Tensor]:
        named = self.named(call)
        specs = [spec for spec in self.op.contract.tensors if spec.role == "read"]
        return [named[spec.name] for spec in specs if named[spec.name] is not None]

    def effects(self, function: Callable[..., Any], call: Call) -> list[Tensor]:
        """Run a call; its output and mutated arguments."""
        result = call(function)
        return ([result] if self.op.returns_tensor else []) + self.mutated(call)

    def assert_same_effects(self, actual: list[Tensor], expected: list[Tensor]) -> None:
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected):
            assert a.dtype == e.dtype and a.shape == e.shape
            self.assert_close(a.cpu(), e.cpu())

    def assert_bit_equal(self, actual: list[Tensor], expected: list[Tensor]) -> None:
        assert len(actual) == len(expected)
        assert all(bit_equal(a, e) for a, e in zip(actual, expected))

    # -- values --------------------------------------------------------------------------------------------------

    @pytest.mark.level(0)
    def test_matches_the_reference(self, device: str) -> None:
        for call in self.valid_calls():
            expected = self.effects(type(self).reference, call.clone())
            self.assert_same_effects(self.effects(type(self).operator, call.to(device)), expected)

    def test_repeated_calls_follow_the_reference(self, device: str) -> None:
        """Several calls: read-only inputs updated in place, at new addresses, then mutated ones at new addresses."""
        reference, call = self.valid_calls()[0].clone(), self.call(device)
        mine, other = self.named(call), self.named(reference)
        reads = [spec.name for spec in self.op.contract.tensors if spec.role == "read"]
        for step in range(4):
            if step == 1:
                self.update(mine, other)
            if step == 2:
                mine.update({name: copy_to(mine[name], device) for name in reads if isinstance(mine[name], Tensor)})
            if step == 3:
                mine.update({name: copy_to(mine[name], device) for name in self.op.contract.mutated})
            self.assert_same_effects(
                self.effects(type(self).operator, self._rebuilt(mine)),
                self.effects(type(self).reference, self._rebuilt(other)),
            )

    def _rebuilt(self, named: dict[str, Any]) -> Call:
        bound = self.op.contract.signature.bind(**named)
        return Call(bound.args, dict(bound.kwargs))

    def test_writes_nothing_but_the_declared_elements(self, device: str) -> None:
        """Views with a storage offset inside poisoned buffers: surroundings and read-only inputs keep every bit."""
        for call in self.valid_calls():
            expected = self.effects(type(self).operator, call.to(device))
            guards: list[Guarded] = []

            def guarded(tensor: Tensor, guards: list[Guarded] = guards) -> Tensor:
                guards.append(Guarded(copy_to(tensor, device)))
                return guards[-1].tensor

            inside = call.map(guarded)
            before = [tensor.cpu().clone() for tensor in self.read(inside)]
            self.assert_bit_equal(self.effects(type(self).operator, inside), expected)
            for guard in guards:
                guard.check()
            self.assert_bit_equal(self.read(inside), before)

    def test_outputs_are_new_and_contiguous(self, device: str) -> None:
        call = self.call(device)
        result = call(type(self).operator)
        if not self.op.returns_tensor:
            assert result is None
            return
        storages = {tensor.untyped_storage().data_ptr() for tensor in call.tensors()}
        assert result.is_contiguous() and result.device.type == device
        assert result.untyped_storage().data_ptr() not in storages

    @pytest.mark.on("cpu")
    def test_lazily_negated_inputs_are_resolved(self) -> None:
        """Their memory holds the values before negation."""
        call = self.valid_calls()[-1]
        named = self.named(call)
        inputs = {
            id(named[spec.name])
            for spec in self.op.contract.tensors
            if spec.role == "read" and spec.dtypes[0].is_floating_point
        }
        negated = call.map(lambda value: torch._neg_view(-value) if id(value) in inputs else value.clone())
        expected = self.effects(type(self).operator, call.clone())
        actual = self.effects(type(self).operator, negated)
        self.assert_bit_equal(actual, expected)

    @pytest.mark.on("cpu")
    def test_lazily_zero_tensors_are_refused(self) -> None:
        """They have no memory: neither contiguous rows nor anything to write."""
        call = self.valid_calls()[-1]

        def with_zero(chosen: Tensor) -> Call:
            zero = torch._efficientzerotensor(chosen.shape, dtype=chosen.dtype)
            return call.map(lambda value: zero if value is chosen else value.clone())

        for chosen in call.tensors():
            if chosen.dtype.is_floating_point and chosen.numel() > 1:
                with pytest.raises((ValueError, RuntimeError), match=r"contiguous|immutable|overlap"):
                    with_zero(chosen)(type(self).operator)

    @pytest.mark.on("cpu")
    def test_same_bits_for_every_thread_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the work cut as finely as it can be, however little there is."""
        kernels = import_module(f"{self.op.package}.kernels.cpu")
        if hasattr(kernels, "build"):
            build = kernels.build
            # The last argument of a kernel is the least number of tasks worth a thread.
            monkeypatch.setattr(kernels, "build", lambda *constants: lambda *args: build(*constants)(*args[:-1], 1))
        threads = torch.get_num_threads()
        try:
            for call in self.valid_calls():
                results = []
                for count in (1, 2, 3, 8):
                    torch.set_num_threads(count)
                    results.append(self.effects(type(self).operator, call.clone()))
                for other in results[1:]:
                    self.assert_bit_equal(other, results[0])
        finally:
            torch.set_num_threads(threads)

    @pytest.mark.on("cpu")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_runs_in_a_forked_child(self) -> None:
        """After a parallel region in the parent, which libgomp does not survive."""
        call = self.valid_calls()[-1]
        expected = self.effects(type(self).operator, call.clone())
        context = multiprocessing.get_context("fork")
        receive, send = context.Pipe(duplex=False)

        def child() -> None:
            effects = self.effects(type(self).operator, call)
            torch.set_num_threads(1)  # PyTorch's own parallel regions hang here
            send.send(all(bit_equal(a, e) for a, e in zip(effects, expected)))

        process = context.Process(target=child, daemon=True)
        process.start()
        try:
            assert receive.poll(60), "the child did not finish"
            assert receive.recv()
        finally:
            process.kill()
            process.join()

    # -- errors --------------------------------------------------------------------------------------------------

    @pytest.mark.level(0)
    def test_rejects_every_single_fault(self, device: str) -> None:
        """In eager mode: the right error, naming operator and argument, with nothing written."""
        faults = list(single_faults(type(self).operator, self.call(device)))
        assert len(faults) > 10
        for fault in faults:
            with unchanged(*fault.call.tensors()):
                message = _raised(fault.call, type(self).operator, fault.error, fault.label)
            assert message.startswith(f"{self.op.name}: "), f"{fault.label}: {message}"
            assert any(name in message for name in fault.names), f"{fault.label}: {message}"

    def test_rejects_the_same_under_fake_tensors(self, device: str) -> None:
        for fault in single_faults(type(self).operator, self.call(device)):
            expected = _raised(fault.call, type(self).operator, fault.error, fault.label)
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fake = fault.call.map(mode.from_tensor)
                assert _raised(fake, type(self).operator, fault.error, f"fake: {fault.label}") == expected

    def test_rejects_the_same_while_compiling(self, device: str) -> None:
        for fault in single_faults(type(self).operator, self.call(device)):
            expected = _raised(fault.call, type(self).operator, fault.error, fault.label)
            torch._dynamo.reset()
            compiled = torch.compile(type(self).operator, backend="eager", fullgraph=True, dynamic=False)
            with unchanged(*fault.call.tensors()):
                message = _raised(fault.call, compiled, Exception, f"compiled: {fault.label}")
            if any(tensor.is_sparse for tensor in fault.call.tensors()):
                expected = "does not support sparse"  # Dynamo refuses sparse tensors before it sees the operator
            assert expected in message, f"{fault.label}: {message}"

    @pytest.mark.on("cpu")
    def test_rejects_an_unsupported_device(self) -> None:
        with FakeTensorMode(allow_non_fake_inputs=True):
            call = self.valid_calls()[0].map(
                lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda")
            )
            message = _raised(call, type(self).operator, ValueError, "cuda")
        assert message.startswith(f"{self.op.name}: ")
        assert "cpu, npu, meta" in message and "cuda" in message

    def test_a_backward_pass_raises_and_names_the_operator(self, device: str) -> None:
        call = self.call(device)
        named = self.named(call)
        differentiable = [n for n, v in named.items() if isinstance(v, Tensor) and v.is_floating_point()]
        if not differentiable:
            result = call(type(self).operator)
            assert not result.requires_grad
            return
        for name in differentiable:
            arguments = dict(self.named(self.call(device)))
            leaf = arguments[name].detach().clone().requires_grad_()
            arguments[name] = leaf * 1
            effects = self.effects(type(self).operator, self._rebuilt(arguments))
            with pytest.raises(RuntimeError, match=self.op.name):
                torch.stack([effect.sum() for effect in effects]).sum().backward()

    def test_a_leaf_that_requires_grad_is_not_written(self, device: str) -> None:
        for name in self.op.contract.mutated:
            arguments = self.named(self.call(device))
            arguments[name] = arguments[name].detach().clone().requires_grad_()
            tensors = [v for v in arguments.values() if isinstance(v, Tensor)]
            with unchanged(*tensors), pytest.raises(RuntimeError, match=f"{self.op.name}: {name}"):
                self._rebuilt(arguments)(type(self).operator)
            with torch.no_grad():
                self._rebuilt(arguments)(type(self).operator)

    # -- PyTorch -------------------------------------------------------------------------------------------------

    @pytest.mark.level(0)
    def test_opcheck(self, device: str) -> None:
        call = self.call(device)
        torch.library.opcheck(self.overload, call.args, call.kwargs)

    def test_version_counters(self, device: str) -> None:
        """Eager and as a graph node: mutated arguments are bumped, the others are not."""
        for function in (type(self).operator, self.overload):
            call = self.call(device)
            versions = [tensor._version for tensor in self.read(call)]
            before = [tensor._version for tensor in self.mutated(call)]
            call(function)
            assert [tensor._version for tensor in self.read(call)] == versions
            assert all(tensor._version > old for tensor, old in zip(self.mutated(call), before))

    def test_inference_mode(self, device: str) -> None:
        expected = self.effects(type(self).operator, self.call(device))
        with torch.inference_mode():
            call = self.call(device)
            self.assert_bit_equal(self.effects(type(self).operator, call), expected)

    def test_meta_tensors(self) -> None:
        call = self.valid_calls()[0]
        result = call.to("meta")(type(self).operator)
        if self.op.returns_tensor:
            expected = call(type(self).operator)
            assert result.is_meta
            assert (result.shape, result.dtype, result.stride()) == (expected.shape, expected.dtype, expected.stride())

    @pytest.mark.parametrize("inference", [False, True], ids=["grad_mode", "inference_mode"])
    def test_compiled_equals_eager(self, device: str, inference: bool) -> None:
        for backend in BACKENDS[device]:
            torch._dynamo.reset()
            with torch.inference_mode(inference):
                compiled = torch.compile(type(self).operator, backend=backend, fullgraph=True, dynamic=False)
                for call in self.valid_calls()[:2]:
                    expected = self.effects(type(self).operator, call.to(device))
                    for _ in range(2):
                        self.assert_bit_equal(self.effects(compiled, call.to(device)), expected)

    def test_is_one_graph_node(self, device: str) -> None:
        call = self.call(device)
        assert count_nodes(type(self).operator, *call.args, **call.kwargs) == {self.op.name: 1}

    @pytest.mark.on("cpu")
    def test_dynamic_shapes(self) -> None:
        """One compiled function serves every size."""
        for backend in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            compiled = torch.compile(type(self).operator, backend=backend, fullgraph=True, dynamic=True)
            for call in self.valid_calls():
                expected = self.effects(type(self).operator, call.clone())
                self.assert_bit_equal(self.effects(compiled, call.clone()), expected)

    @pytest.mark.on("cpu")
    def test_export_round_trip(self) -> None:
        operator = type(self).operator

        class Module(torch.nn.Module):
            def forward(self, *args: Any, **kwargs: Any) -> Any:
                return operator(*args, **kwargs)

        call = self.valid_calls()[0]
        expected = self.effects(operator, call.clone())
        example = call.clone()
        file = io.BytesIO()
        torch.export.save(torch.export.export(Module(), example.args, example.kwargs), file)
        file.seek(0)
        loaded = torch.export.load(file).module()
        self.assert_bit_equal(self.effects(loaded, call.clone()), expected)

    def test_import_is_light(self) -> None:
        """Importing the operator imports no TileLang and starts no device."""
        package = self.op.package
        code = f"import sys, torch, {package}; assert 'tilelang' not in sys.modules, 'tilelang was imported'"
        code += "; npu = getattr(torch, 'npu', None); assert npu is None or not npu.is_initialized()"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)

    # -- wrong values on NPU --------------------------------------------------------------------------------------

    @pytest.mark.on("npu")
    def test_the_check_of_values_reads_npu_tensors(self) -> None:
        """It runs there on request alone."""
        if self.op.values is not None:
            for call in self.valid_calls():
                self.op.values(*self.named(call.to("npu")).values())

    @pytest.mark.on("npu")
    def test_wrong_index_values_never_leave_a_tensor(self) -> None:
        """Where the host cannot look at index tensors, no value in them causes an access outside a tensor.

        On a simulated device every such access is an error; the guards see writes next to the tensors.
        """
        specs = [spec for spec in self.op.contract.tensors if spec.dtypes[0] in (torch.int32, torch.int64)]
        call = self.valid_calls()[0]
        names = [spec.name for spec in specs if self.named(call)[spec.name] is not None]
        if not names:
            return

        @settings(max_examples=300)
        @given(st.data())
        def corrupt(data: st.DataObject) -> None:
            named = self.named(call.clone())
            for _ in range(data.draw(st.integers(1, 4))):
                flat = named[data.draw(st.sampled_from(names))].view(-1)
                flat[data.draw(st.integers(0, flat.numel() - 1))] = data.draw(INDEX_VALUES)
            guards: list[Guarded] = []

            def guarded(tensor: Tensor) -> Tensor:
                guards.append(Guarded(copy_to(tensor, "npu")))
                return guards[-1].tensor

            inside = self._rebuilt(named).map(guarded)
            before = [tensor.cpu().clone() for tensor in self.read(inside)]
            try:
                self.effects(type(self).operator, inside)
            except RuntimeError as error:
                # Spans that overlap are written in either order; that is a race, inside the tensor all the same.
                if "code: hazard" not in str(error) or "of GM" not in str(error):
                    raise
            for guard in guards:
                guard.check()
            self.assert_bit_equal(self.read(inside), before)

        corrupt()

    # -- ACL graphs ----------------------------------------------------------------------------------------------

    @pytest.mark.on("npu")
    def test_capture_and_replay_counts(self) -> None:
        """Captured once, replayed for new values and new addresses of inputs, captured again for a new mutated one."""
        torch._dynamo.reset()
        with torch.inference_mode():
            compiled = torch.compile(type(self).operator, backend="npugraph_ex", fullgraph=True, dynamic=False)
            arguments = self.named(self.call("npu"))
            reference = self.named(self.valid_calls()[0].clone())
            inputs = [spec.name for spec in self.op.contract.tensors if spec.role == "read"]
            reads = [name for name in inputs if arguments[name] is not None]

            def step(expected: Evidence) -> None:
                results: list[Tensor] = []
                evidence = graph_evidence(lambda: results.extend(self.effects(compiled, self._rebuilt(arguments))))
                assert evidence == expected
                self.assert_same_effects(results, self.effects(type(self).reference, self._rebuilt(reference)))

            step(Evidence(1, 1, 0))
            self.update(arguments, reference)
            step(Evidence(0, 1, 0))
            arguments.update({name: copy_to(arguments[name], "npu") for name in reads})
            step(Evidence(0, 1, 0))
            if self.op.contract.mutated:
                arguments.update({name: copy_to(arguments[name], "npu") for name in self.op.contract.mutated})
                step(Evidence(1, 1, 0))


def _raised(call: Call, function: Callable[..., Any], error: type[Exception], label: str) -> str:
    try:
        call(function)
    except error as raised:
        return str(raised)
    except Exception as raised:
        pytest.fail(f"{label}: expected {error.__name__}, got {type(raised).__name__}: {raised}")
    pytest.fail(f"{label}: nothing was raised")
