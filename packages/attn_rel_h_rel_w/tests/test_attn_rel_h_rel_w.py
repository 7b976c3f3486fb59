"""``attn_rel_h_rel_w``: accuracy, grids, layouts, removed keys, scratch memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cann_ops_tilelang.attn_rel_h_rel_w import attn_rel_h_rel_w
from cann_ops_tilelang.attn_rel_h_rel_w.reference import attn_rel_h_rel_w_reference
from cann_ops_tilelang.testing import Call, OperatorTests, bit_equal

NAN, INF = float("nan"), float("inf")
ACCEPTANCE = [
    (2, (14, 14), 12, 64),
    (1, (40, 40), 12, 64),
    (1, (64, 64), 12, 64),
    (2, (14, 20), 3, 64),
    (2, (3, 5), 3, 64),
    (2, (1, 1), 3, 64),
    (2, (14, 14), 3, 80),
]


def make(
    batch: int, grid_hw: tuple[int, int], heads: int, head_dim: int, *, padding: int = 0, scale: float | None = None
) -> Call:
    """Slices of a packed qkv tensor, and biases with ``padding`` columns of NaN."""
    grid_h, grid_w = grid_hw
    q, k, v = torch.randn(batch, grid_h * grid_w, 3, heads, head_dim).bfloat16().unbind(2)
    rel_h = torch.randn(batch, heads, grid_h * grid_w, grid_h + padding).bfloat16()
    rel_w = torch.randn(batch, heads, grid_h * grid_w, grid_w + padding).bfloat16()
    rel_h[..., grid_h:] = rel_w[..., grid_w:] = NAN
    return Call((q, k, v, rel_h, rel_w), {"grid_hw": grid_hw, "scale": scale})


def exact(*args: Any, **kwargs: Any) -> Tensor:
    """The reference in float64."""
    return attn_rel_h_rel_w_reference(*(arg.double() for arg in args), **kwargs)


def sdpa(call: Call) -> Tensor:
    """PyTorch's fused attention with the bias materialised."""
    q, k, v, rel_h, rel_w = call.args
    grid_h, grid_w = call.kwargs["grid_hw"]
    bias = (rel_h[..., :grid_h, None] + rel_w[..., None, :grid_w]).flatten(3)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, bias, scale=call.kwargs["scale"]).transpose(1, 2)


def squared_error(actual: Tensor, expected: Tensor) -> float:
    return (actual.cpu().double() - expected).square().mean().item()


def assert_accurate(call: Call, device: str) -> None:
    """At most 1.1 times the error of PyTorch's attention, of the first and the last head."""
    actual = call.to(device)(attn_rel_h_rel_w)
    last = max(1, actual.shape[2] - 1)
    q, k, v, rel_h, rel_w = call.args
    some = Call((q[:, :, ::last], k[:, :, ::last], v[:, :, ::last], rel_h[:, ::last], rel_w[:, ::last]), call.kwargs)
    expected = some(exact)
    assert squared_error(actual[:, :, ::last], expected) <= 1.1 * squared_error(sdpa(some), expected)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Within the rounding of weights and result to bfloat16, for values of about 1; NaN where NaN is expected."""
    torch.testing.assert_close(actual.cpu().double(), expected.double(), rtol=2**-7, atol=2**-7, equal_nan=True)


class TestAttnRelHRelW(OperatorTests):
    operator = staticmethod(attn_rel_h_rel_w)

    @staticmethod
    def reference(*args: Any, **kwargs: Any) -> Tensor:
        return exact(*args, **kwargs).bfloat16()

    def calls(self) -> list[Call]:
        square = make(2, (5, 5), 2, 32)
        return [
            make(2, (3, 5), 2, 16, padding=3),
            make(2, (14, 14), 3, 64, padding=2, scale=0.2),
            Call(square.args),
            make(1, (7, 60), 3, 80, padding=4),
        ]

    def assert_close(self, actual: Tensor, expected: Tensor) -> None:
        assert_close(actual, expected)


# -- accuracy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "grid_hw", "heads", "head_dim"), ACCEPTANCE)
def test_acceptance_shapes_are_as_accurate_as_sdpa(
    device: str, batch: int, grid_hw: tuple[int, int], heads: int, head_dim: int
) -> None:
    if device == "npu" and grid_hw[0] > 14:
        heads = 2  # the simulator takes its time
    assert_accurate(make(batch, grid_hw, heads, head_dim, padding=-grid_hw[0] % 8), device)


@pytest.mark.parametrize("head_dim", range(16, 129, 16))
@pytest.mark.parametrize("grid_hw", [(4, 31), (17, 1)])
def test_every_head_dim(device: str, head_dim: int, grid_hw: tuple[int, int]) -> None:
    assert_accurate(make(1, grid_hw, 2, head_dim), device)


@pytest.mark.parametrize(
    "grid_hw",
    [
        (1, 2),
        (1, 3),
        (2, 1),
        (1, 16),
        (16, 1),
        (1, 17),
        (5, 7),
        (8, 16),
        (16, 16),
        (13, 20),
        (2, 127),
        (2, 128),
        (2, 129),
    ],
)
def test_grids(device: str, grid_hw: tuple[int, int]) -> None:
    """Sequences around whole vectors of queries and whole tiles of keys."""
    assert_accurate(make(2, grid_hw, 2, 32), device)


@pytest.mark.parametrize("grid_hw", [(1, 700), (700, 1), (3, 260), (260, 3), (9, 129), (1, 640), (1, 1500)])
def test_long_and_narrow_grids(device: str, grid_hw: tuple[int, int]) -> None:
    """Bias that takes much of UB: (1, 640) is not widened, (1, 1500) leaves room for fewer queries."""
    assert_accurate(make(1, grid_hw, 1, 16), device)


@pytest.mark.parametrize("spread", [30.0, 1e4, 1e30])
def test_wide_scores(device: str, spread: float) -> None:
    """The largest score comes early, late or in between; most weights vanish."""
    call = make(1, (9, 40), 2, 32)
    q, k, v, rel_h, rel_w = call.args
    call = Call((q, k, v, rel_h * spread, rel_w * spread), call.kwargs)
    assert_close(call.to(device)(attn_rel_h_rel_w), call(exact))


@pytest.mark.parametrize("scale", [0.0, -0.3, 2, 1e-20])
def test_scale(device: str, scale: float) -> None:
    call = make(1, (6, 11), 2, 48, scale=scale)
    assert_close(call.to(device)(attn_rel_h_rel_w), call(exact))


def test_a_square_grid_is_assumed(device: str) -> None:
    call = make(2, (6, 6), 2, 16)
    assert bit_equal(attn_rel_h_rel_w(*call.to(device).args).cpu(), call.to(device)(attn_rel_h_rel_w).cpu())


@pytest.mark.on("cpu")
@pytest.mark.parametrize("head_dim", [16, 80])
def test_without_bf16_instructions(monkeypatch: pytest.MonkeyPatch, head_dim: int) -> None:
    from cann_ops_tilelang.attn_rel_h_rel_w.kernels import cpu

    build = cpu.build
    monkeypatch.setattr(cpu, "build", lambda head_dim: build(head_dim, False))
    for grid_hw in [(1, 1), (3, 5), (14, 20), (2, 129)]:
        assert_accurate(make(2, grid_hw, 2, head_dim), "cpu")


# -- values that are not finite ----------------------------------------------------------------------------------------


def test_padding_changes_nothing(device: str) -> None:
    call = make(2, (5, 13), 2, 32, padding=3)
    q, k, v, rel_h, rel_w = call.args
    cut = Call((q, k, v, rel_h[..., :5].contiguous(), rel_w[..., :13].contiguous()), call.kwargs)
    assert bit_equal(call.to(device)(attn_rel_h_rel_w).cpu(), cut.to(device)(attn_rel_h_rel_w).cpu())


@pytest.mark.parametrize("grid_hw", [(9, 40), (3, 5), (20, 14)])
def test_minus_infinity_removes_keys(device: str, grid_hw: tuple[int, int]) -> None:
    """Rows, columns, random cells of either bias; whole tiles among them, before and after keys that stay."""
    call = make(1, grid_hw, 3, 32)
    rel_h, rel_w = call.args[3:]
    rel_h[:, 0, :, : grid_hw[0] - 1] = -INF
    rel_w[:, 1, :, 1:] = -INF
    rel_h[:, 2].masked_fill_(torch.rand_like(rel_h[:, 2].float()) < 0.5, -INF)
    rel_w[:, 2].masked_fill_(torch.rand_like(rel_w[:, 2].float()) < 0.5, -INF)
    expected = call(exact)
    assert expected[:, :, :2].isfinite().all()
    assert_close(call.to(device)(attn_rel_h_rel_w), expected)


def test_finite_masks_remove_keys_but_never_all(device: str) -> None:
    """The lowest finite bias on every key of a query leaves the other terms no room: all weights are equal."""
    call = make(1, (9, 40), 2, 32)
    lowest = torch.finfo(torch.bfloat16).min
    call.args[3][:, 0, :, 3:] = lowest
    call.args[3][:, 1] = lowest
    assert_close(
        call.to(device)(attn_rel_h_rel_w),
        call(lambda *args, **kwargs: attn_rel_h_rel_w_reference(*(arg.float() for arg in args), **kwargs)),
    )


def test_a_query_without_keys_gives_nan(device: str) -> None:
    call = make(1, (9, 40), 2, 32)
    call.args[3][:, 0, 7] = -INF
    call.args[4][:, 1, 300] = -INF
    expected = call(exact)
    assert expected[0, 7, 0].isnan().all() and expected[0, 300, 1].isnan().all()
    assert_close(call.to(device)(attn_rel_h_rel_w), expected)


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("argument", range(5))
def test_not_finite_values_reach_their_queries_alone(device: str, argument: int, value: float) -> None:
    """A NaN or infinity in q, rel_h, rel_w makes one query NaN; in k, v, what the formula says."""
    call = make(1, (9, 40), 2, 32)
    call.args[argument][0, (1 if argument > 2 else 350), (350 if argument > 2 else 1), 5] = value
    expected, actual = call(exact), call.to(device)(attn_rel_h_rel_w).cpu()
    assert expected.isnan().any() or expected.isinf().any()
    if argument == 2:
        # A weight that is 0 after rounding makes NaN of an infinity.
        other = expected.isfinite()
        assert not actual[~other].isfinite().any()
        actual, expected = actual[other], expected[other]
    assert_close(actual, expected)


# -- layouts -----------------------------------------------------------------------------------------------------------


def test_strides_are_free(device: str) -> None:
    """Heads before tokens, expanded batches and heads, odd offsets: the same bits as for contiguous tensors."""
    call = make(2, (6, 9), 4, 32)
    plain = call.map(lambda t: t.contiguous()).to(device)(attn_rel_h_rel_w).cpu()

    def heads_first(t: Tensor) -> Tensor:
        return t.transpose(1, 2).contiguous().transpose(1, 2)

    def odd(t: Tensor) -> Tensor:
        wide = torch.full((*t.shape[:-1], t.shape[-1] + 3), NAN, dtype=t.dtype)
        wide[..., 1:-2] = t
        return wide[..., 1:-2]

    for layout in (heads_first, odd):
        assert bit_equal(call.map(layout).to(device)(attn_rel_h_rel_w).cpu(), plain)

    q, k, v, rel_h, rel_w = call.args
    shared = Call((q[:1], k[:1, :, :1], v[:1], rel_h[:, :1], rel_w[:1, :, :1]), call.kwargs)
    shapes = [t.shape for t in call.args]
    expanded = [t.expand(shape).to(device) for t, shape in zip(shared.args, shapes)]
    contiguous = [t.expand(shape).contiguous().to(device) for t, shape in zip(shared.args, shapes)]
    assert bit_equal(
        attn_rel_h_rel_w(*expanded, **call.kwargs).cpu(), attn_rel_h_rel_w(*contiguous, **call.kwargs).cpu()
    )


@pytest.mark.parametrize(
    ("batch", "grid_hw", "heads"), [(0, (3, 5), 2), (2, (0, 0), 2), (2, (0, 5), 2), (2, (3, 5), 0)]
)
def test_empty(device: str, batch: int, grid_hw: tuple[int, int], heads: int) -> None:
    call = make(batch, grid_hw, heads, 16).to(device)
    result = call(attn_rel_h_rel_w)
    assert result.shape == call.args[0].shape and result.is_contiguous()
    if grid_hw == (0, 0):
        assert attn_rel_h_rel_w(*call.args).shape == call.args[0].shape


def test_a_query_does_not_depend_on_its_neighbours(device: str) -> None:
    call = make(2, (14, 14), 3, 64)
    one = call.map(lambda t: t[1:])
    assert bit_equal(call.to(device)(attn_rel_h_rel_w).cpu()[1:], one.to(device)(attn_rel_h_rel_w).cpu())


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["eager", "meta", "compiled"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid_hw": None}, "grid_hw must be given unless seq_len is a square, got None for 15 tokens"),
        ({"grid_hw": (4, 4)}, r"grid_hw must be .* == seq_len, got \(4, 4\) for 15 tokens"),
        ({"grid_hw": (-3, -5)}, "grid_hw must be >= 0"),
        ({"grid_hw": (5, 3)}, r"rel_h must have at least grid_h = 5 columns, got shape \(2, 2, 15, 3\)"),
        ({"grid_hw": (1, 15)}, r"rel_w must have at least grid_w = 15 columns, got shape \(2, 2, 15, 5\)"),
        ({"scale": "1"}, "scale must be a float or None, got str"),
    ],
)
def test_errors_of_this_operator(device: str, how: str, change: dict[str, Any], message: str) -> None:
    call = make(2, (3, 5), 2, 16).with_args(**change).to("meta" if how == "meta" else device)
    function = attn_rel_h_rel_w
    if how == "compiled":
        torch._dynamo.reset()
        function = torch.compile(attn_rel_h_rel_w, backend="eager", fullgraph=True, dynamic=False)
    with pytest.raises(Exception, match=f"attn_rel_h_rel_w: {message}") as raised:
        call(function)
    if how != "compiled":
        assert raised.type is (TypeError if "scale" in change else ValueError)


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.on("cpu")
@pytest.mark.parametrize("given", [True, False], ids=["grid_hw", "square"])
def test_export_with_a_free_batch(given: bool) -> None:
    class Attention(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, rel_h: Tensor, rel_w: Tensor) -> Tensor:
            return attn_rel_h_rel_w(q, k, v, rel_h, rel_w, grid_hw=(4, 4) if given else None)

    example = make(3, (4, 4), 2, 16)
    batch = torch.export.Dim("batch", max=100)
    program = torch.export.export(Attention(), example.args, dynamic_shapes=({0: batch},) * 5)
    other = make(7, (4, 4), 2, 16)
    assert bit_equal(program.module()(*other.args), other(attn_rel_h_rel_w))


@pytest.mark.on("cpu")
def test_one_compiled_function_serves_every_square() -> None:
    """With dynamic sizes the side comes from the sequence length, and the graph is not compiled again."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(attn_rel_h_rel_w, backend=counter, fullgraph=True, dynamic=True)
    for side in (4, 5, 9, 12):
        call = make(2, (side, side), 3, 32)
        assert bit_equal(compiled(*call.args), attn_rel_h_rel_w(*call.args))
    assert counter.frame_count == 1


# -- scratch -----------------------------------------------------------------------------------------------------------

PEAK = """
import torch
from cann_ops_tilelang.attn_rel_h_rel_w import attn_rel_h_rel_w
from cann_ops_tilelang.attn_rel_h_rel_w.kernels import cpu

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

torch.set_num_threads(2)
q, k, v = torch.randn(1, 4096, 3, 12, 64).bfloat16().unbind(2)
rel_h, rel_w = torch.randn(2, 1, 12, 4096, 64).bfloat16()
cpu.build(64)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts again from here
before = status("VmRSS")
result = attn_rel_h_rel_w(q, k, v, rel_h, rel_w)
print(status("VmHWM") - before - result.nbytes // 1024)
"""


@pytest.mark.on("cpu")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_beyond_inputs_and_output_at_side_64() -> None:
    """Peak resident memory of the call, in a fresh process, on two threads."""
    result = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert 400 < int(result.stdout) <= 3 * 1024  # KiB; less than one thread's scratch would be a measurement gone wrong
