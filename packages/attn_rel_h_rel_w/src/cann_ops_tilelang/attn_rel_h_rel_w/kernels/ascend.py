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
# Queries of a unit, half of them on each vector core, and keys of a step.
QUERIES, KEYS = 128, 128
ROWS = QUERIES // 2
FLOAT32_MIN = -3.4028234663852886e38


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


@kernel("ascend")
def build(head_dim: int, grid_h: int, grid_w: int, num_cores: int) -> Any:
    seq_len = grid_h * grid_w
    query_blocks = -(-seq_len // QUERIES)
    key_blocks = -(-seq_len // KEYS)
    columns_h = -(-grid_h // BLOCK) * BLOCK
    columns_w = -(-grid_w // BLOCK) * BLOCK
    slices = [(c, min(LANES, head_dim - c)) for c in range(0, head_dim, LANES)]
    batch = T.dynamic("batch")
    heads = T.dynamic("heads")
    q_b, q_s, q_h = (T.dynamic(f"q_stride_{n}", "int64") for n in "bsh")
    k_b, k_s, k_h = (T.dynamic(f"k_stride_{n}", "int64") for n in "bsh")
    v_b, v_s, v_h = (T.dynamic(f"v_stride_{n}", "int64") for n in "bsh")
    h_b, h_h, h_s = (T.dynamic(f"rel_h_stride_{n}", "int64") for n in "bhs")
    w_b, w_h, w_s = (T.dynamic(f"rel_w_stride_{n}", "int64") for n in "bhs")

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
            k_l1 = T.alloc_l1((KEYS, head_dim), "bfloat16")
            v_l1 = T.alloc_l1((head_dim, KEYS), "bfloat16")
            weights_l1 = T.alloc_l1((QUERIES, KEYS), "bfloat16")
            scores_l0 = T.alloc_l0c((QUERIES, KEYS), "float32")
            sums_l0 = T.alloc_l0c((QUERIES, head_dim), "float32")
            scores = T.alloc_shared((ROWS, KEYS), "float32")
            weights = T.alloc_shared((ROWS + 1, KEYS), "bfloat16")
            T.annotate_layout({weights: make_ascend_compact_nz_layout(weights)})
            bias_h = T.alloc_shared((ROWS, columns_h), "bfloat16")
            bias_w = T.alloc_shared((ROWS, columns_w), "bfloat16")
            sums = T.alloc_shared((ROWS, head_dim), "float32")
            total = T.alloc_shared((ROWS, head_dim), "float32")
            result = T.alloc_shared((ROWS, head_dim), "bfloat16")
            highest = T.alloc_shared((ROWS,), "float32")
            step_highest = T.alloc_shared((ROWS,), "float32")
            decay = T.alloc_shared((ROWS,), "float32")
            norm = T.alloc_shared((ROWS,), "float32")
            step_norm = T.alloc_shared((ROWS,), "float32")

            for unit in T.Persistent([batch * heads * query_blocks], num_cores, core, group_size=1, num_stages=0):
                b = unit // query_blocks // heads
                h = unit // query_blocks % heads
                i = unit % query_blocks * QUERIES
                T.copy(q[b, h, i : i + QUERIES, 0:head_dim], q_l1)
                T.dual_copy(rel_h[b, h, i : i + QUERIES, 0:grid_h], bias_h[0:ROWS, 0:grid_h])
                T.dual_copy(rel_w[b, h, i : i + QUERIES, 0:grid_w], bias_w[0:ROWS, 0:grid_w])
                with T.SimdVF():
                    all32 = S.pset(32)
                    S.vsts(highest[0], S.vdup(T.float32(FLOAT32_MIN), "float32", all32), all32)
                    S.vsts(norm[0], S.vdup(T.float32(0), "float32", all32), all32)
                    for r in T.serial(ROWS * head_dim // LANES):
                        S.vsts(total[0, 0], S.vdup(T.float32(0), "float32", all32), all32)
                for block in T.Pipelined(key_blocks, num_stages=2):
                    j = block * KEYS
                    T.copy(k[b, h, j : j + KEYS, 0:head_dim], k_l1)
                    T.gemm(q_l1, k_l1, scores_l0, transpose_B=True, clear_accum=True)
                    T.dual_copy(scores_l0, scores)
                    with T.SimdVF():
                        all32 = S.pset(32)
                        all16 = S.pset(16)
                        for r in T.serial(ROWS):
                            S.vsts(scores[r, 0], S.vmuls(S.vld(scores[r, 0]), scale, all32), all32)
                        pointer = S.make_ubuf_ptr(T.access_ptr(weights[0, 0], "w", ROWS + 1, KEYS), "bfloat16")
                        for r in T.serial(ROWS):
                            p = S.vcvt(S.vld(scores[r, 0]), "bfloat16", all32, sat=False)
                            pointer = S.vsstb(p, pointer, T.int32((ROWS + 1) << 16 | 1), all16, update=True)
                    T.dual_copy(weights[0:ROWS, 0:KEYS], weights_l1)
                    T.copy(v[b, h, j : j + KEYS, 0:head_dim], v_l1, transpose=True)
                    T.gemm(weights_l1, v_l1, sums_l0, transpose_B=True, clear_accum=True)
                    T.dual_copy(sums_l0, sums)
                    with T.SimdVF():
                        all32 = S.pset(32)
                        for r in T.serial(ROWS):
                            S.vsts(total[r, 0], S.vadd(S.vld(total[r, 0]), S.vld(sums[r, 0]), all32), all32)
                with T.SimdVF():
                    all32 = S.pset(32)
                    for r in T.serial(ROWS):
                        S.vsts(result[r, 0], S.vcvt(S.vld(total[r, 0]), "bfloat16", all32, sat=False), all32, "PK_B32")
                T.dual_copy(result[0:ROWS, 0:head_dim], out[b, h, i : i + QUERIES, 0:head_dim])

    return attn_rel_h_rel_w
