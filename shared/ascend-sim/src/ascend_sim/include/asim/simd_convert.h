// Conversions between element types.
//
// Between types of different widths an instruction uses one narrow lane out of every two or four, the part; the mask is read at the
// source's lanes; the unused narrow lanes of the result are zero.
#pragma once

#include "asim/simd_compute.h"

namespace asim {

// Which conversions exist, and the kinds of the constants each takes, in order: R rounding, S saturation, P part of two, Q part of
// four, M mode. (The constants are declared in simd_register.h.)
template <class To, class From>
inline constexpr const char* kConversion = nullptr;
#define ASIM_CONVERSION(To, From, controls) \
  template <>                               \
  inline constexpr const char* kConversion<To, From> = controls
ASIM_CONVERSION(int64_t, float, "RSPM");
ASIM_CONVERSION(int32_t, float, "RSM");
ASIM_CONVERSION(int16_t, float, "RSPM");
ASIM_CONVERSION(int32_t, half, "RPM");
ASIM_CONVERSION(int16_t, half, "RSM");
ASIM_CONVERSION(int8_t, half, "RSPM");
ASIM_CONVERSION(uint8_t, half, "RSPM");
ASIM_CONVERSION(int32_t, bfloat16_t, "RSPM");
ASIM_CONVERSION(half, float, "RSPM");
ASIM_CONVERSION(bfloat16_t, float, "RSPM");
ASIM_CONVERSION(float8_e4m3_t, float, "RSQM");
ASIM_CONVERSION(float8_e5m2_t, float, "RSQM");
ASIM_CONVERSION(bfloat16_t, half, "RM");
ASIM_CONVERSION(float, half, "PM");
ASIM_CONVERSION(half, bfloat16_t, "SRM");
ASIM_CONVERSION(float, bfloat16_t, "PM");
ASIM_CONVERSION(float4_e2m1x2_t, bfloat16_t, "RQM");
ASIM_CONVERSION(float4_e1m2x2_t, bfloat16_t, "RQM");
ASIM_CONVERSION(bfloat16_t, float4_e2m1x2_t, "QM");
ASIM_CONVERSION(bfloat16_t, float4_e1m2x2_t, "QM");
ASIM_CONVERSION(float, float8_e4m3_t, "QM");
ASIM_CONVERSION(float, float8_e5m2_t, "QM");
ASIM_CONVERSION(half, int8_t, "PM");
ASIM_CONVERSION(half, uint8_t, "PM");
ASIM_CONVERSION(half, int16_t, "RM");
ASIM_CONVERSION(float, int16_t, "PM");
ASIM_CONVERSION(float, int32_t, "RM");
ASIM_CONVERSION(float, int64_t, "RPM");
ASIM_CONVERSION(int64_t, int32_t, "PM");
ASIM_CONVERSION(int16_t, int32_t, "SPM");
ASIM_CONVERSION(uint16_t, int32_t, "SPM");
ASIM_CONVERSION(uint8_t, int32_t, "SQM");
ASIM_CONVERSION(int16_t, uint32_t, "SPM");
ASIM_CONVERSION(uint16_t, uint32_t, "SPM");
ASIM_CONVERSION(uint8_t, uint32_t, "SQM");
ASIM_CONVERSION(int32_t, int16_t, "PM");
ASIM_CONVERSION(uint32_t, int16_t, "PM");
ASIM_CONVERSION(uint8_t, int16_t, "SPM");
ASIM_CONVERSION(uint32_t, uint16_t, "PM");
ASIM_CONVERSION(uint8_t, uint16_t, "SPM");
ASIM_CONVERSION(int16_t, int8_t, "PM");
ASIM_CONVERSION(int32_t, int8_t, "QM");
ASIM_CONVERSION(uint16_t, uint8_t, "PM");
ASIM_CONVERSION(uint32_t, uint8_t, "QM");
ASIM_CONVERSION(int32_t, int64_t, "SPM");
#undef ASIM_CONVERSION

template <class>
inline constexpr char kKind = 0;
template <char kind, int value>
inline constexpr char kKind<Constant<kind, value>> = kind;
template <class... Controls>
constexpr bool takes(const char* kinds) {
  const char given[] = {kKind<Controls>..., 0};
  for (int i = 0; i <= int(sizeof...(Controls)); ++i)
    if (given[i] != kinds[i]) return false;
  return true;
}

// The value of the constant of one of two kinds among Controls, or zero.
template <char kind, char or_kind, class... Controls>
inline constexpr int kControl = 0;
template <char kind, char or_kind, class First, class... Rest>
inline constexpr int kControl<kind, or_kind, First, Rest...> = kKind<First> == kind || kKind<First> == or_kind ? int(First{}) : kControl<kind, or_kind, Rest...>;

template <class T>
inline constexpr bool is_fp4 = one_of<T, float4_e2m1x2_t, float4_e1m2x2_t>;
inline constexpr Format kE1m2{2, 1, 3, 0x7, 0x7, 0x7};
template <class T>
inline constexpr Format kFormat{};
template <const Format& F, typename B>
inline constexpr Format kFormat<Small<F, B>> = F;
template <>
inline constexpr Format kFormat<float4_e2m1x2_t> = kE2m1;
template <>
inline constexpr Format kFormat<float4_e1m2x2_t> = kE1m2;

template <class To, class From, Round R, bool saturate>
ASIM_LANE typename Vec<To>::Bits convert(typename Vec<From>::Bits bits) {
  if constexpr (std::is_integral_v<From>) {
    if constexpr (std::is_same_v<To, float>) return int_to_f32<R>(bits);
    if constexpr (std::is_same_v<To, half>) return encode_f32<kHalf, R, false>(float(bits));  // exact in float
    if constexpr (std::is_integral_v<To>)
      // Towards a wider unsigned type the value always saturates.
      return saturate || (sizeof(To) > sizeof(From) && std::is_unsigned_v<To>) ? saturate_int<To>(bits) : To(bits);
  } else {
    float value;
    if constexpr (std::is_same_v<From, float>)
      value = bits;
    else
      value = decode_f32<kFormat<From>>(bits);
    if constexpr (std::is_same_v<To, float>) return value;
    if constexpr (std::is_integral_v<To>) return float_to_int<To, R, saturate>(value);
    // The 4-bit formats have no infinity and no NaN.
    if constexpr (!std::is_same_v<To, float> && !std::is_integral_v<To>) return encode_f32<kFormat<To>, R, saturate || is_fp4<To>>(value);
  }
}

// Both registers are seen as lanes of the wider type, of which the narrower one uses a part.
template <class To, class From, Round R, bool saturate>
ASIM_LANES void convert_lanes(Vec<To>& destination, const Vec<From>& source, const vector_bool& mask, int part) {
  constexpr int wide = sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From), lanes = kVectorBytes / wide;
  using Lane = Unsigned<wide>;
  const int from_byte = sizeof(From) < wide ? part * int(sizeof(From)) : 0, to_byte = sizeof(To) < wide ? part * int(sizeof(To)) : 0;
  Vec<To> result;
  const Lane* in = reinterpret_cast<const Lane*>(source.v);
  Lane* out = reinterpret_cast<Lane*>(result.v);
  for (int i = 0; i < lanes; ++i) {
    const auto bits = std::bit_cast<typename Vec<From>::Bits>(Unsigned<sizeof(From)>(in[i] >> (8 * from_byte)));
    out[i] = Lane(std::bit_cast<Unsigned<sizeof(To)>>(convert<To, From, R, saturate>(bits))) << (8 * to_byte);
  }
  if (!all_active<sizeof(From)>(mask)) {
    for (int i = 0; i < lanes; ++i) out[i] &= 0 - Lane(mask.active(i * wide + from_byte));
  }
  if constexpr (ASIM_CHECKS) {
    result.undefined = {};
    if (any(source.undefined)) {
      const ByteMask undefined = spread<sizeof(From)>(source.undefined);
      for (int i = 0; i < lanes; ++i) {
        const int byte = i * wide + from_byte;
        if (mask.active(byte) && test(undefined, byte)) set(result.undefined, i * wide + to_byte, sizeof(To));
      }
    }
  }
  destination = result;
}

// Two bfloat16 lanes and one byte of two 4-bit floats; the mask bit of the even bfloat16 lane, or of the byte, decides for both.
template <class To, class From, Round R>
ASIM_LANES void convert_pairs(Vec<To>& destination, const Vec<From>& source, const vector_bool& mask, int part) {
  Vec<To> result;
  memset(static_cast<void*>(&result), 0, sizeof(result));
  for (int i = 0; i < 64; ++i) {
    if (!mask.active(is_fp4<From> ? 4 * i + part : 4 * i)) continue;
    if constexpr (is_fp4<From>) {
      const uint8_t byte = source.v[4 * i + part];
      result.v[2 * i] = encode_f32<kBf16, R, false>(decode_f32<kFormat<From>>(byte & 15));
      result.v[2 * i + 1] = encode_f32<kBf16, R, false>(decode_f32<kFormat<From>>(byte >> 4));
      if (ASIM_CHECKS && test(source.undefined, 4 * i + part)) set(result.undefined, 4 * i, 4);
    } else {
      const uint32_t low = encode_f32<kFormat<To>, R, true>(decode_f32<kBf16>(source.v[2 * i]));
      const uint32_t high = encode_f32<kFormat<To>, R, true>(decode_f32<kBf16>(source.v[2 * i + 1]));
      result.v[4 * i + part] = uint8_t(low | high << 4);
      if (ASIM_CHECKS && (source.undefined.w[i / 16] >> (i % 16 * 4) & 15)) set(result.undefined, 4 * i + part, 1);
    }
  }
  destination = result;
}

}  // namespace asim

template <class To, class From, class... Controls>
  requires(asim::kConversion<To, From> != nullptr)
ASIM_FN void vcvt(asim::Vec<To>& destination, const asim::Vec<From>& source, const vector_bool& mask, Controls...) {
  static_assert(asim::takes<Controls...>(asim::kConversion<To, From>), "vcvt: this pair of types takes other constants (rounding, saturation, part, mode)");
  static_assert(asim::kControl<'M', 'M', Controls...> == 0, "vcvt: MODE_MERGING is not supported");
  constexpr auto rounding = asim::Round(asim::kControl<'R', 'R', Controls...>);
  constexpr bool saturate = asim::kControl<'S', 'S', Controls...>;
  constexpr int part = asim::kControl<'P', 'Q', Controls...>;
  static_assert(rounding != asim::Round::ODD || (std::is_same_v<To, half> && std::is_same_v<From, float>), "vcvt: ROUND_O is for float to half");
  static_assert(rounding == asim::Round::RINT || !asim::one_of<To, float8_e4m3_t, float8_e5m2_t>, "vcvt: float to float8 takes ROUND_R");
  asim::count<"vcvt">(asim::Pipe::V, sizeof(To) > sizeof(From) ? asim::Vec<To>::lanes : asim::Vec<From>::lanes);
  if constexpr (asim::is_fp4<To> || asim::is_fp4<From>)
    asim::convert_pairs<To, From, rounding>(destination, source, mask, part);
  else
    asim::convert_lanes<To, From, rounding, saturate>(destination, source, mask, part);
}

// Rounding to an integral value of the same type.
#define ASIM_INTEGRAL(api, rounding)                                                                                     \
  template <asim::Floats T>                                                                                              \
  ASIM_FN void api(asim::Vec<T>& destination, const asim::Vec<T>& source, const vector_bool& mask) {                     \
    ASIM_COUNT("vtrc", T);                                                                                               \
    asim::lanes1<0>(destination, source, mask, [](float x) { return asim::round_to_integral<asim::Round::rounding>(x); }); \
  }
ASIM_INTEGRAL(asc_rint, RINT)
ASIM_INTEGRAL(asc_round, AWAY)
ASIM_INTEGRAL(asc_floor, FLOOR)
ASIM_INTEGRAL(asc_ceil, CEIL)
ASIM_INTEGRAL(asc_trunc, ZERO)
#undef ASIM_INTEGRAL
