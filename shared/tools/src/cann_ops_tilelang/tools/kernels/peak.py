"""Kernels that measure how fast this machine multiplies and adds."""

from typing import Any

import tilelang.cpu.language as T

from cann_ops_tilelang.core import kernel

# Independent accumulators, enough to hide the latency of a multiply-add; bfloat16 where the processor has dot products.
PEAK = r"""
#include <immintrin.h>
typedef float vec __attribute__((vector_size(64)));
// Each in a register of its own, which the compiler may neither spill nor fold.
#define EACH(step) step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)
#define START(j) vec acc##j = one * (float)j;
#define KEEP(j) asm volatile("" : "+v"(acc##j));
#define FMA(j) acc##j = acc##j * a + b; KEEP(j)
#define DOT(j) acc##j = (vec)_mm512_dpbf16_ps((__m512)acc##j, p, q); KEEP(j)
#define SUM(j) + acc##j
extern "C" float fma_chain(int32_t steps) {
  vec one = (vec){} + 1.0f, a = one * 0.999f, b = one * 1e-3f;
  EACH(START)
  for (int32_t s = 0; s < steps; ++s) { EACH(FMA) }
  return (one EACH(SUM))[0];
}
#ifdef __AVX512BF16__
extern "C" float bf16_chain(int32_t steps) {
  vec one = (vec){} + 1.0f;
  __m512bh p = (__m512bh)_mm512_set1_epi16(0x3c00), q = (__m512bh)_mm512_set1_epi16(0x3c01);
  EACH(START)
  for (int32_t s = 0; s < steps; ++s) { EACH(DOT) }
  return (one EACH(SUM))[0];
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
