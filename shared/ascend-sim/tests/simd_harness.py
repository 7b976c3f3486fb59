"""Runs snippets of vector code on records of bytes.

A record is a mask (32 bytes), a second mask (32 bytes) and 1024 bytes of data; registers `in<T>(k)` are its four quarters. A snippet
reads the record and writes another of the same size, which starts as a copy, with `out(k, register)` and `out_mask(k, mask)`, or through
the pointers `src` and `dst` to the data. All snippets of a test module are one kernel, since compiling takes seconds and running
microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DATA = 1024
RECORD = 64 + DATA
BATCH = 96  # records that fit into UB, twice

_PRELUDE = """
#include <tl_templates/ascend/common.h>
using namespace simd_inst;

// Not inlined, for the sake of compile time.
template <class T>
__attribute__((noinline, no_sanitize("thread"))) vec_t<T> in_register(__ubuf__ uint8_t* record, int k) {
  vec_t<T> result;
  asc_loadalign(result, (__ubuf__ T*)(record + 64 + 256 * k));
  return result;
}
template <class V>
__attribute__((noinline, no_sanitize("thread"))) void out_register(__ubuf__ uint8_t* record, int k, V value) {
  asc_storealign((__ubuf__ uint8_t*)(record + 64 + 256 * k), (vector_u8&)value, asc_create_mask_b8(PAT_ALL));
}
#define in_(T, k) in_register<T>(input, k)
#define out(k, value) out_register(output, k, value)
#define out_mask(k, value) psts_norm(value, (__ubuf__ uint32_t*)(output + 32 * (k)), 0)
"""

_FUNCTION = """
__simd_vf__ inline void snippet_{index}(__ubuf__ uint8_t* input, __ubuf__ uint8_t* output, int records) {{
  for (int record = 0; record < records; ++record, input += {record}, output += {record}) {{
    vector_bool mask = plds_norm((__ubuf__ uint32_t*)input, 0), mask2 = plds_norm((__ubuf__ uint32_t*)(input + 32), 0);
    __ubuf__ uint8_t* src = input + 64;
    __ubuf__ uint8_t* dst = output + 64;
    (void)mask, (void)mask2, (void)src, (void)dst;
{body}
  }}
}}
"""

_KERNEL = """
extern "C" __global__ __vector__ void snippets(__gm__ uint8_t* records_in, __gm__ uint8_t* records_out, int32_t snippet, int32_t records) {{
  asc_init();
  __ubuf__ uint8_t* input = (__ubuf__ uint8_t*)0;
  __ubuf__ uint8_t* output = (__ubuf__ uint8_t*){offset};
  const uint32_t bytes = records * {record};
  asc_copy_gm2ub_align(input, records_in, 1, bytes, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), bytes, bytes);
  asc_copy_gm2ub_align(output, records_in, 1, bytes, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), bytes, bytes);
  asc_sync();
  switch (snippet) {{
{cases}
  }}
  asc_sync();
  asc_copy_ub2gm_align(records_out, output, 1, bytes, static_cast<asc_store_l2_cache_mode>(0), bytes, bytes);
}}
"""


class Snippets:
    """Named snippets, compiled on first use."""

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {}
        self._kernels = None

    def add(self, name: str, body: str) -> str:
        if name in self.bodies:
            raise ValueError(f"snippet {name!r} is defined twice")
        self.bodies[name] = body
        return name

    def source(self) -> str:
        functions = [_FUNCTION.format(index=i, record=RECORD, body=body) for i, body in enumerate(self.bodies.values())]
        cases = "\n".join(f"    case {i}: snippet_{i}(input, output, records); break;" for i in range(len(functions)))
        return _PRELUDE + "".join(functions) + _KERNEL.format(record=RECORD, offset=RECORD * BATCH, cases=cases)

    def run(self, name: str, masks: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Run on n records of masks (n, 2, 256) bool and data (n, 1024) uint8; returns the same of the outputs."""
        import ascend_sim

        if self._kernels is None:
            self._kernels = ascend_sim.compile(self.source())
        index = list(self.bodies).index(name)
        packed = np.packbits(masks, axis=-1, bitorder="little").reshape(len(data), 64)
        records = np.ascontiguousarray(np.concatenate([packed, data], axis=1))
        result = np.zeros_like(records)
        for start in range(0, len(records), BATCH):
            part = np.ascontiguousarray(records[start : start + BATCH])
            target = np.zeros_like(part)
            ascend_sim.launch(self._kernels, "snippets", 1, part, target, index, len(part))
            result[start : start + BATCH] = target
        bits = np.unpackbits(result[:, :64], axis=-1, bitorder="little").astype(bool).reshape(len(result), 2, 256)
        return bits, result[:, 64:]


def same_bits(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Elementwise: equal bits, or both NaN."""
    unsigned = f"uint{8 * actual.dtype.itemsize}"
    equal = actual.view(unsigned) == expected.view(unsigned)
    if np.issubdtype(actual.dtype, np.integer):
        return equal
    wide = actual.astype(np.float32), expected.astype(np.float32)
    return equal | (np.isnan(wide[0]) & np.isnan(wide[1]))


def assert_same(actual: np.ndarray, expected: np.ndarray, inputs: Sequence[np.ndarray] = ()) -> None:
    good = same_bits(actual, expected)
    if not good.all():
        i = int(np.flatnonzero(~good)[0])
        given = [x[i] if len(x) == len(actual) else "..." for x in inputs]
        raise AssertionError(
            f"lane {i} of {len(actual)}: got {actual[i]!r}, expected {expected[i]!r}, inputs {given}; {np.sum(~good)} lanes differ"
        )
