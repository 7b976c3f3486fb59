"""Copies between global memory, UB and L1, and atomics to global memory, against NumPy models."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ascend_sim
from ascend_sim import KernelError

examples = settings(max_examples=60)
BLOCK = 32
SPACE = 8192  # bytes of each buffer in these tests
DTYPES = {"uint8_t": np.uint8, "uint16_t": np.uint16, "uint32_t": np.uint32}
ATOMIC_TYPES = {
    "int8": ("int8_t", np.int8),
    "int16": ("int16_t", np.int16),
    "int": ("int32_t", np.int32),
    "float": ("float", np.float32),
    "float16": ("half", np.float16),
}
LOAD_MODE, STORE_MODE = "asc_load_l2_cache_mode::NORMAL_FIRST_VICTIM", "asc_store_l2_cache_mode::NORMAL_FIRST_VICTIM"

# All of UB that a test looks at is first filled from `background`, so that the copy's own footprint shows.
LOAD = """
extern "C" __global__ __vector__ void load_{T}(__gm__ {T}* source, __gm__ uint8_t* background, __gm__ uint8_t* result, int32_t count,
    int32_t length, int32_t left, int32_t right, int32_t constant, int32_t from_stride, int32_t to_stride, uint32_t pad,
    int32_t inner, int32_t outer, int32_t from1, int32_t to1, int32_t from2, int32_t to2) {{
  asc_init();
  __ubuf__ uint8_t* ub = (__ubuf__ uint8_t*)0;
  asc_copy_gm2ub_align(ub, background, SPACE);
  asc_sync_pipe(PIPE_MTE2);
  asc_set_copy_pad_val(({T})pad);
  asc_set_gm2ub_loop_size(inner, outer);
  asc_set_gm2ub_loop1_stride(from1, to1);
  asc_set_gm2ub_loop2_stride(from2, to2);
  asc_copy_gm2ub_align((__ubuf__ {T}*)ub, source, count, length, left, right, constant, {mode}, from_stride, to_stride);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_copy_ub2gm_align(result, ub, SPACE);
}}
"""
OTHERS = """
extern "C" __global__ __vector__ void store(__gm__ uint8_t* source, __gm__ uint8_t* result, int32_t offset, int32_t count, int32_t length,
    int32_t to_stride, int32_t from_stride, int32_t inner, int32_t outer, int32_t from1, int32_t to1, int32_t from2, int32_t to2) {
  asc_init();
  __ubuf__ uint8_t* ub = (__ubuf__ uint8_t*)0;
  asc_copy_gm2ub_align(ub, source, SPACE);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_set_ub2gm_loop_size(inner, outer);
  asc_set_ub2gm_loop1_stride(from1, to1);
  asc_set_ub2gm_loop2_stride(from2, to2);
  asc_copy_ub2gm_align(result + offset, ub, count, length, STORE_MODE, to_stride, from_stride);
}

// The vector core copies to L1; the cube core, whose L1 it is, hands the bytes out again.
extern "C" __global__ __mix__(1, 1) void to_l1(__gm__ uint8_t* source, __gm__ uint8_t* background, __gm__ uint8_t* result, int32_t count,
    int32_t length, int32_t from_gap, int32_t to_gap) {
  asc_init();
  __ubuf__ uint8_t* ub = (__ubuf__ uint8_t*)0;
  __cbuf__ uint8_t* l1 = (__cbuf__ uint8_t*)64;
  if ASC_IS_AIV {
    asc_copy_gm2ub_align(ub, background, SPACE);
    asc_sync();
    asc_copy_ub2l1((__cbuf__ void*)l1, (__ubuf__ void*)ub, SPACE);
    asc_sync();
    asc_copy_gm2ub_align(ub, source, SPACE);
    asc_sync();
    asc_copy_ub2l1((__cbuf__ void*)l1, (__ubuf__ void*)ub, count, length, from_gap, to_gap);
    asc_sync_intra_arrive(PIPE_MTE3, 2);
  }
  if ASC_IS_AIC {
    asc_sync_intra_wait(PIPE_FIX, 2);
    asim::gm_store(result, asim::read(asim::Mem::L1, l1, SPACE, asim::Pipe::FIX), SPACE, asim::Pipe::FIX);
  }
}

extern "C" __global__ __vector__ void device_scalars(__gm__ int64_t* a, __gm__ int16_t* b) {
  asc_store_dev(a + 1, asc_load_dev(a) + 5);
  asc_store_dev(b + 1, asc_load_dev(b) - 7);
}
"""
ATOMIC = """
extern "C" __global__ __vector__ void {op}_{name}(__gm__ {T}* source, __gm__ {T}* result) {{
  asc_init();
  __ubuf__ {T}* ub = (__ubuf__ {T}*)0;
  asc_copy_gm2ub_align(ub, source + asc_get_block_idx() * (256 / sizeof({T})), 256);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_set_atomic_{op}_{name}();
  asc_copy_ub2gm_align(result, ub, 256);
  asc_set_atomic_none();
}}
"""


@functools.cache
def library() -> ascend_sim.Library:
    source = f'#include "c_api/asc_simd.h"\nconstexpr int SPACE = {SPACE};\n'
    source += "".join(LOAD.format(T=name, mode=LOAD_MODE) for name in DTYPES)
    source += OTHERS.replace("STORE_MODE", STORE_MODE)
    for op in ("add", "max", "min"):
        source += "".join(ATOMIC.format(op=op, name=name, T=T) for name, (T, _) in ATOMIC_TYPES.items())
    return ascend_sim.compile(source)


def run(kernel: str, *arguments: object, blocks: int = 1) -> None:
    ascend_sim.launch(library(), kernel, blocks, *arguments)


def random_bytes(seed: int, size: int = SPACE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@st.composite
def bursts(draw: st.DrawFn, padded: bool) -> dict[str, int]:
    """A legal strided copy within SPACE - 64 bytes on both sides, with loops."""
    unit = draw(st.sampled_from([1, 2, 4])) if padded else 1
    length = draw(st.integers(1, 60)) * unit
    left, right = (draw(st.integers(0, BLOCK // unit)) * unit for _ in range(2)) if padded else (0, 0)
    count = draw(st.integers(1, 4))
    on_chip = -(-(left + length + right) // BLOCK) * BLOCK + BLOCK * draw(st.integers(0, 1))
    outside = length + unit * draw(st.integers(0, 8))
    inner, outer = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    return {
        "unit": unit,
        "count": count,
        "length": length,
        "left": left,
        "right": right,
        "on_chip": on_chip,
        "outside": outside,
        "inner": inner,
        "outer": outer,
        "on_chip1": on_chip * count,
        "outside1": outside * count,
        "on_chip2": on_chip * count * inner,
        "outside2": outside * count * inner + unit,
    }


def starts(copy: dict[str, int], side: str) -> list[int]:
    """The first byte of every burst, in order."""
    return [
        outer * copy[f"{side}2"] + inner * copy[f"{side}1"] + burst * copy[side]
        for outer in range(copy["outer"])
        for inner in range(copy["inner"])
        for burst in range(copy["count"])
    ]


@examples
@given(copy=bursts(padded=True), seed=st.integers(0, 1000), constant=st.booleans(), pad=st.integers(0, 2**32 - 1))
def test_padded_strided_load(copy: dict[str, int], seed: int, constant: bool, pad: int) -> None:
    name = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t"}[copy["unit"]]
    source, background, result = random_bytes(seed), random_bytes(seed + 1), np.zeros(SPACE, np.uint8)
    left, right = copy["left"] // copy["unit"], copy["right"] // copy["unit"]
    pad_bytes = np.array([pad % 2 ** (8 * copy["unit"])], DTYPES[name]).view(np.uint8)
    expected = background.copy()
    for begin, to in zip(starts(copy, "outside"), starts(copy, "on_chip")):
        data = source[begin : begin + copy["length"]]
        value = pad_bytes if constant else data[: copy["unit"]]
        rest = -(copy["left"] + copy["length"] + copy["right"]) % BLOCK // copy["unit"]
        row = np.concatenate([np.tile(value, left), data, np.tile(value, right + rest)])
        expected[to : to + row.size] = row
    run(
        f"load_{name}", source.view(DTYPES[name]), background, result, copy["count"], copy["length"], left, right, constant,
        copy["outside"], copy["on_chip"], pad, copy["inner"], copy["outer"],
        copy["outside1"], copy["on_chip1"], copy["outside2"], copy["on_chip2"],
    )  # fmt: skip
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("length", [1, 31, 33, 40])
def test_packed_load_fills_the_last_block_alone(count: int, length: int) -> None:
    source, background, result = random_bytes(1), random_bytes(2), np.zeros(SPACE, np.uint8)
    run("load_uint8_t", source, background, result, count, length, 0, 0, 0, 64, length, 0, 1, 1, 0, 0, 0, 0)
    rows = [source[64 * burst : 64 * burst + length] for burst in range(count)]
    packed = np.concatenate(rows)
    expected = background.copy()
    expected[: packed.size] = packed
    end = -(-packed.size // BLOCK) * BLOCK
    expected[packed.size : end] = rows[-1][0]
    np.testing.assert_array_equal(result, expected)


@examples
@given(copy=bursts(padded=False), seed=st.integers(0, 1000), offset=st.integers(0, 64))
def test_strided_store_touches_its_bytes_alone(copy: dict[str, int], seed: int, offset: int) -> None:
    source, result = random_bytes(seed), random_bytes(seed + 1)
    expected = result.copy()
    for begin, to in zip(starts(copy, "on_chip"), starts(copy, "outside")):
        expected[offset + to : offset + to + copy["length"]] = source[begin : begin + copy["length"]]
    run(
        "store", source, result, offset, copy["count"], copy["length"], copy["outside"], copy["on_chip"],
        copy["inner"], copy["outer"], copy["on_chip1"], copy["outside1"], copy["on_chip2"], copy["outside2"],
    )  # fmt: skip
    np.testing.assert_array_equal(result, expected)
    assert ascend_sim.trace().kinds["copy_ub2gm"] == (
        copy["inner"] * copy["outer"],
        copy["inner"] * copy["outer"] * copy["count"] * copy["length"],
    )


@examples
@given(
    count=st.integers(1, 5),
    length=st.integers(1, 6),
    from_gap=st.integers(0, 4),
    to_gap=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
def test_copy_from_ub_to_l1(count: int, length: int, from_gap: int, to_gap: int, seed: int) -> None:
    source, background, result = random_bytes(seed), random_bytes(seed + 1), np.zeros(SPACE, np.uint8)
    expected = background.copy().reshape(-1, BLOCK)
    for burst in range(count):
        begin, to = burst * (length + from_gap), burst * (length + to_gap)
        expected[to : to + length] = source.reshape(-1, BLOCK)[begin : begin + length]
    run("to_l1", source, background, result, count, length, from_gap, to_gap)
    np.testing.assert_array_equal(result, expected.reshape(-1))


@examples
@given(seed=st.integers(0, 1000), op=st.sampled_from(["add", "max", "min"]), name=st.sampled_from(sorted(ATOMIC_TYPES)))
def test_atomic_store_combines_blocks_without_a_hazard(seed: int, op: str, name: str) -> None:
    dtype, blocks = ATOMIC_TYPES[name][1], 3
    lanes = 256 // np.dtype(dtype).itemsize
    # Small integers: additions are exact in every type, so the order does not matter.
    values = np.random.default_rng(seed).integers(-30, 31, (blocks + 1, lanes)).astype(dtype)
    source, result = values[1:].copy(), values[0].copy()
    run(f"{op}_{name}", source, result, blocks=blocks)
    reduce = {"add": np.add, "max": np.maximum, "min": np.minimum}[op].reduce
    np.testing.assert_array_equal(result, reduce(values, axis=0, dtype=dtype))


def test_scalar_access_past_the_data_cache() -> None:
    a, b = np.array([2**40, 0], np.int64), np.array([3, 0], np.int16)
    run("device_scalars", a, b)
    assert (a[1], b[1]) == (2**40 + 5, -4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "n_burst must be in"),
        ({"count": 4096}, "n_burst must be in"),
        ({"length": 0}, "len_burst must be in"),
        ({"length": 2097152}, "len_burst must be in"),
        ({"left": 33}, "paddings must be at most 32 bytes"),
        ({"count": 2, "to_stride": 72}, "dst_stride must be a multiple of 32"),
    ],
)
def test_wrong_arguments_of_a_load(arguments: dict[str, int], message: str) -> None:
    values = {
        "count": 1,
        "length": 64,
        "left": 0,
        "right": 0,
        "constant": 0,
        "from_stride": 64,
        "to_stride": 64,
        **arguments,
    }
    buffers = random_bytes(0), random_bytes(1), random_bytes(2)
    with pytest.raises(KernelError, match=message):
        run("load_uint8_t", *buffers, *values.values(), 0, 1, 1, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), TypeError, "takes 2 arguments"),
        ((np.zeros(2, np.int64), 3), TypeError, "b: expected a NumPy array or a torch tensor, got int"),
        ((np.zeros((4, 4), np.int64).T, np.zeros(2, np.int16)), ValueError, "a: arrays must be contiguous"),
    ],
)
def test_wrong_arguments_of_a_launch(arguments: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run("device_scalars", *arguments)


@pytest.mark.parametrize("blocks", [0, -1, 65536, True, 1.0])
def test_wrong_number_of_blocks(blocks: object) -> None:
    with pytest.raises(ValueError, match="blocks must be an integer"):
        ascend_sim.launch(library(), "device_scalars", blocks, np.zeros(2, np.int64), np.zeros(2, np.int16))


def test_unknown_kernel() -> None:
    with pytest.raises(ValueError, match="no kernel 'missing' in the library"):
        run("missing")
