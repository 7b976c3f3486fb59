"""SIMT kernels written in TileLang, from lowering to results."""

from __future__ import annotations

import numpy as np
import pytest
from lowered import compile_together, lower

import ascend_sim

tilelang = pytest.importorskip("tilelang", reason="the kernels are written in TileLang")
import tilelang.ascend.language as T  # noqa: E402


def row_reductions(rows: int, columns: int, threads: int):
    """Sum and maximum of every row: shuffles in a warp, UB and barriers between warps."""

    @T.prim_func
    def main(
        x: T.Tensor((rows, columns), "float32"), total: T.Tensor((rows,), "float32"), top: T.Tensor((rows,), "float32")
    ):
        with T.Kernel(rows) as row:
            x_ub = T.alloc_shared((columns,), "float32")
            total_ub, top_ub = T.alloc_shared((8,), "float32"), T.alloc_shared((8,), "float32")
            T.copy(x[row, 0:columns], x_ub)
            with T.SimtVF(threads=threads):
                part = T.alloc_fragment((columns,), "float32")
                part_total, part_top = T.alloc_fragment((1,), "float32"), T.alloc_fragment((1,), "float32")
                T.copy(x_ub, part)
                T.reduce_sum(part, part_total, dim=0)
                T.reduce_max(part, part_top, dim=0)
                for i in T.Parallel(1):
                    total_ub[i] = part_total[i]
                    top_ub[i] = part_top[i]
            T.copy(total_ub[0:1], total[row : row + 1])
            T.copy(top_ub[0:1], top[row : row + 1])

    return main


def mirror_and_count(n: int):
    """bf16 arithmetic across threads, and a histogram in global memory by atomics."""

    @T.prim_func
    def main(
        x: T.Tensor((n,), "bfloat16"),
        bins: T.Tensor((n,), "int32"),
        y: T.Tensor((n,), "bfloat16"),
        counts: T.Tensor((16,), "int32"),
    ):
        with T.Kernel(1):
            x_ub, y_ub = T.alloc_shared((n,), "bfloat16"), T.alloc_shared((n,), "bfloat16")
            T.copy(x, x_ub)
            with T.SimtVF(threads=64):
                for i in T.Parallel(n):
                    y_ub[i] = T.exp(T.cast(x_ub[i], "float32")) * 0.5 + T.cast(x_ub[n - 1 - i], "float32")
                for i in T.Parallel(n):
                    T.atomic_add(counts[bins[i]], 1)
            T.copy(y_ub, y)

    return main


def reverse_twice(n: int):
    """Two passes over one buffer; TileLang puts a barrier between them."""

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            a, b = T.alloc_shared((n,), "float32"), T.alloc_shared((n,), "float32")
            T.copy(x, a)
            with T.SimtVF(threads=128):
                for i in T.Parallel(n):
                    b[i] = a[n - 1 - i] + 1.0
                for i in T.Parallel(n):
                    a[i] = b[(i + 37) % n] * 2.0
            T.copy(a, y)

    return main


def to_fp8(n: int):
    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float8_e4m3fn"), z: T.Tensor((n,), "float16")):
        with T.Kernel(1), T.SimtVF(threads=64):
            for i in T.Parallel(n):
                y[i] = T.cast(x[i], "float8_e4m3fn")
            for i in T.Parallel(n):
                z[i] = T.cast(T.sigmoid(x[i]) + T.tanh(x[i]) * T.rsqrt(T.abs(x[i]) + 1.0), "float16")

    return main


def find_segments(tokens: int, segments: int):
    """A thread a token, binary search in ends that are read from global memory."""

    @T.prim_func
    def main(
        ends: T.Tensor((segments,), "int32"),
        positions: T.Tensor((tokens,), "int32"),
        found: T.Tensor((tokens,), "int32"),
    ):
        with T.Kernel(2) as block, T.SimtVF(threads=128):
            for i in T.Parallel(tokens // 2):
                low, high = T.alloc_var("int32"), T.alloc_var("int32")
                low = 0
                high = segments
                while low < high:
                    middle = (low + high) // 2
                    if ends[middle] <= positions[block * (tokens // 2) + i]:
                        low = middle + 1
                    else:
                        high = middle
                found[block * (tokens // 2) + i] = low

    return main


def random_numbers(n: int):
    @T.prim_func
    def main(uniform: T.Tensor((n,), "float32"), normal: T.Tensor((n,), "float32")):
        with T.Kernel(2) as block, T.SimtVF(threads=64):
            T.rng_init(seed=42)
            for i in T.Parallel(n // 2):
                uniform[block * (n // 2) + i] = T.rng_rand_float()
            for i in T.Parallel(n // 2):
                normal[block * (n // 2) + i] = T.rng_rand_float(dist="normal")

    return main


KERNELS = {
    "reduce_32": lambda: row_reductions(4, 256, 32),
    "reduce_128": lambda: row_reductions(4, 1024, 128),
    "reduce_512": lambda: row_reductions(4, 1024, 512),
    "mirror_and_count": lambda: mirror_and_count(256),
    "reverse_twice": lambda: reverse_twice(1024),
    "to_fp8": lambda: to_fp8(256),
    "find_segments": lambda: find_segments(512, 77),
    "random_numbers": lambda: random_numbers(512),
}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {name: lower(function(), name) for name, function in KERNELS.items()}


@pytest.fixture(scope="module", params=[True, False], ids=["checks", "no checks"])
def library(request: pytest.FixtureRequest, sources: dict[str, str]) -> ascend_sim.Library:
    return compile_together(sources, checks=request.param)


def to_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize(("name", "columns"), [("reduce_32", 256), ("reduce_128", 1024), ("reduce_512", 1024)])
def test_reductions_over_threads(library: ascend_sim.Library, name: str, columns: int) -> None:
    x = np.random.default_rng(0).normal(size=(4, columns)).astype(np.float32)
    total, top = np.zeros(4, np.float32), np.zeros(4, np.float32)
    ascend_sim.launch(library, name, 4, *ordered(library, name, x=x, total=total, top=top))
    np.testing.assert_allclose(total, x.sum(1, dtype=np.float64), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(top, x.max(1))


def ordered(library: ascend_sim.Library, name: str, **arguments: np.ndarray) -> list[np.ndarray]:
    """Arguments by name, in the order of the generated kernel's parameters."""
    (kernel,) = (kernel for kernel in library.kernels if kernel.name == name)
    return [arguments[parameter] for parameter in kernel.parameters]


def test_bf16_and_atomics(library: ascend_sim.Library) -> None:
    rng = np.random.default_rng(1)
    x, bins = to_bf16(rng.normal(size=256)), rng.integers(0, 16, 256, dtype=np.int32)
    y, counts = np.zeros(256, np.uint16), np.zeros(16, np.int32)
    arguments = ordered(library, "mirror_and_count", x=x, bins=bins, y=y, counts=counts)
    ascend_sim.launch(library, "mirror_and_count", 1, *arguments)
    values = from_bf16(x)
    expected = to_bf16(np.exp(values.astype(np.float64)).astype(np.float32) * np.float32(0.5) + values[::-1])
    assert (
        np.abs(y.astype(int) - expected.astype(int)).max() <= 1
    )  # expf may differ from the exact value in the last bit
    np.testing.assert_array_equal(counts, np.bincount(bins, minlength=16))


def test_barrier_between_passes(library: ascend_sim.Library) -> None:
    x, y = np.random.default_rng(2).normal(size=1024).astype(np.float32), np.zeros(1024, np.float32)
    ascend_sim.launch(library, "reverse_twice", 1, *ordered(library, "reverse_twice", x=x, y=y))
    np.testing.assert_array_equal(y, np.roll(x[::-1] + np.float32(1), -37) * np.float32(2))


def test_removing_the_barrier_is_a_race(sources: dict[str, str]) -> None:
    source = sources["reverse_twice"]
    assert source.count("asc_syncthreads();") == 1
    library = ascend_sim.compile(source.replace("asc_syncthreads();", ";"))
    x, y = np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    with pytest.raises(ascend_sim.KernelError) as raised:
        ascend_sim.launch(library, "reverse_twice", 1, *ordered(library, "reverse_twice", x=x, y=y))
    assert raised.value.code in ("simt-race", "uninitialised")


def test_small_floats(library: ascend_sim.Library) -> None:
    x = (np.random.default_rng(3).normal(size=256) * 100).astype(np.float32)
    y, z = np.zeros(256, np.uint8), np.zeros(256, np.float16)
    ascend_sim.launch(library, "to_fp8", 1, *ordered(library, "to_fp8", x=x, y=y, z=z))
    magnitude, sign = y & 0x7F, np.where(y & 0x80, -1.0, 1.0)
    value = np.where(magnitude < 8, magnitude / 512, (8 + magnitude % 8) * 2.0 ** (magnitude // 8 - 10.0))
    step = np.where(magnitude < 8, 1 / 512, 2.0 ** (magnitude // 8 - 10.0))
    assert (np.abs(sign * value - np.clip(x, -448, 448)) <= step / 2).all()
    exact = x.astype(np.float64)
    expected = 1 / (1 + np.exp(-exact)) + np.tanh(exact) / np.sqrt(np.abs(exact) + 1)
    np.testing.assert_allclose(z, expected, rtol=1e-3, atol=1e-6)


def test_search_in_global_memory(library: ascend_sim.Library) -> None:
    rng = np.random.default_rng(4)
    ends = np.sort(rng.integers(0, 100, 77)).astype(np.int32)
    positions, found = rng.integers(-5, 105, 512).astype(np.int32), np.zeros(512, np.int32)
    arguments = ordered(library, "find_segments", ends=ends, positions=positions, found=found)
    ascend_sim.launch(library, "find_segments", 2, *arguments)
    np.testing.assert_array_equal(found, np.searchsorted(ends, positions, side="right"))


def philox(counter: list[int], key: list[int]) -> list[int]:
    for _ in range(10):
        product0, product1 = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [
            product1 >> 32 ^ counter[1] ^ key[0],
            product1 & 0xFFFFFFFF,
            product0 >> 32 ^ counter[3] ^ key[1],
            product0 & 0xFFFFFFFF,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def test_random_numbers(library: ascend_sim.Library) -> None:
    uniform, normal = np.zeros(512, np.float32), np.zeros(512, np.float32)
    ascend_sim.launch(library, "random_numbers", 2, *ordered(library, "random_numbers", uniform=uniform, normal=normal))
    for thread in range(128):  # of both blocks; each draws four uniform numbers, then four normal ones
        words = [philox([draw, 0, thread, 0], [42, 0]) for draw in (0, 1)]
        numbers = [
            np.float32(word) * np.float32(2.3283064e-10) + np.float32(2.3283064e-10) / np.float32(2)
            for block in words
            for word in block
        ]
        where = thread // 64 * 256 + np.array([0, 1, 128, 129]) + thread % 64 * 2
        np.testing.assert_array_equal(uniform[where], numbers[:4])
        radius = [np.sqrt(-2 * np.log(float(numbers[i]))) for i in (4, 6)]
        angle = [2 * np.pi * float(numbers[i]) for i in (5, 7)]
        expected = [
            radius[0] * np.sin(angle[0]),
            radius[0] * np.cos(angle[0]),
            radius[1] * np.sin(angle[1]),
            radius[1] * np.cos(angle[1]),
        ]
        np.testing.assert_allclose(normal[where], expected, rtol=1e-4, atol=1e-5)
