// Loads and stores between UB and vector registers, gather and scatter.
#pragma once

#include <algorithm>

#include "asim/simd_compute.h"

// These need the loop counters of the hardware's loops, which no call on the host can see.
struct addr_reg;
template <class... T>
addr_reg asc_update_addr_reg_b8(T...) = delete;
template <class... T>
addr_reg asc_update_addr_reg_b16(T...) = delete;
template <class... T>
addr_reg asc_update_addr_reg_b32(T...) = delete;

// The 32-byte registers of unaligned transfers. For loads only the address they were prepared for matters.
struct vector_load_unalign {
  const void* next = nullptr;
};
struct vector_store_unalign {
  uint8_t* end = nullptr;  // the pending bytes are the `count` ones before it
  uint32_t count = 0;
  uint8_t data[asim::kBlockBytes];
  asim::ByteMask undefined;
};

namespace asim {

ASIM_FN void fetch(const void* address, void* out, uint32_t bytes, uint32_t align, ByteMask& undefined) {
  const uint8_t* from = peek(Mem::UB, address, bytes, Pipe::V, align, &undefined);
  memcpy(out, from, bytes);
}

// Undefined bytes after lanes of `lane_bytes` were rearranged: lane i comes from byte source(i), or from nowhere (negative).
template <int lane_bytes, class F>
inline ByteMask move_undefined(const ByteMask& from, F source) {
  ByteMask result{};
  if (!any(from)) return result;
  for (int i = 0; i < kVectorBytes / lane_bytes; ++i) {
    const int at = source(i);
    for (int k = 0; at >= 0 && k < lane_bytes; ++k)
      if (test(from, at + k)) set(result, i * lane_bytes + k, 1);
  }
  return result;
}

// `result` lane i = element source(i) of a buffer of `count` elements, or zero.
template <class E, class T, class F>
inline void distribute(Vec<T>& result, const E* elements, const ByteMask& undefined, F source) {
  E* out = reinterpret_cast<E*>(result.v);
  for (int i = 0; i < int(kVectorBytes / sizeof(E)); ++i) {
    const int at = source(i);
    out[i] = at < 0 ? E{} : elements[at];
  }
  if constexpr (ASIM_CHECKS)
    result.undefined = move_undefined<sizeof(E)>(undefined, [&](int i) { return source(i) < 0 ? -1 : source(i) * int(sizeof(E)); });
}

template <class E, int bytes, int align, class T, class F>
ASIM_FN void load(Vec<T>& destination, const void* address, F source) {
  E data[bytes / sizeof(E)];
  ByteMask undefined;
  fetch(address, data, bytes, align, undefined);
  distribute<E>(destination, data, undefined, source);
}

// Every second element of 512 bytes, from the `first` on.
template <class T>
inline void take_alternate(Vec<T>& result, const Vec<T>& low, const Vec<T>& high, int first) {
  constexpr int half = Vec<T>::lanes / 2;
  for (int i = 0; i < half; ++i) {
    result.v[i] = low.v[2 * i + first];
    result.v[half + i] = high.v[2 * i + first];
  }
  if constexpr (ASIM_CHECKS) {
    auto part = [&](const ByteMask& from, bool upper) {
      return move_undefined<sizeof(T)>(from, [=](int i) {
        const int lane = (i % half * 2 + first) * int(sizeof(T));
        return (i >= half) == upper ? lane : -1;
      });
    };
    result.undefined = part(low.undefined, false) | part(high.undefined, true);
  }
}

inline void require_defined(const ByteMask& undefined, const ByteMask& active, const char* what) {
  if constexpr (ASIM_CHECKS)
    if (any(undefined & active)) fail("uninitialised", "%s has a lane that was never written", what);
}

// Writes the active lanes, of `unit` bytes each, of a register image of at most 256 bytes.
template <int bytes, int unit>
ASIM_FN void put(void* address, const void* data, uint32_t align, bool all, const ByteMask& active, const ByteMask& undefined) {
  uint8_t* to = write(Mem::UB, address, bytes, Pipe::V, align, all ? nullptr : &active, any(undefined) ? &undefined : nullptr);
  if (all) {
    memcpy(to, data, bytes);
  } else {
    for (int i = 0; i < bytes; i += unit)
      if (test(active, i)) memcpy(to + i, static_cast<const uint8_t*>(data) + i, unit);
  }
}

// Stores the lowest `part` bytes of each active lane, side by side.
template <int part, class T>
ASIM_FN void store(T* address, const Vec<T>& source, const vector_bool& mask) {
  constexpr int bytes = Vec<T>::lanes * part;
  const bool all = all_active<sizeof(T)>(mask);
  ByteMask active{}, undefined{};
  if constexpr (part == sizeof(T)) {
    if (!all) active = active_bytes<sizeof(T)>(mask);
    if constexpr (ASIM_CHECKS) undefined = source.undefined;
    put<bytes, part>(address, source.v, kBlockBytes, all, active, undefined);
  } else {
    Unsigned<part> data[Vec<T>::lanes];
    for (int i = 0; i < Vec<T>::lanes; ++i) data[i] = Unsigned<part>(raw(source)[i]);
    if (!all)
      for (int i = 0; i < Vec<T>::lanes; ++i)
        if (mask.active(i * int(sizeof(T)))) set(active, i * part, part);
    if constexpr (ASIM_CHECKS)
      undefined = move_undefined<part>(source.undefined, [](int i) { return i < Vec<T>::lanes ? i * int(sizeof(T)) : -1; });
    put<bytes, part>(address, data, kBlockBytes, all, active, undefined);
  }
}

}  // namespace asim

// Loads. The offset counts elements; `_postupdate` loads from the old address and then moves the pointer.
#define ASIM_LOAD(name, Set, E, bytes, alignment, expression)                                              \
  template <Set T>                                                                                         \
  ASIM_FN void name(asim::Vec<T>& destination, __ubuf__ T* source, int32_t offset = 0) {                   \
    asim::count<"vld">(asim::Pipe::V, asim::Vec<T>::lanes);                                                \
    asim::load<E, bytes, alignment>(destination, source + offset, [](int i) { return expression; });       \
  }                                                                                                        \
  template <Set T>                                                                                         \
  ASIM_FN void name##_postupdate(asim::Vec<T>& destination, __ubuf__ T*& source, int32_t offset) {         \
    name(destination, source);                                                                             \
    source += offset;                                                                                      \
  }
namespace asim {
template <class T>
concept Loadable8 = Loadable<T> && sizeof(T) == 1;
template <class T>
concept Loadable16 = Loadable<T> && sizeof(T) == 2;
template <class T>
concept LoadableTo16 = Loadable<T> && sizeof(T) <= 2;
template <class T>
concept LoadableTo32 = Loadable<T> && sizeof(T) <= 4;
template <class T>
concept Loadable16Or32 = LoadableTo32<T> && sizeof(T) >= 2;
template <class T>
concept Loadable16Up = Loadable<T> && sizeof(T) >= 2;
}  // namespace asim
ASIM_LOAD(asc_loadalign, asim::Loadable, asim::Unsigned<sizeof(T)>, 256, 32, i)
ASIM_LOAD(asc_loadalign_brc_elem, asim::LoadableTo32, asim::Unsigned<sizeof(T)>, sizeof(T), sizeof(T), 0)
ASIM_LOAD(asc_loadalign_upsample, asim::LoadableTo16, asim::Unsigned<sizeof(T)>, 128, 32, i / 2)
ASIM_LOAD(asc_loadalign_unpack, asim::LoadableTo32, asim::Unsigned<sizeof(T)>, 128, 32, i % 2 ? -1 : i / 2)
ASIM_LOAD(asc_loadalign_unpack4, asim::Loadable8, uint8_t, 64, 32, i % 4 ? -1 : i / 4)
ASIM_LOAD(asc_loadalign_brc_datablock, asim::LoadableTo32, uint64_t, 32, 32, i % 4)
ASIM_LOAD(asc_loadalign_brc_elem2datablock, asim::Loadable16Or32, asim::Unsigned<sizeof(T)>, 8 * sizeof(T), 8 * sizeof(T),
          i / int(asim::kBlockBytes / sizeof(T)))
#undef ASIM_LOAD

template <asim::LoadableTo32 T>
ASIM_FN void asc_loadalign_deintlv(asim::Vec<T>& even, asim::Vec<T>& odd, __ubuf__ T* source, int32_t offset = 0) {
  asim::count<"vldx2">(asim::Pipe::V, 2 * asim::Vec<T>::lanes);
  asim::Vec<T> low, high;
  asim::fetch(source + offset, low.v, 256, 32, low.undefined);
  asim::fetch(source + offset + asim::Vec<T>::lanes, high.v, 256, 32, high.undefined);
  asim::take_alternate(even, low, high, 0);
  asim::take_alternate(odd, low, high, 1);
}
template <asim::LoadableTo32 T>
ASIM_FN void asc_loadalign_deintlv_postupdate(asim::Vec<T>& even, asim::Vec<T>& odd, __ubuf__ T*& source, int32_t offset) {
  asc_loadalign_deintlv(even, odd, source);
  source += offset;
}

template <asim::LoadableTo16 T>
ASIM_FN void asc_loadalign_downsample(asim::Vec<T>& destination, __ubuf__ T* source, int32_t offset = 0) {
  asim::count<"vld">(asim::Pipe::V, asim::Vec<T>::lanes);
  asim::Vec<T> low, high;
  asim::fetch(source + offset, low.v, 256, 32, low.undefined);
  asim::fetch(source + offset + asim::Vec<T>::lanes, high.v, 256, 32, high.undefined);
  asim::take_alternate(destination, low, high, 0);
}
template <asim::LoadableTo16 T>
ASIM_FN void asc_loadalign_downsample_postupdate(asim::Vec<T>& destination, __ubuf__ T*& source, int32_t offset) {
  asc_loadalign_downsample(destination, source);
  source += offset;
}

// Strided by blocks of 32 bytes; a block without an active lane is not accessed, inactive lanes become zero.
template <asim::Loadable T>
ASIM_FN void asc_loadalign(asim::Vec<T>& destination, __ubuf__ T* source, uint16_t block_stride, uint16_t repeat_stride, vector_bool mask) {
  (void)repeat_stride;
  asim::count<"vsldb">(asim::Pipe::V, asim::Vec<T>::lanes);
  const asim::ByteMask active = asim::active_bytes<sizeof(T)>(mask);
  asim::Vec<T> result;
  asim::ByteMask undefined{};
  uint8_t* out = reinterpret_cast<uint8_t*>(result.v);
  memset(out, 0, asim::kVectorBytes);
  for (int block = 0; block < 8; ++block) {
    if (!(active.w[block / 2] >> (block % 2 * 32) & 0xffffffffu)) continue;
    asim::ByteMask part{};
    asim::fetch(reinterpret_cast<uint8_t*>(source) + block * block_stride * asim::kBlockBytes, out + block * 32, 32, 32, part);
    undefined.w[block / 2] |= (part.w[0] & 0xffffffffu) << (block % 2 * 32);
  }
  asim::assign<0>(destination, result, mask, undefined);
}
template <asim::Loadable T>
ASIM_FN void asc_loadalign_postupdate(asim::Vec<T>& destination, __ubuf__ T*& source, uint16_t block_stride, uint16_t repeat_stride,
                                      vector_bool mask) {
  asc_loadalign(destination, source, block_stride, repeat_stride, mask);
  source += repeat_stride * int(asim::kBlockBytes / sizeof(T));
}

// Unaligned loads.
template <asim::Loadable T>
ASIM_FN void asc_load(asim::Vec<T>& destination, __ubuf__ T* source) {
  asim::count<"vld">(asim::Pipe::V, asim::Vec<T>::lanes);
  asim::fetch(source, destination.v, 256, sizeof(T), destination.undefined);
}
template <asim::Loadable T>
ASIM_FN void asc_loadunalign_pre(vector_load_unalign& align, __ubuf__ T* source) {
  asim::count<"vldas">(asim::Pipe::V, 1);
  align.next = source;
}
template <asim::Loadable T>
ASIM_FN void asc_loadunalign_postupdate(asim::Vec<T>& destination, vector_load_unalign& align, __ubuf__ T*& source, uint32_t count) {
  asim::count<"vldus">(asim::Pipe::V, asim::Vec<T>::lanes);
  if (align.next != source) asim::fail("argument", "asc_loadunalign: the align register was not prepared for this address by asc_loadunalign_pre");
  asim::fetch(source, destination.v, 256, sizeof(T), destination.undefined);
  source += count;
  align.next = source;
}
template <asim::Loadable T>
ASIM_FN void asc_loadunalign(asim::Vec<T>& destination, vector_load_unalign& align, __ubuf__ T* source) {
  __ubuf__ T* moving = source;
  asc_loadunalign_postupdate(destination, align, moving, asim::Vec<T>::lanes);
}

// Gathers. An element's index counts elements, a block's index counts bytes.
namespace asim {
// The indices of active lanes in ascending order; returns how many.
template <int lane_bytes, class I>
ASIM_LANES int sorted_indices(const Vec<I>& index, const vector_bool& mask, I* sorted) {
  int count = 0;
  for (int i = 0; i < kVectorBytes / lane_bytes; ++i)
    if (mask.active(i * lane_bytes)) sorted[count++] = index.v[i];
  std::sort(sorted, sorted + count);
  return count;
}

template <class To, class From, class I>
ASIM_FN void gather(Vec<To>& destination, From* base, const Vec<I>& index, const vector_bool& mask) {
  count<"vgather2">(Pipe::V, Vec<To>::lanes);
  constexpr int lanes = Vec<To>::lanes;
  require_defined(spread<sizeof(I)>(index.undefined), active_bytes<sizeof(To)>(mask), "the index of asc_gather");
  // The documents ask for 32 bytes; kernels that are in use on boards gather from any element.
  if (offset(Mem::UB, base) % sizeof(From)) fail("misaligned", "asc_gather: the base address must be a multiple of %zu bytes", sizeof(From));
  Vec<To> result;
  memset(static_cast<void*>(&result), 0, sizeof(result));
  if constexpr (ASIM_CHECKS) {
    I sorted[lanes];
    const int active = sorted_indices<sizeof(To)>(index, mask, sorted);
    for (int k = 0; k < active;) {  // neighbouring elements are one access
      const uint32_t first = sorted[k];
      uint32_t last = first;
      while (++k < active && sorted[k] - last <= 1 && (sorted[k] - first + 1) * sizeof(From) <= kVectorBytes) last = sorted[k];
      ByteMask undefined{};
      peek(Mem::UB, base + first, (last - first + 1) * sizeof(From), Pipe::V, sizeof(From), &undefined);
      if (!any(undefined)) continue;
      for (int i = 0; i < lanes; ++i)
        if (index.v[i] >= first && index.v[i] <= last && test(spread<sizeof(From)>(undefined), int((index.v[i] - first) * sizeof(From))))
          set(result.undefined, i * int(sizeof(To)), sizeof(To));
    }
    result.undefined = result.undefined & active_bytes<sizeof(To)>(mask);
  }
  const uint8_t* memory = host(asim_core, Mem::UB, offset(Mem::UB, base));
  for (int i = 0; i < lanes; ++i)
    if (mask.active(i * int(sizeof(To)))) memcpy(raw(result) + i, memory + uint64_t(index.v[i]) * sizeof(From), sizeof(From));
  destination = result;
}
}  // namespace asim
template <asim::Loadable16 T>
ASIM_FN void asc_gather(asim::Vec<T>& destination, __ubuf__ T* base, vector_u16 index, vector_bool mask) {
  asim::gather(destination, base, index, mask);
}
template <class T>
  requires(asim::LoadableTo32<T> && sizeof(T) == 4)
ASIM_FN void asc_gather(asim::Vec<T>& destination, __ubuf__ T* base, vector_u32 index, vector_bool mask) {
  asim::gather(destination, base, index, mask);
}
ASIM_FN void asc_gather(vector_s16& destination, __ubuf__ int8_t* base, vector_u16 index, vector_bool mask) {
  asim::gather(destination, base, index, mask);
}
ASIM_FN void asc_gather(vector_u16& destination, __ubuf__ uint8_t* base, vector_u16 index, vector_bool mask) {
  asim::gather(destination, base, index, mask);
}

template <asim::Loadable T>
ASIM_FN void asc_gather_datablock(asim::Vec<T>& destination, __ubuf__ T* base, vector_u32 index, vector_bool mask) {
  asim::count<"vgatherb">(asim::Pipe::V, asim::Vec<T>::lanes);
  const asim::ByteMask active = asim::active_bytes<sizeof(T)>(mask);
  asim::Vec<T> result;
  asim::ByteMask undefined{};
  uint8_t* out = reinterpret_cast<uint8_t*>(result.v);
  memset(out, 0, asim::kVectorBytes);
  for (int block = 0; block < 8; ++block) {
    if (!(active.w[block / 2] >> (block % 2 * 32) & 0xffffffffu)) continue;
    if (ASIM_CHECKS && (index.undefined.w[0] >> (block * 4) & 15))
      asim::fail("uninitialised", "the index of asc_gather_datablock has a lane that was never written");
    asim::ByteMask part{};
    asim::fetch(reinterpret_cast<uint8_t*>(base) + index.v[block], out + block * 32, 32, 32, part);
    undefined.w[block / 2] |= (part.w[0] & 0xffffffffu) << (block % 2 * 32);
  }
  asim::assign<0>(destination, result, mask, undefined);
}
template <asim::Loadable T>
ASIM_FN void asc_gather_datablock(asim::Vec<T>& destination, __ubuf__ T* base, vector_u32 index) {
  asc_gather_datablock(destination, base, index, asim::leading_lanes<sizeof(T)>(asim::kVectorBytes));
}

// Scatters. Of 8-bit elements only those in even lanes are stored.
namespace asim {
template <class T, class I>
ASIM_FN void scatter(T* base, const Vec<T>& source, const Vec<I>& index, const vector_bool& mask) {
  count<"vscatter">(Pipe::V, Vec<I>::lanes);
  const ByteMask active = active_bytes<sizeof(I)>(mask);
  require_defined(spread<sizeof(I)>(index.undefined), active, "the index of asc_scatter");
  if (offset(Mem::UB, base) % sizeof(T)) fail("misaligned", "asc_scatter: the base address must be a multiple of %zu bytes", sizeof(T));
  for (int i = 0; i < Vec<I>::lanes; ++i) {
    const int byte = i * int(sizeof(I));
    if (!mask.active(byte)) continue;
    ByteMask undefined{};
    if (ASIM_CHECKS)
      for (int k = 0; k < int(sizeof(T)); ++k) undefined.w[0] |= uint64_t(test(source.undefined, byte + k)) << k;
    put<sizeof(T), sizeof(T)>(base + index.v[i], &source.v[byte / int(sizeof(T))], sizeof(T), true, kAllDefined, undefined);
  }
}
}  // namespace asim
template <class T>
  requires(asim::Numbers<T> && sizeof(T) <= 2)
ASIM_FN void asc_scatter(__ubuf__ T* base, asim::Vec<T> source, vector_u16 index, vector_bool mask) {
  asim::scatter(base, source, index, mask);
}
template <class T>
  requires(asim::Numbers<T> && sizeof(T) == 4)
ASIM_FN void asc_scatter(__ubuf__ T* base, asim::Vec<T> source, vector_u32 index, vector_bool mask) {
  asim::scatter(base, source, index, mask);
}

// Stores.
#define ASIM_STORE(name, Set, part)                                                                                       \
  template <Set T>                                                                                                        \
  ASIM_FN void name(__ubuf__ T* destination, const asim::Vec<T>& source, int32_t offset, const vector_bool& mask) {       \
    asim::count<"vst">(asim::Pipe::V, asim::Vec<T>::lanes);                                                               \
    asim::store<part>(destination + offset, source, mask);                                                                \
  }                                                                                                                       \
  template <Set T>                                                                                                        \
  ASIM_FN void name(__ubuf__ T* destination, const asim::Vec<T>& source, const vector_bool& mask) {                       \
    name(destination, source, 0, mask);                                                                                   \
  }                                                                                                                       \
  template <Set T>                                                                                                        \
  ASIM_FN void name##_postupdate(__ubuf__ T*& destination, const asim::Vec<T>& source, int32_t offset, const vector_bool& mask) { \
    name(destination, source, 0, mask);                                                                                   \
    destination += offset;                                                                                                \
  }
namespace asim {
template <class T>
concept Lanes32 = LoadableTo32<T> && sizeof(T) == 4;
}
ASIM_STORE(asc_storealign, asim::LoadableTo32, sizeof(T))
ASIM_STORE(asc_storealign_pack, asim::Loadable16Up, sizeof(T) / 2)
ASIM_STORE(asc_storealign_pack_quarter, asim::Lanes32, 1)
#undef ASIM_STORE

template <asim::LoadableTo32 T>
ASIM_FN void asc_storealign_1st(__ubuf__ T* destination, const asim::Vec<T>& source, int32_t offset = 0) {
  asim::count<"vst">(asim::Pipe::V, 1);
  asim::ByteMask undefined{};
  if constexpr (ASIM_CHECKS) undefined.w[0] = source.undefined.w[0] & ((uint64_t{1} << sizeof(T)) - 1);
  asim::put<sizeof(T), sizeof(T)>(destination + offset, source.v, sizeof(T), true, asim::kAllDefined, undefined);
}
template <asim::LoadableTo32 T>
ASIM_FN void asc_storealign_1st_postupdate(__ubuf__ T*& destination, const asim::Vec<T>& source, int32_t offset) {
  asc_storealign_1st(destination, source);
  destination += offset;
}

// Two registers, element by element in turn.
template <asim::LoadableTo32 T>
ASIM_FN void asc_storealign_intlv(__ubuf__ T* destination, const asim::Vec<T>& source0, const asim::Vec<T>& source1, int32_t offset = 0) {
  asim::count<"vstx2">(asim::Pipe::V, 2 * asim::Vec<T>::lanes);
  constexpr int lanes = asim::Vec<T>::lanes;
  const asim::Vec<T> low = asim::rearrange(source0, source1, [](int i) { return i / 2 + i % 2 * lanes; });
  const asim::Vec<T> high = asim::rearrange(source0, source1, [](int i) { return lanes / 2 + i / 2 + i % 2 * lanes; });
  const vector_bool all = asim::all_lanes<T>();
  asim::store<sizeof(T)>(destination + offset, low, all);
  asim::store<sizeof(T)>(destination + offset + lanes, high, all);
}

template <asim::LoadableTo32 T>
ASIM_FN void asc_storealign(__ubuf__ T* destination, const asim::Vec<T>& source, uint16_t block_stride, uint16_t repeat_stride,
                            const vector_bool& mask) {
  (void)repeat_stride;
  asim::count<"vsstb">(asim::Pipe::V, asim::Vec<T>::lanes);
  const asim::ByteMask active = asim::active_bytes<sizeof(T)>(mask);
  for (int block = 0; block < 8; ++block) {
    auto of_block = [block](const asim::ByteMask& bits) {
      return asim::ByteMask{{bits.w[block / 2] >> (block % 2 * 32) & 0xffffffffu, 0, 0, 0}};
    };
    const asim::ByteMask part = of_block(active);
    if (!part.w[0]) continue;
    asim::ByteMask undefined{};
    if constexpr (ASIM_CHECKS) undefined = of_block(source.undefined);
    asim::put<asim::kBlockBytes, sizeof(T)>(reinterpret_cast<uint8_t*>(destination) + block * block_stride * asim::kBlockBytes,
                                 reinterpret_cast<const uint8_t*>(source.v) + block * asim::kBlockBytes, 32,
                                 part.w[0] == 0xffffffffu, part, undefined);
  }
}
template <asim::LoadableTo32 T>
ASIM_FN void asc_storealign_postupdate(__ubuf__ T*& destination, const asim::Vec<T>& source, uint16_t block_stride, uint16_t repeat_stride,
                                       const vector_bool& mask) {
  asc_storealign(destination, source, block_stride, repeat_stride, mask);
  destination += repeat_stride * int(asim::kBlockBytes / sizeof(T));
}

// Unaligned stores. Whole 32-byte blocks are written at once, the rest waits in the align register for the next store or `post`.
namespace asim {
ASIM_FN void put_bytes(uint8_t* to, const uint8_t* data, uint32_t bytes, uint32_t align, const ByteMask& undefined) {
  if (bytes) memcpy(write(Mem::UB, to, bytes, Pipe::V, align, nullptr, any(undefined) ? &undefined : nullptr), data, bytes);
}
inline ByteMask shifted(const ByteMask& bits, int from) {
  ByteMask result{};
  for (int i = from; i < kVectorBytes; ++i)
    if (test(bits, i)) set(result, i - from, 1);
  return result;
}
}  // namespace asim

template <asim::Loadable T>
ASIM_FN void asc_storeunalign_postupdate(__ubuf__ T*& destination, vector_store_unalign& align, const asim::Vec<T>& source, uint32_t count) {
  asim::count<"vstus">(asim::Pipe::V, count);
  if (count > uint32_t(asim::Vec<T>::lanes))
    asim::fail("argument", "asc_storeunalign: count must be at most %d, got %u", asim::Vec<T>::lanes, count);
  uint8_t* begin = reinterpret_cast<uint8_t*>(destination);
  uint8_t* end = begin + count * sizeof(T);
  const uint8_t* data = reinterpret_cast<const uint8_t*>(source.v);
  // What waited belongs to the same block when this store continues where the last one ended.
  if (align.end != begin) align.count = 0;
  const uint32_t over = uint32_t(asim::offset(asim::Mem::UB, end) % asim::kBlockBytes);
  uint8_t* boundary = end - over;
  asim::ByteMask undefined = asim::kAllDefined;
  if constexpr (ASIM_CHECKS) undefined = source.undefined;
  if (boundary >= begin) {
    asim::put_bytes(begin - align.count, align.data, align.count, 1, align.undefined);
    asim::put_bytes(begin, data, uint32_t(boundary - begin), sizeof(T), undefined);
    align.count = over;
    memcpy(align.data, data + (boundary - begin), over);
    align.undefined = asim::shifted(undefined, int(boundary - begin));
  } else {
    for (uint32_t i = 0; i < count * sizeof(T); ++i)
      if (asim::test(undefined, int(i))) asim::set(align.undefined, int(align.count + i), 1);
    memcpy(align.data + align.count, data, count * sizeof(T));
    align.count += count * sizeof(T);
  }
  align.end = end;
  destination += count;
}
template <asim::Loadable T>
ASIM_FN void asc_storeunalign(__ubuf__ T* destination, vector_store_unalign& align, const asim::Vec<T>& source, uint32_t count) {
  asc_storeunalign_postupdate(destination, align, source, count);
}
template <asim::Loadable T>
ASIM_FN void asc_storeunalign_post(__ubuf__ T* destination, vector_store_unalign& align, int32_t offset = 0) {
  asim::count<"vstas">(asim::Pipe::V, align.count);
  if (reinterpret_cast<uint8_t*>(destination + offset) != align.end)
    asim::fail("argument", "asc_storeunalign_post: destination + offset must be where the last asc_storeunalign ended");
  asim::put_bytes(align.end - align.count, align.data, align.count, 1, align.undefined);
  align.count = 0;
}
template <asim::Loadable T>
ASIM_FN void asc_storeunalign_post_postupdate(__ubuf__ T*& destination, vector_store_unalign& align, int32_t offset) {
  asc_storeunalign_post(destination, align, offset);
  destination += offset;
}
template <asim::Loadable T>
ASIM_FN void asc_store(__ubuf__ T* destination, const asim::Vec<T>& source, uint32_t count = asim::Vec<T>::lanes) {
  vector_store_unalign align;
  asc_storeunalign_postupdate(destination, align, source, count);
  asc_storeunalign_post(destination, align);
}

// Instructions execute in program order here, but the stores of a vector function are checked to be ordered before what depends on them.
template <int kind>
ASIM_FN void asc_mem_bar(asim::Constant<'V', kind>) {
  asim::count<"mem_bar">(asim::Pipe::V, 0);
  constexpr bool loads = kind == VV_ALL || kind == VST_VLD, stores = kind == VV_ALL || kind == VST_VST;
  if constexpr (ASIM_CHECKS && (loads || stores)) asim_mem_bar(loads, stores);
}

namespace asim {
// Stands at the start of every `__simd_vf__` function of generated source.
struct VectorFunction {
  VectorFunction() {
    if constexpr (ASIM_CHECKS) asim_vector_function(true);
  }
  ~VectorFunction() {
    if constexpr (ASIM_CHECKS) asim_vector_function(false);
  }
};
}  // namespace asim
