// Mask registers: creation, logic, rearrangement, and the loads and stores of masks.
#pragma once

#include "asim/simd_register.h"

namespace asim {

// A mask whose bit i is bit(i).
template <class F>
inline vector_bool make_mask(F bit) {
  vector_bool result;
  for (int word = 0; word < 4; ++word) {
    uint64_t w = 0;
    for (int i = 0; i < 64; ++i) w |= uint64_t(bit(word * 64 + i)) << i;
    result.w[word] = w;
  }
  return result;
}

template <int lane_bytes>
ASIM_LANES vector_bool leading_lanes(uint64_t count) {
  const uint64_t bytes = count >= uint64_t(kVectorBytes / lane_bytes) ? kVectorBytes : count * lane_bytes;
  vector_bool result;
  for (uint64_t word = 0; word < 4; ++word) {
    const uint64_t begin = word * 64, used = bytes <= begin ? 0 : bytes - begin;
    result.w[word] = kLaneBits<lane_bytes> & (used >= 64 ? ~uint64_t{0} : (uint64_t{1} << used) - 1);
  }
  return result;
}

template <int lane_bytes, int pattern>
inline vector_bool pattern_mask() {
  constexpr int lanes = kVectorBytes / lane_bytes;
  if constexpr (pattern >= 0) return leading_lanes<lane_bytes>(pattern);
  if constexpr (pattern == PAT_H || pattern == PAT_Q) return leading_lanes<lane_bytes>(lanes / -pattern);
  constexpr int every = pattern == PAT_M3 ? 3 : 4;
  return make_mask([](int bit) { return bit % (every * lane_bytes) == 0; });
}

template <class F>
ASIM_FN vector_bool combine(const vector_bool& a, const vector_bool& b, const vector_bool& mask, F f) {
  vector_bool result;
  for (int i = 0; i < 4; ++i) result.w[i] = f(a.w[i], b.w[i]) & mask.w[i];
  return result;
}

// Interleaving moves groups of `group` bits: lane i of the sources' concatenated halves goes to lanes 2i and 2i + 1.
template <int group>
ASIM_LANES void interleave_masks(vector_bool& low, vector_bool& high, const vector_bool a, const vector_bool b) {
  auto at = [&](int bit) {
    const int lane = bit / group, source = lane / 2 * group + bit % group;
    return (lane % 2 ? b : a).active(source);
  };
  low = make_mask(at);
  high = make_mask([&](int bit) { return at(bit + kVectorBytes); });
}

template <int group>
ASIM_LANES void deinterleave_masks(vector_bool& even, vector_bool& odd, const vector_bool a, const vector_bool b) {
  auto at = [&](int bit, int parity) {
    const int source = (bit / group * 2 + parity) * group + bit % group;
    return source < kVectorBytes ? a.active(source) : b.active(source - kVectorBytes);
  };
  even = make_mask([&](int bit) { return at(bit, 0); });
  odd = make_mask([&](int bit) { return at(bit, 1); });
}

}  // namespace asim

#define ASIM_MASKS(width)                                                                                                     \
  template <int pattern>                                                                                                      \
  ASIM_FN vector_bool asc_create_mask_b##width(asim::Constant<'T', pattern>) {                                                \
    asim::count<"pset">(asim::Pipe::V, 2048 / width);                                                                         \
    return asim::pattern_mask<width / 8, pattern>();                                                                          \
  }                                                                                                                           \
  ASIM_FN vector_bool asc_update_mask_b##width(uint32_t& value) {                                                             \
    asim::count<"plt">(asim::Pipe::V, 2048 / width);                                                                          \
    const vector_bool result = asim::leading_lanes<width / 8>(value);                                                         \
    value = value < 2048 / width ? 0 : value - 2048 / width;                                                                  \
    return result;                                                                                                            \
  }                                                                                                                           \
  ASIM_FN void asc_intlv_b##width(vector_bool& low, vector_bool& high, vector_bool a, vector_bool b) {                        \
    asim::count<"pintlv">(asim::Pipe::V, 2048 / width);                                                                       \
    asim::interleave_masks<width / 8>(low, high, a, b);                                                                       \
  }                                                                                                                           \
  ASIM_FN void asc_deintlv_b##width(vector_bool& even, vector_bool& odd, vector_bool a, vector_bool b) {                      \
    asim::count<"pdintlv">(asim::Pipe::V, 2048 / width);                                                                      \
    asim::deinterleave_masks<width / 8>(even, odd, a, b);                                                                     \
  }
ASIM_MASKS(8)
ASIM_MASKS(16)
ASIM_MASKS(32)
#undef ASIM_MASKS

#define ASIM_MASK_LOGIC(name, cce, expression)                                                             \
  ASIM_FN void name(vector_bool& destination, vector_bool source0, vector_bool source1, vector_bool mask) { \
    asim::count<cce>(asim::Pipe::V, 256);                                                                  \
    destination = asim::combine(source0, source1, mask, [](uint64_t a, uint64_t b) { return expression; }); \
  }
ASIM_MASK_LOGIC(asc_and, "pand", a & b)
ASIM_MASK_LOGIC(asc_or, "por", a | b)
ASIM_MASK_LOGIC(asc_xor, "pxor", a ^ b)
#undef ASIM_MASK_LOGIC

ASIM_FN void asc_not(vector_bool& destination, vector_bool source, vector_bool mask) {
  asim::count<"pnot">(asim::Pipe::V, 256);
  destination = asim::combine(source, source, mask, [](uint64_t a, uint64_t) { return ~a; });
}
ASIM_FN void asc_select(vector_bool& destination, vector_bool source0, vector_bool source1, vector_bool mask) {
  asim::count<"psel">(asim::Pipe::V, 256);
  for (int i = 0; i < 4; ++i) destination.w[i] = (source0.w[i] & mask.w[i]) | (source1.w[i] & ~mask.w[i]);
}
ASIM_FN void asc_copy(vector_bool& destination, vector_bool source, vector_bool mask) {
  asim::count<"pmov">(asim::Pipe::V, 256);
  destination = asim::combine(source, source, mask, [](uint64_t a, uint64_t) { return a; });
}
ASIM_FN void asc_copy(vector_bool& destination, vector_bool source) {
  asim::count<"pmov">(asim::Pipe::V, 256);
  destination = source;
}

// Packing keeps every second bit, unpacking puts a zero above every bit.
#define ASIM_MASK_PACK(name, cce, bit)                             \
  ASIM_FN void name(vector_bool& destination, vector_bool source) { \
    asim::count<cce>(asim::Pipe::V, 256);                          \
    destination = asim::make_mask([&](int i) { return bit; });     \
  }
ASIM_MASK_PACK(asc_pack_to_low, "ppack", i < 128 && source.active(2 * i & 255))
ASIM_MASK_PACK(asc_pack_to_high, "ppack", i >= 128 && source.active(2 * i & 255))
ASIM_MASK_PACK(asc_unpack_lower, "punpack", i % 2 == 0 && source.active(i / 2))
ASIM_MASK_PACK(asc_unpack_upper, "punpack", i % 2 == 0 && source.active(128 + i / 2))
#undef ASIM_MASK_PACK

// The offset of a mask load or store counts bytes.
#define ASIM_MASK_LOAD(name, bytes, alignment, bit)                                                                             \
  ASIM_FN void name(vector_bool& destination, __ubuf__ uint32_t* source, int32_t offset = 0) {                                  \
    asim::count<"pld">(asim::Pipe::V, 256);                                                                                     \
    const uint8_t* from = asim::read(asim::Mem::UB, reinterpret_cast<uint8_t*>(source) + offset, bytes, asim::Pipe::V, alignment); \
    uint8_t data[bytes];                                                                                                        \
    memcpy(data, from, bytes);                                                                                                  \
    destination = asim::make_mask([&](int i) { return data[(bit) / 8] >> (bit) % 8 & 1; });                                     \
  }                                                                                                                             \
  ASIM_FN void name##_postupdate(vector_bool& destination, __ubuf__ uint32_t*& source, int32_t offset) {                        \
    name(destination, source);                                                                                                  \
    source = reinterpret_cast<__ubuf__ uint32_t*>(reinterpret_cast<uint8_t*>(source) + offset);                                 \
  }
ASIM_MASK_LOAD(asc_loadalign, 32, 32, i)
ASIM_MASK_LOAD(asc_loadalign_upsample, 16, 16, i / 2)
ASIM_MASK_LOAD(asc_loadalign_downsample, 64, 32, 2 * i)
#undef ASIM_MASK_LOAD

#define ASIM_MASK_STORE(name, bytes, bit)                                                                                \
  template <class T>                                                                                                     \
    requires asim::one_of<T, uint8_t, uint16_t, uint32_t>                                                                \
  ASIM_FN void name(__ubuf__ T* destination, vector_bool source, int32_t offset = 0) {                                   \
    asim::count<"pst">(asim::Pipe::V, 256);                                                                              \
    const vector_bool bits = asim::make_mask([&](int i) { return i < bytes * 8 && source.active((bit) & 255); });        \
    uint8_t* to = asim::write(asim::Mem::UB, reinterpret_cast<uint8_t*>(destination) + offset, bytes, asim::Pipe::V, bytes); \
    memcpy(to, bits.w, bytes);                                                                                           \
  }                                                                                                                      \
  template <class T>                                                                                                     \
    requires asim::one_of<T, uint8_t, uint16_t, uint32_t>                                                                \
  ASIM_FN void name##_postupdate(__ubuf__ T*& destination, vector_bool source, int32_t offset) {                         \
    name(destination, source);                                                                                           \
    destination = reinterpret_cast<__ubuf__ T*>(reinterpret_cast<uint8_t*>(destination) + offset);                       \
  }
ASIM_MASK_STORE(asc_storealign, 32, i)
ASIM_MASK_STORE(asc_storealign_pack, 16, 2 * i)
#undef ASIM_MASK_STORE
