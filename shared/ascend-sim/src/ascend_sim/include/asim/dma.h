// Copies between global memory, UB and L1.
// Source: asc-devkit docs/zh/api/SIMD-API/C-API/vector_datamove.
#pragma once

#include "asim/core.h"
#include "asim/types.h"

enum class asc_load_l2_cache_mode : uint8_t {
  NORMAL_FIRST_VICTIM = 0, NORMAL_LAST_VICTIM = 1, NORMAL_PERSISTENT = 2, NOTALLOC_KEEP = 4, NOTALLOC_CLEAN = 5, NOTALLOC_DROP = 6
};
enum class asc_store_l2_cache_mode : uint8_t {
  NORMAL_FIRST_VICTIM = 0, NORMAL_LAST_VICTIM = 1, NORMAL_PERSISTENT = 2, NOTALLOC_KEEP = 4, NOTALLOC_CLEAN = 5, NOTALLOC_DROP = 6
};

namespace asim {

inline constexpr uint32_t kBlock = 32;  // bytes of a data block, the alignment of on-chip DMA addresses

// Writes `bytes` to global memory, combining with what is there as asc_set_atomic_* asked for. `source` is host memory.
ASIM_FN void gm_store(__gm__ void* destination, const void* source, uint64_t bytes, Pipe pipe) {
  asim_gm_store(uint64_t(destination), source, bytes, pipe, ASIM_CHECKS, ASIM_SITE);
}

ASIM_FN void check_bursts(const char* name, uint64_t bursts, uint64_t length, uint64_t longest) {
  if (bursts < 1 || bursts > 4095) fail("argument", "%s: n_burst must be in [1, 4095], got %llu", name, (unsigned long long)bursts);
  if (length < 1 || length > longest)
    fail("argument", "%s: len_burst must be in [1, %llu], got %llu", name, (unsigned long long)longest, (unsigned long long)length);
}

// Bursts of `length` bytes whose heads are `stride` bytes apart must not overlap where they are written.
ASIM_FN void check_overlap(const char* name, uint64_t bursts, uint64_t length, uint64_t stride) {
  if (bursts > 1 && stride < length)
    fail("overlap", "%s: destination bursts of %llu bytes overlap at a stride of %llu bytes", name, (unsigned long long)length,
         (unsigned long long)stride);
}

struct Loops {
  uint64_t size[2], from[2], to[2];
};

// The two outer loops set by asc_set_{gm2ub,ub2gm}_loop*; sizes are 1 unless set.
ASIM_FN Loops loops(Special first) {
  const uint64_t* s = &asim_core->special[int(first)];
  return {{s[0] ? s[0] : 1, s[1] ? s[1] : 1}, {s[2], s[4]}, {s[3], s[5]}};
}

template <typename T>
ASIM_FN void gm_to_ub(T* to, const T* from, uint32_t bursts, uint32_t length, uint32_t left, uint32_t right, bool constant,
                      uint64_t from_stride, uint64_t to_stride) {
  check_bursts("asc_copy_gm2ub_align", bursts, length, 2097151);
  left *= sizeof(T), right *= sizeof(T);
  if (left > kBlock || right > kBlock)
    fail("argument", "asc_copy_gm2ub_align: paddings must be at most 32 bytes, got %u and %u", left, right);
  const uint32_t padded = left + length + right;
  if (bursts > 1 && to_stride != length && to_stride % kBlock)
    fail("misaligned", "asc_copy_gm2ub_align: dst_stride must be a multiple of 32, got %llu", (unsigned long long)to_stride);
  check_overlap("asc_copy_gm2ub_align", bursts, padded, to_stride);
  const Loops l = loops(Special::GM2UB_LOOPS);
  for (uint64_t outer = 0; outer < l.size[1]; ++outer) {
    for (uint64_t inner = 0; inner < l.size[0]; ++inner) {
      const uint64_t from_loop = outer * l.from[1] + inner * l.from[0], to_loop = outer * l.to[1] + inner * l.to[0];
      count<"copy_gm2ub">(Pipe::MTE2, uint64_t(bursts) * length);
      for (uint32_t burst = 0; burst < bursts; ++burst) {
        const uint8_t* source = (const uint8_t*)from + from_loop + burst * from_stride;
        uint8_t* target = (uint8_t*)to + to_loop + burst * to_stride;
        // Bursts packed without gaps start anywhere; the first and strided ones start at a data block.
        move(Mem::UB, target + left, Mem::GM, source, length, Pipe::MTE2, burst && to_stride == length ? 1 : left ? sizeof(T) : kBlock, 1);
        // The device writes whole data blocks: behind a burst (behind the last one, when they are packed) it goes on with the padding.
        const bool packed = bursts > 1 && to_stride == length;
        const uint64_t end = uint64_t(target) + left + length + right;
        const uint32_t rest = packed && burst + 1 < bursts ? 0 : uint32_t(-end % kBlock);
        if (left || right || rest) {
          uint8_t value[8];
          uint64_t pad = special(Special::COPY_PAD);
          copy(value, constant ? (const void*)&pad : (const void*)source, sizeof(T));
          if (left) fill(write(Mem::UB, target, left, Pipe::MTE2), value, sizeof(T), left);
          if (right || rest) fill(write(Mem::UB, target + left + length, right + rest, Pipe::MTE2), value, sizeof(T), right + rest);
        }
      }
    }
  }
}

template <typename T>
ASIM_FN void ub_to_gm(T* to, const T* from, uint32_t bursts, uint32_t length, uint64_t to_stride, uint64_t from_stride) {
  check_bursts("asc_copy_ub2gm_align", bursts, length, 2097151);
  if (bursts > 1 && from_stride != length && from_stride % kBlock)
    fail("misaligned", "asc_copy_ub2gm_align: src_stride must be a multiple of 32, got %llu", (unsigned long long)from_stride);
  if (asim_core->gm_atomic == Atomic::NONE) check_overlap("asc_copy_ub2gm_align", bursts, length, to_stride);
  const Loops l = loops(Special::UB2GM_LOOPS);
  for (uint64_t outer = 0; outer < l.size[1]; ++outer) {
    for (uint64_t inner = 0; inner < l.size[0]; ++inner) {
      const uint64_t from_loop = outer * l.from[1] + inner * l.from[0], to_loop = outer * l.to[1] + inner * l.to[0];
      count<"copy_ub2gm">(Pipe::MTE3, uint64_t(bursts) * length);
      for (uint32_t burst = 0; burst < bursts; ++burst) {
        const uint8_t* source = (const uint8_t*)from + from_loop + burst * from_stride;
        uint8_t* target = (uint8_t*)to + to_loop + burst * to_stride;
        const uint32_t align = burst && from_stride == length ? 1 : kBlock;
        gm_store(target, read(Mem::UB, source, length, Pipe::MTE3, align), length, Pipe::MTE3);
      }
    }
  }
}

}  // namespace asim

template <typename T>
ASIM_FN void asc_copy_gm2ub_align(__ubuf__ T* to, __gm__ T* from, uint16_t bursts, uint32_t length, uint8_t left, uint8_t right, bool constant,
                                  asc_load_l2_cache_mode, uint64_t from_stride, uint32_t to_stride) {
  asim::gm_to_ub(to, from, bursts, length, left, right, constant, from_stride, to_stride);
}
template <typename T>
ASIM_FN void asc_copy_gm2ub_align(__ubuf__ T* to, __gm__ T* from, uint32_t bytes) {
  if (bytes % asim::kBlock) asim::fail("misaligned", "asc_copy_gm2ub_align: size must be a multiple of 32, got %u", bytes);
  asim::gm_to_ub(to, from, 1, bytes, 0, 0, false, 0, 0);
}
template <typename T>
ASIM_FN void asc_copy_ub2gm_align(__gm__ T* to, __ubuf__ T* from, uint16_t bursts, uint32_t length, asc_store_l2_cache_mode,
                                  uint64_t to_stride, uint32_t from_stride) {
  asim::ub_to_gm(to, from, bursts, length, to_stride, from_stride);
}
template <typename T>
ASIM_FN void asc_copy_ub2gm_align(__gm__ T* to, __ubuf__ T* from, uint32_t bytes) {
  if (bytes % asim::kBlock) asim::fail("misaligned", "asc_copy_ub2gm_align: size must be a multiple of 32, got %u", bytes);
  asim::ub_to_gm(to, from, 1, bytes, 0, 0);
}

template <typename T>
ASIM_FN void asc_set_copy_pad_val(T value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  asim::set_special(asim::Special::COPY_PAD, bits);
}

#define ASIM_SET_LOOPS(path, PATH)                                                              \
  ASIM_FN void asc_set_##path##_loop_size(uint64_t inner, uint64_t outer) {                     \
    asim::set_special(asim::Special::PATH##_LOOPS, inner);                                      \
    asim::set_special(asim::Special(int(asim::Special::PATH##_LOOPS) + 1), outer);              \
  }                                                                                             \
  ASIM_FN void asc_set_##path##_loop1_stride(uint64_t from, uint64_t to) {                      \
    asim::set_special(asim::Special(int(asim::Special::PATH##_LOOPS) + 2), from);               \
    asim::set_special(asim::Special(int(asim::Special::PATH##_LOOPS) + 3), to);                 \
  }                                                                                             \
  ASIM_FN void asc_set_##path##_loop2_stride(uint64_t from, uint64_t to) {                      \
    asim::set_special(asim::Special(int(asim::Special::PATH##_LOOPS) + 4), from);               \
    asim::set_special(asim::Special(int(asim::Special::PATH##_LOOPS) + 5), to);                 \
  }
ASIM_SET_LOOPS(gm2ub, GM2UB)
ASIM_SET_LOOPS(ub2gm, UB2GM)
#undef ASIM_SET_LOOPS

// A vector core writes the L1 of its block's cube core. Lengths and gaps (tail to head) are in data blocks.
ASIM_FN void asc_copy_ub2l1(__cbuf__ void* to, __ubuf__ void* from, uint16_t bursts, uint16_t length, uint16_t from_gap, uint16_t to_gap) {
  using namespace asim;
  check_bursts("asc_copy_ub2l1", bursts, length, 65535);
  if (!asim_core->cube) fail("argument", "asc_copy_ub2l1: the kernel has no cube core, so no L1");
  count<"copy_ub2l1">(Pipe::MTE3, uint64_t(bursts) * length * kBlock);
  for (uint32_t burst = 0; burst < bursts; ++burst) {
    move(Mem::L1, (uint8_t*)to + uint64_t(burst) * (length + to_gap) * kBlock, Mem::UB,
         (uint8_t*)from + uint64_t(burst) * (length + from_gap) * kBlock, uint64_t(length) * kBlock, Pipe::MTE3, kBlock, kBlock,
         asim_core->cube);
  }
}
ASIM_FN void asc_copy_ub2l1(__cbuf__ void* to, __ubuf__ void* from, uint32_t bytes) {
  if (bytes % asim::kBlock) asim::fail("misaligned", "asc_copy_ub2l1: size must be a multiple of 32, got %u", bytes);
  asc_copy_ub2l1(to, from, 1, uint16_t(bytes / asim::kBlock), 0, 0);
}
