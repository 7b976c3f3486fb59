// SIMT regions: threads as fibers, barriers, operations of a warp, and races between threads.
//
// Threads run one after the other; a thread that meets no barrier and no warp operation runs to its end without a switch. Warps are
// run in turn, each until all its lanes have ended or wait for the barrier.
#define ASIM_NATIVE
#include "asim/simt_native.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using asim::Mem;
using asim::Pipe;

constexpr uint32_t kWarp = 32;
constexpr uint32_t kMaxThreads = 2048;
constexpr Pipe kCounted = Pipe::S;  // counts an instruction of a thread without time on the region's pipe

void fail_at(const void* site, const char* code, const char* format, ...) __attribute__((noreturn, format(printf, 3, 4)));
void fail_at(const void* site, const char* code, const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  asim_fail(code, text, site);
}

enum class Wait : uint8_t { NEW, READY, BARRIER, WARP, DONE };

struct Thread {
  asim_fiber* fiber = nullptr;
  Wait wait = Wait::NEW;
  uint64_t value = 0;           // brought to a warp operation
  const void* where = nullptr;  // identity of the barrier or operation in the source
  const void* site = nullptr;
};

struct Warp {
  uint64_t values[kWarp];  // of the last operation
  uint32_t mask = 0;       // lanes that took part in it
  uint32_t phase = 0;      // operations so far: they order the accesses of the warp's lanes
};

// The last access to a byte. `phase` numbers the intervals between barriers over the whole run of the program.
struct Stamp {
  uint32_t phase = 0;
  uint32_t warp_phase = 0;
  uint16_t thread = 0;
  enum Kind : uint8_t { ONE, ATOMIC, SAME_WARP, MANY } kind = ONE;
  const void* site = nullptr;
};
struct Shadow {
  Stamp write, read;
};

constexpr uint64_t kPage = 4096;
using Page = std::unique_ptr<Shadow[]>;

struct Region {
  void (*body)(void*);
  void* argument;
  uint32_t count;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  uint32_t warp = 0;     // being run
  uint32_t next = 0;     // first thread not started
  uint32_t done = 0;
  uint32_t current = 0;  // the running thread
};

Region* region;  // valid while the running core's simt_context is set
uint32_t phase = 1;  // of the running interval between barriers
Page ub_shadow;
std::unordered_map<uint64_t, Page> gm_shadow;
std::vector<Page> spare_pages;

// A write to bytes that another thread wrote in the same interval is harmless if it changes nothing. The access is announced before
// it happens, so this is settled at the thread's next step.
struct Pending {
  uint64_t address;
  uint32_t bytes = 0;
  uint8_t before[64];
  const char* what;
  uint16_t other;
  const void* site;
  const void* other_site;
} pending;

// Bytes of UB that a thread read and nothing has written. Reading them is no fault: threads past the end of the data often compute
// on garbage that nobody stores. So a region that read such bytes is run again with other garbage in them; what it writes
// differently is undefined.
struct Unwritten {
  uint64_t address;
  uint32_t thread;
  const void* site;
};
std::vector<Unwritten> unwritten;

// What writes replaced, in order.
struct Replaced {
  uint64_t address;
  uint32_t bytes;
  uint8_t before[16];
};
std::vector<Replaced> replaced;
bool second_run;
uint32_t first_phase;  // of the region

void remember(uint64_t address, uint32_t bytes) {
  for (uint32_t done = 0; done < bytes; done += 16) {
    Replaced entry{address + done, std::min(16u, bytes - done), {}};
    memcpy(entry.before, reinterpret_cast<const void*>(entry.address), entry.bytes);
    replaced.push_back(entry);
  }
}

void undo(const std::vector<Replaced>& entries) {
  for (size_t i = entries.size(); i-- > 0;) memcpy(reinterpret_cast<void*>(entries[i].address), entries[i].before, entries[i].bytes);
}

void count(int kind, uint64_t amount) {
  if (!second_run) asim_issue(kCounted, kind, amount);
}

uint32_t end_of_warp() { return std::min((region->warp + 1) * kWarp, region->count); }

void set_index(uint32_t thread) {
  region->current = thread;
  threadIdx.x = thread % blockDim.x;
  threadIdx.y = thread / blockDim.x % blockDim.y;
  threadIdx.z = thread / (blockDim.x * blockDim.y);
}

[[noreturn]] void race(const char* what, uint64_t address, uint32_t bytes, uint32_t other, const void* site, const void* other_site) {
  uint64_t ub = reinterpret_cast<uint64_t>(asim_core->base[int(Mem::UB)]);
  bool in_ub = address - ub < asim::kMemBytes[int(Mem::UB)];
  char text[256];
  snprintf(text, sizeof(text), "SIMT thread %u %s thread %u in the same interval between barriers (%u bytes of %s at %#llx)",
           region->current, what, other, bytes, in_ub ? "UB" : "GM", static_cast<unsigned long long>(in_ub ? address - ub : address));
  asim_fail_pair("simt-race", text, site, other_site);
}

void settle() {
  if (!pending.bytes || second_run) return;
  uint32_t bytes = pending.bytes;
  pending.bytes = 0;
  if (memcmp(pending.before, reinterpret_cast<const void*>(pending.address), bytes) != 0) {
    race(pending.what, pending.address, bytes, pending.other, pending.site, pending.other_site);
  }
}

Shadow* shadow_of(uint64_t address) {
  uint64_t ub = reinterpret_cast<uint64_t>(asim_core->base[int(Mem::UB)]);
  if (address - ub < asim::kMemBytes[int(Mem::UB)]) {
    if (!ub_shadow) ub_shadow = std::make_unique<Shadow[]>(asim::kMemBytes[int(Mem::UB)]);
    return &ub_shadow[address - ub];
  }
  Page& page = gm_shadow[address / kPage];
  if (!page) {
    if (spare_pages.empty()) {
      page = std::make_unique<Shadow[]>(kPage);
    } else {
      page = std::move(spare_pages.back());
      spare_pages.pop_back();
    }
  }
  return &page[address % kPage];
}

// True if the access of `stamp` is ordered before the running thread's next one.
bool ordered(const Stamp& stamp, uint32_t me) {
  if (stamp.phase != phase) return true;
  if (stamp.kind == Stamp::MANY) return false;
  bool same_warp = stamp.thread / kWarp == me / kWarp;
  if (same_warp && stamp.warp_phase != region->warps[me / kWarp].phase) return true;
  return stamp.thread == me && stamp.kind != Stamp::SAME_WARP;
}

void conflict(const char* what, uint64_t address, uint32_t bytes, const Stamp& other, const void* site, bool atomic) {
  if (atomic || bytes > sizeof(pending.before)) race(what, address, bytes, other.thread, site, other.site);
  if (pending.bytes) return;
  pending = {address, bytes, {}, what, other.thread, site, other.site};
  memcpy(pending.before, reinterpret_cast<const void*>(address), bytes);
}

void check_race(uint64_t address, uint32_t bytes, bool write, bool atomic, const void* site) {
  settle();
  uint32_t me = region->current;
  Stamp mine{phase, region->warps[me / kWarp].phase, uint16_t(me), atomic ? Stamp::ATOMIC : Stamp::ONE, site};
  Shadow* shadow = nullptr;
  for (uint32_t i = 0; i < bytes; ++i, ++shadow) {
    if (i == 0 || (address + i) % kPage == 0) shadow = shadow_of(address + i);
    Stamp& written = shadow->write;
    Stamp& read = shadow->read;
    if (!ordered(written, me) && !(atomic && written.kind == Stamp::ATOMIC)) {
      if (!write) race("reads what was written by", address, bytes, written.thread, site, written.site);
      conflict("overwrites what was written by", address, bytes, written, site, atomic);
    }
    if (write) {
      if (!ordered(read, me)) conflict("overwrites what was read by", address, bytes, read, site, atomic);
      written = mine;
    } else if (ordered(read, me)) {
      read = mine;
    } else {
      bool one_warp = read.kind != Stamp::MANY && read.thread / kWarp == me / kWarp;
      read = mine;
      read.kind = one_warp ? Stamp::SAME_WARP : Stamp::MANY;
    }
  }
}

// An access of the second run. One that the first run did not make follows from undefined data; in UB it can do no harm.
void again(uint64_t address, uint32_t bytes, bool write, const void* site) {
  uint64_t ub = reinterpret_cast<uint64_t>(asim_core->base[int(Mem::UB)]);
  for (uint32_t i = 0; i < bytes && address - ub >= asim::kMemBytes[int(Mem::UB)]; ++i) {
    const Shadow* shadow = shadow_of(address + i);
    if (shadow->write.phase < first_phase && (write || shadow->read.phase < first_phase)) {
      asim_fail_pair("uninitialised", "the address or the condition of a SIMT access to GM depends on bytes of UB that were never written",
                     site, unwritten.front().site);
    }
  }
  if (write) remember(address, bytes);
}

// Receives the plain loads and stores of SIMT threads.
void on_access(void*, uintptr_t address, uint32_t bytes, bool write, const void* site) {
  static const int load = asim_kind("simt_ld"), store = asim_kind("simt_st");
  count(write ? store : load, bytes);
  if (second_run) return again(address, bytes, write, site);
  uint64_t at = address - reinterpret_cast<uint64_t>(asim_core->base[int(Mem::UB)]);
  bool ub = at < asim::kMemBytes[int(Mem::UB)];
  if (ub && at + bytes > asim::kUbUsableSimt) {
    fail_at(site, "out-of-bounds", "SIMT access to UB bytes [%llu, %llu): a kernel with SIMT code has %u bytes of UB",
            static_cast<unsigned long long>(at), static_cast<unsigned long long>(at + bytes), asim::kUbUsableSimt);
  }
  // The bounds are checked before the shadow of the bytes is looked at.
  Mem mem = ub ? Mem::UB : Mem::GM;
  uint32_t align = bytes & (bytes - 1) ? 1 : bytes;
  if (write) {
    asim_write(asim_core, mem, ub ? at : address, bytes, Pipe::V, align, nullptr, nullptr, site);
  } else {
    asim_read(asim_core, mem, ub ? at : address, bytes, Pipe::V, align, asim::Use::MOVE, site);
    asim::ByteMask mask{};
    if (ub) asim_undefined(asim_core, Mem::UB, at, bytes, &mask);
    for (uint32_t i = 0; ub && i < bytes; ++i) {
      if (mask.w[i / 64] >> (i % 64) & 1) unwritten.push_back({address + i, region->current, site});
    }
  }
  check_race(address, bytes, write, false, site);
  if (write) remember(address, bytes);
}

// A fiber's work: the next thread of the warp until one has to wait, which leaves the rest to another fiber. Warps that wait for
// nothing are passed through by one fiber.
void work(void*) {
  while (region->next < end_of_warp()) {
    uint32_t thread = region->next++;
    set_index(thread);
    region->body(region->argument);
    settle();
    region->threads[region->current].wait = Wait::DONE;
    ++region->done;
    if (region->done == end_of_warp() && region->warp + 1 < region->warps.size()) ++region->warp;
  }
}

void resume(asim_fiber* fiber) {
  asim_fiber_resume(fiber);
  if (asim_fiber_done(fiber)) {
    asim_fiber_give(fiber);
  } else {
    region->threads[region->current].fiber = fiber;
  }
}

void suspend(Wait wait, uint64_t value, const void* where, const void* site) {
  settle();
  uint32_t me = region->current;
  region->threads[me].wait = wait;
  region->threads[me].value = value;
  region->threads[me].where = where;
  region->threads[me].site = site;
  asim_fiber_suspend();
  set_index(me);
}

// Performs one operation of the lanes of the warp that wait for it. Lanes that diverged may wait for different ones: the one that is
// first in the code goes first, as on hardware that reconverges at the end of a branch.
bool perform(Warp& warp, uint32_t first, uint32_t end) {
  const void* where = nullptr;
  const void* site = nullptr;
  for (uint32_t i = first; i < end; ++i) {
    const Thread& thread = region->threads[i];
    if (thread.wait == Wait::WARP && (!where || thread.site < site)) {
      where = thread.where;
      site = thread.site;
    }
  }
  if (!where) return false;
  warp.mask = 0;
  ++warp.phase;
  for (uint32_t i = first; i < end; ++i) {
    Thread& thread = region->threads[i];
    if (thread.wait != Wait::WARP || thread.where != where) continue;
    warp.mask |= 1u << (i - first);
    warp.values[i - first] = thread.value;
    thread.wait = Wait::READY;
  }
  return true;
}

void run_warp() {
  for (;;) {
    uint32_t warp = region->warp;
    while (region->next < end_of_warp()) resume(asim_fiber_take(work, nullptr));
    uint32_t first = warp * kWarp, end = std::min(first + kWarp, region->count);
    for (uint32_t i = first; i < end; ++i) {
      if (region->threads[i].wait == Wait::READY) resume(region->threads[i].fiber);
    }
    // A fiber that ended its thread may have gone on to the next warp.
    if (region->warp == warp && !perform(region->warps[warp], first, end)) return;
  }
}

void release_barrier();

void run_all(void (*body)(void*), void* argument, uint64_t threads) {
  Region here{body, argument, uint32_t(threads), std::vector<Thread>(threads), std::vector<Warp>((threads + kWarp - 1) / kWarp)};
  region = &here;
  for (;;) {
    for (; here.warp < here.warps.size(); ++here.warp) run_warp();
    if (here.done == here.count) return;
    release_barrier();
    here.warp = 0;
  }
}

void run_again(void (*body)(void*), void* argument, uint64_t threads) {
  std::vector<Replaced> first = std::move(replaced), results = first;
  replaced.clear();
  for (Replaced& entry : results) memcpy(entry.before, reinterpret_cast<const void*>(entry.address), entry.bytes);
  undo(first);
  std::sort(unwritten.begin(), unwritten.end(), [](const Unwritten& a, const Unwritten& b) { return a.address < b.address; });
  for (size_t i = 0; i < unwritten.size(); ++i) {
    if (i && unwritten[i].address == unwritten[i - 1].address) continue;
    remember(unwritten[i].address, 1);
    *reinterpret_cast<uint8_t*>(unwritten[i].address) ^= 0xa5;
  }
  size_t garbage = replaced.size();
  second_run = true;
  run_all(body, argument, threads);
  second_run = false;

  std::vector<uint64_t> differing;
  for (const Replaced& entry : results) {
    for (uint32_t i = 0; i < entry.bytes; ++i) {
      if (*reinterpret_cast<const uint8_t*>(entry.address + i) != entry.before[i]) differing.push_back(entry.address + i);
    }
  }
  undo(replaced);
  for (const Replaced& entry : results) memcpy(reinterpret_cast<void*>(entry.address), entry.before, entry.bytes);
  for (size_t i = garbage; i < replaced.size(); ++i) {  // bytes that only the second run wrote
    for (uint64_t byte = replaced[i].address; byte < replaced[i].address + replaced[i].bytes; ++byte) {
      if (shadow_of(byte)->write.phase < first_phase) differing.push_back(byte);
    }
  }
  uint64_t ub = reinterpret_cast<uint64_t>(asim_core->base[int(Mem::UB)]);
  for (uint64_t byte : differing) {
    if (byte - ub < asim::kMemBytes[int(Mem::UB)]) {
      asim_set_undefined(asim_core, Mem::UB, byte - ub, 1);
      continue;
    }
    const Unwritten& read = unwritten.front();
    fail_at(read.site, "uninitialised",
            "SIMT thread %u reads byte %#llx of UB, which was never written, and what the region writes to GM depends on it", read.thread, static_cast<unsigned long long>(read.address - ub));
  }
}

void release_barrier() {
  const Thread* waiting = nullptr;
  uint32_t arrived = 0;
  for (const Thread& thread : region->threads) {
    if (thread.wait != Wait::BARRIER) continue;
    ++arrived;
    if (!waiting) waiting = &thread;
    if (thread.where != waiting->where) {
      asim_fail_pair("deadlock", "asc_syncthreads: threads of a region wait at two different places", waiting->site, thread.site);
    }
  }
  if (arrived != region->count) {
    fail_at(waiting->site, "deadlock", "asc_syncthreads: %u of %u threads arrived, the others have ended", arrived, region->count);
  }
  if (!second_run) ++phase;
  for (Thread& thread : region->threads) thread.wait = Wait::READY;
}

}  // namespace

EXPORT asim::Index3 threadIdx, blockDim, blockIdx, gridDim;
asim::Index3 threadIdx, blockDim, blockIdx, gridDim;

EXPORT void asim_simt_run(const asim::Index3* size, void (*body)(void*), void* argument, bool checks, const void* site) {
  uint64_t threads = uint64_t(size->x) * size->y * size->z;
  if (threads < 1 || threads > kMaxThreads) {
    fail_at(site, "argument", "asc_vf_call: the number of threads must be in [1, %u], got %llu", kMaxThreads,
            static_cast<unsigned long long>(threads));
  }
  static const int kind = asim_kind("simt_vf");
  asim_issue(Pipe::V, kind, threads);
  blockDim = *size;
  blockIdx = {asim_core->block_idx, 0, 0};
  gridDim = {asim_core->block_num, 1, 1};
  first_phase = ++phase;  // an earlier region may have failed in the middle of an interval
  second_run = false;
  pending.bytes = 0;
  unwritten.clear();
  replaced.clear();
  for (auto& [number, page] : gm_shadow) {
    if (spare_pages.size() < 256) spare_pages.push_back(std::move(page));
  }
  gm_shadow.clear();
  asim_core->simt_context = &region;
  if (checks) asim_core->simt_access = on_access;
  run_all(body, argument, threads);
  if (!unwritten.empty()) run_again(body, argument, threads);
  asim_core->simt_access = nullptr;
  asim_core->simt_context = nullptr;
}

EXPORT void asim_simt_barrier(const void* where, const void* site) {
  if (!asim_core->simt_context) fail_at(site, "argument", "asc_syncthreads outside of a SIMT function");
  static const int kind = asim_kind("simt_barrier");
  count(kind, 1);
  suspend(Wait::BARRIER, 0, where, site);
}

EXPORT uint32_t asim_warp_gather(uint64_t value, const uint64_t** values, const void* where, const void* site) {
  if (!asim_core->simt_context) fail_at(site, "argument", "a warp function outside of a SIMT function");
  static const int kind = asim_kind("simt_warp");
  count(kind, 1);
  suspend(Wait::WARP, value, where, site);
  const Warp& warp = region->warps[region->warp];
  *values = warp.values;
  return warp.mask;
}

EXPORT uint64_t asim_warp_shuffle(uint64_t value, uint32_t lane, const void* where, const void* site) {
  const uint64_t* values;
  uint32_t mask = asim_warp_gather(value, &values, where, site);
  if (!(mask >> lane & 1)) {
    fail_at(site, "uninitialised", "asc_shfl: lane %u, from which thread %u reads, is not active", lane, region->current);
  }
  return values[lane];
}

EXPORT uint32_t asim_lane() { return region->current % kWarp; }

EXPORT uint8_t* asim_simt_atomic(uint64_t address, uint32_t bytes, bool checks, const void* site) {
  static const int kind = asim_kind("simt_atomic");
  count(kind, bytes);
  uint64_t at = address - reinterpret_cast<uint64_t>(asim_core->base[int(Mem::UB)]);
  bool ub = at < asim::kMemBytes[int(Mem::UB)];
  if (asim_core->simt_context && second_run) {
    again(address, bytes, true, site);
  } else if (checks) {
    if (asim_core->simt_context) remember(address, bytes);
    asim_atomic(asim_core, ub ? Mem::UB : Mem::GM, ub ? at : address, bytes, asim_core->simt_context ? Pipe::V : Pipe::S, site);
    if (asim_core->simt_context) check_race(address, bytes, true, true, site);
  } else if (!ub) {
    asim_traffic(address, bytes, true);
  }
  return reinterpret_cast<uint8_t*>(address);
}
