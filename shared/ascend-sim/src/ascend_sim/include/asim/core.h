// The contract between compiled kernels and the simulator's core library (native/core.cpp).
//
// A kernel runs as fibers of one host thread, one fiber a core, so everything below may be plain globals: exactly one core runs at a
// time. An intrinsic executes at once, in program order of its core; what the hardware does in parallel is checked with vector
// clocks, a clock a pipe.
//
// Rules for the author of an intrinsic:
//  1. Mark it ASIM_FN, so that the call site in the generated source can be found from the machine address of the hook call.
//  2. Ask for memory with read/peek/write/move, then touch it through asim::copy, never by dereferencing the pointer or a small memcpy:
//     kernels are compiled with access instrumentation, and an inline dereference counts as an access of scalar code.
//  3. Call count<"name">(pipe, lanes or bytes) once for every instruction executed.
//  4. What is not supported must not compile (leave it undeclared), or, when only a run-time value decides, call fail().
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#ifndef ASIM_CHECKS
#define ASIM_CHECKS 1
#endif

#define ASIM_FN static inline __attribute__((always_inline, unused))

namespace asim {

enum class Mem : uint8_t { GM, UB, L1, L0A, L0B, L0C, BT, FB, L0A_MX, L0B_MX, COUNT };
enum class Pipe : uint8_t { S, V, MTE1, MTE2, MTE3, M, FIX, COUNT };

inline constexpr uint32_t kMemBytes[] = {0, 256 << 10, 512 << 10, 64 << 10, 64 << 10, 256 << 10, 4 << 10, 16 << 10, 4 << 10, 4 << 10};
inline constexpr uint32_t kUbUsable = 253952;      // the rest of UB belongs to the runtime
inline constexpr uint32_t kUbUsableSimt = 221184;  // SIMT kernels also give 32 KiB to the data cache
inline constexpr int kMaxKinds = 1024;

// A bit a byte of a 256-byte vector register (or of any access of at most 256 bytes).
struct ByteMask {
  uint64_t w[4];
};

// How global-memory writes of the DMA and fixpipe combine with what is there (asc_set_atomic_*).
enum class Atomic : uint8_t { NONE, ADD, MAX, MIN };
enum class Type : uint8_t { F32, F16, BF16, S32, S16, S8, U8, U16, U32 };

enum class Special : uint8_t {
  COPY_PAD, GM2L1_NZ, L0C_NZ, HF32, HF32_ROUND, MMAD_DIRECTION, FIX_QUANT, FIX_RELU,
  GM2UB_LOOPS,                    // six registers: sizes, strides of loop 1, strides of loop 2
  UB2GM_LOOPS = GM2UB_LOOPS + 6,  // likewise
  COUNT = UB2GM_LOOPS + 6
};

struct Core;

// A SIMT region installs itself here; raw loads and stores of its threads then arrive as calls.
using SimtAccess = void (*)(void* context, uintptr_t address, uint32_t bytes, bool write, const void* site);

struct Core {
  uint8_t* base[static_cast<int>(Mem::COUNT)];  // host address of byte 0 of each on-chip memory
  uint32_t block_idx;
  uint32_t block_num;
  uint32_t sub_block;       // which vector core of its block
  uint32_t sub_blocks;      // vector cores a block
  bool is_cube;
  Core* cube;               // the block's cube core, or null
  Core* vector[2];          // the block's vector cores, or null
  SimtAccess simt_access;
  void* simt_context;
  Atomic gm_atomic;
  Type gm_atomic_type;
  uint64_t special[int(Special::COUNT)];
  uint8_t unit_flags[512];  // of mmad and fixpipe, one for 512 bytes of L0C
  uint64_t* counts;         // [kMaxKinds] instructions executed
  uint64_t* amounts;        // [kMaxKinds] sum of the amounts given to count()
  void* state;              // private to core.cpp
};

enum class Use : uint8_t {
  VALUE,  // the value is used: bytes that were never written are reported
  MOVE,   // the value is only moved or may be masked out later: ask undefined(), and hand the answer on to write()
};

}  // namespace asim

extern "C" {
// Constant within a fiber, hence const for kernels (the instrumentation skips constants); the core library changes them.
#ifdef ASIM_CORE_LIBRARY
#define ASIM_FIBER_CONST
#else
#define ASIM_FIBER_CONST const
#endif
extern asim::Core* ASIM_FIBER_CONST asim_core;   // the running core
extern uint8_t* ASIM_FIBER_CONST asim_ub;        // its UB (for a cube core: a window that stands for its vector cores' UB)
extern int64_t ASIM_FIBER_CONST block_idx;       // of the running core
extern int64_t ASIM_FIBER_CONST block_num;

// Interns an instruction kind; called once a kind when a kernel library is loaded.
int asim_kind(const char* name);
// One instruction of `pipe` with a cost in its unit (bytes moved, or lanes).
void asim_issue(asim::Pipe pipe, int kind, uint64_t amount);

// The access checks; they return the host address. `owner` is the core whose memory it is; `at` is an offset for on-chip memory, an
// address for GM. `active` and `undefined` may be null (all active, all defined). `site` is a code address.
uint8_t* asim_read(asim::Core* owner, asim::Mem mem, uint64_t at, uint64_t bytes, asim::Pipe pipe, uint32_t align, asim::Use use,
                   const void* site);
uint8_t* asim_write(asim::Core* owner, asim::Mem mem, uint64_t at, uint64_t bytes, asim::Pipe pipe, uint32_t align,
                    const asim::ByteMask* active, const asim::ByteMask* undefined, const void* site);
// An atomic read-modify-write, or a load or store that other cores may race with on purpose (polling): no hazard with its like, and
// ordered after the earlier ones on the same address.
uint8_t* asim_atomic(asim::Core* owner, asim::Mem mem, uint64_t at, uint64_t bytes, asim::Pipe pipe, const void* site);
// Writes to global memory as the core's gm_atomic says. `checks`: whether the caller was compiled with checks.
void asim_gm_store(uint64_t address, const void* source, uint64_t bytes, asim::Pipe pipe, bool checks, const void* site);
// Counts traffic to global memory; asim_read, asim_write and asim_atomic do it themselves.
void asim_traffic(uint64_t address, uint64_t bytes, bool write);
// Bits of never-written bytes in [at, at + bytes), bytes <= 256.
void asim_undefined(asim::Core* owner, asim::Mem mem, uint64_t at, uint64_t bytes, asim::ByteMask* out);
// Hands definedness on from one range to another of the same size; undefined bytes that reach GM are reported.
void asim_move_defined(asim::Core* to_owner, asim::Mem to, uint64_t to_at, asim::Core* from_owner, asim::Mem from, uint64_t from_at,
                       uint64_t bytes, const void* site);
// Marks a written range as undefined again (padding rows of a matrix product and the like).
void asim_set_undefined(asim::Core* owner, asim::Mem mem, uint64_t at, uint64_t bytes);

[[noreturn]] void asim_fail(const char* code, const char* message, const void* site);
// Likewise for two accesses in conflict, the later one first.
[[noreturn]] void asim_fail_pair(const char* code, const char* message, const void* site, const void* other_site);

// Synchronisation, called by sync.h.
enum class asim_scope : uint8_t { INTER, SUBBLOCK, BLOCK, INTRA };
void asim_notify(asim::Pipe from, asim::Pipe to, uint32_t id, const void* site);
void asim_wait(asim::Pipe from, asim::Pipe to, uint32_t id, const void* site);
void asim_arrive(asim_scope scope, asim::Pipe pipe, uint64_t id, const void* site);
void asim_wait_arrived(asim_scope scope, asim::Pipe pipe, uint64_t id, const void* site);
void asim_lock(asim::Pipe pipe, uint32_t id, bool block, const void* site);
void asim_unlock(asim::Pipe pipe, uint32_t id, bool block, const void* site);
void asim_barrier(asim::Pipe pipe, const void* site);  // Pipe::COUNT: all pipes
void asim_order(asim::Pipe later, asim::Pipe earlier);   // what `later` does from now on is ordered after all that `earlier` did so far
void asim_vector_function(bool enter);
void asim_mem_bar(bool loads, bool stores);  // which accesses of the vector function are from now on ordered after its stores so far
void asim_copy(void* to, const void* from, size_t bytes);  // memcpy out of sight of the instrumentation
void asim_set_gm_atomic(asim::Atomic op, asim::Type type);

// Fibers, for SIMT threads. A fiber runs fn(arg); when fn returns it switches to the fiber that resumed it last and is finished.
struct asim_fiber;
asim_fiber* asim_fiber_take(void (*fn)(void*), void* arg);  // from a pool; 64 KiB of stack, guarded
void asim_fiber_give(asim_fiber*);                          // back to the pool
void asim_fiber_resume(asim_fiber*);                        // runs it until it suspends or finishes
void asim_fiber_suspend();                                  // back to the one that resumed this fiber
bool asim_fiber_done(const asim_fiber*);
// Lets other cores run; call it in every iteration of a loop that polls global memory.
void asim_relax();
}

#define ASIM_SITE __extension__({ const void* site_; __asm__ volatile("leaq 0(%%rip), %0" : "=r"(site_)); site_; })

namespace asim {

template <size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&source)[N]) {
    for (size_t i = 0; i < N; ++i) text[i] = source[i];
  }
};

template <Name name>
inline const int kind_of = asim_kind(name.text);

// One executed instruction: count<"vadd">(Pipe::V, 64).
template <Name name>
ASIM_FN void count(Pipe pipe, uint64_t amount) {
  asim_issue(pipe, kind_of<name>, amount);
}

ASIM_FN void copy(void* to, const void* from, size_t bytes) {
  if constexpr (ASIM_CHECKS) {
    asim_copy(to, from, bytes);
  } else {
    __builtin_memcpy(to, from, bytes);
  }
}

// Repeats a value of `size` bytes over `bytes`.
ASIM_FN void fill(uint8_t* to, const uint8_t* value, uint32_t size, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += size) copy(to + i, value, size < bytes - i ? size : bytes - i);
}

ASIM_FN uint64_t offset(Mem mem, const volatile void* pointer) {
  uint64_t value = reinterpret_cast<uint64_t>(pointer);
  return mem == Mem::UB ? value - reinterpret_cast<uint64_t>(asim_ub) : value;
}

ASIM_FN uint8_t* host(Core* owner, Mem mem, uint64_t at) {
  return mem == Mem::GM ? reinterpret_cast<uint8_t*>(at) : owner->base[int(mem)] + at;
}

// Pointers: GM and UB pointers are host addresses; L1, L0A, L0B, L0C, BT and FB "pointers" are offsets from 0 that only these
// functions turn into host memory. All functions return the host address to copy from or to.

// Reads bytes whose values are used.
ASIM_FN const uint8_t* read(Mem mem, const volatile void* pointer, uint64_t bytes, Pipe pipe, uint32_t align = 1) {
  uint64_t at = offset(mem, pointer);
  if constexpr (ASIM_CHECKS) return asim_read(asim_core, mem, at, bytes, pipe, align, Use::VALUE, ASIM_SITE);
  if (mem == Mem::GM) asim_traffic(at, bytes, false);
  return host(asim_core, mem, at);
}

// Reads bytes that may never have been written; `undefined` (null, or bytes <= 256) receives which.
ASIM_FN const uint8_t* peek(Mem mem, const volatile void* pointer, uint64_t bytes, Pipe pipe, uint32_t align, ByteMask* undefined) {
  uint64_t at = offset(mem, pointer);
  if constexpr (ASIM_CHECKS) {
    if (undefined) asim_undefined(asim_core, mem, at, bytes, undefined);
    return asim_read(asim_core, mem, at, bytes, pipe, align, Use::MOVE, ASIM_SITE);
  }
  if (mem == Mem::GM) asim_traffic(at, bytes, false);
  return host(asim_core, mem, at);
}

// Writes bytes; only those in `active` (bytes <= 256) count as accessed, those in `undefined` stay undefined.
// `owner`: whose memory it is, when not the running core's (L0C to the UB of a vector core).
ASIM_FN uint8_t* write(Mem mem, volatile void* pointer, uint64_t bytes, Pipe pipe, uint32_t align = 1, const ByteMask* active = nullptr,
                       const ByteMask* undefined = nullptr, Core* owner = nullptr) {
  if (!owner) owner = asim_core;
  uint64_t at = offset(mem, pointer);
  if constexpr (ASIM_CHECKS) return asim_write(owner, mem, at, bytes, pipe, align, active, undefined, ASIM_SITE);
  if (mem == Mem::GM) asim_traffic(at, bytes, true);
  return host(owner, mem, at);
}

// Copies between two memories, with definedness. `to_owner`: as `owner` of write().
ASIM_FN void move(Mem to, volatile void* destination, Mem from, const volatile void* source, uint64_t bytes, Pipe pipe,
                  uint32_t to_align = 1, uint32_t from_align = 1, Core* to_owner = nullptr) {
  if (!to_owner) to_owner = asim_core;
  uint64_t to_at = offset(to, destination), from_at = offset(from, source);
  if constexpr (ASIM_CHECKS) {
    const uint8_t* input = asim_read(asim_core, from, from_at, bytes, pipe, from_align, Use::MOVE, ASIM_SITE);
    uint8_t* output = asim_write(to_owner, to, to_at, bytes, pipe, to_align, nullptr, nullptr, ASIM_SITE);
    asim_copy(output, input, bytes);
    asim_move_defined(to_owner, to, to_at, asim_core, from, from_at, bytes, ASIM_SITE);
  } else {
    if (from == Mem::GM) asim_traffic(from_at, bytes, false);
    if (to == Mem::GM) asim_traffic(to_at, bytes, true);
    memmove(host(to_owner, to, to_at), host(asim_core, from, from_at), bytes);
  }
}

// Stops the kernel with a report.
[[noreturn]] __attribute__((noinline, unused, format(printf, 2, 3))) static void fail(const char* code, const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  asim_fail(code, text, __builtin_return_address(0));
}

ASIM_FN uint64_t special(Special name) { return asim_core->special[int(name)]; }
ASIM_FN void set_special(Special name, uint64_t value) { asim_core->special[int(name)] = value; }

}  // namespace asim
