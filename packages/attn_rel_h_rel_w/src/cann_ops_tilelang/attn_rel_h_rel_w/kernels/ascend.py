"""Ascend 950 kernel of ``attn_rel_h_rel_w``: the cube multiplies, the two vector cores beside it do the softmax."""

import math
from collections.abc import Sequence
from typing import Any

import tilelang.ascend.language as T
from tilelang.ascend.language import simd as S
from tilelang.layout import make_ascend_compact_nz_layout

from cann_ops_tilelang.core import kernel, num_vector_cores

# float32 lanes of a vector register, and bfloat16 elements of UB's 32-byte blocks.
LANES, BLOCK = 64, 16
# Rows of the matrix unit's tiles.
FRACTAL = 16
UB_BYTES = 253_952
# Most queries of a unit, half of them on each vector core, and keys of a step: two registers of scores a query.
MAX_QUERIES, KEYS = 128, 128
# Below every score. Unlike -inf it can be subtracted from itself.
LOWEST = -3.4028234663852886e38
# Flags from the cube to the vector cores: scores (in one of two buffers), sums. From them: weights (one of two), sums
# taken.
SCORES, SUMS = 0, 2
WEIGHTS, TAKEN = 0, 2
# What the cube adds to a flag of its second vector core.
SECOND = 16


def launch(
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    rel_h: Any,
    rel_w: Any,
    scale: float | None,
    grid_hw: Sequence[int] | None,
) -> None:
    if out.numel() == 0:
        return
    batch, seq_len, heads, head_dim = q.shape
    grid_h, grid_w = grid_hw or (math.isqrt(seq_len), math.isqrt(seq_len))
    strides = [tensor.stride(dim) for tensor in (q, k, v) for dim in (0, 2, 1)]
    strides += [tensor.stride(dim) for tensor in (rel_h, rel_w) for dim in (0, 1, 2)]
    # A cube comes with its two vector cores.
    build(head_dim, grid_h, grid_w, max(1, num_vector_cores() // 2))(
        out.data_ptr(),
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        rel_h.data_ptr(),
        rel_w.data_ptr(),
        head_dim**-0.5 if scale is None else scale,
        batch,
        heads,
        *strides,
    )


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def unified_buffer_bytes(queries: int, head_dim: int, grid_h: int, grid_w: int, widened: bool) -> int:
    """What a vector core needs for its half of a unit: scores, weights, sums, result, bias, numbers of a query."""
    bias = round_up(grid_h + 1, BLOCK) + round_up(grid_w, BLOCK)
    row = 8 * KEYS + 2 * KEYS + 10 * head_dim + (6 if widened else 2) * bias
    return queries // 2 * row + 2 * KEYS + 5 * 4 * LANES


def unit_queries(head_dim: int, grid_h: int, grid_w: int) -> int:
    """Queries of a unit: as many as an even share of units of MAX_QUERIES needs, fewer if UB cannot hold their bias."""
    seq_len = grid_h * grid_w
    queries = round_up(-(-seq_len // -(-seq_len // MAX_QUERIES)), FRACTAL)
    while unified_buffer_bytes(queries, head_dim, grid_h, grid_w, False) > UB_BYTES:
        queries -= FRACTAL
        if queries == 0:
            raise ValueError(
                f"attn_rel_h_rel_w: grid_hw must have so few rows and columns that the bias of {FRACTAL} queries fits "
                f"the {UB_BYTES} bytes of UB, got ({grid_h}, {grid_w})"
            )
    return queries


@kernel("ascend", auto_schedule=False)
def build(head_dim: int, grid_h: int, grid_w: int, num_cores: int) -> Any:
    """One kernel for each head_dim and grid, for every batch, number of heads and strides.

    A unit is one head and up to 128 queries; 196 queries make two of 112. Units are dealt to the cores in turn. The
    cube multiplies queries and keys, 128 keys a step, and hands the float32 scores to its two vector cores, half the
    queries each; they return the weights, in the cube's own layout, and take the product of weights and values, which
    they sum up in float32. Scores of a step are computed before the product of the step before, so that cube and
    vector cores work at once. Scores and weights stay in L0C, UB and L1. Keys and values are read once a unit.

    The softmax is kept up step by step: a row's scores stay in registers from the scores to its weights. With 64 lanes,
    128 scores cost 26 vector instructions and five for the sums. Their bias is gathered, 128 at once, from the rows
    of rel_h and rel_w in UB by indices that are computed once a step; a grid whose width is a multiple of 64 loads
    and broadcasts instead, from rows widened once a unit. Keys behind the last one take their bias from a column
    of -inf behind the grid, so the columns past it are never used. Weights are rounded to bfloat16 before they meet the
    values, their sum is not.
    """
    seq_len = grid_h * grid_w
    queries = unit_queries(head_dim, grid_h, grid_w)
    half_queries = queries // 2
    query_blocks = -(-seq_len // queries)
    key_blocks = -(-seq_len // KEYS)
    # Whole registers of keys share a row of the grid.
    aligned = grid_w % LANES == 0 and unified_buffer_bytes(queries, head_dim, grid_h, grid_w, True) <= UB_BYTES
    bias_dtype = "float32" if aligned else "bfloat16"
    # Behind the grid one column holds -inf, for keys behind the last.
    columns_h = round_up(grid_h + 1, BLOCK)
    columns_w = round_up(grid_w, BLOCK)
    slices = [(column, min(LANES, head_dim - column)) for column in range(0, head_dim, LANES)]
    halves = (0, 1)
    widened_h = [(column, min(LANES, columns_h - column)) for column in range(0, columns_h, LANES)]
    widened_w = list(range(0, columns_w, LANES))
    batch = T.dynamic("batch")
    heads = T.dynamic("heads")
    q_b, q_h, q_s = (T.dynamic(f"q_stride_{n}", "int64") for n in "bhs")
    k_b, k_h, k_s = (T.dynamic(f"k_stride_{n}", "int64") for n in "bhs")
    v_b, v_h, v_s = (T.dynamic(f"v_stride_{n}", "int64") for n in "bhs")
    h_b, h_h, h_s = (T.dynamic(f"rel_h_stride_{n}", "int64") for n in "bhs")
    w_b, w_h, w_s = (T.dynamic(f"rel_w_stride_{n}", "int64") for n in "bhs")

    @T.macro
    def start(highest, norm, total, bias_h, bias_w, loaded_h, loaded_w):
        all32 = S.pset(32)
        all16 = S.pset(16)
        rest = S.update_mask(head_dim % LANES)
        rest_h = S.update_mask(columns_h % LANES)
        zero = S.vdup(T.float32(0), "float32", all32)
        S.vsts(highest[0], S.vdup(T.float32(LOWEST), "float32", all32), all32)
        S.vsts(norm[0], zero, all32)
        for r in T.serial(half_queries):
            for column, size in slices:
                S.vsts(total[r, column], zero, all32 if size == LANES else rest)
            if aligned:
                for column, size in widened_h:
                    value = S.vcvt(S.vld(loaded_h[r, column], "UNPK_B16"), "float32", all16, part=0)
                    S.vsts(bias_h[r, column], value, all32 if size == LANES else rest_h)
                for column in widened_w:
                    value = S.vcvt(S.vld(loaded_w[r, column], "UNPK_B16"), "float32", all16, part=0)
                    S.vsts(bias_w[r, column], value, all32)
        S.mem_bar("VST_VST")
        one = S.pset(32, "PAT_VL1") if aligned else S.pset(16, "PAT_VL1")
        removed = S.vdup(-T.infinity(bias_dtype), bias_dtype)
        for r in T.serial(half_queries):
            S.vsts(bias_h[r, grid_h], removed, one, "ONEPT_B32" if aligned else "ONEPT_B16")

    @T.macro
    def divide(keys):
        """Row and column of the grid for keys, exact below 2 ** 21; row grid_h for keys behind the last."""
        all32 = S.pset(32)
        middle = S.vadds(S.vcvt(keys, "float32", all32), T.float32(0.5), all32)
        row = S.vcvt(S.vmuls(middle, T.float32(1 / grid_w), all32), "int32", all32, round="ROUND_F")
        row = S.vmins(row, T.int32(grid_h), all32)
        column = S.vsub(keys, S.vmuls(row, T.int32(grid_w), all32), all32)
        return row, S.vmins(column, T.int32(grid_w - 1), all32)

    @T.macro
    def softmax_step(scores, weights, bias_h, bias_w, highest, norm, step_norm, decay, slot, first, rows, scale):
        all32 = S.pset(32)
        all16 = S.pset(16)
        one32 = S.pset(32, "PAT_VL1")
        factor = S.vdup(scale, "float32", all32)
        score = S.alloc_local((2,), "float32")
        before = S.vld(highest[0])
        pointer = S.make_ubuf_ptr(T.access_ptr(weights[0, 0], "w", half_queries + 1, KEYS), "bfloat16")
        if not aligned:
            even = S.vadds(S.vmuls(S.vci(0, "int32"), T.int32(2), all32), first, all32)
            even_h, even_w = divide(even)
            odd_h, odd_w = divide(S.vadds(even, T.int32(1), all32))
            index_h = T.reinterpret(S.vor(even_h, S.vshls(odd_h, T.int16(16), all32), all32), "uint16x128")
            index_w = T.reinterpret(S.vor(even_w, S.vshls(odd_w, T.int16(16), all32), all32), "uint16x128")
        for r in T.serial(rows):
            if aligned:
                if grid_w == LANES:
                    of_w = S.vld(bias_w[r, 0])
                for half in halves:
                    key = first + half * LANES
                    of_h = S.vld(bias_h[r, T.truncdiv(key, grid_w)], "BRC_B32")
                    if grid_w != LANES:
                        of_w = S.vld(bias_w[r, T.truncmod(key, grid_w)])
                    score[half] = S.vld(scores[slot, r, half * LANES])
                    S.vmadd(score[half], factor, S.vadd(of_h, of_w, all32), all32)
            else:
                evens, odds = S.vld2(scores[slot, r, 0], "DINTLV_B32")
                score[0] = evens
                score[1] = odds
                of_h = S.vgather2(bias_h[r, 0], index_h, all16)
                of_w = S.vgather2(bias_w[r, 0], index_w, all16)
                for half in halves:
                    part_h = S.vcvt(of_h, "float32", all16, part=half)
                    part_w = S.vcvt(of_w, "float32", all16, part=half)
                    S.vmadd(score[half], factor, S.vadd(part_h, part_w, all32), all32)
            top = S.vdupv(S.vcmax(S.vmax(score[0], score[1], all32), all32), all32)
            top = S.vmax(top, S.vld(highest[r], "BRC_B32"), all32)
            S.vsts(highest[r], top, one32, "ONEPT_B32")
            a = S.vexpdif(score[0], top, all32)
            b = S.vexpdif(score[1], top, all32)
            S.vsts(step_norm[r], S.vcadd(S.vadd(a, b, all32), all32), one32, "ONEPT_B32")
            a = T.reinterpret(S.vcvt(a, "bfloat16", all32, sat=False, part=0), "uint16x128")
            if aligned:
                b = T.reinterpret(S.vcvt(b, "bfloat16", all32, sat=False, part=0), "uint16x128")
                packed, _ = S.vdintlv(a, b)
            else:
                b = T.reinterpret(S.vcvt(b, "bfloat16", all32, sat=False, part=1), "uint16x128")
                packed = S.vor(a, b, all16)
            packed = T.reinterpret(packed, "bfloat16x128")
            pointer = S.vsstb(packed, pointer, T.int32((half_queries + 1) << 16 | 1), all16, update=True)
        S.mem_bar("VST_VLD")
        shrink = S.vexpdif(before, S.vld(highest[0]), all32)
        S.vsts(decay[slot, 0], shrink, all32)
        S.vsts(norm[0], S.vadd(S.vmul(S.vld(norm[0]), shrink, all32), S.vld(step_norm[0]), all32), all32)

    @T.macro
    def add_sums(total, sums, decay, slot, rows):
        all32 = S.pset(32)
        rest = S.update_mask(head_dim % LANES)
        value = S.alloc_local((1,), "float32")
        for r in T.serial(rows):
            shrink = S.vld(decay[slot, r], "BRC_B32")
            for column, size in slices:
                value[0] = S.vld(total[r, column])
                S.vmadd(value[0], shrink, S.vld(sums[r, column]), all32)
                S.vsts(total[r, column], value[0], all32 if size == LANES else rest)

    @T.macro
    def finish(result, total, norm, rows):
        all32 = S.pset(32)
        rest = S.update_mask(head_dim % LANES)
        S.vsts(norm[0], S.vdiv(S.vdup(T.float32(1), "float32", all32), S.vld(norm[0]), all32), all32)
        S.mem_bar("VST_VLD")
        for r in T.serial(rows):
            factor = S.vld(norm[r], "BRC_B32")
            for column, size in slices:
                value = S.vcvt(S.vmul(S.vld(total[r, column]), factor, all32), "bfloat16", all32, sat=False)
                S.vsts(result[r, column], value, all32 if size == LANES else rest, "PK_B32")

    @T.prim_func
    def attn_rel_h_rel_w(
        out: T.StridedTensor(
            (batch, heads, seq_len, head_dim), (heads * (seq_len * head_dim), head_dim, heads * head_dim, 1), "bfloat16"
        ),
        q: T.StridedTensor((batch, heads, seq_len, head_dim), (q_b, q_h, q_s, 1), "bfloat16"),
        k: T.StridedTensor((batch, heads, seq_len, head_dim), (k_b, k_h, k_s, 1), "bfloat16"),
        v: T.StridedTensor((batch, heads, seq_len, head_dim), (v_b, v_h, v_s, 1), "bfloat16"),
        rel_h: T.StridedTensor((batch, heads, seq_len, grid_h), (h_b, h_h, h_s, 1), "bfloat16"),
        rel_w: T.StridedTensor((batch, heads, seq_len, grid_w), (w_b, w_h, w_s, 1), "bfloat16"),
        scale: T.float32,
    ):
        with T.Kernel(num_cores) as core:
            q_l1 = T.alloc_l1((queries, head_dim), "bfloat16")
            k_l1 = T.alloc_l1((2, KEYS, head_dim), "bfloat16")
            v_l1 = T.alloc_l1((2, head_dim, KEYS), "bfloat16")
            weights_l1 = T.alloc_l1((2, queries, KEYS), "bfloat16")
            scores_l0 = T.alloc_l0c((2, queries, KEYS), "float32")
            sums_l0 = T.alloc_l0c((queries, head_dim), "float32")
            scores = T.alloc_shared((2, half_queries, KEYS), "float32")
            weights = T.alloc_shared((half_queries + 1, KEYS), "bfloat16")
            T.annotate_layout({weights: make_ascend_compact_nz_layout(weights)})
            bias_h = T.alloc_shared((half_queries, columns_h), bias_dtype)
            bias_w = T.alloc_shared((half_queries, columns_w), bias_dtype)
            loaded_h = T.alloc_shared((half_queries, columns_h), "bfloat16") if aligned else bias_h
            loaded_w = T.alloc_shared((half_queries, columns_w), "bfloat16") if aligned else bias_w
            # In this order: a short row of sums is loaded with lanes of what lies behind it, which must not be written.
            total = T.alloc_shared((half_queries, head_dim), "float32")
            sums = T.alloc_shared((half_queries, head_dim), "float32")
            result = T.alloc_shared((half_queries, head_dim), "bfloat16")
            highest = T.alloc_shared((LANES,), "float32")
            norm = T.alloc_shared((LANES,), "float32")
            step_norm = T.alloc_shared((LANES,), "float32")
            decay = T.alloc_shared((2, LANES), "float32")

            with T.Cube():
                b = T.alloc_var("int32")
                h = T.alloc_var("int32")
                for flag in T.serial(5):
                    T.ascend_set_flag("MTE1_MTE2", flag)
                for flag in T.serial(3):
                    T.ascend_set_flag("FIX_M", flag)
                for turn in T.serial(T.ceildiv(batch * heads * query_blocks - core, num_cores)):
                    unit = turn * num_cores + core
                    b = T.truncdiv(unit // query_blocks, heads)
                    h = T.truncmod(unit // query_blocks, heads)
                    i = unit % query_blocks * queries
                    T.ascend_wait_flag("MTE1_MTE2", 4)
                    T.copy(q[b, h, i : i + queries, 0:head_dim], q_l1)
                    T.ascend_set_flag("MTE2_MTE1", 4)
                    T.ascend_wait_flag("MTE2_MTE1", 4)
                    # Scores of a step come before sums of the step before, so that the softmax overlaps both.
                    for step in T.serial(key_blocks + 1):
                        if step < key_blocks:
                            slot = step % 2
                            j = step * KEYS
                            T.ascend_wait_flag("MTE1_MTE2", slot)
                            T.copy(k[b, h, j : j + KEYS, 0:head_dim], k_l1[slot, 0:KEYS, 0:head_dim])
                            T.ascend_set_flag("MTE2_MTE1", slot)
                            T.ascend_wait_flag("MTE2_MTE1", slot)
                            T.ascend_wait_flag("FIX_M", slot)
                            T.gemm(q_l1, k_l1[slot, :, :], scores_l0[slot, :, :], transpose_B=True, clear_accum=True)
                            T.ascend_set_flag("MTE1_MTE2", slot)
                            T.ascend_set_flag("M_FIX", slot)
                            T.ascend_wait_flag("M_FIX", slot)
                            T.dual_copy(scores_l0[slot, :, :], scores[slot, :, :])
                            T.ascend_cross_core_set_flag(4, "PIPE_FIX", SCORES + slot)
                            T.ascend_cross_core_set_flag(4, "PIPE_FIX", SCORES + slot + SECOND)
                            T.ascend_set_flag("FIX_M", slot)
                            T.ascend_wait_flag("MTE1_MTE2", 2 + slot)
                            T.copy(v[b, h, j : j + KEYS, 0:head_dim], v_l1[slot, 0:head_dim, 0:KEYS], transpose=True)
                            T.ascend_set_flag("MTE2_MTE1", 2 + slot)
                        if step > 0:
                            last = (step - 1) % 2
                            T.ascend_wait_flag("MTE2_MTE1", 2 + last)
                            T.ascend_cross_core_wait_flag(4, "PIPE_MTE1", WEIGHTS + last)
                            T.ascend_cross_core_wait_flag(4, "PIPE_MTE1", WEIGHTS + last + SECOND)
                            T.ascend_wait_flag("FIX_M", 2)
                            T.gemm(
                                weights_l1[last, :, :], v_l1[last, :, :], sums_l0, transpose_B=True, clear_accum=True
                            )
                            T.ascend_set_flag("MTE1_MTE2", 2 + last)
                            T.ascend_set_flag("M_FIX", 2)
                            T.ascend_wait_flag("M_FIX", 2)
                            T.ascend_cross_core_wait_flag(4, "PIPE_FIX", TAKEN)
                            T.ascend_cross_core_wait_flag(4, "PIPE_FIX", TAKEN + SECOND)
                            T.dual_copy(sums_l0, sums)
                            T.ascend_cross_core_set_flag(4, "PIPE_FIX", SUMS)
                            T.ascend_cross_core_set_flag(4, "PIPE_FIX", SUMS + SECOND)
                            T.ascend_set_flag("FIX_M", 2)
                    T.ascend_set_flag("MTE1_MTE2", 4)
                for flag in T.serial(5):
                    T.ascend_wait_flag("MTE1_MTE2", flag)
                for flag in T.serial(3):
                    T.ascend_wait_flag("FIX_M", flag)
                T.ascend_cross_core_wait_flag(4, "PIPE_FIX", TAKEN)
                T.ascend_cross_core_wait_flag(4, "PIPE_FIX", TAKEN + SECOND)

            with T.Vector() as half:
                b = T.alloc_var("int32")
                h = T.alloc_var("int32")
                T.ascend_cross_core_set_flag(4, "PIPE_V", TAKEN)
                T.ascend_set_flag("V_MTE2", 0)
                T.ascend_set_flag("MTE3_V", 0)
                T.ascend_set_flag("MTE3_V", 1)
                for turn in T.serial(T.ceildiv(batch * heads * query_blocks - core, num_cores)):
                    unit = turn * num_cores + core
                    b = T.truncdiv(unit // query_blocks, heads)
                    h = T.truncmod(unit // query_blocks, heads)
                    i = unit % query_blocks * queries + half * half_queries
                    rows = T.max(T.min(seq_len - i, half_queries), 0)
                    T.ascend_wait_flag("V_MTE2", 0)
                    T.copy(rel_h[b, h, i : i + rows, 0:grid_h], loaded_h[0:rows, 0:grid_h])
                    T.copy(rel_w[b, h, i : i + rows, 0:grid_w], loaded_w[0:rows, 0:grid_w])
                    T.ascend_set_flag("MTE2_V", 0)
                    T.ascend_wait_flag("MTE2_V", 0)
                    with T.SimdVF():
                        start(highest, norm, total, bias_h, bias_w, loaded_h, loaded_w)
                    for step in T.serial(key_blocks):
                        slot = step % 2
                        T.ascend_cross_core_wait_flag(4, "PIPE_V", SCORES + slot)
                        T.ascend_wait_flag("MTE3_V", 0)
                        with T.SimdVF():
                            softmax_step(
                                scores,
                                weights,
                                bias_h,
                                bias_w,
                                highest,
                                norm,
                                step_norm,
                                decay,
                                slot,
                                step * KEYS,
                                rows,
                                scale,
                            )
                        T.ascend_set_flag("V_MTE3", 0)
                        T.ascend_wait_flag("V_MTE3", 0)
                        T.dual_copy(weights[0:half_queries, 0:KEYS], weights_l1[slot, 0:queries, 0:KEYS])
                        T.ascend_cross_core_set_flag(4, "PIPE_MTE3", WEIGHTS + slot)
                        T.ascend_set_flag("MTE3_V", 0)
                        if step > 0:
                            T.ascend_cross_core_wait_flag(4, "PIPE_V", SUMS)
                            with T.SimdVF():
                                add_sums(total, sums, decay, 1 - slot, rows)
                            T.ascend_cross_core_set_flag(4, "PIPE_V", TAKEN)
                    T.ascend_set_flag("V_MTE2", 0)
                    T.ascend_cross_core_wait_flag(4, "PIPE_V", SUMS)
                    T.ascend_wait_flag("MTE3_V", 1)
                    with T.SimdVF():
                        add_sums(total, sums, decay, (key_blocks - 1) % 2, rows)
                        S.mem_bar("VST_VLD")
                        finish(result, total, norm, rows)
                    T.ascend_cross_core_set_flag(4, "PIPE_V", TAKEN)
                    T.ascend_set_flag("V_MTE3", 1)
                    T.ascend_wait_flag("V_MTE3", 1)
                    T.copy(result[0:rows, 0:head_dim], out[b, h, i : i + rows, 0:head_dim])
                    T.ascend_set_flag("MTE3_V", 1)
                T.ascend_wait_flag("V_MTE2", 0)
                T.ascend_wait_flag("MTE3_V", 0)
                T.ascend_wait_flag("MTE3_V", 1)

    return attn_rel_h_rel_w
