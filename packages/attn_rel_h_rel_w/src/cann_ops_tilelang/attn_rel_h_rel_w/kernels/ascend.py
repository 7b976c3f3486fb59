"""Ascend 950 kernel of ``attn_rel_h_rel_w``: the cube multiplies, the two vector cores beside it do the softmax."""

import math
from collections.abc import Sequence
from typing import Any

import tilelang.ascend.language as T
from tilelang.ascend.language import simd as S
from tilelang.layout import make_ascend_compact_nz_layout

from cann_ops_tilelang.core import kernel, num_cube_cores

# float32 lanes of a vector register, and bfloat16 elements of UB's 32-byte blocks.
LANES, BLOCK = 64, 16
# Queries of a unit, half of them on each vector core, and keys of a step: two registers of scores a query.
QUERIES, KEYS = 128, 128
ROWS = QUERIES // 2
# Below every score. Unlike -inf it can be subtracted from itself.
LOWEST = -3.4028234663852886e38
# Flags from the cube to the vector cores: scores (one of two buffers), sums. From them: weights (one of two), sums taken.
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
    strides = [stride for tensor in (q, k, v, rel_h, rel_w) for stride in tensor.stride()[:3]]
    build(head_dim, grid_h, grid_w, num_cube_cores())(
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


@kernel("ascend", auto_schedule=False)
def build(head_dim: int, grid_h: int, grid_w: int, num_cores: int) -> Any:
    seq_len = grid_h * grid_w
    query_blocks = -(-seq_len // QUERIES)
    key_blocks = -(-seq_len // KEYS)
    # Behind the grid one column holds -inf, for keys behind the last.
    columns_h = -(-(grid_h + 1) // BLOCK) * BLOCK
    columns_w = -(-grid_w // BLOCK) * BLOCK
    slices = [(column, min(LANES, head_dim - column)) for column in range(0, head_dim, LANES)]
    halves = (0, 1)
    batch = T.dynamic("batch")
    heads = T.dynamic("heads")
    q_b, q_s, q_h = (T.dynamic(f"q_stride_{n}", "int64") for n in "bsh")
    k_b, k_s, k_h = (T.dynamic(f"k_stride_{n}", "int64") for n in "bsh")
    v_b, v_s, v_h = (T.dynamic(f"v_stride_{n}", "int64") for n in "bsh")
    h_b, h_h, h_s = (T.dynamic(f"rel_h_stride_{n}", "int64") for n in "bhs")
    w_b, w_h, w_s = (T.dynamic(f"rel_w_stride_{n}", "int64") for n in "bhs")

    @T.macro
    def start(highest, norm, total, bias_h):
        all32 = S.pset(32)
        one16 = S.pset(16, "PAT_VL1")
        zero = S.vdup(T.float32(0), "float32", all32)
        removed = S.vdup(-T.infinity("bfloat16"), "bfloat16")
        S.vsts(highest[0], S.vdup(T.float32(LOWEST), "float32", all32), all32)
        S.vsts(norm[0], zero, all32)
        for r in T.serial(ROWS):
            S.vsts(bias_h[r, grid_h], removed, one16, "ONEPT_B16")
            for column, size in slices:
                S.vsts(total[r, column], zero, S.update_mask(size))

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
    def softmax_step(scores, weights, bias_h, bias_w, highest, step_highest, norm, step_norm, decay, slot, first, rows, scale):
        all32 = S.pset(32)
        all16 = S.pset(16)
        one32 = S.pset(32, "PAT_VL1")
        factor = S.vdup(scale, "float32", all32)
        score = S.alloc_local((2,), "float32")
        even = S.vadds(S.vmuls(S.vci(0, "int32"), T.int32(2), all32), first, all32)
        even_h, even_w = divide(even)
        odd_h, odd_w = divide(S.vadds(even, T.int32(1), all32))
        index_h = T.reinterpret(S.vor(even_h, S.vshls(odd_h, T.int16(16), all32), all32), "uint16x128")
        index_w = T.reinterpret(S.vor(even_w, S.vshls(odd_w, T.int16(16), all32), all32), "uint16x128")
        for r in T.serial(rows):
            a, b = S.vld2(scores[slot, r, 0], "DINTLV_B32")
            score[0] = a
            score[1] = b
            of_h = S.vgather2(bias_h[r, 0], index_h, all16)
            of_w = S.vgather2(bias_w[r, 0], index_w, all16)
            for half in halves:
                bias = S.vadd(
                    S.vcvt(of_h, "float32", all16, part=half), S.vcvt(of_w, "float32", all16, part=half), all32
                )
                S.vmadd(score[half], factor, bias, all32)
                S.vsts(scores[slot, r, half * LANES], score[half], all32)
            S.vsts(step_highest[r], S.vcmax(S.vmax(score[0], score[1], all32), all32), one32, "ONEPT_B32")
        S.mem_bar("VST_VLD")
        before = S.vld(highest[0])
        after = S.vmax(before, S.vld(step_highest[0]), all32)
        shrink = S.vexpdif(before, after, all32)
        S.vsts(highest[0], after, all32)
        S.vsts(decay[slot, 0], shrink, all32)
        S.mem_bar("VST_VLD")
        pointer = S.make_ubuf_ptr(T.access_ptr(weights[0, 0], "w", ROWS + 1, KEYS), "bfloat16")
        for r in T.serial(rows):
            top = S.vld(highest[r], "BRC_B32")
            a = S.vexpdif(S.vld(scores[slot, r, 0]), top, all32)
            b = S.vexpdif(S.vld(scores[slot, r, LANES]), top, all32)
            S.vsts(step_norm[r], S.vcadd(S.vadd(a, b, all32), all32), one32, "ONEPT_B32")
            a16 = T.reinterpret(S.vcvt(a, "bfloat16", all32, sat=False, part=0), "uint16x128")
            b16 = T.reinterpret(S.vcvt(b, "bfloat16", all32, sat=False, part=1), "uint16x128")
            packed = T.reinterpret(S.vor(a16, b16, all16), "bfloat16x128")
            pointer = S.vsstb(packed, pointer, T.int32((ROWS + 1) << 16 | 1), all16, update=True)
        S.mem_bar("VST_VLD")
        S.vsts(norm[0], S.vadd(S.vmul(S.vld(norm[0]), shrink, all32), S.vld(step_norm[0]), all32), all32)

    @T.macro
    def add_sums(total, sums, decay, slot, rows):
        all32 = S.pset(32)
        value = S.alloc_local((1,), "float32")
        for r in T.serial(rows):
            shrink = S.vld(decay[slot, r], "BRC_B32")
            for column, size in slices:
                value[0] = S.vld(total[r, column])
                S.vmadd(value[0], shrink, S.vld(sums[r, column]), all32)
                S.vsts(total[r, column], value[0], S.update_mask(size))

    @T.macro
    def finish(result, total, norm, rows):
        all32 = S.pset(32)
        S.vsts(norm[0], S.vdiv(S.vdup(T.float32(1), "float32", all32), S.vld(norm[0]), all32), all32)
        S.mem_bar("VST_VLD")
        for r in T.serial(rows):
            factor = S.vld(norm[r], "BRC_B32")
            for column, size in slices:
                value = S.vcvt(S.vmul(S.vld(total[r, column]), factor, all32), "bfloat16", all32, sat=False)
                S.vsts(result[r, column], value, S.update_mask(size), "PK_B32")

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
            q_l1 = T.alloc_l1((QUERIES, head_dim), "bfloat16")
            k_l1 = T.alloc_l1((2, KEYS, head_dim), "bfloat16")
            v_l1 = T.alloc_l1((2, head_dim, KEYS), "bfloat16")
            weights_l1 = T.alloc_l1((2, QUERIES, KEYS), "bfloat16")
            scores_l0 = T.alloc_l0c((2, QUERIES, KEYS), "float32")
            sums_l0 = T.alloc_l0c((QUERIES, head_dim), "float32")
            scores = T.alloc_shared((2, ROWS, KEYS), "float32")
            weights = T.alloc_shared((ROWS + 1, KEYS), "bfloat16")
            T.annotate_layout({weights: make_ascend_compact_nz_layout(weights)})
            bias_h = T.alloc_shared((ROWS, columns_h), "bfloat16")
            bias_w = T.alloc_shared((ROWS, columns_w), "bfloat16")
            sums = T.alloc_shared((ROWS, head_dim), "float32")
            total = T.alloc_shared((ROWS, head_dim), "float32")
            result = T.alloc_shared((ROWS, head_dim), "bfloat16")
            highest = T.alloc_shared((ROWS,), "float32")
            step_highest = T.alloc_shared((ROWS,), "float32")
            norm = T.alloc_shared((ROWS,), "float32")
            step_norm = T.alloc_shared((ROWS,), "float32")
            decay = T.alloc_shared((2, ROWS), "float32")

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
                    i = unit % query_blocks * QUERIES
                    T.ascend_wait_flag("MTE1_MTE2", 4)
                    T.copy(q[b, h, i : i + QUERIES, 0:head_dim], q_l1)
                    T.ascend_set_flag("MTE2_MTE1", 4)
                    T.ascend_wait_flag("MTE2_MTE1", 4)
                    # The scores of a step are computed before the sums of the one before, so that softmax overlaps both.
                    for step in T.serial(key_blocks + 1):
                        if step < key_blocks:
                            slot = step % 2
                            j = step * KEYS
                            T.ascend_wait_flag("MTE1_MTE2", slot)
                            T.copy(k[b, h, j : j + KEYS, 0:head_dim], k_l1[slot, 0:KEYS, 0:head_dim])
                            T.ascend_set_flag("MTE2_MTE1", slot)
                            T.ascend_wait_flag("MTE2_MTE1", slot)
                            T.ascend_wait_flag("FIX_M", slot)
                            T.gemm(
                                q_l1, k_l1[slot, :, :], scores_l0[slot, :, :], transpose_B=True, clear_accum=True
                            )
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
                            T.gemm(weights_l1[last, :, :], v_l1[last, :, :], sums_l0, transpose_B=True, clear_accum=True)
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
                    i = unit % query_blocks * QUERIES + half * ROWS
                    rows = T.max(T.min(seq_len - i, ROWS), 0)
                    T.ascend_wait_flag("V_MTE2", 0)
                    T.copy(rel_h[b, h, i : i + rows, 0:grid_h], bias_h[0:rows, 0:grid_h])
                    T.copy(rel_w[b, h, i : i + rows, 0:grid_w], bias_w[0:rows, 0:grid_w])
                    T.ascend_set_flag("MTE2_V", 0)
                    T.ascend_wait_flag("MTE2_V", 0)
                    with T.SimdVF():
                        start(highest, norm, total, bias_h)
                    for step in T.serial(key_blocks):
                        slot = step % 2
                        T.ascend_cross_core_wait_flag(4, "PIPE_V", SCORES + slot)
                        T.ascend_wait_flag("MTE3_V", 0)
                        with T.SimdVF():
                            softmax_step(
                                scores, weights, bias_h, bias_w, highest, step_highest, norm, step_norm, decay,
                                slot, step * KEYS, rows, scale,
                            )
                        T.ascend_set_flag("V_MTE3", 0)
                        T.ascend_wait_flag("V_MTE3", 0)
                        T.dual_copy(weights[0:ROWS, 0:KEYS], weights_l1[slot, 0:QUERIES, 0:KEYS])
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
