// Synchronisation, scalar access to global memory, and system variables.
// Sources: asc-devkit docs/zh/api/SIMD-API/C-API/{sync,scalar_compute,simd_atomic,sys_var,misc}, CrossCoreSetFlag (modes 0, 1, 2, 4).
#pragma once

#include "asim/core.h"
#include "asim/types.h"

enum pipe_t { PIPE_S, PIPE_V, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_M, PIPE_FIX, PIPE_ALL };
enum event_t { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };
enum ascMutexExecuteMode { ASC_LOCK_BLOCK, ASC_LOCK_NON_BLOCK };
enum mem_dsb_t { DSB_ALL, DSB_DDR, DSB_UB, DSB_SEQ };

namespace asim {

ASIM_FN Pipe to_pipe(pipe_t pipe) { return static_cast<Pipe>(pipe); }

}  // namespace asim

ASIM_FN void asc_init() {}

ASIM_FN void asc_sync_notify(pipe_t from, pipe_t to, event_t id) {
  asim_notify(asim::to_pipe(from), asim::to_pipe(to), id, ASIM_SITE);
}
ASIM_FN void asc_sync_wait(pipe_t from, pipe_t to, event_t id) {
  asim_wait(asim::to_pipe(from), asim::to_pipe(to), id, ASIM_SITE);
}

ASIM_FN void asc_lock(pipe_t pipe, uint8_t id, ascMutexExecuteMode mode = ASC_LOCK_BLOCK) {
  asim_lock(asim::to_pipe(pipe), id, mode == ASC_LOCK_BLOCK, ASIM_SITE);
}
ASIM_FN void asc_unlock(pipe_t pipe, uint8_t id, ascMutexExecuteMode mode = ASC_LOCK_BLOCK) {
  asim_unlock(asim::to_pipe(pipe), id, mode == ASC_LOCK_BLOCK, ASIM_SITE);
}
ASIM_FN void asc_lock(pipe_t pipe, uint8_t id, int mode) { asc_lock(pipe, id, ascMutexExecuteMode(mode)); }
ASIM_FN void asc_unlock(pipe_t pipe, uint8_t id, int mode) { asc_unlock(pipe, id, ascMutexExecuteMode(mode)); }

ASIM_FN void asc_sync_pipe(pipe_t pipe) { asim_barrier(asim::to_pipe(pipe), ASIM_SITE); }
ASIM_FN void asc_sync() { asim_barrier(asim::Pipe::COUNT, ASIM_SITE); }
ASIM_FN void asc_sync_vec() { asim_barrier(asim::Pipe::V, ASIM_SITE); }
ASIM_FN void asc_sync_mte2() { asim_barrier(asim::Pipe::MTE2, ASIM_SITE); }
ASIM_FN void asc_sync_mte3() { asim_barrier(asim::Pipe::MTE3, ASIM_SITE); }
ASIM_FN void asc_sync_data_barrier(mem_dsb_t) { asim_barrier(asim::Pipe::S, ASIM_SITE); }

#define ASIM_CROSS_CORE(scope, SCOPE)                                       \
  ASIM_FN void asc_sync_##scope##_arrive(pipe_t pipe, uint64_t id) {        \
    asim_arrive(asim_scope::SCOPE, asim::to_pipe(pipe), id, ASIM_SITE);     \
  }                                                                         \
  ASIM_FN void asc_sync_##scope##_wait(pipe_t pipe, uint64_t id) {          \
    asim_wait_arrived(asim_scope::SCOPE, asim::to_pipe(pipe), id, ASIM_SITE); \
  }
ASIM_CROSS_CORE(inter, INTER)
ASIM_CROSS_CORE(subblock, SUBBLOCK)
ASIM_CROSS_CORE(block, BLOCK)
ASIM_CROSS_CORE(intra, INTRA)
#undef ASIM_CROSS_CORE

ASIM_FN int64_t asc_get_block_idx() { return block_idx; }
ASIM_FN int64_t asc_get_block_num() { return block_num; }
ASIM_FN int64_t asc_get_sub_block_id() { return asim_core->sub_block; }
ASIM_FN int64_t asc_get_sub_block_num() { return asim_core->sub_blocks; }

// Scalar access to global memory past the data cache. Cores communicate through it, so it orders like an atomic.
template <typename T>
ASIM_FN T asc_load_dev(__gm__ T* address) {
  asim_relax();
  asim::count<"ld_dev">(asim::Pipe::S, sizeof(T));
  T value;
  asim::copy(&value, asim_atomic(asim_core, asim::Mem::GM, uint64_t(address), sizeof(T), asim::Pipe::S, ASIM_SITE), sizeof(T));
  return value;
}
template <typename T>
ASIM_FN void asc_store_dev(__gm__ T* address, std::type_identity_t<T> value) {
  asim::count<"st_dev">(asim::Pipe::S, sizeof(T));
  asim::copy(asim_atomic(asim_core, asim::Mem::GM, uint64_t(address), sizeof(T), asim::Pipe::S, ASIM_SITE), &value, sizeof(T));
}

#define ASIM_SET_ATOMIC(op, OP)                                                                                    \
  ASIM_FN void asc_set_atomic_##op##_int8() { asim_set_gm_atomic(asim::Atomic::OP, asim::Type::S8); }              \
  ASIM_FN void asc_set_atomic_##op##_int16() { asim_set_gm_atomic(asim::Atomic::OP, asim::Type::S16); }            \
  ASIM_FN void asc_set_atomic_##op##_int() { asim_set_gm_atomic(asim::Atomic::OP, asim::Type::S32); }              \
  ASIM_FN void asc_set_atomic_##op##_int32() { asc_set_atomic_##op##_int(); }                                      \
  ASIM_FN void asc_set_atomic_##op##_bfloat() { asim_set_gm_atomic(asim::Atomic::OP, asim::Type::BF16); }          \
  ASIM_FN void asc_set_atomic_##op##_float16() { asim_set_gm_atomic(asim::Atomic::OP, asim::Type::F16); }          \
  ASIM_FN void asc_set_atomic_##op##_float() { asim_set_gm_atomic(asim::Atomic::OP, asim::Type::F32); }
ASIM_SET_ATOMIC(add, ADD)
ASIM_SET_ATOMIC(max, MAX)
ASIM_SET_ATOMIC(min, MIN)
#undef ASIM_SET_ATOMIC
ASIM_FN void asc_set_atomic_none() { asim_set_gm_atomic(asim::Atomic::NONE, asim::Type::F32); }
