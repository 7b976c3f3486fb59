"""Counts are exact and reproducible; cores of different blocks can meet at a barrier."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tilelang.ascend.language as T
import torch
from tilelang.ascend.language import simd as S

import ascend_sim
from ascend_sim import KernelError

ROWS, COLUMNS, BLOCKS = 12, 256, 3
M, N, K = 256, 448, 256


@T.prim_func
def doubled(x: T.Tensor((ROWS, COLUMNS), "float32"), y: T.Tensor((ROWS, COLUMNS), "float32")):
    with T.Kernel(BLOCKS) as core:
        ub = T.alloc_shared((COLUMNS,), "float32")
        for i in T.Pipelined(ROWS // BLOCKS, num_stages=2):
            T.copy(x[core * (ROWS // BLOCKS) + i, 0:COLUMNS], ub)
            with T.SimdVF():
                for j in T.serial(COLUMNS // 64):
                    value = S.vld(ub[j * 64])
                    S.vsts(ub[j * 64], S.vadd(value, value))
            T.copy(ub, y[core * (ROWS // BLOCKS) + i, 0:COLUMNS])


@T.prim_func
def matmul_relu(a: T.Tensor((M, K), "bfloat16"), b: T.Tensor((N, K), "bfloat16"), c: T.Tensor((M, N), "float32")):
    block_m, block_n, block_k = 256, 224, 128
    with T.Kernel(2) as core:
        a_l1 = T.alloc_l1((block_m, block_k), "bfloat16")
        b_l1 = T.alloc_l1((block_n, block_k), "bfloat16")
        c_l0c = T.alloc_l0c((block_m, block_n), "float32")
        c_ub = T.alloc_shared((block_m // 2, block_n), "float32")
        for tile in T.Persistent([N // block_n], 2, core):
            n = tile * block_n
            for k in T.Pipelined(K // block_k, num_stages=2):
                T.copy(a[0, k * block_k], a_l1)
                T.copy(b[n, k * block_k], b_l1)
                T.gemm(a_l1, b_l1, c_l0c, transpose_B=True, clear_accum=(k == 0))
            T.dual_copy(c_l0c, c_ub)
            with T.SimtVF(threads=128):
                for i, j in T.Parallel(block_m // 2, block_n):
                    c_ub[i, j] = T.max(c_ub[i, j], 0)
            T.dual_copy(c_ub, c[0:block_m, n : n + block_n])


@functools.cache
def program(prim_func: object, checks: bool = True) -> ascend_sim.Program:
    return ascend_sim.Program(prim_func, checks=checks)


def run_doubled(checks: bool = True) -> ascend_sim.Trace:
    x = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    y = np.zeros_like(x)
    program(doubled, checks)(x, y)
    np.testing.assert_array_equal(y, 2 * x)
    return ascend_sim.trace()


def run_matmul_relu() -> ascend_sim.Trace:
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(-8, 9, (M, K), generator=generator).bfloat16()
    b = torch.randint(-8, 9, (N, K), generator=generator).bfloat16()
    c = torch.zeros(M, N)
    program(matmul_relu)(a, b, c)
    torch.testing.assert_close(c, torch.relu(a.float() @ b.float().T), rtol=0, atol=0)
    return ascend_sim.trace()


def test_vector_kernel() -> None:
    trace = run_doubled()
    registers = ROWS * COLUMNS // 64
    assert (trace.kernel, trace.blocks) == ("doubled_kernel", BLOCKS)
    assert trace.tensors == {"x": (4 * ROWS * COLUMNS, 0), "y": (0, 4 * ROWS * COLUMNS)}
    assert trace.kinds["copy_gm2ub"] == trace.kinds["copy_ub2gm"] == (ROWS, 4 * ROWS * COLUMNS)
    assert trace.descriptors == (2 * ROWS, 4 * COLUMNS)
    counts = trace.vector_instructions
    assert {kind: counts[kind] for kind in ("vld", "vadd", "vst")} == {
        "vld": registers,
        "vadd": registers,
        "vst": registers,
    }
    assert trace.kinds["vadd"] == (registers, 64 * registers)
    assert trace.peak == {"UB": 2 * 4 * COLUMNS}  # double buffered
    assert (trace.multiply_adds, trace.simt_instructions) == (0, {})
    assert [(core.block, core.core) for core in trace.cores] == [(block, "vector core 0") for block in range(BLOCKS)]
    for core in trace.cores:
        assert core.kinds["copy_gm2ub"] == (ROWS // BLOCKS, 4 * ROWS * COLUMNS // BLOCKS)
        assert core.peak == trace.peak


def test_cube_and_vector_kernel() -> None:
    trace = run_matmul_relu()
    assert trace.multiply_adds == M * N * K
    # Both blocks load the whole of a and their half of b.
    assert trace.tensors == {"a": (2 * 2 * M * K, 0), "b": (2 * N * K, 0), "c": (0, 4 * M * N)}
    assert trace.peak["L0C"] == 4 * 256 * 224
    assert trace.peak["UB"] == 4 * 128 * 224
    assert [core.core for core in trace.cores] == ["cube core", "vector core 0", "vector core 1"] * 2
    assert trace.kinds["simt_ld"][1] == trace.kinds["simt_st"][1] == 4 * M * N


@pytest.mark.parametrize("run", [run_doubled, run_matmul_relu])
def test_two_runs_count_the_same(run: object) -> None:
    assert run() == run()


def test_counts_do_not_depend_on_the_checks() -> None:
    on, off = run_doubled(checks=True), run_doubled(checks=False)
    assert (on.kinds, on.tensors, on.descriptors) == (off.kinds, off.tensors, off.descriptors)


# Every block writes its row, meets the others, and reads the next block's row.
BARRIER = """
#include "c_api/asc_simd.h"
extern "C" __global__ __vector__ void rotate(__gm__ int32_t* x, __gm__ int32_t* scratch, __gm__ int32_t* y) {
  asc_init();
  __ubuf__ int32_t* ub = (__ubuf__ int32_t*)0;
  int64_t next = (asc_get_block_idx() + 1) % asc_get_block_num();
  asc_copy_gm2ub_align(ub, x + 64 * asc_get_block_idx(), 256);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_copy_ub2gm_align(scratch + 64 * asc_get_block_idx(), ub, 256);
  asc_sync_inter_arrive(PIPE_MTE3, 3);
  asc_sync_inter_wait(PIPE_MTE2, 3);
  asc_copy_gm2ub_align(ub + 64, scratch + 64 * next, 256);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_copy_ub2gm_align(y + 64 * asc_get_block_idx(), ub + 64, 256);
}
"""
POLLING = """
extern "C" __global__ __vector__ void poll(__gm__ int32_t* flag, __gm__ int32_t* x, __gm__ int32_t* y) {
  asc_init();
  __ubuf__ int32_t* ub = (__ubuf__ int32_t*)0;
  if (asc_get_block_idx() + 1 < asc_get_block_num()) {
    while (asc_load_dev(flag) != asc_get_block_num()) {}
    asc_copy_gm2ub_align(ub, x, 256);
    asc_sync();
    asc_copy_ub2gm_align(y + 64 * asc_get_block_idx(), ub, 256);
  } else {
    asc_copy_gm2ub_align(ub, y + 64 * asc_get_block_idx(), 256);
    asc_sync();
    asc_copy_ub2gm_align(x, ub, 256);
    asc_sync();
    asc_store_dev(flag, asc_get_block_num());
  }
}
"""


@functools.cache
def barrier_library() -> ascend_sim.Library:
    unordered = (
        BARRIER[BARRIER.index("extern") :]
        .replace("rotate", "unordered")
        .replace("asc_sync_inter_wait(PIPE_MTE2, 3)", "asc_sync_inter_wait(PIPE_V, 3)")
    )
    absent = (
        BARRIER[BARRIER.index("extern") :]
        .replace("rotate", "absent")
        .replace("asc_sync_inter_arrive", "if (block_idx != 1) asc_sync_inter_arrive")
    )
    return ascend_sim.compile(BARRIER + unordered + absent + POLLING)


def rotate(kernel: str, blocks: int) -> None:
    x = np.arange(64 * blocks, dtype=np.int32)
    scratch, y = np.zeros_like(x), np.zeros_like(x)
    ascend_sim.launch(barrier_library(), kernel, blocks, x, scratch, y)
    np.testing.assert_array_equal(y, np.roll(x, -64))


@pytest.mark.parametrize("blocks", [1, 2, 7, 56])
def test_barrier_across_blocks(blocks: int) -> None:
    rotate("rotate", blocks)


def test_barrier_that_another_pipe_waits_for_orders_nothing() -> None:
    with pytest.raises(KernelError, match="read after write of GM scratch") as error:
        rotate("unordered", 4)
    report = error.value.report
    assert (report["code"], report["pipe"], report["other"]["pipe"]) == ("hazard", "PIPE_MTE2", "PIPE_MTE3")
    assert report["block"] != report["other"]["block"]


def test_block_that_misses_the_barrier_is_a_deadlock() -> None:
    with pytest.raises(KernelError) as error:
        rotate("absent", 4)
    assert error.value.code == "deadlock"
    assert [wait["block"] for wait in error.value.report["waits"]] == [0, 1, 2, 3]


def test_blocks_can_poll_for_one_another() -> None:
    blocks = 5
    flag, x, y = np.zeros(8, np.int32), np.zeros(64, np.int32), np.zeros((blocks, 64), np.int32)
    y[-1] = np.arange(64)
    ascend_sim.launch(barrier_library(), "poll", blocks, flag, x, y)
    np.testing.assert_array_equal(y, np.tile(np.arange(64), (blocks, 1)))
