// Vector registers, mask registers and the constants that select a variant of an instruction.
#pragma once

#include "asim/core.h"
#include "asim/simd_number.h"

// The arithmetic of an instruction: one function a combination of types, not instrumented and not inlined, since only the memory
// hooks (in ASIM_FN functions) need the call site.
#define ASIM_LANES static inline __attribute__((noinline, no_sanitize("thread"), unused))

namespace asim {

inline constexpr int kVectorBytes = 256;
inline constexpr int kBlockBytes = 32;

// A constant with a type of its own, so that overloads and `if constexpr` can tell. `kind` is one of the letters below.
template <char kind, int value>
struct Constant {
  constexpr operator int() const { return value; }
};

template <class T>
struct Storage {
  using type = T;
};
template <const Format& F, typename B>
struct Storage<Small<F, B>> {
  using type = B;
};
template <>
struct Storage<float8_e8m0_t> {
  using type = uint8_t;
};
template <>
struct Storage<float4_e2m1x2_t> {
  using type = uint8_t;
};
template <>
struct Storage<float4_e1m2x2_t> {
  using type = uint8_t;
};

template <size_t bytes>
using Unsigned = std::conditional_t<bytes == 1, uint8_t, std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;

// A vector register of 256 bytes. With checks on it knows which of its bytes were never written (see peek in core.h);
// a register that was never assigned is undefined throughout and holds a NaN pattern.
template <class T>
struct alignas(64) Vec {
  using Element = T;
  using Bits = typename Storage<T>::type;
  static constexpr int lanes = kVectorBytes / int(sizeof(T));

  Bits v[lanes];
  ByteMask undefined;

  Vec() {
    if constexpr (ASIM_CHECKS) memset(static_cast<void*>(this), 0xff, kVectorBytes + sizeof(ByteMask));
  }
};

inline constexpr ByteMask kAllDefined{};

// A mask register: a bit a byte, of which a lane of several bytes uses the lowest.
struct vector_bool {
  uint64_t w[4];

  bool active(int byte) const { return w[byte >> 6] >> (byte & 63) & 1; }
};

// The bit pattern with one bit a lane.
template <int lane_bytes>
inline constexpr uint64_t kLaneBits = lane_bytes == 1   ? ~uint64_t{0}
                                      : lane_bytes == 2 ? 0x5555555555555555u
                                      : lane_bytes == 4 ? 0x1111111111111111u
                                                        : 0x0101010101010101u;

// Whether every lane is active; the common case, which needs no lane mask.
template <int lane_bytes>
inline bool all_active(const vector_bool& mask) {
  constexpr uint64_t bits = kLaneBits<lane_bytes>;
  return ((mask.w[0] & mask.w[1] & mask.w[2] & mask.w[3]) & bits) == bits;
}

// Spreads each lane's lowest bit over all the bits of the lane.
template <int lane_bytes>
inline ByteMask active_bytes(const vector_bool& mask) {
  ByteMask result;
  for (int i = 0; i < 4; ++i) result.w[i] = (mask.w[i] & kLaneBits<lane_bytes>) * ((uint64_t{1} << lane_bytes) - 1);
  return result;
}

// All ones in the active lanes, zero elsewhere.
template <int lane_bytes>
struct LaneMask {
  Unsigned<lane_bytes> v[kVectorBytes / lane_bytes];

  explicit LaneMask(const vector_bool& mask) {
    constexpr int per_word = 64 / lane_bytes;
    for (int word = 0; word < 4; ++word)
      for (int i = 0; i < per_word; ++i) v[word * per_word + i] = 0 - Unsigned<lane_bytes>(mask.w[word] >> (i * lane_bytes) & 1);
  }
};

template <class T>
inline Unsigned<sizeof(T)>* raw(Vec<T>& vec) {
  return reinterpret_cast<Unsigned<sizeof(T)>*>(vec.v);
}
template <class T>
inline const Unsigned<sizeof(T)>* raw(const Vec<T>& vec) {
  return reinterpret_cast<const Unsigned<sizeof(T)>*>(vec.v);
}

// Definedness. A lane with an undefined byte of any input is undefined; a lane that is zeroed is defined.
template <int lane_bytes>
inline ByteMask spread(ByteMask undefined) {
  if constexpr (lane_bytes == 1) return undefined;
  for (int i = 0; i < 4; ++i) {
    uint64_t w = undefined.w[i];
    if (w == 0 || w == ~uint64_t{0}) continue;
    for (int step = 1; step < lane_bytes; step *= 2) w |= w >> step;
    undefined.w[i] = (w & kLaneBits<lane_bytes>) * ((uint64_t{1} << lane_bytes) - 1);
  }
  return undefined;
}
inline ByteMask operator|(ByteMask a, const ByteMask& b) {
  for (int i = 0; i < 4; ++i) a.w[i] |= b.w[i];
  return a;
}
inline ByteMask operator&(ByteMask a, const ByteMask& b) {
  for (int i = 0; i < 4; ++i) a.w[i] &= b.w[i];
  return a;
}
inline ByteMask operator~(ByteMask a) {
  for (int i = 0; i < 4; ++i) a.w[i] = ~a.w[i];
  return a;
}
inline bool any(const ByteMask& a) { return a.w[0] | a.w[1] | a.w[2] | a.w[3]; }
inline bool test(const ByteMask& a, int byte) { return a.w[byte >> 6] >> (byte & 63) & 1; }
inline void set(ByteMask& a, int byte, int bytes) { a.w[byte >> 6] |= ((uint64_t{1} << bytes) - 1) << (byte & 63); }

// Keeps `result` in the active lanes; the others become zero (M = 0) or keep the destination's old value (M = 1), with their
// definedness. `inputs` are the undefined bytes of the instruction's operands.
template <int M, class T>
inline void assign(Vec<T>& destination, Vec<T>& result, const vector_bool& mask, const ByteMask& inputs) {
  if constexpr (ASIM_CHECKS) result.undefined = spread<sizeof(T)>(inputs);
  if (!all_active<sizeof(T)>(mask)) {
    const LaneMask<sizeof(T)> keep(mask);
    auto* out = raw(result);
    if constexpr (M == 0) {
      for (int i = 0; i < Vec<T>::lanes; ++i) out[i] &= keep.v[i];
    } else {
      const auto* old = raw(destination);
      for (int i = 0; i < Vec<T>::lanes; ++i) out[i] = (out[i] & keep.v[i]) | (old[i] & ~keep.v[i]);
    }
    if constexpr (ASIM_CHECKS) {
      const ByteMask active = active_bytes<sizeof(T)>(mask);
      result.undefined = result.undefined & active;
      if constexpr (M == 1) result.undefined = result.undefined | (destination.undefined & ~active);
    }
  }
  destination = result;
}

// What a lane computes in: half and bfloat16 in float, with one rounding at the end.
template <class T>
inline constexpr bool is_float = std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>;
template <class T>
using Wide = std::conditional_t<is_float<T>, float, T>;

template <class T>
ASIM_LANE Wide<T> widen(typename Vec<T>::Bits bits) {
  if constexpr (std::is_same_v<T, half>) return decode_f32<kHalf>(bits);
  if constexpr (std::is_same_v<T, bfloat16_t>) return decode_f32<kBf16>(bits);
  if constexpr (!std::is_same_v<T, half> && !std::is_same_v<T, bfloat16_t>) return bits;
}
template <class T>
ASIM_LANE typename Vec<T>::Bits narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, half>) return encode_f32<kHalf, Round::RINT, false>(value);
  if constexpr (std::is_same_v<T, bfloat16_t>) return encode_f32<kBf16, Round::RINT, false>(value);
  if constexpr (!std::is_same_v<T, half> && !std::is_same_v<T, bfloat16_t>) return value;
}

// Sets of element types, for the constraints of the instructions.
template <class T, class... U>
inline constexpr bool one_of = (std::is_same_v<T, U> || ...);
template <class T>
concept Int8 = one_of<T, int8_t, uint8_t>;
template <class T>
concept Int16 = one_of<T, int16_t, uint16_t>;
template <class T>
concept Int32 = one_of<T, int32_t, uint32_t>;
template <class T>
concept Ints = Int8<T> || Int16<T> || Int32<T>;
template <class T>
concept SignedInts = one_of<T, int8_t, int16_t, int32_t>;
template <class T>
concept HalfOrFloat = one_of<T, half, float>;
template <class T>
concept Floats = HalfOrFloat<T> || one_of<T, bfloat16_t>;
template <class T>
concept Numbers = Ints<T> || Floats<T>;
template <class T>
concept Elements = Numbers<T> || one_of<T, float8_e4m3_t, float8_e5m2_t, float8_e8m0_t>;
// What loads and stores move: also 64-bit integers and pairs of 4-bit floats.
template <class T>
concept Loadable = Elements<T> || one_of<T, int64_t, uint64_t, float4_e2m1x2_t, float4_e1m2x2_t>;

}  // namespace asim

using asim::vector_bool;

using vector_s8 = asim::Vec<int8_t>;
using vector_u8 = asim::Vec<uint8_t>;
using vector_s16 = asim::Vec<int16_t>;
using vector_u16 = asim::Vec<uint16_t>;
using vector_s32 = asim::Vec<int32_t>;
using vector_u32 = asim::Vec<uint32_t>;
using vector_s64 = asim::Vec<int64_t>;
using vector_u64 = asim::Vec<uint64_t>;
using vector_f16 = asim::Vec<half>;
using vector_bf16 = asim::Vec<bfloat16_t>;
using vector_f32 = asim::Vec<float>;
using vector_f8e4m3 = asim::Vec<float8_e4m3_t>;
using vector_f8e5m2 = asim::Vec<float8_e5m2_t>;
using vector_f8e8m0 = asim::Vec<float8_e8m0_t>;
using vector_f4e2m1x2 = asim::Vec<float4_e2m1x2_t>;
using vector_f4e1m2x2 = asim::Vec<float4_e1m2x2_t>;
using vector_int8_t = vector_s8;
using vector_uint8_t = vector_u8;
using vector_int16_t = vector_s16;
using vector_uint16_t = vector_u16;
using vector_int32_t = vector_s32;
using vector_uint32_t = vector_u32;
using vector_int64_t = vector_s64;
using vector_uint64_t = vector_u64;
using vector_half = vector_f16;
using vector_bfloat16_t = vector_bf16;
using vector_float = vector_f32;
using vector_fp8_e4m3fn_t = vector_f8e4m3;
using vector_fp8_e5m2_t = vector_f8e5m2;
using vector_fp8_e8m0_t = vector_f8e8m0;
using vector_fp4x2_e2m1_t = vector_f4e2m1x2;
using vector_fp4x2_e1m2_t = vector_f4e1m2x2;

#define ASIM_CONSTANT(kind, name, value) inline constexpr asim::Constant<kind, value> name{}
// 'M': what becomes of inactive lanes.
ASIM_CONSTANT('M', MODE_ZEROING, 0);
ASIM_CONSTANT('M', MODE_MERGING, 1);
// vsqz: whether the number of kept bytes goes to the AR register. The template never passes it on.
ASIM_CONSTANT('m', MODE_NO_STORED, 0);
ASIM_CONSTANT('m', MODE_STORED, 1);
// 'R': rounding; the values are those of asim::Round.
ASIM_CONSTANT('R', ROUND_R, int(asim::Round::RINT));
ASIM_CONSTANT('R', ROUND_A, int(asim::Round::AWAY));
ASIM_CONSTANT('R', ROUND_F, int(asim::Round::FLOOR));
ASIM_CONSTANT('R', ROUND_C, int(asim::Round::CEIL));
ASIM_CONSTANT('R', ROUND_Z, int(asim::Round::ZERO));
ASIM_CONSTANT('R', ROUND_O, int(asim::Round::ODD));
// 'S': saturation.
ASIM_CONSTANT('S', RS_DISABLE, 0);
ASIM_CONSTANT('S', RS_ENABLE, 1);
// 'P', 'Q': which narrow lane of each wide one, of two or of four.
ASIM_CONSTANT('P', PART_EVEN, 0);
ASIM_CONSTANT('P', PART_ODD, 1);
ASIM_CONSTANT('Q', PART_P0, 0);
ASIM_CONSTANT('Q', PART_P1, 1);
ASIM_CONSTANT('Q', PART_P2, 2);
ASIM_CONSTANT('Q', PART_P3, 3);
ASIM_CONSTANT('H', LOWER, 0);
ASIM_CONSTANT('H', HIGHER, 1);
ASIM_CONSTANT('p', POS_LOWEST, 0);
ASIM_CONSTANT('p', POS_HIGHEST, 1);
ASIM_CONSTANT('O', INC_ORDER, 0);
ASIM_CONSTANT('O', DEC_ORDER, 1);
ASIM_CONSTANT('B', Bin_N0, 0);
ASIM_CONSTANT('B', Bin_N1, 1);
ASIM_CONSTANT('U', POST_UPDATE, 1);
ASIM_CONSTANT('D', DINTLV_B8, 1);
ASIM_CONSTANT('D', DINTLV_B16, 2);
ASIM_CONSTANT('D', DINTLV_B32, 4);
// 'T': mask patterns. The value is the number of leading lanes, or one of the negative codes.
ASIM_CONSTANT('T', PAT_ALL, 256);
ASIM_CONSTANT('T', PAT_ALLF, 0);
ASIM_CONSTANT('T', PAT_VL1, 1);
ASIM_CONSTANT('T', PAT_VL2, 2);
ASIM_CONSTANT('T', PAT_VL3, 3);
ASIM_CONSTANT('T', PAT_VL4, 4);
ASIM_CONSTANT('T', PAT_VL8, 8);
ASIM_CONSTANT('T', PAT_VL16, 16);
ASIM_CONSTANT('T', PAT_VL32, 32);
ASIM_CONSTANT('T', PAT_VL64, 64);
ASIM_CONSTANT('T', PAT_VL128, 128);
ASIM_CONSTANT('T', PAT_H, -2);
ASIM_CONSTANT('T', PAT_Q, -4);
ASIM_CONSTANT('T', PAT_M3, -3);
ASIM_CONSTANT('T', PAT_M4, -5);
// 'V': which accesses of a vector function asc_mem_bar orders.
ASIM_CONSTANT('V', VV_ALL, 0);
ASIM_CONSTANT('V', VST_VLD, 1);
ASIM_CONSTANT('V', VLD_VST, 2);
ASIM_CONSTANT('V', VST_VST, 3);
ASIM_CONSTANT('V', VS_ALL, 4);
ASIM_CONSTANT('V', VST_LD, 5);
ASIM_CONSTANT('V', VLD_ST, 6);
ASIM_CONSTANT('V', VST_ST, 7);
ASIM_CONSTANT('V', SV_ALL, 8);
ASIM_CONSTANT('V', ST_VLD, 9);
ASIM_CONSTANT('V', LD_VST, 10);
ASIM_CONSTANT('V', ST_VST, 11);
ASIM_CONSTANT('V', SS_ALL, 12);
ASIM_CONSTANT('V', ST_LD, 13);
ASIM_CONSTANT('V', LD_ST, 14);
ASIM_CONSTANT('V', ST_ST, 15);
#undef ASIM_CONSTANT
