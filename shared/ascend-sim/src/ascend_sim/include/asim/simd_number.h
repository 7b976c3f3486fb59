// Number formats of the vector registers: exact decoding, and encoding with every rounding mode and saturation.
// Everything is integer arithmetic without branches on the data, so that loops over lanes vectorise.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace asim {

enum Round { ROUND_TO_EVEN, ROUND_AWAY, ROUND_FLOOR, ROUND_CEIL, ROUND_TRUNC, ROUND_TO_ODD };

inline uint32_t f32_bits(float x) { return std::bit_cast<uint32_t>(x); }
inline float bits_f32(uint32_t x) { return std::bit_cast<float>(x); }
inline bool f32_is_nan(float x) { return (f32_bits(x) & 0x7fffffffu) > 0x7f800000u; }

// One step up when `kept` bits drop `rest` (0 <= rest < 2 * half)?
template <Round R, class U>
constexpr U round_up(U kept, U rest, U half, bool negative) {
  if constexpr (R == ROUND_TO_EVEN) return (rest > half) | ((rest == half) & (kept & 1));
  if constexpr (R == ROUND_AWAY) return rest >= half;
  if constexpr (R == ROUND_FLOOR) return negative & (rest != 0);
  if constexpr (R == ROUND_CEIL) return !negative & (rest != 0);
  if constexpr (R == ROUND_TO_ODD) return (rest != 0) & ~kept & 1;
  return 0;
}

// A binary float format of 1 + E + M bits. MaxCode is the code of the largest finite value; Inf and NaN are the
// codes of infinity and of the quiet NaN. A format without infinity overflows to NaN, one without both to MaxCode.
template <int E, int M, int Bias, uint32_t MaxCode, uint32_t Inf, uint32_t Nan>
struct FloatFormat {
  static constexpr int bits = 1 + E + M;

  template <Round R = ROUND_TO_EVEN, bool Saturate = false>
  static uint32_t encode(float value) {
    const uint32_t x = f32_bits(value), magnitude = x & 0x7fffffffu;
    const bool negative = x >> 31;
    const int exponent = magnitude >> 23;
    // A normal result keeps the exponent in the word that is shifted; a subnormal one shifts the bare significand.
    constexpr int first_normal = 127 - Bias + 1;
    const bool normal = exponent >= first_normal;
    const uint32_t significand = (magnitude & 0x7fffffu) | (uint32_t(exponent != 0) << 23);
    const int missing = first_normal - (exponent | int(exponent == 0));
    const int drop = normal ? 23 - M : (23 - M + missing > 31 ? 31 : 23 - M + missing);
    const uint32_t word = normal ? magnitude - (uint32_t(127 - Bias) << 23) : significand;
    uint32_t code = word >> drop;
    if constexpr (M < 23) {
      const uint32_t rest = word & ((1u << drop) - 1), half = (1u << drop) >> 1;
      code += round_up<R>(code, rest, half, negative);
    }
    const uint32_t overflow = Saturate ? MaxCode : Inf;
    code = code > MaxCode ? overflow : code;
    code = magnitude > 0x7f800000u ? (Saturate || Nan == 0 ? 0 : Nan) : code;
    // A NaN that saturates becomes +0; a NaN of the target keeps the sign.
    const uint32_t sign = (Saturate || Nan == 0) && magnitude > 0x7f800000u ? 0 : uint32_t(negative) << (bits - 1);
    return code | sign;
  }

  static float decode(uint32_t code) {
    const uint32_t sign = (code >> (bits - 1)) << 31, magnitude = code & ((1u << (bits - 1)) - 1);
    // Multiplying by a power of two rebiases normals and subnormals alike, exactly.
    const float scaled = bits_f32(magnitude << (23 - M)) * bits_f32(uint32_t(127 + (127 - Bias)) << 23);
    uint32_t x = f32_bits(scaled);
    if constexpr (Inf != Nan) x = magnitude == Inf ? 0x7f800000u : x;
    if constexpr (Nan != 0) x = magnitude > MaxCode && magnitude != (Inf != Nan ? Inf : ~0u) ? 0x7fc00000u : x;
    return bits_f32(x | sign);
  }
};

using Float16 = FloatFormat<5, 10, 15, 0x7bff, 0x7c00, 0x7e00>;
using Float8E4M3 = FloatFormat<4, 3, 7, 0x7e, 0x7f, 0x7f>;
using Float8E5M2 = FloatFormat<5, 2, 15, 0x7b, 0x7c, 0x7e>;
using Float4E2M1 = FloatFormat<2, 1, 1, 7, 7, 0>;
using Float4E1M2 = FloatFormat<1, 2, 1, 7, 7, 0>;

struct BFloat16 : FloatFormat<8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0> {
  static float decode(uint32_t code) { return bits_f32(code << 16); }
};

// Float to integer: the value is rounded first; what is out of range saturates, or keeps its low bits.
// Infinities give the extremes in both modes, NaN gives 0.
template <class I, Round R, bool Saturate>
I float_to_int(float value) {
  const uint32_t magnitude = f32_bits(value) & 0x7fffffffu;
  const bool negative = f32_bits(value) >> 31;
  const int exponent = int(magnitude >> 23) - 150;  // value = significand * 2^exponent
  const uint64_t significand = (magnitude & 0x7fffffu) | (uint64_t(magnitude >= 0x800000u) << 23);
  const int drop = exponent >= 0 ? 0 : (exponent < -40 ? 40 : -exponent);
  const uint64_t rest = significand & ((uint64_t(1) << drop) - 1), half = (uint64_t(1) << drop) >> 1;
  uint64_t integer = significand >> drop;
  integer += drop ? round_up<R>(integer, rest, half, negative) : 0;
  integer = exponent > 0 ? (exponent < 64 ? integer << exponent : 0) : integer;
  constexpr uint64_t top = uint64_t(std::numeric_limits<I>::max());
  constexpr uint64_t bottom = std::is_signed_v<I> ? top + 1 : 0;
  const bool infinite = magnitude == 0x7f800000u;
  const bool beyond = exponent > 39 || integer > (negative ? bottom : top);
  uint64_t result = negative ? 0 - integer : integer;
  result = infinite || (Saturate && beyond) ? (negative ? 0 - bottom : top) : result;
  return magnitude > 0x7f800000u ? I(0) : I(result);
}

template <Round R>
float int_to_f32(int64_t value) {
  const bool negative = value < 0;
  const uint64_t magnitude = negative ? 0 - uint64_t(value) : uint64_t(value);
  const int width = 64 - std::countl_zero(magnitude | 1), drop = width > 24 ? width - 24 : 0;
  const uint64_t rest = magnitude & ((uint64_t(1) << drop) - 1), half = (uint64_t(1) << drop) >> 1;
  uint64_t kept = magnitude >> drop;
  kept += drop ? round_up<R>(kept, rest, half, negative) : 0;
  const float exact = float(kept) * bits_f32(uint32_t(127 + drop) << 23);
  return negative ? -exact : exact;
}

template <class I>
constexpr I saturate_int(int64_t value) {
  constexpr int64_t low = int64_t(std::numeric_limits<I>::min()), high = int64_t(std::numeric_limits<I>::max());
  return I(value < low ? low : value > high ? high : value);
}

template <Round R>
float round_to_integral(float value) {
  const uint32_t x = f32_bits(value), magnitude = x & 0x7fffffffu;
  const int exponent = int(magnitude >> 23) - 150;
  if (exponent >= 0) return value;  // already integral, infinite or NaN
  const int drop = exponent < -31 ? 31 : -exponent;
  const uint32_t significand = (magnitude & 0x7fffffu) | (uint32_t(magnitude >= 0x800000u) << 23);
  const uint32_t rest = significand & ((1u << drop) - 1);
  uint32_t integer = significand >> drop;
  integer += round_up<R>(integer, rest, (1u << drop) >> 1, x >> 31);
  return bits_f32(f32_bits(float(integer)) | (x & 0x80000000u));
}

// exp and ln in double: the error before the one rounding to float is below 1e-15, far inside the 1 ulp of the
// hardware. Written as polynomials because these vectorise, and because the bits must not depend on the libm.
inline float exp_f32(float value) {
  double x = value;
  x = x > 200.0 ? 200.0 : x;
  x = x < -200.0 ? -200.0 : x;
  const double biased = x * 1.4426950408889634 + 0x1.8p52, k = biased - 0x1.8p52;
  const double r = (x - k * 0x1.62e42fefa39efp-1) - k * 0x1.abc9e3b39803fp-56;
  double p = 1.0 / 479001600;
  for (double c : {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                   1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0})
    p = p * r + c;
  const uint64_t scale = (std::bit_cast<uint64_t>(biased) + 1023) << 52;
  const float result = float(p * std::bit_cast<double>(scale));
  return value != value ? value : result;
}

inline float ln_f32(float value) {
  const double x = value;
  const uint64_t word = std::bit_cast<uint64_t>(x);
  // x = m * 2^k with m in [sqrt(1/2), sqrt(2))
  const uint64_t shifted = word - 0x3fe6a09e667f3bcdu;
  const int64_t k = int64_t(shifted) >> 52;
  const double m = std::bit_cast<double>(word - (uint64_t(k) << 52));
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 23;
  for (double c : {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3})
    p = p * z + c;
  const double kd = std::bit_cast<double>(uint64_t(k + 1024) | 0x4330000000000000u) - 0x1.00000000004p52;
  const double log_m = 2.0 * s + 2.0 * s * z * p;
  float result = float(kd * 0.6931471805599453 + log_m);
  result = value == 0.0f ? -std::numeric_limits<float>::infinity() : result;
  result = value == std::numeric_limits<float>::infinity() ? value : result;
  result = value < 0.0f ? std::numeric_limits<float>::quiet_NaN() : result;
  return value != value ? value : result;
}

// a * b + c with one rounding to half or bfloat16: the exact product, a sum rounded to odd, then the target format.
template <class Format>
uint32_t fma_small(float a, float b, float c) {
  const double product = double(a) * double(b), addend = c, sum = product + addend;
  const double part = sum - product, error = (product - (sum - part)) + (addend - part);
  uint64_t word = std::bit_cast<uint64_t>(sum);
  if (error != 0.0 && !(word & 1)) word += (error > 0) == (sum > 0) ? 1 : -1;
  // Rounding the odd double to float to odd again keeps every bit that the last rounding needs.
  const double odd = std::bit_cast<double>(word);
  float narrowed = float(odd);
  const double lost = odd - double(narrowed);
  if (lost != 0.0 && narrowed - narrowed == 0.0f && !(f32_bits(narrowed) & 1))
    narrowed = bits_f32(f32_bits(narrowed) + ((lost > 0) == (odd > 0) ? 1 : -1));
  return Format::encode(narrowed);
}

}  // namespace asim
