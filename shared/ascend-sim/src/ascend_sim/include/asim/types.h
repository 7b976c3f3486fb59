// Scalar number types of the device, shared by SIMD, SIMT and Cube code.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace asim {

enum class Round : uint8_t { RINT, AWAY, FLOOR, CEIL, ZERO, ODD };

// A small floating-point format. `max_finite` is the code of the largest finite magnitude, `inf` and `nan` are codes without sign; a
// format without infinity has inf == nan, a format with neither has both equal to max_finite.
struct Format {
  int mantissa_bits;
  int bias;
  int sign_shift;
  uint32_t max_finite;
  uint32_t inf;
  uint32_t nan;
};

inline constexpr Format kHalf{10, 15, 15, 0x7bff, 0x7c00, 0x7e00};
inline constexpr Format kBf16{7, 127, 15, 0x7f7f, 0x7f80, 0x7fc0};
inline constexpr Format kE4m3{3, 7, 7, 0x7e, 0x7f, 0x7f};
inline constexpr Format kE5m2{2, 15, 7, 0x7b, 0x7c, 0x7e};
inline constexpr Format kE2m1{1, 1, 3, 0x7, 0x7, 0x7};

// Rounds a significand of `shift` extra bits. `negative` turns FLOOR and CEIL around.
constexpr uint64_t round_shift(uint64_t significand, int shift, bool negative, Round mode) {
  if (shift <= 0) return significand << -shift;
  uint64_t kept = shift > 63 ? 0 : significand >> shift;
  uint64_t rest = shift > 63 ? significand : significand & ((uint64_t{1} << shift) - 1);
  if (rest == 0) return kept;
  uint64_t half_way = shift > 64 ? ~uint64_t{0} : uint64_t{1} << (shift - 1);
  switch (mode) {
    case Round::RINT: return kept + (rest > half_way || (rest == half_way && (kept & 1)));
    case Round::AWAY: return kept + (rest >= half_way);
    case Round::FLOOR: return kept + negative;
    case Round::CEIL: return kept + !negative;
    case Round::ODD: return kept | 1;
    case Round::ZERO: break;
  }
  return kept;
}

// The code of `value`. With `saturate`, overflow and infinity give the largest finite value and NaN gives zero (the device's
// saturation mode); without it, they give infinity and NaN.
constexpr uint32_t encode(double value, const Format& format, Round mode = Round::RINT, bool saturate = false) {
  uint64_t bits = std::bit_cast<uint64_t>(value);
  bool negative = bits >> 63;
  uint32_t sign = uint32_t(negative) << format.sign_shift;
  int field = int(bits >> 52) & 0x7ff;
  uint64_t significand = bits & ((uint64_t{1} << 52) - 1);
  if (field == 0x7ff) {
    if (significand) return saturate ? 0 : format.nan | sign;
    return (saturate ? format.max_finite : format.inf) | sign;
  }
  if (field == 0) return sign;  // a double subnormal is below half of every format's smallest value
  significand |= uint64_t{1} << 52;
  int exponent = field - 1023;
  int lowest = 1 - format.bias;
  int step = (exponent > lowest ? exponent : lowest) - format.mantissa_bits;  // the result counts units of 2^step
  uint64_t count = round_shift(significand, step - (exponent - 52), negative, mode);
  uint64_t code = (uint64_t(step - (lowest - format.mantissa_bits)) << format.mantissa_bits) + count;
  if (code > format.max_finite) {
    bool towards_zero = mode == Round::ZERO || mode == Round::ODD || (mode == Round::FLOOR && !negative) || (mode == Round::CEIL && negative);
    code = saturate || towards_zero ? format.max_finite : format.inf;
  }
  return uint32_t(code) | sign;
}

constexpr float decode(uint32_t code, const Format& format) {
  uint32_t magnitude = code & ((1u << format.sign_shift) - 1);
  uint32_t sign = (code >> format.sign_shift & 1) << 31;
  if (magnitude > format.max_finite) {
    if (magnitude == format.inf && format.inf != format.nan) return std::bit_cast<float>(sign | 0x7f800000u);
    return std::bit_cast<float>(sign | 0x7fc00000u);
  }
  int field = int(magnitude >> format.mantissa_bits);
  uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  if (field) {
    return std::bit_cast<float>(sign | uint32_t(field - format.bias + 127) << 23 | mantissa << (23 - format.mantissa_bits));
  }
  // A subnormal is a small integer times a power of two that float represents exactly in every format but bf16, whose
  // subnormals have the layout of float's own.
  if (format.bias == 127) return std::bit_cast<float>(sign | mantissa << (23 - format.mantissa_bits));
  float unit = std::bit_cast<float>(uint32_t(1 - format.bias - format.mantissa_bits + 127) << 23);
  float result = float(mantissa) * unit;
  return sign ? -result : result;
}

// Arithmetic on a storage type goes through float and rounds once; float holds more than twice the significand bits of every
// format here, so +, -, * and / are correctly rounded.
template <const Format& format, typename Bits>
struct Small {
  static constexpr Bits kSign = Bits(1) << format.sign_shift;
  Bits bits;

  Small() = default;
  template <typename T>
    requires std::is_arithmetic_v<T>
  constexpr Small(T value) : bits(Bits(encode(double(value), format, Round::RINT, sizeof(Bits) == 1))) {}
  static constexpr Small from_bits(Bits bits) {
    Small result{};
    result.bits = bits;
    return result;
  }
  constexpr operator float() const {
    if constexpr (format.bias == kBf16.bias) return std::bit_cast<float>(uint32_t(bits) << 16);
    return decode(bits, format);
  }

  Small& operator+=(Small other) { return *this = Small(float(*this) + float(other)); }
  Small& operator-=(Small other) { return *this = Small(float(*this) - float(other)); }
  Small& operator*=(Small other) { return *this = Small(float(*this) * float(other)); }
  Small& operator/=(Small other) { return *this = Small(float(*this) / float(other)); }
};

template <typename T>
inline constexpr bool is_small = false;
template <const Format& format, typename Bits>
inline constexpr bool is_small<Small<format, Bits>> = true;

// Only for two operands of one type: with a float or an integer on one side the built-in operators on float apply.
#define ASIM_SMALL_OPERATOR(op)                          \
  template <typename T>                                  \
    requires is_small<T>                                 \
  constexpr T operator op(T a, T b) {                    \
    return T(float(a) op float(b));                      \
  }
ASIM_SMALL_OPERATOR(+)
ASIM_SMALL_OPERATOR(-)
ASIM_SMALL_OPERATOR(*)
ASIM_SMALL_OPERATOR(/)
#undef ASIM_SMALL_OPERATOR

template <typename T>
  requires is_small<T>
constexpr T operator-(T a) {
  return T::from_bits(a.bits ^ T::kSign);
}

// Storage without arithmetic.
struct Packed4 {
  uint8_t bits;
};

}  // namespace asim

using half = asim::Small<asim::kHalf, uint16_t>;
using bfloat16_t = asim::Small<asim::kBf16, uint16_t>;
using float8_e4m3_t = asim::Small<asim::kE4m3, uint8_t>;
using float8_e5m2_t = asim::Small<asim::kE5m2, uint8_t>;
using fp8_e4m3fn_t = float8_e4m3_t;
using fp8_e5m2_t = float8_e5m2_t;

// A power of two, bias 127, without sign; 0xff is NaN.
struct float8_e8m0_t {
  uint8_t bits;
};
using fp8_e8m0_t = float8_e8m0_t;

// Two 4-bit values a byte, the first in the low bits.
struct float4_e2m1x2_t : asim::Packed4 {};
struct float4_e1m2x2_t : asim::Packed4 {};
using fp4x2_e2m1_t = float4_e2m1x2_t;
using fp4x2_e1m2_t = float4_e1m2x2_t;

namespace asim {

constexpr float e8m0_to_float(uint8_t bits) {
  if (bits == 0xff) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : uint32_t(bits) << 23);
}

}  // namespace asim
