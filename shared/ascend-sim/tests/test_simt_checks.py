"""What is reported of wrong SIMT code, and that right code is not reported."""

from __future__ import annotations

import numpy as np
import pytest

import ascend_sim

pytest.importorskip("tilelang", reason="the kernels include TileLang's templates")

# The statements of a thread by kernel. `u` is an array in UB, `x` and `y` are in global memory, `t` is the thread.
WRONG = {
    "read_of_a_neighbour": "u[t] = x[t];\n  y[t] = u[t ^ 32];",
    "read_within_a_warp": "u[t] = x[t];\n  y[t] = u[t ^ 1];",
    "overwrite": "u[t / 2] = x[t];\n  asc_syncthreads();\n  y[t] = u[t / 2];",
    "overwrite_of_what_was_read": "u[t] = x[t];\n  asc_syncthreads();\n  y[t] = u[t ^ 33];\n  u[t] = 9.0f;",
    "global_memory": "y[t] = x[t];\n  x[t] = y[t ^ 40];",
    "part_of_a_word": (
        "u[t] = x[t];\n  asc_syncthreads();\n  ((__ubuf__ uint8_t*)u)[4 * t + 3] = 1;\n  y[t] = u[(t + 32) % 64];"
    ),
    "plain_access_to_an_atomic": (
        "if (t == 0) u[0] = 0.0f;\n  asc_syncthreads();\n  asc_atomic_add(&u[0], 1.0f);\n  y[t] = u[0];"
    ),
    "warp_barrier_between_warps": (
        "u[t] = x[t];\n  cooperative_groups::coalesced_threads().sync();\n  y[t] = u[t ^ 32];"
    ),
}
RIGHT = {
    "right_with_a_barrier": "u[t] = x[t];\n  asc_syncthreads();\n  y[t] = u[t ^ 32];",
    "right_same_value": "u[t / 2] = 5.0f;\n  asc_syncthreads();\n  y[t] = u[t / 2];",
    "right_within_a_warp": "u[t] = x[t];\n  cooperative_groups::coalesced_threads().sync();\n  y[t] = u[t ^ 1];",
    "right_shared_reads": (
        "if (t < 32) u[t] = x[t];\n  "
        "asc_syncthreads();\n  "
        "y[t] = u[t % 32] + u[0];\n  "
        "asc_syncthreads();\n  "
        "u[t] = 1.0f;"
    ),
    "right_own_bytes": "((__ubuf__ uint8_t*)u)[t] = t;\n  y[t] = ((__ubuf__ uint8_t*)u)[t];",
    "right_atomics": (
        "if (t == 0) u[0] = 0.0f;\n  "
        "asc_syncthreads();\n  "
        "asc_atomic_add(&u[0], 1.0f);\n  "
        "asc_syncthreads();\n  "
        "y[t] = u[0];"
    ),
    "right_garbage_stays_inside": (
        "if (t < 32) u[t] = x[t];\n  "
        "asc_syncthreads();\n  "
        "float v = u[t] * 2.0f;\n  "
        "if (t < 32) y[t] = v;\n  "
        "u[64 + t] = v;"
    ),
    "right_garbage_is_masked": (
        "if (t < 32) u[t] = x[t];\n  asc_syncthreads();\n  float v = u[t];\n  y[t] = t < 32 ? v : 0.0f;"
    ),
}
OTHER = {
    "divergent_barrier": ("deadlock", "if (t < 40) asc_syncthreads();\n  y[t] = x[t];"),
    "two_barriers": (
        "deadlock",
        "if (t < 40) {\n    asc_syncthreads();\n  } else {\n    asc_syncthreads();\n  }\n  y[t] = x[t];",
    ),
    "reserved_unified_buffer": ("out-of-bounds", "u[55296 + t] = x[t];\n  y[t] = 0.0f;"),
    "past_a_tensor": ("out-of-bounds", "y[t + 1] = x[t];"),
    "before_a_tensor": ("out-of-bounds", "y[t] = x[t - 1];"),
    "never_written": ("uninitialised", "u[t] = x[t];\n  asc_syncthreads();\n  y[t] = u[t + 1];"),
    "garbage_as_an_index": ("uninitialised", "y[t] = x[((__ubuf__ uint32_t*)u)[t] % 64];"),
    "garbage_in_a_sum": (
        "uninitialised",
        "if (t < 32) u[t] = x[t];\n  asc_syncthreads();\n  y[t] = asc_reduce_add(u[t]);",
    ),
    "garbage_in_a_condition": ("uninitialised", "if (u[t] >= 0.0f) y[t] = x[t];"),
    "inactive_lane": ("uninitialised", "if (t != 3) y[t] = asc_shfl_xor(x[t], 1);"),
    "misaligned": ("misaligned", "y[t] = x[t] + *(__gm__ float*)((__gm__ uint8_t*)x + 2);"),
    "unequal_width": ("argument", "y[t] = asc_shfl(x[t], 0, 12);"),
    "failed_assertion": ("assert", "assert(x[t] < 63.0f);\n  y[t] = 0.0f;"),
}


def kernel(name: str, body: str) -> str:
    return f"""
__simt_vf__ __launch_bounds__(64) inline void {name}_vf(__gm__ float* x, __gm__ float* y, __ubuf__ float* u) {{
  int32_t t = threadIdx.x;
  {body}
}}
extern "C" __global__ __vector__ void {name}(__gm__ float* x, __gm__ float* y, int32_t threads) {{
  asc_init();
  __ubuf__ float *u = (__ubuf__ float *)0;
  asc_vf_call<{name}_vf>(cce::dim3(threads), x, y, u);
}}
"""


HEADER = "#include <tl_templates/ascend/common.h>\n#include <simt_api/cooperative_groups.h>\n"
DMA = """
__simt_vf__ __launch_bounds__(64) inline void doubled_vf(__ubuf__ float* u) { u[64 + threadIdx.x] = u[threadIdx.x] * 2.0f; }
extern "C" __global__ __vector__ void doubled(__gm__ float* x, __gm__ float* y, int32_t count) {
  asc_init();
  __ubuf__ float *u = (__ubuf__ float *)0;
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)u, (__gm__ uint8_t*)x, 1, 128, 0, 0, 0,
                       static_cast<asc_load_l2_cache_mode>(0), 128, 128);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_vf_call<doubled_vf>(cce::dim3(64), u);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_copy_ub2gm_align((__gm__ uint8_t*)y, (__ubuf__ uint8_t*)(u + 64), 1, count * 4,
                       static_cast<asc_store_l2_cache_mode>(0), 256, 256);
}
__simt_vf__ __launch_bounds__(64) inline void after_dma_vf(__ubuf__ float* u, __gm__ float* y) {
  y[threadIdx.x] = u[threadIdx.x];
}
extern "C" __global__ __vector__ void after_dma(__gm__ float* x, __gm__ float* y, int32_t wait) {
  asc_init();
  __ubuf__ float *u = (__ubuf__ float *)0;
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)u, (__gm__ uint8_t*)x, 1, 256, 0, 0, 0,
                       static_cast<asc_load_l2_cache_mode>(0), 256, 256);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  if (wait) asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_vf_call<after_dma_vf>(cce::dim3(64), u, y);
}
"""


@pytest.fixture(scope="module")
def library() -> ascend_sim.Library:
    bodies = {**WRONG, **RIGHT, **{name: body for name, (_, body) in OTHER.items()}}
    return ascend_sim.compile(HEADER + DMA + "".join(kernel(name, body) for name, body in bodies.items()))


def run(library: ascend_sim.Library, name: str, last: int = 64) -> np.ndarray:
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    ascend_sim.launch(library, name, 1, x, y, last)
    return y


@pytest.mark.parametrize("name", WRONG)
def test_race_between_threads_is_reported_with_both_accesses(library: ascend_sim.Library, name: str) -> None:
    with pytest.raises(ascend_sim.KernelError) as raised:
        run(library, name)
    report = raised.value.report
    assert report["code"] == "simt-race" and report["kernel"] == name
    statements = [line.strip() for line in WRONG[name].splitlines()]
    assert report["source"]["text"] in statements
    assert report["other"]["source"]["text"] in statements


@pytest.mark.parametrize("name", RIGHT)
def test_ordered_accesses_are_not_reported(library: ascend_sim.Library, name: str) -> None:
    x = np.arange(64, dtype=np.float32)
    expected = {
        "right_with_a_barrier": x[np.arange(64) ^ 32],
        "right_same_value": np.full(64, 5.0),
        "right_within_a_warp": x[np.arange(64) ^ 1],
        "right_shared_reads": x % 32,
        "right_own_bytes": x,
        "right_atomics": np.full(64, 64.0),
        "right_garbage_stays_inside": np.where(x < 32, 2 * x, 0),
        "right_garbage_is_masked": np.where(x < 32, x, 0),
    }[name]
    np.testing.assert_array_equal(run(library, name), expected)


@pytest.mark.parametrize("name", OTHER)
def test_other_faults(library: ascend_sim.Library, name: str) -> None:
    with pytest.raises(ascend_sim.KernelError) as raised:
        run(library, name)
    assert raised.value.code == OTHER[name][0]
    assert raised.value.report["source"]["text"] in [line.strip() for line in OTHER[name][1].splitlines()]


def test_too_many_threads(library: ascend_sim.Library) -> None:
    with pytest.raises(ascend_sim.KernelError, match=r"number of threads must be in \[1, 2048\], got 2049"):
        run(library, "right_own_bytes", 2049)


def test_missing_wait_for_a_copy_is_a_hazard(library: ascend_sim.Library) -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with pytest.raises(ascend_sim.KernelError) as raised:
        ascend_sim.launch(library, "after_dma", 1, x, y, 0)
    report = raised.value.report
    assert (report["code"], report["pipe"], report["other"]["pipe"]) == ("hazard", "PIPE_V", "PIPE_MTE2")
    ascend_sim.launch(library, "after_dma", 1, x, y, 1)
    np.testing.assert_array_equal(y, x)


def test_garbage_is_followed_through_the_unified_buffer(library: ascend_sim.Library) -> None:
    x, y = np.arange(1, 65, dtype=np.float32), np.zeros(64, np.float32)
    ascend_sim.launch(library, "doubled", 1, x, y, 32)  # 32 elements are loaded, 64 threads work, 32 results are stored
    np.testing.assert_array_equal(y, np.where(np.arange(64) < 32, 2 * x, 0))
    with pytest.raises(ascend_sim.KernelError, match="uninitialised"):
        ascend_sim.launch(library, "doubled", 1, x, y, 33)


def test_a_failed_kernel_leaves_nothing_behind(library: ascend_sim.Library) -> None:
    for name in ("read_of_a_neighbour", "divergent_barrier", "right_with_a_barrier"):
        if name.startswith("right"):
            run(library, name)
        else:
            with pytest.raises(ascend_sim.KernelError):
                run(library, name)


def test_counts_of_threads_and_their_accesses(library: ascend_sim.Library) -> None:
    run(library, "right_with_a_barrier")
    kinds = ascend_sim.trace().kinds
    assert kinds["simt_vf"] == (1, 64)
    assert kinds["simt_ld"] == (128, 512) and kinds["simt_st"] == (128, 512)
    assert kinds["simt_barrier"] == (64, 64)
    assert ascend_sim.trace().tensors["x"] == (256, 0) and ascend_sim.trace().tensors["y"] == (0, 256)


@pytest.mark.parametrize(
    "statement",
    [
        "y[t] = asc_shfl((double)x[t], 1);",
        "asc_atomic_and(&y[t], 1.0f);",
        "y[t] = asc_reduce_add((int64_t)t);",
        "asc_shfl_around(x[t]);",
    ],
)
def test_unsupported_function_does_not_compile(statement: str) -> None:
    name = statement.split("(")[0].split()[-1]
    with pytest.raises(ascend_sim.CompileError, match=name):
        ascend_sim.compile(HEADER + kernel("unsupported", statement))


def test_without_checks_the_results_are_the_same() -> None:
    library = ascend_sim.compile(HEADER + kernel("unchecked", RIGHT["right_with_a_barrier"]), checks=False)
    np.testing.assert_array_equal(run(library, "unchecked"), np.arange(64) ^ 32)
