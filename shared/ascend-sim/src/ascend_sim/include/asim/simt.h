// SIMT: regions of threads on a vector core. The scheduler is native/simt.cpp.
#pragma once

#include <assert.h>

#include <array>
#include <bit>
#include <limits>
#include <source_location>
#include <tuple>
#include <type_traits>

#include "asim/keywords.h"
#include "asim/simt_native.h"
#include "asim/simt_math.h"

#define ASIM_METHOD inline __attribute__((always_inline))
// Helpers that touch their own memory only: a call of their own, and not instrumented.
#define ASIM_HELPER static __attribute__((noinline, unused, no_sanitize("thread")))

// A failed assertion of a kernel is reported like any other failure.
#undef assert
#define assert(condition) ((condition) ? (void)0 : asim::fail("assert", "%s", #condition))

// TileLang's debug functions live in a namespace for each kind of function; those of the scalar core serve both.
namespace __asc_aicore {}
using namespace __asc_aicore;

namespace cce {
struct dim3 {
  uint32_t x, y, z;
  constexpr dim3(uint32_t x, uint32_t y = 1, uint32_t z = 1) : x(x), y(y), z(z) {}
};
}  // namespace cce
using cce::dim3;

inline constexpr int32_t warpSize = 32;

// Runs `function` for every thread and returns when all have ended.
template <auto function, typename... Args>
ASIM_FN void asc_vf_call(cce::dim3 threads, Args... args) {
  std::tuple<Args...> arguments(args...);
  struct Body {
    ASIM_HELPER void run(void* pointer) { std::apply(function, *static_cast<std::tuple<Args...>*>(pointer)); }
  };
  asim::Index3 size{threads.x, threads.y, threads.z};
  asim_simt_run(&size, Body::run, &arguments, ASIM_CHECKS, ASIM_SITE);
}

ASIM_FN void asc_syncthreads(const void* where = __builtin_source_location()) { asim_simt_barrier(where, ASIM_SITE); }
// Accesses take effect at once here, so that a fence has nothing to wait for; it orders no threads.
ASIM_FN void asc_threadfence() { asim::count<"simt_fence">(asim::Pipe::S, 0); }
ASIM_FN void asc_threadfence_block() { asim::count<"simt_fence">(asim::Pipe::S, 0); }

ASIM_FN int32_t laneid() { return int32_t(asim_lane()); }

namespace asim {

template <typename T>
concept Word = std::is_trivially_copyable_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);

template <Word T>
ASIM_FN uint64_t to_word(T value) {
  if constexpr (sizeof(T) == 2) return std::bit_cast<uint16_t>(value);
  if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
  if constexpr (sizeof(T) == 8) return std::bit_cast<uint64_t>(value);
}
template <Word T>
ASIM_FN T from_word(uint64_t word) {
  if constexpr (sizeof(T) == 2) return std::bit_cast<T>(uint16_t(word));
  if constexpr (sizeof(T) == 4) return std::bit_cast<T>(uint32_t(word));
  if constexpr (sizeof(T) == 8) return std::bit_cast<T>(word);
}

template <typename T>
concept Shuffled = Word<T> && (std::is_same_v<T, float> || is_small<T> || (std::is_integral_v<T> && sizeof(T) >= 4) ||
                               std::is_same_v<T, half2> || std::is_same_v<T, bfloat16x2_t>);

ASIM_FN void check_width(int32_t width) {
  if (width < 1 || width > warpSize || (width & (width - 1))) {
    fail("argument", "asc_shfl: width must be a power of two of at most 32, got %d", width);
  }
}

// A binary tree over neighbours: lanes 0 and 1, 2 and 3, then pairs of these; lanes that are not active are left out.
template <typename T, typename Op>
ASIM_HELPER T reduce_tree(const uint64_t* words, uint32_t mask, Op op) {
  std::array<T, 32> values;
  for (int i = 0; i < 32; ++i) values[i] = from_word<T>(words[i]);
  for (int step = 1; step < 32; step *= 2) {
    for (int i = 0; i < 32; i += 2 * step) {
      bool left = mask >> i & 1, right = mask >> (i + step) & 1;
      if (right) values[i] = left ? op(values[i], values[i + step]) : values[i + step];
      mask |= uint32_t(right) << i;
    }
  }
  return values[0];
}

template <typename T>
concept Reduced = std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t> || std::is_same_v<T, float> || std::is_same_v<T, half>;

}  // namespace asim

template <asim::Shuffled T>
ASIM_FN T asc_shfl(T value, int32_t lane, int32_t width = warpSize, const void* where = __builtin_source_location()) {
  asim::check_width(width);
  uint32_t within = uint32_t(width - 1), from = (asim_lane() & ~within) | (uint32_t(lane) & within);
  return asim::from_word<T>(asim_warp_shuffle(asim::to_word(value), from, where, ASIM_SITE));
}
template <asim::Shuffled T>
ASIM_FN T asc_shfl_up(T value, uint32_t delta, int32_t width = warpSize, const void* where = __builtin_source_location()) {
  asim::check_width(width);
  uint32_t me = asim_lane(), within = me & uint32_t(width - 1);
  return asim::from_word<T>(asim_warp_shuffle(asim::to_word(value), delta > within ? me : me - delta, where, ASIM_SITE));
}
template <asim::Shuffled T>
ASIM_FN T asc_shfl_down(T value, uint32_t delta, int32_t width = warpSize, const void* where = __builtin_source_location()) {
  asim::check_width(width);
  uint32_t me = asim_lane(), within = me & uint32_t(width - 1);
  return asim::from_word<T>(asim_warp_shuffle(asim::to_word(value), delta >= uint32_t(width) - within ? me : me + delta, where, ASIM_SITE));
}
// A lane of an earlier group can be read, one of a later group gives the own value.
template <asim::Shuffled T>
ASIM_FN T asc_shfl_xor(T value, int32_t lane_mask, int32_t width = warpSize, const void* where = __builtin_source_location()) {
  asim::check_width(width);
  uint32_t me = asim_lane(), lane = (me ^ uint32_t(lane_mask)) & 31, last = me | uint32_t(width - 1);
  return asim::from_word<T>(asim_warp_shuffle(asim::to_word(value), lane > last ? me : lane, where, ASIM_SITE));
}

ASIM_FN uint32_t asc_activemask(const void* where = __builtin_source_location()) {
  const uint64_t* values;
  return asim_warp_gather(0, &values, where, ASIM_SITE);
}
namespace asim {
ASIM_HELPER uint32_t ballot(const uint64_t* values, uint32_t mask) {
  uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result |= uint32_t((mask >> i & 1) && values[i]) << i;
  return result;
}
}  // namespace asim
ASIM_FN uint32_t asc_ballot(int32_t predicate, const void* where = __builtin_source_location()) {
  const uint64_t* values;
  uint32_t mask = asim_warp_gather(predicate != 0, &values, where, ASIM_SITE);
  return asim::ballot(values, mask);
}
ASIM_FN int32_t asc_all(int32_t predicate, const void* where = __builtin_source_location()) {
  const uint64_t* values;
  uint32_t mask = asim_warp_gather(predicate != 0, &values, where, ASIM_SITE);
  return asim::ballot(values, mask) == mask;
}
ASIM_FN int32_t asc_any(int32_t predicate, const void* where = __builtin_source_location()) {
  const uint64_t* values;
  uint32_t mask = asim_warp_gather(predicate != 0, &values, where, ASIM_SITE);
  return asim::ballot(values, mask) != 0;
}

#define ASIM_REDUCE(name, expression)                                                                               \
  template <asim::Reduced T>                                                                                        \
  ASIM_FN T name(T value, const void* where = __builtin_source_location()) {                                        \
    const uint64_t* values;                                                                                         \
    uint32_t mask = asim_warp_gather(asim::to_word(value), &values, where, ASIM_SITE);                              \
    return asim::reduce_tree<T>(values, mask, [](T a, T b) __attribute__((no_sanitize("thread"))) -> T { return expression; }); \
  }
ASIM_REDUCE(asc_reduce_add, a + b)
ASIM_REDUCE(asc_reduce_max, max(a, b))
ASIM_REDUCE(asc_reduce_min, min(a, b))
#undef ASIM_REDUCE

// Atomic operations on UB and GM, in SIMT and in scalar code. They return the old value.

namespace asim {
template <typename T, typename Op>
ASIM_HELPER T update(uint8_t* address, Op op) {
  T old_value;
  memcpy(&old_value, address, sizeof(T));
  T value = op(old_value);
  memcpy(address, &value, sizeof(T));
  return old_value;
}
template <typename T>
concept Atom32 = std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t> || std::is_same_v<T, float>;
template <typename T>
concept Atom64 = std::is_integral_v<T> && sizeof(T) == 8;
template <typename T>
concept Atom16 = is_small<T> && sizeof(T) == 2;
template <typename T>
concept AtomPair = std::is_same_v<T, half2> || std::is_same_v<T, bfloat16x2_t>;
template <typename T>
concept AtomInteger = std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t> || Atom64<T>;
}  // namespace asim

#define ASIM_ATOMIC(name, types, expression)                                                                      \
  template <typename T>                                                                                           \
    requires types                                                                                                \
  ASIM_FN T name(T* address, std::type_identity_t<T> value) {                                                     \
    uint8_t* host = asim_simt_atomic(reinterpret_cast<uint64_t>(address), sizeof(T), ASIM_CHECKS, ASIM_SITE);       \
    return asim::update<T>(host, [value](T old) __attribute__((no_sanitize("thread"))) -> T { return expression; }); \
  }
ASIM_ATOMIC(asc_atomic_add, (asim::Atom32<T> || asim::Atom64<T> || asim::Atom16<T> || asim::AtomPair<T>), T(old + value))
ASIM_ATOMIC(asc_atomic_sub, (asim::Atom32<T> || asim::Atom64<T> || asim::Atom16<T> || asim::AtomPair<T>), T(old - value))
ASIM_ATOMIC(asc_atomic_max, (asim::Atom32<T> || asim::Atom64<T> || asim::Atom16<T>), max(old, value))
ASIM_ATOMIC(asc_atomic_min, (asim::Atom32<T> || asim::Atom64<T> || asim::Atom16<T>), min(old, value))
ASIM_ATOMIC(asc_atomic_exch, (asim::Atom32<T> || asim::Atom64<T> || asim::AtomPair<T>), value)
ASIM_ATOMIC(asc_atomic_and, asim::AtomInteger<T>, T(old & value))
ASIM_ATOMIC(asc_atomic_or, asim::AtomInteger<T>, T(old | value))
ASIM_ATOMIC(asc_atomic_xor, asim::AtomInteger<T>, T(old ^ value))
ASIM_ATOMIC(asc_atomic_inc, (asim::AtomInteger<T> && std::is_unsigned_v<T>), (old >= value ? T(0) : T(old + 1)))
ASIM_ATOMIC(asc_atomic_dec, (asim::AtomInteger<T> && std::is_unsigned_v<T>), (old == 0 || old > value ? value : T(old - 1)))
#undef ASIM_ATOMIC

template <typename T>
  requires(asim::Atom32<T> || asim::Atom64<T>)
ASIM_FN T asc_atomic_cas(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  uint8_t* host = asim_simt_atomic(reinterpret_cast<uint64_t>(address), sizeof(T), ASIM_CHECKS, ASIM_SITE);
  return asim::update<T>(host, [=](T old) __attribute__((no_sanitize("thread"))) -> T { return old == compare ? value : old; });
}

// Loads and stores with a cache policy; there is no cache here.
template <typename T>
ASIM_FN T asc_ldcg(T* address) {
  return *address;
}
template <typename T>
ASIM_FN T asc_ldca(T* address) {
  return *address;
}
template <typename T>
ASIM_FN void asc_stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <typename T>
ASIM_FN void asc_stwt(T* address, std::type_identity_t<T> value) {
  *address = value;
}
