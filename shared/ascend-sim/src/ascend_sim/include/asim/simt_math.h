// Arithmetic and conversion functions of SIMT and scalar code. The functions of the C library of the same names (expf, sqrtf, ...)
// serve as they are; the device's own may differ from them in the last bit.
#pragma once

#include <math.h>

#include "asim/simt_vector.h"

namespace asim {

template <typename T>
concept Number = std::is_arithmetic_v<T>;

// An integer of type To, rounded, with out-of-range values saturated and NaN giving zero.
template <typename To>
ASIM_FN To to_integer(double value, Round mode) {
  if (value != value) return 0;
  double rounded = value;
  switch (mode) {
    case Round::RINT: rounded = rint(value); break;
    case Round::AWAY: rounded = round(value); break;
    case Round::FLOOR: rounded = floor(value); break;
    case Round::CEIL: rounded = ceil(value); break;
    default: rounded = trunc(value);
  }
  constexpr double low = double(std::numeric_limits<To>::min()), high = double(std::numeric_limits<To>::max());
  if (rounded <= low) return std::numeric_limits<To>::min();
  if (rounded >= high) return std::numeric_limits<To>::max();
  return To(rounded);
}

// A value of at most 64 significant bits as float.
template <typename From>
ASIM_FN float to_float(From value, Round mode) {
  bool negative = value < 0;
  uint64_t magnitude = negative ? -uint64_t(value) : uint64_t(value);
  int width = std::bit_width(magnitude);
  if (width <= 24) return float(value);
  uint64_t kept = round_shift(magnitude, width - 24, negative, mode);
  float result = ldexpf(float(kept), width - 24);
  return negative ? -result : result;
}

}  // namespace asim

template <asim::Number T>
ASIM_FN T max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return T(fmax(a, b));
  return a > b ? a : b;
}
template <asim::Number T>
ASIM_FN T min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return T(fmin(a, b));
  return a < b ? a : b;
}
template <asim::Number A, asim::Number B>
  requires(!std::is_same_v<A, B>)
ASIM_FN auto max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return max<T>(a, b);
}
template <asim::Number A, asim::Number B>
  requires(!std::is_same_v<A, B>)
ASIM_FN auto min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return min<T>(a, b);
}
template <typename T>
  requires asim::is_small<T>
ASIM_FN T max(T a, T b) {
  return T(fmaxf(a, b));
}
template <typename T>
  requires asim::is_small<T>
ASIM_FN T min(T a, T b) {
  return T(fminf(a, b));
}

ASIM_FN float rsqrtf(float x) { return float(1.0 / sqrt(double(x))); }
ASIM_FN float fdividef(float x, float y) { return x / y; }
ASIM_FN float __fdividef(float x, float y) { return x / y; }
ASIM_FN float __saturatef(float x) { return x != x ? 0.0f : fminf(fmaxf(x, 0.0f), 1.0f); }

ASIM_FN float __int_as_float(int32_t x) { return std::bit_cast<float>(x); }
ASIM_FN float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
ASIM_FN int32_t __float_as_int(float x) { return std::bit_cast<int32_t>(x); }
ASIM_FN uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }

// Conversions come in five rounding modes.
#define ASIM_ROUNDINGS(X) X(rn, RINT) X(rz, ZERO) X(rd, FLOOR) X(ru, CEIL) X(rna, AWAY)

#define ASIM_CONVERSIONS(suffix, mode)                                                                                      \
  ASIM_FN int32_t __float2int_##suffix(float x) { return asim::to_integer<int32_t>(x, asim::Round::mode); }                  \
  ASIM_FN uint32_t __float2uint_##suffix(float x) { return asim::to_integer<uint32_t>(x, asim::Round::mode); }               \
  ASIM_FN long long __float2ll_##suffix(float x) { return asim::to_integer<int64_t>(x, asim::Round::mode); }                 \
  ASIM_FN unsigned long long __float2ull_##suffix(float x) { return asim::to_integer<uint64_t>(x, asim::Round::mode); }      \
  ASIM_FN float __int2float_##suffix(int32_t x) { return asim::to_float(int64_t(x), asim::Round::mode); }                    \
  ASIM_FN float __uint2float_##suffix(uint32_t x) { return asim::to_float(uint64_t(x), asim::Round::mode); }                 \
  ASIM_FN float __ll2float_##suffix(long long x) { return asim::to_float(int64_t(x), asim::Round::mode); }                   \
  ASIM_FN float __ull2float_##suffix(unsigned long long x) { return asim::to_float(uint64_t(x), asim::Round::mode); }
ASIM_ROUNDINGS(ASIM_CONVERSIONS)
#undef ASIM_CONVERSIONS

namespace asim {
// Functions that exist for half and bfloat16_t alike, computed in float and rounded once.
template <typename T>
concept Small16 = is_small<T> && sizeof(T) == 2;
}  // namespace asim

#define ASIM_UNARY(name, expression)      \
  template <asim::Small16 T>              \
  ASIM_FN T name(T a) {                   \
    float x = a;                          \
    return T(expression);                 \
  }
ASIM_UNARY(hexp, expf(x))
ASIM_UNARY(hexp2, exp2f(x))
ASIM_UNARY(hexp10, exp10f(x))
ASIM_UNARY(hlog, logf(x))
ASIM_UNARY(hlog2, log2f(x))
ASIM_UNARY(hlog10, log10f(x))
ASIM_UNARY(hsin, sinf(x))
ASIM_UNARY(hcos, cosf(x))
ASIM_UNARY(htanh, tanhf(x))
ASIM_UNARY(hsqrt, sqrtf(x))
ASIM_UNARY(hrsqrt, rsqrtf(x))
ASIM_UNARY(hrcp, 1.0f / x)
ASIM_UNARY(hfloor, floorf(x))
ASIM_UNARY(hceil, ceilf(x))
ASIM_UNARY(htrunc, truncf(x))
ASIM_UNARY(hrint, rintf(x))
ASIM_UNARY(__habs, fabsf(x))
ASIM_UNARY(__hneg, -x)
#undef ASIM_UNARY

#define ASIM_BINARY(name, expression)     \
  template <asim::Small16 T>              \
  ASIM_FN auto name(T a, T b) {           \
    float x = a, y = b;                   \
    return expression;                    \
  }
ASIM_BINARY(__hadd, T(x + y))
ASIM_BINARY(__hsub, T(x - y))
ASIM_BINARY(__hmul, T(x * y))
ASIM_BINARY(__hdiv, T(x / y))
ASIM_BINARY(__hmax, T(fmaxf(x, y)))
ASIM_BINARY(__hmin, T(fminf(x, y)))
ASIM_BINARY(__heq, x == y)
ASIM_BINARY(__hne, x != y)
ASIM_BINARY(__hlt, x < y)
ASIM_BINARY(__hle, x <= y)
ASIM_BINARY(__hgt, x > y)
ASIM_BINARY(__hge, x >= y)
#undef ASIM_BINARY

template <asim::Small16 T>
ASIM_FN T __hfma(T a, T b, T c) {
  return T(double(float(a)) * double(float(b)) + double(float(c)));
}
template <asim::Small16 T>
ASIM_FN bool __hisnan(T a) {
  return float(a) != float(a);
}
template <asim::Small16 T>
ASIM_FN bool __hisinf(T a) {
  return fabsf(a) == HUGE_VALF;
}
