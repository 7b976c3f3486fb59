// Conversions between half and other types.
#pragma once

#include "asim/simt.h"

ASIM_FN float __half2float(half x) { return x; }
ASIM_FN half __float2half(float x) { return half(x); }
ASIM_FN float2 __half22float2(half2 x) { return {float(x.x), float(x.y)}; }
ASIM_FN half2 __floats2half2_rn(float x, float y) { return {half(x), half(y)}; }
ASIM_FN half2 __halves2half2(half x, half y) { return {x, y}; }
ASIM_FN half __low2half(half2 x) { return x.x; }
ASIM_FN half __high2half(half2 x) { return x.y; }
ASIM_FN half __ushort_as_half(uint16_t x) { return half::from_bits(x); }

#define ASIM_CONVERSIONS(suffix, mode)                                                                                            \
  ASIM_FN half __float2half_##suffix(float x) { return half::from_bits(uint16_t(asim::encode(x, asim::kHalf, asim::Round::mode))); } \
  ASIM_FN half2 __float22half2_##suffix(float2 x) { return {__float2half_##suffix(x.x), __float2half_##suffix(x.y)}; }             \
  ASIM_FN int32_t __half2int_##suffix(half x) { return asim::to_integer<int32_t>(float(x), asim::Round::mode); }                   \
  ASIM_FN uint32_t __half2uint_##suffix(half x) { return asim::to_integer<uint32_t>(float(x), asim::Round::mode); }                \
  ASIM_FN half __int2half_##suffix(int32_t x) { return half::from_bits(uint16_t(asim::encode(x, asim::kHalf, asim::Round::mode))); } \
  ASIM_FN half __uint2half_##suffix(uint32_t x) { return half::from_bits(uint16_t(asim::encode(x, asim::kHalf, asim::Round::mode))); }
ASIM_ROUNDINGS(ASIM_CONVERSIONS)
#undef ASIM_CONVERSIONS
