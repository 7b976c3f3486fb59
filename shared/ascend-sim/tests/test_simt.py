"""SIMT regions: barriers, warp operations, atomics and conversions, against models in NumPy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ascend_sim

pytest.importorskip("tilelang", reason="the kernels include TileLang's templates")

WARP = 32
examples = settings(max_examples=40)

SHUFFLED = {
    "i32": ("int32_t", np.int32),
    "u64": ("uint64_t", np.uint64),
    "f32": ("float", np.float32),
    "f16": ("half", np.float16),
}
REDUCED = {
    "i32": ("int32_t", np.int32),
    "u32": ("uint32_t", np.uint32),
    "f32": ("float", np.float32),
    "f16": ("half", np.float16),
}
SHUFFLES = ("asc_shfl", "asc_shfl_up", "asc_shfl_down", "asc_shfl_xor")
REDUCTIONS = ("asc_reduce_add", "asc_reduce_max", "asc_reduce_min")
ATOMICS = ("add", "sub", "max", "min", "exch")
INTEGER_ATOMICS = ("and", "or", "xor", "inc", "dec")
ALL_REDUCES = [
    # threads of a group, stride of its members, threads of the region, type, operator
    (32, 1, 64, "float", "SumOp"),
    (16, 1, 32, "float", "SumOp"),
    (8, 2, 32, "int32_t", "MaxOp"),
    (128, 1, 128, "float", "MinOp"),
    (64, 4, 64, "int32_t", "SumOp"),
    (256, 32, 256, "float", "SumOp"),
    (96, 1, 96, "float", "MaxOp"),
    (32, 1, 32, "half", "SumOp"),
]


def kernel(name: str, parameters: str, threads: str, body: str) -> str:
    """A kernel whose one SIMT region runs `body` in every thread; `t` is the thread."""
    arguments = ", ".join(parameter.split()[-1].lstrip("*") for parameter in parameters.split(", "))
    return f"""
__simt_vf__ __launch_bounds__(2048) inline void {name}_vf({parameters}) {{
  int32_t t = threadIdx.x;
  {body}
}}
extern "C" __global__ __vector__ void {name}({parameters}, int32_t threads) {{
  asc_init();
  asc_vf_call<{name}_vf>(cce::dim3({threads}), {arguments});
}}
"""


def source() -> str:
    parts = ["#include <tl_templates/ascend/common.h>\n#include <simt_api/cooperative_groups.h>\n"]
    for key, (ctype, _) in SHUFFLED.items():
        for name in SHUFFLES:
            parts.append(
                kernel(
                    f"{name}_{key}",
                    f"__gm__ {ctype}* x, __gm__ {ctype}* y, int32_t which, int32_t width",
                    "threads",
                    f"y[t] = {name}(x[t], which, width);",
                )
            )
    for key, (ctype, _) in REDUCED.items():
        for name in REDUCTIONS:
            parts.append(
                kernel(
                    f"{name}_{key}",
                    f"__gm__ {ctype}* x, __gm__ {ctype}* y, __gm__ int32_t* active",
                    "threads",
                    f"if (active[t]) y[t] = {name}(x[t]);",
                )
            )
    parts.append(
        kernel(
            "votes",
            "__gm__ int32_t* x, __gm__ int32_t* active, __gm__ uint32_t* y",
            "threads",
            """if (active[t]) {
    y[5 * t] = asc_activemask();
    y[5 * t + 1] = asc_ballot(x[t]);
    y[5 * t + 2] = asc_all(x[t]);
    y[5 * t + 3] = asc_any(x[t]);
    cooperative_groups::coalesced_threads().sync();
    y[5 * t + 4] = cooperative_groups::coalesced_threads().thread_rank() * 64 + laneid();
  }""",
        )
    )
    parts.append(
        kernel(
            "loop_shuffle",
            "__gm__ int32_t* x, __gm__ int32_t* trips, __gm__ int32_t* y",
            "threads",
            """int32_t sum = 0;
  for (int32_t i = 0; i < trips[t]; ++i) sum += asc_popcount_active(i + t);
  y[t] = asc_shfl_xor(sum, 1);""",
        ).replace("asc_popcount_active(i + t)", "__builtin_popcount(asc_activemask())")
    )
    parts.append(
        kernel(
            "prefix_sum",
            "__gm__ int32_t* x, __gm__ int32_t* y, int32_t n",
            "threads",
            """__ubuf__ int32_t* u = (__ubuf__ int32_t*)0;
  u[t] = x[t];
  asc_syncthreads();
  for (int32_t step = 1; step < n; step *= 2) {
    int32_t value = t >= step ? u[t - step] : 0;
    asc_syncthreads();
    u[t] += value;
    asc_syncthreads();
  }
  y[t] = u[n - 1 - t];""",
        )
    )
    parts.append("""
__simt_vf__ __launch_bounds__(2048) inline void thread_index_vf(__gm__ uint32_t* y) {
  uint32_t t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  y[blockIdx.x * blockDim.x * blockDim.y * blockDim.z + t] =
      threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16 | blockIdx.x << 24 | gridDim.x << 28;
}
extern "C" __global__ __vector__ void thread_index(__gm__ uint32_t* y, int32_t nx, int32_t ny, int32_t nz) {
  asc_init();
  asc_vf_call<thread_index_vf>(cce::dim3(nx, ny, nz), y);
}
""")
    for key, ctype in {"i32": "int32_t", "u32": "uint32_t", "f32": "float", "u64": "uint64_t", "f16": "half"}.items():
        for name in ATOMICS + (INTEGER_ATOMICS if key == "u32" else ()):
            if key == "f16" and name == "exch":
                continue
            parts.append(
                kernel(
                    f"atomic_{name}_{key}",
                    f"__gm__ {ctype}* target, __gm__ int32_t* where, __gm__ {ctype}* x, __gm__ {ctype}* old",
                    "threads",
                    f"old[t] = asc_atomic_{name}(&target[where[t]], x[t]);",
                )
            )
    parts.append(
        kernel(
            "histogram",
            "__gm__ int32_t* x, __gm__ int32_t* y, int32_t bins",
            "threads",
            """__ubuf__ int32_t* u = (__ubuf__ int32_t*)64;
  if (t < bins) u[t] = 0;
  asc_syncthreads();
  asc_atomic_add(&u[x[t]], 1);
  asc_syncthreads();
  if (t < bins) y[t] = u[t];""",
        )
    )
    parts.append(
        kernel(
            "claim",
            "__gm__ uint32_t* owner, __gm__ uint32_t* y",
            "threads",
            "y[t] = asc_atomic_cas(owner, 0u, uint32_t(t + 1));",
        )
    )
    for mode in ("rn", "rz", "rd", "ru", "rna"):
        parts.append(
            kernel(
                f"convert_{mode}",
                "__gm__ float* x, __gm__ half* h, __gm__ bfloat16_t* b, __gm__ int32_t* i, __gm__ uint32_t* u, "
                "__gm__ float* f",
                "threads",
                f"""h[t] = __float2half_{mode}(x[t]);
  b[t] = __float2bfloat16_{mode}(x[t]);
  i[t] = __float2int_{mode}(x[t]);
  u[t] = __float2uint_{mode}(x[t]);
  f[t] = __int2float_{mode}(__float_as_int(x[t]));""",
            )
        )
    parts.append(
        kernel(
            "convert_fp8",
            "__gm__ float2* x, __gm__ uint16_t* y, __gm__ float2* back, int32_t kind",
            "threads",
            """y[t] = kind == 0 ? __asc_cvt_float2_to_fp8x2(x[t], __ASC_SATFINITE, __ASC_E4M3)
       : kind == 1 ? __asc_cvt_float2_to_fp8x2(x[t], __ASC_SATFINITE, __ASC_E5M2)
       : kind == 2 ? __asc_cvt_float2_to_fp8x2(x[t], __ASC_NOSAT, __ASC_E4M3)
                   : __asc_cvt_float2_to_fp8x2(x[t], __ASC_NOSAT, __ASC_E5M2);
  uint16_t bits = y[t];
  back[t] = kind % 2 ? __e5m2x22float2(*(float8_e5m2x2_t*)&bits) : __e4m3x22float2(*(float8_e4m3x2_t*)&bits);""",
        )
    )
    parts.append(
        kernel(
            "arithmetic",
            "__gm__ float4* x, __gm__ float4* y, __gm__ half2* h, __gm__ half2* k, __gm__ float* z",
            "threads",
            """float4 a = x[t];
  y[t] = a * a - make_float4(a.y, a.z, a.w, a.x) + make_float4(1.0f, 2.0f, 3.0f, 4.0f);
  k[t] = h[t] * h[t] + make_half2(half(0.5f), half(-0.5f));
  z[6 * t] = max(a.x, a.y);
  z[6 * t + 1] = min(a.x, a.y);
  z[6 * t + 2] = rsqrtf(fabsf(a.x) + 1.0f);
  z[6 * t + 3] = expf(a.y * 0.01f);
  z[6 * t + 4] = (float)hexp(half(a.z * 0.001f));
  z[6 * t + 5] = (float)__hfma(h[t].x, h[t].y, h[t].x);""",
        )
    )
    for threads, scale, count, ctype, op in ALL_REDUCES:
        parts.append(
            kernel(
                f"all_reduce_{threads}_{scale}_{ctype}_{op}",
                f"__gm__ {ctype}* x, __gm__ {ctype}* y",
                str(count),
                f"y[t] = tl::AscendAllReduce<tl::{op}, {threads}, {scale}, 0>::run(x[t], (__ubuf__ {ctype}*)0);",
            )
        )
    return "".join(parts)


@pytest.fixture(scope="module")
def library() -> ascend_sim.Library:
    return ascend_sim.compile(source())


def values(rng: np.random.Generator, dtype: type, count: int) -> np.ndarray:
    if np.issubdtype(dtype, np.floating):
        return rng.normal(size=count).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)


def shuffle_source(name: str, lane: int, which: int, width: int) -> int:
    first = lane // width * width
    if name == "asc_shfl":
        return first + which % width
    if name == "asc_shfl_up":
        return lane - which if lane - which >= first else lane
    if name == "asc_shfl_down":
        return lane + which if lane + which < first + width else lane
    return lane ^ which if lane ^ which < first + width else lane


@pytest.mark.parametrize("key", SHUFFLED)
@pytest.mark.parametrize("name", SHUFFLES)
@given(st.data())
@examples
def test_shuffle(library: ascend_sim.Library, name: str, key: str, data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([1, 2, 4, 8, 16, 32]))
    which = data.draw(st.integers(0, width - 1 if name == "asc_shfl_xor" else 40))
    x = values(np.random.default_rng(data.draw(st.integers(0, 99))), SHUFFLED[key][1], 64)
    y = np.zeros_like(x)
    ascend_sim.launch(library, f"{name}_{key}", 1, x, y, which, width, 64)
    expected = [x[t // WARP * WARP + shuffle_source(name, t % WARP, which, width)] for t in range(64)]
    np.testing.assert_array_equal(y, np.array(expected, x.dtype))


def tree(x: list[np.generic], op: np.ufunc) -> np.generic:
    """Neighbours first; missing members (None) are left out."""
    while len(x) > 1:
        x = [a if b is None else b if a is None else op(a, b) for a, b in zip(x[::2], x[1::2])]
    return x[0]


@pytest.mark.parametrize("key", REDUCED)
@pytest.mark.parametrize("name", REDUCTIONS)
@given(active=st.lists(st.booleans(), min_size=48, max_size=48), seed=st.integers(0, 99))
@examples
def test_reduce_is_a_tree_over_the_active_lanes(
    library: ascend_sim.Library, name: str, key: str, active: list[bool], seed: int
) -> None:
    x = values(np.random.default_rng(seed), REDUCED[key][1], 48)
    y = np.full_like(x, 7)
    ascend_sim.launch(library, f"{name}_{key}", 1, x, y, np.array(active, np.int32), 48)
    op = {"asc_reduce_add": np.add, "asc_reduce_max": np.maximum, "asc_reduce_min": np.minimum}[name]
    for first, last in ((0, 32), (32, 48)):
        lanes = [x[t] if active[t] else None for t in range(first, last)] + [None] * (WARP - last + first)
        with np.errstate(over="ignore"):
            expected = tree(lanes, op)
        for t in range(first, last):
            assert y[t] == (expected if active[t] else 7)


@given(active=st.lists(st.booleans(), min_size=64, max_size=64), seed=st.integers(0, 99))
@examples
def test_votes(library: ascend_sim.Library, active: list[bool], seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 2, 64, dtype=np.int32) * 5
    y = np.zeros((64, 5), np.uint32)
    ascend_sim.launch(library, "votes", 1, x, np.array(active, np.int32), y, 64)
    for warp in (0, 1):
        lanes = [lane for lane in range(WARP) if active[warp * WARP + lane]]
        mask = sum(1 << lane for lane in lanes)
        ballot = sum(1 << lane for lane in lanes if x[warp * WARP + lane])
        for rank, lane in enumerate(lanes):
            np.testing.assert_array_equal(
                y[warp * WARP + lane], [mask, ballot, ballot == mask, ballot != 0, rank * 64 + lane]
            )


def test_lanes_leave_a_loop_one_by_one_and_meet_again(library: ascend_sim.Library) -> None:
    trips = np.random.default_rng(3).integers(0, 6, WARP, dtype=np.int32)
    y = np.zeros(WARP, np.int32)
    ascend_sim.launch(library, "loop_shuffle", 1, np.zeros(WARP, np.int32), trips, y, WARP)
    sums = np.array([sum((trips > i).sum() for i in range(n)) for n in trips])
    np.testing.assert_array_equal(y, sums[np.arange(WARP) ^ 1])


@given(n=st.integers(1, 300), seed=st.integers(0, 99))
@examples
def test_barriers(library: ascend_sim.Library, n: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-1000, 1000, n, dtype=np.int32)
    y = np.zeros_like(x)
    ascend_sim.launch(library, "prefix_sum", 1, x, y, n, n)
    np.testing.assert_array_equal(y, np.cumsum(x)[::-1])


@given(nx=st.integers(1, 9), ny=st.integers(1, 7), nz=st.integers(1, 5), blocks=st.integers(1, 3))
@examples
def test_thread_and_block_indices(library: ascend_sim.Library, nx: int, ny: int, nz: int, blocks: int) -> None:
    y = np.zeros((blocks, nz, ny, nx), np.uint32)
    ascend_sim.launch(library, "thread_index", blocks, y, nx, ny, nz)
    block, z, yy, x = np.indices(y.shape)
    np.testing.assert_array_equal(y, x | yy << 8 | z << 16 | block << 24 | blocks << 28)


ATOMIC_MODELS = {
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "max": lambda old, x: max(old, x),
    "min": lambda old, x: min(old, x),
    "exch": lambda old, x: x,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "inc": lambda old, x: type(old)(0) if old >= x else type(old)(old + 1),
    "dec": lambda old, x: x if old == 0 or old > x else type(old)(old - 1),
}


@pytest.mark.parametrize("key", ["i32", "u32", "f32", "u64", "f16"])
@given(st.data())
@examples
def test_atomics_on_global_memory(library: ascend_sim.Library, key: str, data: st.DataObject) -> None:
    names = [n for n in ATOMICS + (INTEGER_ATOMICS if key == "u32" else ()) if (key, n) != ("f16", "exch")]
    name = data.draw(st.sampled_from(names))
    dtype = {"i32": np.int32, "u32": np.uint32, "f32": np.float32, "u64": np.uint64, "f16": np.float16}[key]
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    where, x = rng.integers(0, 4, 40, dtype=np.int32), values(rng, dtype, 40)
    if name in ("inc", "dec"):
        x %= 5
    target = values(rng, dtype, 4)
    expected, expected_old = target.copy(), np.zeros_like(x)
    with np.errstate(over="ignore"):
        for t in range(40):  # threads run in order here; on the device the order is open
            expected_old[t] = expected[where[t]]
            expected[where[t]] = ATOMIC_MODELS[name](expected[where[t]], x[t])
    old = np.zeros_like(x)
    ascend_sim.launch(library, f"atomic_{name}_{key}", 1, target, where, x, old, 40)
    np.testing.assert_array_equal(target, expected)
    np.testing.assert_array_equal(old, expected_old)


@given(bins=st.integers(1, 16), seed=st.integers(0, 99))
@examples
def test_atomics_on_unified_buffer(library: ascend_sim.Library, bins: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, bins, 100, dtype=np.int32)
    y = np.zeros(bins, np.int32)
    ascend_sim.launch(library, "histogram", 1, x, y, bins, 100)
    np.testing.assert_array_equal(y, np.bincount(x, minlength=bins))


def test_compare_and_swap_has_one_winner(library: ascend_sim.Library) -> None:
    owner, y = np.zeros(1, np.uint32), np.zeros(50, np.uint32)
    ascend_sim.launch(library, "claim", 1, owner, y, 50)
    assert (y == 0).sum() == 1 and owner[0] == np.flatnonzero(y == 0)[0] + 1


def candidates(bits: int, exponent_bits: int) -> np.ndarray:
    """All finite non-negative values of a 16-bit format, in order, as exact numbers."""
    mantissa_bits = bits - 1 - exponent_bits
    codes = np.arange(((1 << exponent_bits) - 1) << mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = np.maximum(codes >> mantissa_bits, 1) - bias - mantissa_bits
    mantissa = (codes & ((1 << mantissa_bits) - 1)) + np.where(codes >> mantissa_bits, 1 << mantissa_bits, 0)
    return np.ldexp(mantissa.astype(np.float64), exponent)


def round_to(value: float, grid: np.ndarray, infinity: int, mode: str) -> int:
    """The code of `value` in a format with the finite values `grid`, by comparing exact numbers."""
    sign, magnitude = (0x8000 if math.copysign(1, value) < 0 else 0), abs(value)
    if math.isinf(value):
        return sign | infinity
    towards_zero = mode == "rz" or mode == ("ru" if sign else "rd")
    low = int(np.searchsorted(grid, magnitude, side="right")) - 1
    if grid[low] == magnitude:
        return sign | low
    step = Fraction(float(grid[-1])) - Fraction(float(grid[-2]))
    above = Fraction(float(grid[low + 1])) if low + 1 < len(grid) else Fraction(float(grid[-1])) + step
    if mode in ("rd", "ru", "rz"):
        return sign | (low if towards_zero else low + 1)
    distance = 2 * (Fraction(magnitude) - Fraction(float(grid[low]))) - (above - Fraction(float(grid[low])))
    up = distance > 0 or (distance == 0 and (mode == "rna" or low % 2 == 1))
    return sign | (low + up)


def round_integer(value: float, mode: str) -> int:
    exact = Fraction(value)
    return {
        "rn": lambda: round(exact),
        "rz": lambda: math.trunc(exact),
        "rd": lambda: math.floor(exact),
        "ru": lambda: math.ceil(exact),
        "rna": lambda: int(math.copysign(math.floor(abs(exact) + Fraction(1, 2)), exact)),
    }[mode]()


def round_float32(value: int, mode: str) -> float:
    near = np.float32(value)
    if int(near) == value:
        return float(near)
    below = near if int(near) < value else np.nextafter(near, np.float32(-np.inf))
    above = np.nextafter(below, np.float32(np.inf))
    if mode == "rn":
        return float(near)
    if mode == "rna":
        down, up = value - int(below), int(above) - value
        return float((above if value > 0 else below) if down == up else below if down < up else above)
    return float({"rd": below, "ru": above, "rz": below if value > 0 else above}[mode])


float32s = (
    st.floats(width=32, allow_nan=False)
    | st.floats(-70000, 70000, width=32)
    | st.floats(-8, 8, width=32).map(lambda x: float(np.float32(round(x * 4) / 4)))
)


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru", "rna"])
@given(x=st.lists(float32s, min_size=32, max_size=32))
@examples
def test_conversions_round_as_their_names_say(library: ascend_sim.Library, mode: str, x: list[float]) -> None:
    given_values = np.array(x, np.float32)
    h, b, i, u, f = (np.zeros(32, dtype) for dtype in (np.uint16, np.uint16, np.int32, np.uint32, np.float32))
    ascend_sim.launch(library, f"convert_{mode}", 1, given_values, h, b, i, u, f, 32)
    half, bfloat16 = candidates(16, 5), candidates(16, 8)
    for t, value in enumerate(given_values.astype(np.float64).tolist()):
        assert h[t] == round_to(value, half, 0x7C00, mode)
        assert b[t] == round_to(value, bfloat16, 0x7F80, mode)
        integer = math.copysign(2**40, value) if math.isinf(value) else round_integer(value, mode)
        assert i[t] == min(max(integer, -(2**31)), 2**31 - 1)
        assert u[t] == min(max(integer, 0), 2**32 - 1)
        assert f[t] == round_float32(int(given_values[t : t + 1].view(np.int32)[0]), mode)


FP8 = [(0x7E, 3, 7, True), (0x7B, 2, 15, True), (0x7E, 3, 7, False), (0x7B, 2, 15, False)]


@pytest.mark.parametrize("kind", range(4))
@given(x=st.lists(float32s | st.floats(-500, 500, width=32) | st.just(math.nan), min_size=32, max_size=32))
@examples
def test_fp8_conversions(library: ascend_sim.Library, kind: int, x: list[float]) -> None:
    largest, mantissa_bits, bias, saturate = FP8[kind]
    pairs, y, back = np.array(x, np.float32), np.zeros(32, np.uint8), np.zeros(32, np.float32)
    ascend_sim.launch(library, "convert_fp8", 1, pairs, y, back, kind, 16)
    codes = np.arange(largest + 1)
    exponent = np.maximum(codes >> mantissa_bits, 1) - bias - mantissa_bits
    mantissa = (codes & ((1 << mantissa_bits) - 1)) + np.where(codes >> mantissa_bits, 1 << mantissa_bits, 0)
    grid = np.ldexp(mantissa.astype(np.float64), exponent)
    for t, value in enumerate(pairs.astype(np.float64).tolist()):
        sign = 0x80 if math.copysign(1, value) < 0 else 0
        if math.isnan(value):
            assert y[t] == 0 if saturate else math.isnan(back[t])
            continue
        above = grid[-1] + (grid[-1] - grid[-2]) / 2  # where rounding to nearest leaves the finite range
        if abs(value) >= above or (abs(value) > grid[-1] and math.isinf(value)):
            if saturate:
                assert y[t] == sign | largest
            else:
                assert math.isnan(back[t]) if kind == 2 else back[t] == math.copysign(math.inf, value)
            continue
        distance = np.abs(grid - abs(value))
        nearest = np.flatnonzero(distance == distance.min())
        code = int(nearest[0] if len(nearest) == 1 or nearest[0] % 2 == 0 else nearest[1])
        assert y[t] == sign | code
        assert back[t] == math.copysign(grid[code], value)


@given(seed=st.integers(0, 999))
@examples
def test_vectors_and_functions(library: ascend_sim.Library, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, h = (rng.normal(size=(32, 4)) * 100).astype(np.float32), rng.normal(size=(32, 2)).astype(np.float16)
    y, k, z = np.zeros_like(x), np.zeros_like(h), np.zeros((32, 6), np.float32)
    ascend_sim.launch(library, "arithmetic", 1, x, y, h, k, z, 32)
    np.testing.assert_array_equal(y, x * x - np.roll(x, -1, 1) + np.array([1, 2, 3, 4], np.float32))
    np.testing.assert_array_equal(k, h * h + np.array([0.5, -0.5], np.float16))
    np.testing.assert_array_equal(z[:, 0], np.maximum(x[:, 0], x[:, 1]))
    np.testing.assert_array_equal(z[:, 1], np.minimum(x[:, 0], x[:, 1]))
    np.testing.assert_allclose(z[:, 2], 1 / np.sqrt(np.abs(x[:, 0].astype(np.float64)) + 1), rtol=2e-7)
    np.testing.assert_allclose(z[:, 3], np.exp((x[:, 1] * np.float32(0.01)).astype(np.float64)), rtol=2e-7)
    argument = (x[:, 2] * np.float32(0.001)).astype(np.float16).astype(np.float64)
    np.testing.assert_array_equal(z[:, 4], np.exp(argument).astype(np.float32).astype(np.float16))
    np.testing.assert_array_equal(z[:, 5], (h[:, 0].astype(np.float64) * h[:, 1] + h[:, 0]).astype(np.float16))


@pytest.mark.parametrize(("threads", "scale", "count", "ctype", "op"), ALL_REDUCES)
@given(seed=st.integers(0, 99))
@examples
def test_reductions_of_the_templates(
    library: ascend_sim.Library, threads: int, scale: int, count: int, ctype: str, op: str, seed: int
) -> None:
    dtype = {"float": np.float32, "int32_t": np.int32, "half": np.float16}[ctype]
    x = (
        np.random.default_rng(seed).integers(-50, 50, count).astype(dtype)
    )  # small integers: sums are exact in any order
    y = np.zeros_like(x)
    ascend_sim.launch(library, f"all_reduce_{threads}_{scale}_{ctype}_{op}", 1, x, y, count)
    combine = {"SumOp": np.add, "MaxOp": np.maximum, "MinOp": np.minimum}[op]
    expected = combine.reduce(x.reshape(-1, threads // scale, scale), axis=1, keepdims=True)
    np.testing.assert_array_equal(
        y.reshape(-1, threads // scale, scale), np.broadcast_to(expected, (count // threads, threads // scale, scale))
    )
