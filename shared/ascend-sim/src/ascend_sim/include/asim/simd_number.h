// Conversions and functions of one lane, without branches on the data, so that loops over lanes vectorise.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "asim/types.h"

// Inlined into the loops over lanes, else these do not vectorise.
#define ASIM_LANE inline __attribute__((always_inline))

namespace asim {

inline uint32_t f32_bits(float x) { return std::bit_cast<uint32_t>(x); }
inline float bits_f32(uint32_t x) { return std::bit_cast<float>(x); }

// One step up when a result with the low bits `kept` drops `rest` (0 <= rest < 2 * half)? `negative` is 0 or 1.
template <Round R, class U>
constexpr ASIM_LANE U round_up(U kept, U rest, U half, U negative) {
  if constexpr (R == Round::RINT) return rest + (kept & 1) > half ? 1 : 0;
  if constexpr (R == Round::AWAY) return rest >= half ? 1 : 0;
  if constexpr (R == Round::FLOOR) return rest != 0 ? negative : 0;
  if constexpr (R == Round::CEIL) return rest != 0 ? 1 - negative : 0;
  if constexpr (R == Round::ODD) return rest != 0 ? ~kept & 1 : 0;
  return 0;
}

// What encode() and decode() of types.h give, for a format known at compile time.
template <Format F, Round R, bool saturate>
ASIM_LANE uint32_t encode_f32(float value) {
  constexpr int drop_normal = 23 - F.mantissa_bits, first_normal = 127 - F.bias + 1;
  const uint32_t x = f32_bits(value), magnitude = x & 0x7fffffffu, negative = x >> 31;
  const int exponent = magnitude >> 23;
  // A normal result keeps its exponent in the word that is shifted, a subnormal one shifts the bare significand; so a carry out
  // of the mantissa is right in both.
  const bool normal = exponent >= first_normal;
  const uint32_t significand = (magnitude & 0x7fffffu) | (exponent != 0 ? 0x800000u : 0u);
  const int missing = drop_normal + first_normal - (exponent > 1 ? exponent : 1);
  const int drop = normal ? drop_normal : (missing > 31 ? 31 : missing);
  const uint32_t word = normal ? magnitude - (uint32_t(127 - F.bias) << 23) : significand;
  uint32_t code = word >> drop;
  code += round_up<R>(code, word & ((1u << drop) - 1), (1u << drop) >> 1, negative);
  const bool towards_zero = R == Round::ZERO || R == Round::ODD || (R == Round::FLOOR && !negative) || (R == Round::CEIL && negative);
  const uint32_t overflow = saturate || (towards_zero && magnitude != 0x7f800000u) ? F.max_finite : F.inf;
  code = code > F.max_finite ? overflow : code;
  const bool nan = magnitude > 0x7f800000u;
  const uint32_t sign = negative << F.sign_shift;
  return nan ? (saturate ? 0 : F.nan | sign) : code | sign;
}

template <Format F>
ASIM_LANE float decode_f32(uint32_t code) {
  if constexpr (F.bias == 127) return bits_f32(code << 16);
  const uint32_t sign = (code >> F.sign_shift & 1) << 31, magnitude = code & ((1u << F.sign_shift) - 1);
  // Multiplying by a power of two changes the bias of normals and subnormals alike, exactly.
  uint32_t x = f32_bits(bits_f32(magnitude << (23 - F.mantissa_bits)) * bits_f32(uint32_t(254 - F.bias) << 23));
  if constexpr (F.nan != F.max_finite) x = magnitude > F.max_finite ? 0x7fc00000u : x;
  if constexpr (F.nan != F.inf) x = magnitude == F.inf ? 0x7f800000u : x;
  return bits_f32(x | sign);
}

// Float to integer: the value is rounded first; what is out of range saturates, or keeps its low bits.
// Infinities give the extremes in both modes, NaN gives 0.
template <class I, Round R, bool Saturate>
ASIM_LANE I float_to_int(float value) {
  const uint32_t magnitude = f32_bits(value) & 0x7fffffffu;
  const uint64_t negative = f32_bits(value) >> 31;
  const int exponent = int(magnitude >> 23) - 150;  // value = significand * 2^exponent
  const uint64_t significand = (magnitude & 0x7fffffu) | (magnitude >= 0x800000u ? 0x800000u : 0u);
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
ASIM_LANE float int_to_f32(int64_t value) {
  const uint64_t negative = value < 0 ? 1 : 0;
  const uint64_t magnitude = negative ? 0 - uint64_t(value) : uint64_t(value);
  const int width = 64 - std::countl_zero(magnitude | 1), drop = width > 24 ? width - 24 : 0;
  const uint64_t rest = magnitude & ((uint64_t(1) << drop) - 1), half = (uint64_t(1) << drop) >> 1;
  uint64_t kept = magnitude >> drop;
  kept += drop ? round_up<R>(kept, rest, half, negative) : 0;
  const float exact = float(kept) * bits_f32(uint32_t(127 + drop) << 23);
  return negative ? -exact : exact;
}

template <class I>
constexpr ASIM_LANE I saturate_int(int64_t value) {
  constexpr int64_t low = int64_t(std::numeric_limits<I>::min()), high = int64_t(std::numeric_limits<I>::max());
  return I(value < low ? low : value > high ? high : value);
}

template <Round R>
ASIM_LANE float round_to_integral(float value) {
  const uint32_t x = f32_bits(value), magnitude = x & 0x7fffffffu;
  const int exponent = int(magnitude >> 23) - 150;
  if (exponent >= 0) return value;  // already integral, infinite or NaN
  const int drop = exponent < -31 ? 31 : -exponent;
  const uint32_t significand = (magnitude & 0x7fffffu) | (magnitude >= 0x800000u ? 0x800000u : 0u);
  const uint32_t rest = significand & ((1u << drop) - 1);
  uint32_t integer = significand >> drop;
  integer += round_up<R>(integer, rest, (1u << drop) >> 1, x >> 31);
  return bits_f32(f32_bits(float(integer)) | (x & 0x80000000u));
}

// exp and ln in double: the error before the one rounding to float is below 1e-15, far inside the 1 ulp of the
// hardware. Written as polynomials because these vectorise, and because the bits must not depend on the libm.
template <class... Coefficients>
ASIM_LANE double polynomial(double x, Coefficients... highest_first) {
  double sum = 0.0;
  ((sum = sum * x + highest_first), ...);
  return sum;
}

ASIM_LANE float exp_f32(float value) {
  double x = value;
  x = x > 200.0 ? 200.0 : x;
  x = x < -200.0 ? -200.0 : x;
  const double biased = x * 1.4426950408889634 + 0x1.8p52, k = biased - 0x1.8p52;
  const double r = (x - k * 0x1.62e42fefa39efp-1) - k * 0x1.abc9e3b39803fp-56;
  const double p = polynomial(r, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                              1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  const uint64_t scale = (std::bit_cast<uint64_t>(biased) + 1023) << 52;
  const float result = float(p * std::bit_cast<double>(scale));
  return value != value ? value : result;
}

ASIM_LANE float ln_f32(float value) {
  const double x = value;
  const uint64_t word = std::bit_cast<uint64_t>(x);
  // x = m * 2^k with m in [sqrt(1/2), sqrt(2))
  const uint64_t shifted = word - 0x3fe6a09e667f3bcdu;
  const int64_t k = int64_t(shifted) >> 52;
  const double m = std::bit_cast<double>(word - (uint64_t(k) << 52));
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  const double p = polynomial(z, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  const double log_m = 2.0 * s + 2.0 * s * z * p;
  float result = float(double(k) * 0.6931471805599453 + log_m);
  result = value == 0.0f ? -std::numeric_limits<float>::infinity() : result;
  result = value == std::numeric_limits<float>::infinity() ? value : result;
  result = value < 0.0f ? std::numeric_limits<float>::quiet_NaN() : result;
  return value != value ? value : result;
}

// a * b + c with one rounding to half or bfloat16: the exact product, a sum rounded to odd, then the target format.
template <Format F>
ASIM_LANE uint32_t fma_small(float a, float b, float c) {
  const double product = double(a) * double(b), addend = c, sum = product + addend;
  const double part = sum - product, error = (product - (sum - part)) + (addend - part);
  uint64_t word = std::bit_cast<uint64_t>(sum);
  if ((error > 0 || error < 0) && !(word & 1)) word += (error > 0) == (sum > 0) ? 1 : -1;
  // Rounding the odd double to float to odd again keeps every bit that the last rounding needs.
  const double odd = std::bit_cast<double>(word);
  float narrowed = float(odd);
  const double lost = odd - double(narrowed);
  if (lost != 0.0 && narrowed - narrowed == 0.0f && !(f32_bits(narrowed) & 1))
    narrowed = bits_f32(f32_bits(narrowed) + ((lost > 0) == (odd > 0) ? 1 : -1));
  return encode_f32<F, Round::RINT, false>(narrowed);
}

}  // namespace asim
