"""Kernels that measure how fast this machine multiplies and adds."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

# Independent accumulators, enough to hide the latency of a multiply-add; bfloat16 where the processor has dot products.
PEAK = """
#include <immintrin.h>
extern "C" float fma_chain(int32_t steps) {
  typedef float vec __attribute__((vector_size(64)));
  vec acc[12], a, b;
  for (int i = 0; i < 16; ++i) { a[i] = 0.999f; b[i] = 1e-3f; }
  for (int j = 0; j < 12; ++j) acc[j] = b * (float)j;
  for (int32_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) {
      acc[j] = acc[j] * a + b;
      asm volatile("" : "+v"(acc[j]));
    }
  }
  for (int j = 1; j < 12; ++j) acc[0] += acc[j];
  return acc[0][0];
}
#ifdef __AVX512BF16__
extern "C" float bf16_chain(int32_t steps) {
  __m512 acc[12];
  for (int j = 0; j < 12; ++j) acc[j] = _mm512_set1_ps((float)j);
  __m512bh a = (__m512bh)_mm512_set1_epi16(0x3c00), b = (__m512bh)_mm512_set1_epi16(0x3c01);
  for (int32_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) {
      acc[j] = _mm512_dpbf16_ps(acc[j], a, b);
      asm volatile("" : "+v"(acc[j]));
    }
  }
  for (int j = 1; j < 12; ++j) acc[0] = _mm512_add_ps(acc[0], acc[j]);
  return _mm512_cvtss_f32(acc[0]);
}
#else
extern "C" float bf16_chain(int32_t steps) { return fma_chain(steps); }
#endif
"""


@kernel("cpu")
def peak(dtype: str) -> Any:
    """Multiply-adds on registers alone."""
    tasks = T.dynamic("num_results")
    chain = "fma_chain" if dtype == "float32" else "bf16_chain"

    @T.prim_func
    def peak(results: T.Tensor((tasks,), "float32"), steps: T.int32, begin: T.int32, end: T.int32):
        with T.Kernel(1, prelude=PEAK):
            for i in T.serial(begin, end):
                results[i] = T.call_extern("float32", chain, steps)

    return peak
