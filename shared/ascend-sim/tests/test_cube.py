"""The matrix unit: layouts of its loads, products, and what the fixpipe makes of them, against models in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ascend_sim

pytest.importorskip("tilelang", reason="the kernels include TileLang's templates")

examples = settings(max_examples=60)

# name: (device type, type of the accumulator, NumPy storage, elements of a 32-byte block)
TYPES = {
    "bf16": ("bfloat16_t", "float", np.uint16, 16),
    "f16": ("half", "float", np.float16, 16),
    "f32": ("float", "float", np.float32, 8),
    "s8": ("int8_t", "int32_t", np.int8, 32),
    "e4m3": ("float8_e4m3_t", "float", np.uint8, 32),
    "e5m2": ("float8_e5m2_t", "float", np.uint8, 32),
}
TRANSPOSED = ("bf16", "f16", "f32", "s8")

# The parameters, all int32, are: for A and for B, rows and columns in GM, whether GM holds them transposed and the pitch
# of the L1 tile in rows; the first fractals of the parts to multiply; the product's m, k and n as issued; the rows and
# columns to store, C's pitch, and whether to multiply twice.
PRODUCT = """
#define LOAD_MODE static_cast<asc_load_l2_cache_mode>(0)
#define STORE_MODE static_cast<asc_store_l2_cache_mode>(0)
#define MODES(unit_flag, quant, relu) static_cast<asc_unit_flag_mode>(unit_flag), static_cast<asc_quant_mode>(quant), \\
                                      static_cast<asc_relu_pre_mode>(relu)
#define STORE_MODES(unit_flag, quant, relu) STORE_MODE, MODES(unit_flag, quant, relu)

template <typename T, typename C, bool transpose>
__aicore__ inline void load(__cbuf__ T* l1, __gm__ T* from, int rows, int columns, bool transposed, int pitch) {
  constexpr int c0 = 32 / sizeof(T);
  asc_fill_l1((__cbuf__ uint32_t*)l1, 0u, {.repeat = 1, .blk_num = (uint64_t)(8 * 1024), .dst_gap = 0});
  asc_sync_pipe(PIPE_MTE2);
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(pitch), 0);
  if (transposed) {
    asc_copy_gm2l1_dn2nz(l1, from, rows * sizeof(T), LOAD_MODE, rows, columns, 0, 0);
  } else {
    asc_copy_gm2l1_nd2nz(l1, from, columns * sizeof(T), LOAD_MODE, rows, columns, 0, 0);
  }
}

template <typename T, typename C, bool transpose>
__aicore__ inline void product(__gm__ T* a, __gm__ T* b, __gm__ C* c, __gm__ int32_t* p) {
  constexpr int c0 = 32 / sizeof(T);
  __cbuf__ T* l1a = (__cbuf__ T*)0;
  __cbuf__ T* l1b = (__cbuf__ T*)262144;
  __ca__ T* l0a = (__ca__ T*)0;
  __cb__ T* l0b = (__cb__ T*)0;
  __cc__ C* l0c = (__cc__ C*)1024;
  load<T, C, transpose>(l1a, a, p[0], p[1], p[2], p[3]);
  load<T, C, transpose>(l1b, b, p[4], p[5], p[6], p[7]);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  int m = p[12], k = p[13], n = p[14];
  if constexpr (transpose) {
    constexpr int square = c0 > 16 ? c0 : 16;
    int k_steps = (k + square - 1) / square * square / 16, m_steps = (m + square - 1) / square * square / c0,
        n_steps = (n + square - 1) / square * square / c0;
    asc_copy_l12l0a_transpose(l0a, l1a, p[8], p[9], k_steps, m_steps, p[3] / 16, (m + 15) / 16);
    asc_copy_l12l0b_transpose(l0b, l1b, p[10], p[11], k_steps, n_steps, p[7] / 16, (n + 15) / 16);
  } else {
    int k_steps = (k + c0 - 1) / c0, m_steps = (m + 15) / 16, n_steps = (n + 15) / 16;
    asc_copy_l12l0a(l0a, l1a, p[8], p[9], m_steps, k_steps, p[3] / 16, m_steps);
    asc_copy_l12l0b(l0b, l1b, p[10], p[11], n_steps, k_steps, p[7] / 16, n_steps);
  }
  asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_mmad(l0c, l0a, l0b, m, k, n, 0, true, false, true);
  if (p[18]) asc_mmad(l0c, l0a, l0b, m, k, n, 0, true, false, false);
  asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c, l0c, p[16], p[15], p[17], (m + 15) / 16 * 16, STORE_MODES(0, 0, 0), 0, 1, 0, 0);
}
"""

# L0C is filled with A (by a product with the identity), then stored in the way under test. Parameters of the copy:
# first row and column (multiples of 16), rows, columns, pitch, relu, atomic, matrices and their strides in L0C and GM.
FIXPIPE = """
template <int m, int n>
__aicore__ inline void fill_l0c(__gm__ float* a, __gm__ float* identity) {
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(m), 0);
  asc_copy_gm2l1_nd2nz((__cbuf__ float*)0, a, n * 4, LOAD_MODE, m, n, 0, 0);
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(n), 0);
  asc_copy_gm2l1_nd2nz((__cbuf__ float*)131072, identity, n * 4, LOAD_MODE, n, n, 0, 0);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_copy_l12l0a((__ca__ float*)0, (__cbuf__ float*)0, 0, 0, m / 16, n / 8, m / 16, m / 16);
  asc_copy_l12l0b((__cb__ float*)0, (__cbuf__ float*)131072, 0, 0, n / 16, n / 8, n / 16, n / 16);
  asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_mmad((__cc__ float*)0, (__ca__ float*)0, (__cb__ float*)0, m, n, n, 0, true, false, true);
  asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
}

template <typename T, int quant, bool nd, bool dn>
__aicore__ inline void store(__gm__ float* a, __gm__ float* identity, __gm__ T* c, __gm__ int32_t* p) {
  fill_l0c<64, 64>(a, identity);
  asc_set_l0c_copy_nz_para(p[7], p[8], p[9]);
  if (p[6]) asc_set_atomic_add_float();
  __cc__ float* l0c = (__cc__ float*)0 + p[1] / 16 * 1024 + p[0] * 16;
  asc_copy_l0c2gm(c, l0c, p[3], p[2], p[4], 64, STORE_MODES(0, quant, p[5]), 0, nd, dn, 0);
}

extern "C" __global__ __mix__(1, 2) void to_ub(__gm__ float* a, __gm__ float* identity, __gm__ float* c,
                                               __gm__ int32_t* p) {
  asc_init();
  __ubuf__ float *u = (__ubuf__ float *)0;
  if ASC_IS_AIC {
    fill_l0c<64, 64>(a, identity);
    asc_set_l0c_copy_nz_para(1, 0, 0);
    asc_copy_l0c2ub(u, (__cc__ float*)0, p[1], p[0], 64, 64, p[3], static_cast<asc_dual_dst_mode>(p[2]), MODES(0, 0, 0),
                    0, 1, 0, 0);
    asc_sync_intra_arrive(PIPE_FIX, 0);
    asc_sync_intra_arrive(PIPE_FIX, 16);
  }
  if ASC_IS_AIV {
    int32_t core = asc_get_sub_block_id();
    asc_sync_intra_wait(PIPE_MTE3, 0);
    int rows = p[2] == 1 ? p[0] / 2 : p[0], columns = p[2] == 2 ? p[1] / 2 : p[1];
    if (p[2] != 0 || core == p[3]) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)(c + core * 4096), (__ubuf__ uint8_t*)u, rows, columns * 4, STORE_MODE, 256,
                           256);
    }
  }
}

extern "C" __global__ __cube__ void fill(__gm__ float* c, int32_t repeat, int32_t blocks, int32_t gap, int32_t word) {
  asc_init();
  asc_fill_l1((__cbuf__ uint32_t*)0, 0x40000000u, {.repeat = 1, .blk_num = 1024, .dst_gap = 0});
  asc_fill_l1((__cbuf__ uint32_t*)131072, 0u, {.repeat = 1, .blk_num = 1024, .dst_gap = 0});
  asc_sync_pipe(PIPE_MTE2);
  asc_fill_l1((__cbuf__ uint32_t*)0, (uint32_t)word,
              {.repeat = (uint64_t)repeat, .blk_num = (uint64_t)blocks, .dst_gap = (uint64_t)gap});
  asc_fill_l1((__cbuf__ uint16_t*)131072, 0x3f80u, {.repeat = 16, .blk_num = 2, .dst_gap = 0});
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_copy_l12l0a((__ca__ float*)0, (__cbuf__ float*)0, 0, 0, 4, 8, 4, 4);
  asc_copy_l12l0b((__cb__ bfloat16_t*)0, (__cbuf__ bfloat16_t*)131072, 0, 0, 1, 2, 1, 1);
  asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  // The sums of eight elements of A, by a product in which every element of B is 0x3f803f80 (1.00194).
  for (int column = 0; column < 8; ++column) {
    asc_mmad((__cc__ float*)0 + column * 1024, (__ca__ float*)0 + column * 512, (__cb__ float*)0, 64, 8, 16, 0, true,
             false, true);
  }
  asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c, (__cc__ float*)0, 128, 64, 128, 64, STORE_MODES(0, 0, 0), 0, 1, 0, 0);
}

extern "C" __global__ __cube__ void gemv(__gm__ float* a, __gm__ float* b, __gm__ float* c, int32_t k) {
  asc_init();
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(16), 0);
  asc_copy_gm2l1_nd2nz((__cbuf__ float*)0, a, 32, LOAD_MODE, 16, 8, 0, 0);
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(16), 0);
  asc_copy_gm2l1_nd2nz((__cbuf__ float*)131072, b, 512, LOAD_MODE, 16, 128, 0, 0);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_copy_l12l0a((__ca__ float*)0, (__cbuf__ float*)0, 0, 0, 1, 1, 1, 1);
  asc_copy_l12l0b((__cb__ float*)0, (__cbuf__ float*)131072, 0, 0, 1, 16, 1, 1);
  asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_mmad((__cc__ float*)0, (__ca__ float*)0, (__cb__ float*)0, 1, k, 16, 0, false, false, true);
  asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c, (__cc__ float*)0, 16, 1, 16, 16, STORE_MODES(0, 0, 0), 0, 1, 0, 0);
}
"""

# A 16 x 16 product in float with switches: 1 no wait between the pipes M and FIX, 2 six rows of A are never loaded,
# 4 unit flags, 8 unit flags without the product's, 16 two products with unit flags, 32 HF32 to even, 64 HF32 away from
# zero, 128 only ten rows are stored.
SMALL = """
extern "C" __global__ __cube__ void small(__gm__ float* a, __gm__ float* b, __gm__ float* c, int32_t k,
                                          int32_t switches) {
  asc_init();
  if (switches & 96) {
    asc_enable_hf32();
    asc_set_hf32_round_mode(switches & 32 ? asc_hf32_round_mode::NEAREST_EVEN : asc_hf32_round_mode::NEAREST_AWAY);
  }
  int rows = switches & 2 ? 10 : 16, fix_flag = switches & 28 ? 3 : 0;
  int mmad_flag = switches & 8 ? 0 : switches & 20 ? 3 : 0;
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(16), 0);
  asc_copy_gm2l1_nd2nz((__cbuf__ float*)0, a, k * 4, LOAD_MODE, rows, k, 0, 0);
  asc_copy_gm2l1_nd2nz((__cbuf__ float*)131072, b, k * 4, LOAD_MODE, 16, k, 0, 0);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_copy_l12l0a((__ca__ float*)0, (__cbuf__ float*)0, 0, 0, 1, (k + 7) / 8, 1, 1);
  asc_copy_l12l0b((__cb__ float*)0, (__cbuf__ float*)131072, 0, 0, 1, (k + 7) / 8, 1, 1);
  asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
  asc_mmad((__cc__ float*)0, (__ca__ float*)0, (__cb__ float*)0, 16, k, 16, mmad_flag, true, false, true);
  if (switches & 16) {
    asc_mmad((__cc__ float*)0, (__ca__ float*)0, (__cb__ float*)0, 16, k, 16, mmad_flag, true, false, true);
  }
  if (!(switches & 29)) {
    asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
    asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  }
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c, (__cc__ float*)0, 16, switches & 128 ? 10 : 16, 16, 16, STORE_MODES(fix_flag, 0, 0), 0, 1, 0, 0);
}
"""
STORES = {
    "nd": ("float", 0, 1, 0),
    "dn": ("float", 0, 0, 1),
    "nz": ("float", 0, 0, 0),
    "f16": ("half", 1, 1, 0),
    "bf16": ("bfloat16_t", 16, 1, 0),
}


def source() -> str:
    parts = ["#include <tl_templates/ascend/common.h>\n", PRODUCT, FIXPIPE, SMALL]
    for name, (ctype, accumulator, _, _) in TYPES.items():
        for transpose in (False, True) if name in TRANSPOSED else (False,):
            parts.append(f"""
extern "C" __global__ __cube__ void product_{name}_{int(transpose)}(
    __gm__ {ctype}* a, __gm__ {ctype}* b, __gm__ {accumulator}* c, __gm__ int32_t* p) {{
  asc_init();
  product<{ctype}, {accumulator}, {str(transpose).lower()}>(a, b, c, p);
}}
""")
    for name, (ctype, quant, nd, dn) in STORES.items():
        parts.append(f"""
extern "C" __global__ __cube__ void store_{name}(
    __gm__ float* a, __gm__ float* identity, __gm__ {ctype}* c, __gm__ int32_t* p) {{
  asc_init();
  store<{ctype}, {quant}, {nd}, {dn}>(a, identity, c, p);
}}
""")
    return "".join(parts)


@pytest.fixture(scope="module")
def library() -> ascend_sim.Library:
    return ascend_sim.compile(source())


def to_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def small_integers(rng: np.random.Generator, shape: tuple[int, int], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Integers of at most 3 as stored in a type, and as numbers; their products sum exactly in float in any order."""
    x = rng.integers(-3, 4, shape)
    if name == "bf16":
        return to_bf16(x), x
    if name in ("e4m3", "e5m2"):
        mantissa_bits, bias = (3, 7) if name == "e4m3" else (2, 15)
        magnitude = np.abs(x)
        exponent = np.where(magnitude >= 2, 1, 0)
        mantissa = np.where(magnitude == 3, 1 << (mantissa_bits - 1), 0)
        code = np.where(magnitude == 0, 0, (exponent + bias) << mantissa_bits | mantissa)
        return (code | np.where(x < 0, 0x80, 0)).astype(np.uint8), x
    return x.astype(TYPES[name][2]), x


@st.composite
def products(draw: st.DrawFn, name: str, transpose: bool) -> dict[str, int]:
    c0 = TYPES[name][3]
    square = max(16, c0) if transpose else 1
    m, n = (draw(st.integers(1, 70)) for _ in range(2))
    k = draw(st.integers(1, 90))
    issued = [-(-size // square) * square for size in (m, k, n)]
    # A transposed load takes whole squares.
    row_step, column_step = (max(square // 16, 1), max(square // c0, 1)) if transpose else (1, 1)
    return {
        "m": m,
        "k": k,
        "n": n,
        "issued_m": issued[0],
        "issued_k": issued[1],
        "issued_n": issued[2],
        **{key: draw(st.integers(0, 1)) * row_step for key in ("row_a", "row_b")},
        **{key: draw(st.integers(0, 1)) * column_step for key in ("column_a", "column_b")},
        **{key: draw(st.integers(0, 1)) for key in ("gm_transposed_a", "gm_transposed_b", "twice")},
        "pad": draw(st.integers(0, 5)),
        "seed": draw(st.integers(0, 999)),
    }


@pytest.mark.parametrize(
    ("name", "transpose"), [(n, t) for n in TYPES for t in (False, True) if not t or n in TRANSPOSED]
)
@given(st.data())
@examples
def test_loads_and_products(library: ascend_sim.Library, name: str, transpose: bool, data: st.DataObject) -> None:
    d, c0 = data.draw(products(name, transpose)), TYPES[name][3]
    rng = np.random.default_rng(d["seed"])
    m, k, n = d["m"], d["k"], d["n"]

    def operand(rows: int, row: int, column: int, gm_transposed: int) -> tuple[np.ndarray, np.ndarray, list[int], int]:
        """GM contents, the part that is multiplied as (rows, k), parameters of the load, and the pitch in L1."""
        tile_rows, tile_columns = (k, rows) if transpose else (rows, k)
        total_rows, total_columns = row * 16 + tile_rows, column * c0 + tile_columns
        stored, x = small_integers(rng, (total_rows, total_columns), name)
        part = x[row * 16 :, column * c0 :]
        pitch = (-(-total_rows // 32) + 1) * 32
        gm = np.ascontiguousarray(stored.T) if gm_transposed else stored
        return gm, part.T if transpose else part, [total_rows, total_columns, gm_transposed, pitch], pitch

    a, a_part, a_load, _ = operand(m, d["row_a"], d["column_a"], d["gm_transposed_a"])
    b, b_part, b_load, _ = operand(n, d["row_b"], d["column_b"], d["gm_transposed_b"])
    expected = (a_part @ b_part.T) * (1 + d["twice"])
    pitch = n + d["pad"]
    c = np.full((m, pitch), 77, np.int32 if name == "s8" else np.float32)
    p = [
        *a_load,
        *b_load,
        d["row_a"],
        d["column_a"],
        d["row_b"],
        d["column_b"],
        d["issued_m"],
        d["issued_k"],
        d["issued_n"],
        m,
        n,
        pitch,
        d["twice"],
    ]
    # In a transposed load all of k takes part, so that the padding must be zero: the issued k is the one loaded.
    ascend_sim.launch(library, f"product_{name}_{int(transpose)}", 1, a, b, c, np.array(p, np.int32))
    np.testing.assert_array_equal(c[:, :n], expected)
    assert (c[:, n:] == 77).all()
    count = 1 + d["twice"]
    padded = -(-d["issued_m"] // 16) * 16 * (-(-d["issued_k"] // c0) * c0) * (-(-d["issued_n"] // 16) * 16)
    kinds = ascend_sim.trace().kinds
    assert kinds["mmad"] == (count, count * padded)
    assert kinds["useful_multiply_adds"] == (count, count * d["issued_m"] * d["issued_k"] * d["issued_n"])
    assert ascend_sim.trace().tensors["c"] == (0, m * n * 4)


def sequential_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros((len(a), len(b)), np.float32)
    for i in range(a.shape[1]):
        total = total + a[:, i : i + 1] * b[:, i][None]
    return total


def hf32(x: np.ndarray, away: bool) -> np.ndarray:
    mantissa, exponent = np.frexp(x.astype(np.float64))
    scaled = mantissa * 2**11
    rounded = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled) if away else np.rint(scaled)
    return np.ldexp(rounded, exponent - 11).astype(np.float32)


@pytest.mark.parametrize("switches", [0, 4, 32, 64])
@given(k=st.integers(1, 100), seed=st.integers(0, 999))
@examples
def test_sums_are_of_floats_in_the_order_of_k(library: ascend_sim.Library, switches: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=(16, k)).astype(np.float32) for _ in range(2))
    a.flat[0] = 1 + 2**-11  # half way between two HF32 numbers
    c = np.zeros((16, 16), np.float32)
    ascend_sim.launch(library, "small", 1, a, b, c, k, switches)
    if switches >= 32:
        a, b = hf32(a, switches == 64), hf32(b, switches == 64)
    np.testing.assert_array_equal(c, sequential_product(a, b))


def test_infinities_and_nans(library: ascend_sim.Library) -> None:
    special = np.array([np.inf, -np.inf, np.nan, 0.0, 1.0, -2.0, 3e38, 1e-40], np.float32)
    a, b = np.zeros((16, 2), np.float32), np.zeros((16, 2), np.float32)
    a[:8, 0], b[:8, 0] = special, special
    a[:, 1] = b[:, 1] = 1
    c = np.zeros((16, 16), np.float32)
    ascend_sim.launch(library, "small", 1, a, b, c, 2, 0)
    with np.errstate(invalid="ignore", over="ignore"):
        np.testing.assert_array_equal(c, sequential_product(a, b))


@given(k=st.integers(1, 128), seed=st.integers(0, 99))
@examples
def test_matrix_vector_product_reads_a_as_a_vector(library: ascend_sim.Library, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-3, 4, (1, 128)).astype(np.float32), rng.integers(-3, 4, (16, 128)).astype(np.float32)
    c = np.zeros((1, 16), np.float32)
    ascend_sim.launch(library, "gemv", 1, a, b, c, k)
    np.testing.assert_array_equal(c, a[:, :k] @ b[:, :k].T)


@given(repeat=st.integers(0, 12), blocks=st.integers(0, 30), gap=st.integers(0, 12), value=st.integers(-4, 4))
@examples
def test_fill(library: ascend_sim.Library, repeat: int, blocks: int, gap: int, value: int) -> None:
    c = np.zeros((64, 128), np.float32)
    word = int(np.float32(value).view(np.int32))
    ascend_sim.launch(library, "fill", 1, c, repeat, blocks, gap, word)
    l1 = np.full(1024, 2.0)
    for i in range(repeat):
        l1[i * (blocks + gap) : i * (blocks + gap) + blocks] = value
    one = np.array([0x3F803F80], np.uint32).view(np.float32)[0]
    sums = sequential_product(np.repeat(l1[:, None], 8, 1).astype(np.float32), np.full((1, 8), one))[:, 0]
    # B is 16 rows of ones; column j of C's eighth i is the sum of row r of the i-th column of fractals of A.
    np.testing.assert_array_equal(
        c.reshape(64, 8, 16), np.broadcast_to(sums[:512].reshape(8, 64).T[:, :, None], (64, 8, 16))
    )


@pytest.mark.parametrize("name", STORES)
@given(st.data())
@examples
def test_stores_to_global_memory(library: ascend_sim.Library, name: str, data: st.DataObject) -> None:
    row, column = 16 * data.draw(st.integers(0, 3)), 16 * data.draw(st.integers(0, 3))
    rows, columns = data.draw(st.integers(1, 64 - row)), data.draw(st.integers(1, 64 - column))
    relu, rng = data.draw(st.integers(0, 1)), np.random.default_rng(data.draw(st.integers(0, 99)))
    atomic = data.draw(st.integers(0, 1)) if name in ("nd", "dn") else 0
    a = (rng.normal(size=(64, 64)) * 10).astype(np.float32)
    tile = a[row : row + rows, column : column + columns]
    if relu:
        tile = np.maximum(tile, 0)
    extra = data.draw(st.integers(0, 3))
    pitch = {"dn": rows, "nz": 16 * rows}.get(name, columns) + extra
    shape = {"dn": (columns, pitch), "nz": (-(-columns // 16), pitch)}.get(name, (rows, pitch))
    before = np.full(shape, 5, {"f16": np.float16, "bf16": np.uint16}.get(name, np.float32))
    c, expected = before.copy(), before.copy()
    if name == "nz":
        for j in range(columns):
            expected[j // 16, np.arange(rows) * 16 + j % 16] = tile[:, j]
    else:
        part = {"dn": tile.T, "f16": tile.astype(np.float16), "bf16": to_bf16(tile)}.get(name, tile)
        expected[:, : part.shape[1]] = part + (5 if atomic else 0)
    p = np.array([row, column, rows, columns, pitch, relu, atomic, 1, 0, 0], np.int32)
    ascend_sim.launch(library, f"store_{name}", 1, a, np.eye(64, dtype=np.float32), c, p)
    np.testing.assert_array_equal(c, expected)


def test_several_matrices_in_one_store(library: ascend_sim.Library) -> None:
    a = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    c = np.zeros((3, 10, 40), np.float32)
    # Three tiles of 10 rows and 32 columns, 16 rows apart in L0C and 400 elements apart in GM.
    ascend_sim.launch(
        library,
        "store_nd",
        1,
        a,
        np.eye(64, dtype=np.float32),
        c,
        np.array([0, 0, 10, 32, 40, 0, 0, 3, 16, 400], np.int32),
    )
    for i in range(3):
        np.testing.assert_array_equal(c[i, :, :32], a[16 * i : 16 * i + 10, :32])
    assert not c[:, :, 32:].any()


@pytest.mark.parametrize("dual", [0, 1, 2])
@given(st.data())
@examples
def test_stores_to_the_unified_buffers(library: ascend_sim.Library, dual: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 64)) if dual != 1 else 2 * data.draw(st.integers(1, 32))
    columns = data.draw(st.integers(1, 64)) if dual != 2 else 32 * data.draw(st.integers(1, 2))
    core = data.draw(st.integers(0, 1)) if dual == 0 else 0
    a = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(64, 64)).astype(np.float32)
    c, expected = np.zeros((2, 64, 64), np.float32), np.zeros((2, 64, 64), np.float32)
    tile = a[:rows, :columns]
    if dual == 0:
        expected[core, :rows, :columns] = tile
    for part in range(2) if dual else ():
        half = np.split(tile, 2, axis=dual - 1)[part]
        expected[part, : half.shape[0], : half.shape[1]] = half
    ascend_sim.launch(
        library, "to_ub", 1, a, np.eye(64, dtype=np.float32), c, np.array([rows, columns, dual, core], np.int32)
    )
    np.testing.assert_array_equal(c, expected)


FAULTS = {
    1: ("hazard", "PIPE_FIX"),
    8: ("deadlock", None),
    16: ("deadlock", None),
    2: ("uninitialised", "PIPE_FIX"),
}


@pytest.mark.parametrize("switches", FAULTS)
def test_faults(library: ascend_sim.Library, switches: int) -> None:
    a, b, c = (np.ones((16, 16), np.float32) for _ in range(3))
    with pytest.raises(ascend_sim.KernelError) as raised:
        ascend_sim.launch(library, "small", 1, a, b, c, 16, switches)
    code, pipe = FAULTS[switches]
    assert raised.value.code == code
    assert pipe is None or raised.value.report["pipe"] == pipe


def test_rows_that_were_not_loaded_may_be_multiplied_if_they_are_not_stored(library: ascend_sim.Library) -> None:
    a, b = (np.random.default_rng(i).normal(size=(16, 16)).astype(np.float32) for i in range(2))
    c = np.zeros((16, 16), np.float32)
    ascend_sim.launch(library, "small", 1, a, b, c, 16, 2 + 128)
    np.testing.assert_array_equal(c[:10], sequential_product(a, b)[:10])


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([3, 64, 1, 0], "m_size must be even"),
        ([4, 48, 2, 0], "n_size must be a multiple of 32"),
        ([4, 64, 3, 0], "dual_dst_mode must be"),
    ],
)
def test_wrong_arguments_of_a_dual_store(library: ascend_sim.Library, p: list[int], message: str) -> None:
    a, c = np.zeros((64, 64), np.float32), np.zeros((2, 64, 64), np.float32)
    with pytest.raises(ascend_sim.KernelError, match=message) as raised:
        ascend_sim.launch(library, "to_ub", 1, a, np.eye(64, dtype=np.float32), c, np.array(p, np.int32))
    assert raised.value.code == "argument"


@pytest.mark.parametrize(
    ("statement", "function"),
    [
        (
            "asc_mmad((__cc__ int32_t*)0, (__ca__ half*)0, (__cb__ half*)0, 16, 16, 16, 0, true, false, true);",
            "asc_mmad",
        ),
        (
            "asc_mmad((__cc__ float*)0, (__ca__ half*)0, (__cb__ bfloat16_t*)0, 16, 16, 16, 0, true, false, true);",
            "asc_mmad",
        ),
        ("asc_copy_l12l0a((__ca__ double*)0, (__cbuf__ double*)0, 0, 0, 1, 1, 1, 1);", "asc_copy_l12l0a"),
        ("asc_copy_l0c2l1(x, x, 16, 16, 16, 16);", "asc_copy_l0c2l1"),
        ("asc_mmad_sparse(x, x, x, 16, 16, 16);", "asc_mmad_sparse"),
    ],
)
def test_unsupported_instruction_does_not_compile(statement: str, function: str) -> None:
    text = f"""#include <tl_templates/ascend/common.h>
extern "C" __global__ __cube__ void unsupported(__gm__ float* x) {{
  asc_init();
  {statement}
}}
"""
    with pytest.raises(ascend_sim.CompileError, match=function):
        ascend_sim.compile(text)
