// The short vectors of SIMT code: float2, int4, half2 and so on.
#pragma once

#include "asim/types.h"

// A component-wise operator of two vectors of one type.
#define ASIM_VECTOR2_OPERATOR(V, op) \
  ASIM_FN constexpr V operator op(const V& a, const V& b) { return {decltype(V::x)(a.x op b.x), decltype(V::x)(a.y op b.y)}; }
#define ASIM_VECTOR4_OPERATOR(V, op)                                                                                               \
  ASIM_FN constexpr V operator op(const V& a, const V& b) {                                                                       \
    using T = decltype(V::x);                                                                                                     \
    return {T(a.x op b.x), T(a.y op b.y), T(a.z op b.z), T(a.w op b.w)};                                                          \
  }
#define ASIM_VECTOR(V, T)                                                                \
  struct alignas(2 * sizeof(T)) V##2 {                                                   \
    T x, y;                                                                              \
  };                                                                                     \
  struct alignas(4 * sizeof(T)) V##4 {                                                   \
    T x, y, z, w;                                                                        \
  };                                                                                     \
  ASIM_FN constexpr V##2 make_##V##2(T x, T y) { return {x, y}; }                        \
  ASIM_FN constexpr V##4 make_##V##4(T x, T y, T z, T w) { return {x, y, z, w}; }        \
  ASIM_VECTOR2_OPERATOR(V##2, +) ASIM_VECTOR2_OPERATOR(V##2, -) ASIM_VECTOR2_OPERATOR(V##2, *) \
  ASIM_VECTOR4_OPERATOR(V##4, +) ASIM_VECTOR4_OPERATOR(V##4, -) ASIM_VECTOR4_OPERATOR(V##4, *)
#define ASIM_VECTOR_BITS(V)                                                                                                      \
  ASIM_VECTOR2_OPERATOR(V##2, &) ASIM_VECTOR2_OPERATOR(V##2, |) ASIM_VECTOR2_OPERATOR(V##2, ^) ASIM_VECTOR2_OPERATOR(V##2, <<)    \
  ASIM_VECTOR2_OPERATOR(V##2, >>) ASIM_VECTOR4_OPERATOR(V##4, &) ASIM_VECTOR4_OPERATOR(V##4, |) ASIM_VECTOR4_OPERATOR(V##4, ^)    \
  ASIM_VECTOR4_OPERATOR(V##4, <<) ASIM_VECTOR4_OPERATOR(V##4, >>)

ASIM_VECTOR(char, int8_t)
ASIM_VECTOR(uchar, uint8_t)
ASIM_VECTOR(short, int16_t)
ASIM_VECTOR(ushort, uint16_t)
ASIM_VECTOR(int, int32_t)
ASIM_VECTOR(uint, uint32_t)
ASIM_VECTOR(long, int64_t)
ASIM_VECTOR(ulong, uint64_t)
ASIM_VECTOR(float, float)
ASIM_VECTOR_BITS(char)
ASIM_VECTOR_BITS(uchar)
ASIM_VECTOR_BITS(short)
ASIM_VECTOR_BITS(ushort)
ASIM_VECTOR_BITS(int)
ASIM_VECTOR_BITS(uint)
ASIM_VECTOR_BITS(long)
ASIM_VECTOR_BITS(ulong)
#undef ASIM_VECTOR
#undef ASIM_VECTOR_BITS

// What generated code carries a pair of 16-bit values in.
struct uint1 {
  uint32_t x;
};
ASIM_FN constexpr uint1 make_uint1(uint32_t x) { return {x}; }

// `long` and `long long` are one type here, as everything 64-bit is int64_t in generated code.
using longlong2 = long2;
using longlong4 = long4;
using ulonglong2 = ulong2;
using ulonglong4 = ulong4;
ASIM_FN constexpr longlong2 make_longlong2(int64_t x, int64_t y) { return {x, y}; }
ASIM_FN constexpr longlong4 make_longlong4(int64_t x, int64_t y, int64_t z, int64_t w) { return {x, y, z, w}; }
ASIM_FN constexpr ulonglong2 make_ulonglong2(uint64_t x, uint64_t y) { return {x, y}; }
ASIM_FN constexpr ulonglong4 make_ulonglong4(uint64_t x, uint64_t y, uint64_t z, uint64_t w) { return {x, y, z, w}; }

#define ASIM_SMALL_VECTOR(V, T)           \
  struct alignas(2 * sizeof(T)) V {       \
    T x, y;                               \
  };                                      \
  ASIM_VECTOR2_OPERATOR(V, +) ASIM_VECTOR2_OPERATOR(V, -) ASIM_VECTOR2_OPERATOR(V, *) ASIM_VECTOR2_OPERATOR(V, /)
ASIM_SMALL_VECTOR(half2, half)
ASIM_SMALL_VECTOR(bfloat16x2_t, bfloat16_t)
#undef ASIM_SMALL_VECTOR
#undef ASIM_VECTOR2_OPERATOR
#undef ASIM_VECTOR4_OPERATOR
ASIM_FN constexpr half2 make_half2(half x, half y) { return {x, y}; }
ASIM_FN constexpr bfloat16x2_t make_bfloat162(bfloat16_t x, bfloat16_t y) { return {x, y}; }

struct alignas(2) float8_e4m3x2_t {
  float8_e4m3_t x, y;
};
struct alignas(2) float8_e5m2x2_t {
  float8_e5m2_t x, y;
};
