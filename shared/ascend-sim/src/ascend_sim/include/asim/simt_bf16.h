// Conversions between bfloat16_t and other types.
#pragma once

#include "asim/simt.h"

ASIM_FN float __bfloat162float(bfloat16_t x) { return x; }
ASIM_FN bfloat16_t __float2bfloat16(float x) { return bfloat16_t(x); }
ASIM_FN float2 __bfloat1622float2(bfloat16x2_t x) { return {float(x.x), float(x.y)}; }
ASIM_FN bfloat16x2_t __float2bfloat162_rn(float x) { return {bfloat16_t(x), bfloat16_t(x)}; }
ASIM_FN bfloat16x2_t __floats2bfloat162_rn(float x, float y) { return {bfloat16_t(x), bfloat16_t(y)}; }
ASIM_FN bfloat16x2_t __halves2bfloat162(bfloat16_t x, bfloat16_t y) { return {x, y}; }
ASIM_FN bfloat16_t __low2bfloat16(bfloat16x2_t x) { return x.x; }
ASIM_FN bfloat16_t __high2bfloat16(bfloat16x2_t x) { return x.y; }
ASIM_FN bfloat16_t __ushort_as_bfloat16(uint16_t x) { return bfloat16_t::from_bits(x); }

#define ASIM_CONVERSIONS(suffix, mode)                                                                                           \
  ASIM_FN bfloat16_t __float2bfloat16_##suffix(float x) {                                                                         \
    return bfloat16_t::from_bits(uint16_t(asim::encode(x, asim::kBf16, asim::Round::mode)));                                     \
  }                                                                                                                              \
  ASIM_FN bfloat16x2_t __float22bfloat162_##suffix(float2 x) {                                                                    \
    return {__float2bfloat16_##suffix(x.x), __float2bfloat16_##suffix(x.y)};                                                     \
  }                                                                                                                              \
  ASIM_FN int32_t __bfloat162int_##suffix(bfloat16_t x) { return asim::to_integer<int32_t>(float(x), asim::Round::mode); }        \
  ASIM_FN uint32_t __bfloat162uint_##suffix(bfloat16_t x) { return asim::to_integer<uint32_t>(float(x), asim::Round::mode); }     \
  ASIM_FN bfloat16_t __int2bfloat16_##suffix(int32_t x) {                                                                         \
    return bfloat16_t::from_bits(uint16_t(asim::encode(x, asim::kBf16, asim::Round::mode)));                                     \
  }                                                                                                                              \
  ASIM_FN bfloat16_t __uint2bfloat16_##suffix(uint32_t x) {                                                                       \
    return bfloat16_t::from_bits(uint16_t(asim::encode(x, asim::kBf16, asim::Round::mode)));                                     \
  }
ASIM_ROUNDINGS(ASIM_CONVERSIONS)
#undef ASIM_CONVERSIONS
