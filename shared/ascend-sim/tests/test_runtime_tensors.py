"""The operations on npu tensors against the same operations on the host."""

from __future__ import annotations

import pytest
from runtime_kernels import require_simulated_npu

require_simulated_npu()
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch_npu  # noqa: E402, F401

INDEX = torch.tensor([2, 0, 1])
MASK = torch.tensor([[True, False, True, False], [False, False, True, True], [True, True, False, False]])

# Each takes x (3, 4) and y (3, 4), floats, on either device.
ELEMENTWISE = {
    "add": lambda x, y: x + y, "add alpha": lambda x, y: torch.add(x, y, alpha=3), "add scalar": lambda x, y: x + 2,
    "sub": lambda x, y: x - y, "rsub": lambda x, y: 1 - x, "mul": lambda x, y: x * y, "mul scalar": lambda x, y: x * 0.5,
    "div": lambda x, y: x / y, "div floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "div trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"), "floor_divide": lambda x, y: x // 0.3,
    "remainder": lambda x, y: x % y, "remainder scalar": lambda x, y: x % 0.7, "fmod": lambda x, y: torch.fmod(x, y),
    "pow": lambda x, y: x.abs() ** y, "pow scalar": lambda x, y: x**2, "scalar pow": lambda x, y: 2**x,
    "maximum": torch.maximum, "minimum": torch.minimum, "addcmul": lambda x, y: torch.addcmul(x, x, y, value=2),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25), "atan2": torch.atan2,
    "abs": lambda x, y: x.abs(), "neg": lambda x, y: -x, "sign": lambda x, y: x.sign(), "sqrt": lambda x, y: x.abs().sqrt(),
    "rsqrt": lambda x, y: x.abs().rsqrt(), "reciprocal": lambda x, y: x.reciprocal(), "exp": lambda x, y: x.exp(),
    "exp2": lambda x, y: x.exp2(), "expm1": lambda x, y: x.expm1(), "log": lambda x, y: x.abs().log(), "log2": lambda x, y: x.abs().log2(),
    "log1p": lambda x, y: x.abs().log1p(), "sin": lambda x, y: x.sin(), "cos": lambda x, y: x.cos(), "tan": lambda x, y: x.tan(),
    "tanh": lambda x, y: x.tanh(), "erf": lambda x, y: x.erf(), "floor": lambda x, y: x.floor(), "ceil": lambda x, y: x.ceil(),
    "round": lambda x, y: x.round(), "round decimals": lambda x, y: x.round(decimals=1), "trunc": lambda x, y: x.trunc(),
    "sigmoid": lambda x, y: x.sigmoid(), "relu": lambda x, y: x.relu(), "gelu": lambda x, y: F.gelu(x),
    "gelu tanh": lambda x, y: F.gelu(x, approximate="tanh"), "silu": lambda x, y: F.silu(x), "softplus": lambda x, y: F.softplus(x),
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.1), "clamp": lambda x, y: x.clamp(-0.5, 0.5), "clamp_min": lambda x, y: x.clamp_min(0.1),
    "nan_to_num": lambda x, y: (x / 0).nan_to_num(1.0, 2.0, 3.0), "in place": lambda x, y: x.clone().add_(y).mul_(2).sub_(1).div_(y),
    "in place functions": lambda x, y: x.clone().exp_().log1p_().sin_().clamp_max_(0.5).lerp_(y, 0.5).tril_(),
    "in place comparison": lambda x, y: x.clone().gt_(0).logical_not_(), "bfloat16": lambda x, y: (x.bfloat16() * y.bfloat16()).float(), "promotion": lambda x, y: x.bfloat16() + y,
    "integer division": lambda x, y: (x * 10).int() // 3, "shift": lambda x, y: (x.abs() * 10).int() << 2,
}  # fmt: skip
COMPARISON = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != 0, "lt": lambda x, y: x < y, "le": lambda x, y: x <= 0.0, "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y, "and": lambda x, y: (x > 0) & (y > 0), "or": lambda x, y: (x > 0) | (y > 0), "xor": lambda x, y: (x > 0) ^ (y > 0),
    "not": lambda x, y: ~(x > 0), "logical_and": lambda x, y: torch.logical_and(x > 0, y), "logical_not": lambda x, y: torch.logical_not(x),
    "isclose": lambda x, y: torch.isclose(x, x + 1e-9), "isfinite": lambda x, y: torch.isfinite(x / 0), "isnan": lambda x, y: torch.isnan(x),
    "equal": lambda x, y: torch.tensor(torch.equal(x, x)), "not equal": lambda x, y: torch.tensor(torch.equal(x, y)),
}  # fmt: skip
REDUCTION = {
    "sum": lambda x, y: x.sum(), "sum dim": lambda x, y: x.sum(1, keepdim=True), "sum int": lambda x, y: (x > 0).sum(0), "mean": lambda x, y: x.mean(-1),
    "prod": lambda x, y: x.prod(), "prod dim": lambda x, y: x.prod(0), "amax": lambda x, y: x.amax(0), "amin": lambda x, y: x.amin(1), "max": lambda x, y: x.max(),
    "min": lambda x, y: x.min(), "max dim": lambda x, y: x.max(1), "min dim": lambda x, y: x.min(0), "argmax": lambda x, y: x.argmax(1),
    "argmin": lambda x, y: x.argmin(), "all": lambda x, y: (x > -9).all(), "any dim": lambda x, y: (x > 0).any(0), "var": lambda x, y: x.var(1),
    "var all": lambda x, y: x.var(), "std": lambda x, y: x.std(0), "var_mean": lambda x, y: torch.var_mean(x, 1), "norm": lambda x, y: x.norm(),
    "vector_norm": lambda x, y: torch.linalg.vector_norm(x, dim=1), "logsumexp": lambda x, y: x.logsumexp(1), "cumsum": lambda x, y: x.cumsum(1),
    "bincount": lambda x, y: (x * 3).int().abs().flatten().bincount(minlength=9),
}  # fmt: skip
PRODUCT = {
    "matmul": lambda x, y: x @ y.t(), "mm bf16": lambda x, y: (x.bfloat16() @ y.t().bfloat16()).float(), "mv": lambda x, y: x @ y[0],
    "dot": lambda x, y: x[0] @ y[0], "bmm": lambda x, y: torch.bmm(x[:, :, None], y[:, None]), "addmm": lambda x, y: torch.addmm(x, x @ y.t(), y, beta=0.5, alpha=2),
    "baddbmm": lambda x, y: torch.baddbmm(x[:, :, None], x[:, :, None], y[:, None]), "batched": lambda x, y: x.expand(2, 3, 4) @ y.t(),
    "linear": lambda x, y: F.linear(x, y, y[0, :3]), "conv2d": lambda x, y: F.conv2d(x.expand(1, 2, 3, 4), y[:2, :2].expand(3, 2, 2, 2), padding=1),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
}  # fmt: skip
NORMALISATION = {
    "softmax": lambda x, y: x.softmax(-1), "softmax dtype": lambda x, y: x.bfloat16().softmax(0, dtype=torch.float32), "log_softmax": lambda x, y: x.log_softmax(1),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0], y[1]), "layer_norm bare": lambda x, y: F.layer_norm(x, (4,)), "mse": lambda x, y: F.mse_loss(x, y),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y), "cross_entropy": lambda x, y: F.cross_entropy(x, INDEX.to(x.device)),
    "attention": lambda x, y: ((x @ y.t()) * 0.5).softmax(-1) @ x,
}  # fmt: skip
INDEXING = {
    "cat": lambda x, y: torch.cat([x, y, x], 1), "stack": lambda x, y: torch.stack([x, y], 1), "split": lambda x, y: x.split([1, 3], 1)[1], "chunk": lambda x, y: x.chunk(2, 1)[0],
    "index": lambda x, y: x[INDEX.to(x.device)], "index two": lambda x, y: x[INDEX.to(x.device), INDEX.to(x.device)], "index column": lambda x, y: x[:, INDEX.to(x.device)],
    "mask": lambda x, y: x[MASK.to(x.device)], "index_put": lambda x, y: x.clone().index_put_((INDEX.to(x.device),), y), "set": lambda x, y: _set(x, y),
    "accumulate": lambda x, y: x.clone().index_put_((INDEX.to(x.device) // 2,), y, accumulate=True),
    "index_select": lambda x, y: x.index_select(1, INDEX.to(x.device)), "index_add": lambda x, y: x.index_add(0, INDEX.to(x.device), y), "index_copy": lambda x, y: x.index_copy(0, INDEX.to(x.device), y),
    "index_fill": lambda x, y: x.index_fill(0, INDEX[:2].to(x.device), 3.0), "gather": lambda x, y: x.gather(1, INDEX[:, None].to(x.device)), "scatter": lambda x, y: x.scatter(0, INDEX[None].to(x.device), y),
    "scatter value": lambda x, y: x.scatter(0, INDEX[None].to(x.device), 5.0), "scatter_add": lambda x, y: x.scatter_add(0, INDEX[None].to(x.device), y),
    "masked_fill": lambda x, y: x.masked_fill(MASK.to(x.device), -1.0), "masked_select": lambda x, y: x.masked_select(MASK.to(x.device)),
    "masked_scatter": lambda x, y: x.masked_scatter(MASK.to(x.device), y), "where": lambda x, y: torch.where(MASK.to(x.device), x, y), "nonzero": lambda x, y: MASK.to(x.device).nonzero(),
    "nonzero tuple": lambda x, y: MASK.to(x.device).nonzero(as_tuple=True), "tril": lambda x, y: x.tril(), "triu": lambda x, y: x.triu(1), "repeat": lambda x, y: x.repeat(2, 3),
    "repeat_interleave": lambda x, y: x.repeat_interleave(2, 0), "repeat_interleave tensor": lambda x, y: x.repeat_interleave(INDEX.to(x.device), 0), "flip": lambda x, y: x.flip(1),
    "roll": lambda x, y: x.roll(1, 0), "pad": lambda x, y: F.pad(x, (1, 2), value=9.0), "one_hot": lambda x, y: F.one_hot(INDEX.to(x.device), 5), "embedding": lambda x, y: F.embedding(INDEX.to(x.device), x),
    "sort": lambda x, y: x.sort(1), "sort descending": lambda x, y: x.sort(0, descending=True), "argsort": lambda x, y: x.argsort(1), "topk": lambda x, y: x.topk(2, 1), "kthvalue": lambda x, y: x.kthvalue(2, 1),
    "searchsorted": lambda x, y: torch.searchsorted(x.sort(1)[0], y), "unique": lambda x, y: torch.unique((x * 2).int()), "permute": lambda x, y: x.t().contiguous(), "expand": lambda x, y: x[:, :1].expand(3, 5) + 0,
    "empty": lambda x, y: torch.cat([x[:0], y[:0]]).sum(0), "unfold": lambda x, y: x.unfold(1, 2, 1) * 1, "as_strided": lambda x, y: x.as_strided((2, 2), (1, 4), 1) + 1,
}  # fmt: skip
CREATION = {
    "arange": lambda d: torch.arange(3, 17, 2, device=d), "arange float": lambda d: torch.arange(0, 1, 0.125, device=d), "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "eye": lambda d: torch.eye(3, device=d), "zeros": lambda d: torch.zeros(2, 3, device=d), "ones": lambda d: torch.ones(2, dtype=torch.int64, device=d), "full": lambda d: torch.full((2, 2), 7.5, device=d),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d), "zeros_like": lambda d: torch.zeros_like(torch.ones(3, device=d)), "fill": lambda d: torch.empty(3, device=d).fill_(2),
}  # fmt: skip


def _set(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:, ::2] = y[1:, ::2] * 2
    x[0] = 4
    return x


def same(actual: object, expected: object) -> None:
    if isinstance(expected, (tuple, list)):
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
        return
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, rtol=1e-6, atol=1e-6)


FUNCTIONS = {**ELEMENTWISE, **COMPARISON, **REDUCTION, **PRODUCT, **NORMALISATION, **INDEXING}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_two_tensors(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(3, 4, generator=generator), torch.randn(3, 4, generator=generator)
    function = FUNCTIONS[name]
    same(function(x.npu(), y.npu()), function(x, y))
    # The same with strides and an offset.
    wide = torch.empty(3, 9).copy_(torch.randn(3, 9, generator=generator))
    x, y = wide[:, 1:8:2], wide.t()[1:5].t()
    device = wide.npu()
    same(function(device[:, 1:8:2], device.t()[1:5].t()), function(x, y))


@pytest.mark.parametrize("name", CREATION)
def test_creation(name: str) -> None:
    same(CREATION[name]("npu"), CREATION[name]("cpu"))


GRADIENTS = {
    "linear softmax": lambda x, y: (F.linear(x, y).softmax(-1) ** 2).sum(), "layer_norm": lambda x, y: (F.layer_norm(x, (4,), y[0], y[1]) * y).sum(), "gelu": lambda x, y: F.gelu(x * y).sum(),
    "gelu tanh": lambda x, y: F.gelu(x * y, approximate="tanh").sum(), "silu": lambda x, y: F.silu(x).mean() + y.sum() * 0, "tanh": lambda x, y: (x.tanh() * y.sigmoid()).sum(), "relu": lambda x, y: (x.relu() * y).sum(),
    "index": lambda x, y: (x[INDEX.to(x.device)] * y).sum(), "gather": lambda x, y: x.gather(1, INDEX[:, None].to(x.device)).sum() + y.sum(), "max": lambda x, y: x.amax(1).sum() + y.max(0)[0].sum(),
    "cat": lambda x, y: (torch.cat([x, y]) ** 3).sum(), "division": lambda x, y: (x / (y.abs() + 1)).sum(), "log_softmax": lambda x, y: (x.log_softmax(1) * y).sum(), "matmul": lambda x, y: (x @ y.t() @ x).sum(),
    "conv2d": lambda x, y: F.conv2d(x.reshape(1, 1, 3, 4), y[:2, :2].reshape(1, 1, 2, 2)).square().sum(), "embedding": lambda x, y: (F.embedding(INDEX.to(x.device), x) * y).sum(), "where": lambda x, y: torch.where(x > 0, x, y * 2).sum(),
    "cumsum": lambda x, y: (x.cumsum(1) * y).sum(), "var": lambda x, y: x.var(1).sum() + y.std(), "sqrt": lambda x, y: (x.square() + 1).rsqrt().sum() + y.abs().sqrt().sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name: str) -> None:
    generator = torch.Generator().manual_seed(5)
    host = [torch.randn(3, 4, generator=generator, requires_grad=True) for _ in range(2)]
    device = [x.detach().npu().requires_grad_() for x in host]
    expected, actual = GRADIENTS[name](*host), GRADIENTS[name](*device)
    same(actual.detach(), expected.detach())
    expected.backward()
    actual.backward()
    for e, a in zip(host, device):
        same(a.grad, e.grad)


def test_random_numbers_follow_the_seed() -> None:
    def draw() -> list[torch.Tensor]:
        torch.npu.manual_seed(11)
        return [
            torch.randn(1000, device="npu"),
            torch.rand(1000, device="npu"),
            torch.randint(0, 10, (1000,), device="npu"),
            torch.randperm(100, device="npu"),
        ]

    first, again = draw(), draw()
    for a, b in zip(first, again):
        assert torch.equal(a, b)
    normal, uniform, integer, order = (x.cpu() for x in first)
    assert abs(normal.mean()) < 0.2 and abs(normal.std() - 1) < 0.1
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.05
    assert set(integer.tolist()) == set(range(10))
    assert sorted(order.tolist()) == list(range(100))


def test_an_optimiser_trains_a_module() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1)
    ).npu()
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.05, foreach=False, fused=False)
    x = torch.randn(32, 4, device="npu")
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
