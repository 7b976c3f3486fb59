// Conversions between pairs of 8-bit floats and other types.
#pragma once

#include "asim/simt.h"

using __asc_fp8x2_storage_t = unsigned short;
enum __asc_fp8_interpretation_t { __ASC_E4M3, __ASC_E5M2 };
enum __asc_saturation_t { __ASC_NOSAT, __ASC_SATFINITE };

ASIM_FN __asc_fp8x2_storage_t __asc_cvt_float2_to_fp8x2(const float2 x, const __asc_saturation_t saturate,
                                                        const __asc_fp8_interpretation_t kind) {
  const asim::Format& format = kind == __ASC_E4M3 ? asim::kE4m3 : asim::kE5m2;
  bool finite = saturate == __ASC_SATFINITE;
  uint32_t low = asim::encode(x.x, format, asim::Round::RINT, finite), high = asim::encode(x.y, format, asim::Round::RINT, finite);
  return __asc_fp8x2_storage_t(low | high << 8);
}
ASIM_FN float2 __e4m3x22float2(const float8_e4m3x2_t x) { return {float(x.x), float(x.y)}; }
ASIM_FN float2 __e5m2x22float2(const float8_e5m2x2_t x) { return {float(x.x), float(x.y)}; }
