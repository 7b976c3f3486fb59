// The simulator's core library: cores as fibers, vector clocks, shadow memory, counters, crash and time limits.
// Built once a machine (see toolchain.py); kernel libraries link to it. Everything runs under one lock, one kernel at a time.
#define ASIM_CORE_LIBRARY
#include "asim/core.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "asim/launch.h"
#include "asim/types.h"

#ifndef __x86_64__
#error "ascend-sim needs an x86-64 host"
#endif

using asim::Atomic;
using asim::ByteMask;
using asim::Core;
using asim::Mem;
using asim::Pipe;
using asim::Type;
using asim::Use;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Core* asim_core;
EXPORT uint8_t* asim_ub;
EXPORT int64_t block_idx;
EXPORT int64_t block_num;
Core* asim_core = nullptr;
uint8_t* asim_ub = nullptr;
int64_t block_idx = 0;
int64_t block_num = 0;

namespace {

constexpr int kPipes = int(Pipe::COUNT);
constexpr int kMems = int(Mem::COUNT);
constexpr int kSlots = 24;  // three cores of eight pipes
constexpr uint32_t kGranule = 32;
const char* const kPipeNames[] = {"PIPE_S", "PIPE_V", "PIPE_MTE1", "PIPE_MTE2", "PIPE_MTE3", "PIPE_M", "PIPE_FIX", "PIPE_ALL"};
const char* const kMemNames[] = {"GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB", "L0A scales", "L0B scales"};
const char* const kScopeNames[] = {"inter", "subblock", "block", "intra"};

// ---------------------------------------------------------------------------------------------------------------- fibers

}  // namespace

struct asim_fiber {
  void* stack_pointer = nullptr;
  asim_fiber* resumer = nullptr;
  uint8_t* stack = nullptr;  // lowest address, above the guard page
  size_t stack_bytes = 0;
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
  bool done = true;
};

namespace {

asim_fiber main_fiber;
asim_fiber* current_fiber = &main_fiber;
constexpr size_t kThreadStack = 64 << 10;
constexpr size_t kCoreStack = 1 << 20;
std::vector<asim_fiber*> thread_pool, core_pool;

// Saves the callee-saved state on the stack, leaves the stack pointer in *from, continues at `to`.
extern "C" void asim_switch(void** from, void* to);
asm(R"(
.text
.type asim_switch, @function
asim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size asim_switch, .-asim_switch
)");

void switch_to(asim_fiber* next) {
  asim_fiber* previous = current_fiber;
  current_fiber = next;
  asim_switch(&previous->stack_pointer, next->stack_pointer);
}

[[noreturn]] void fiber_main() {
  current_fiber->function(current_fiber->argument);
  current_fiber->done = true;
  switch_to(current_fiber->resumer);
  __builtin_unreachable();
}

asim_fiber* fiber_take(std::vector<asim_fiber*>& pool, size_t bytes, void (*function)(void*), void* argument) {
  asim_fiber* fiber;
  if (pool.empty()) {
    fiber = new asim_fiber;
    const size_t page = 4096;
    auto* memory = static_cast<uint8_t*>(mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) abort();
    mprotect(memory, page, PROT_NONE);
    fiber->stack = memory + page;
    fiber->stack_bytes = bytes;
  } else {
    fiber = pool.back();
    pool.pop_back();
  }
  fiber->function = function;
  fiber->argument = argument;
  fiber->done = false;
  auto* top = reinterpret_cast<uint64_t*>(fiber->stack + bytes);
  *--top = 0;  // alignment, and the end of the call chain
  *--top = reinterpret_cast<uint64_t>(&fiber_main);
  for (int i = 0; i < 6; ++i) *--top = 0;
  fiber->stack_pointer = top;
  return fiber;
}

// ---------------------------------------------------------------------------------------------------------------- clocks

struct Clock {
  uint32_t at[kSlots];
  void join(const Clock& other) {
    for (int i = 0; i < kSlots; ++i) at[i] = std::max(at[i], other.at[i]);
  }
};

using World = std::vector<Clock>;  // what is known of every block

struct PipeClock {
  Clock local{};                       // of the own block
  std::shared_ptr<const World> world;  // of all blocks; null until a cross-block synchronisation
  uint64_t time = 0;                   // of the model time line

  void join(const PipeClock& other) {
    local.join(other.local);
    join_world(other.world);
    time = std::max(time, other.time);
  }
  void join_world(const std::shared_ptr<const World>& other) {
    if (!other || other == world) return;
    if (!world) {
      world = other;
      return;
    }
    auto merged = std::make_shared<World>(*world);
    for (size_t block = 0; block < merged->size(); ++block) (*merged)[block].join((*other)[block]);
    world = merged;
  }
};

// ---------------------------------------------------------------------------------------------------------------- shadow memory

// One access that later ones must be ordered after. The epoch packs block, slot, write, atomic and the pipe's clock.
struct Entry {
  uint32_t mask;  // bytes of the granule
  uint32_t site;
  uint64_t epoch;
};
constexpr uint64_t kWrite = 1ull << 37, kAtomicBit = 1ull << 38, kClockMask = (1ull << 37) - 1;
uint64_t make_epoch(uint32_t block, int slot, uint32_t clock) { return uint64_t(block) << 44 | uint64_t(slot) << 39 | clock; }
uint32_t epoch_block(uint64_t epoch) { return uint32_t(epoch >> 44); }
int epoch_slot(uint64_t epoch) { return int(epoch >> 39 & 31); }

struct Cell {
  Entry entries[2];
  std::vector<Entry>* more;
  uint32_t defined;  // a bit a byte: written since the kernel's start
  uint32_t count;    // of entries in use; those past two are in `more`

  Entry& at(uint32_t i) { return i < 2 ? entries[i] : (*more)[i - 2]; }
  void add(const Entry& entry) {
    if (count < 2) {
      entries[count] = entry;
    } else {
      if (!more) more = new std::vector<Entry>;
      more->push_back(entry);
    }
    ++count;
  }
  void remove(uint32_t i) {
    at(i) = at(count - 1);
    if (count > 2) more->pop_back();
    --count;
  }
  void clear() {
    delete more;
    *this = Cell{};
  }
};

struct Page {
  Cell cells[128];  // 4 KiB of global memory
};

// ---------------------------------------------------------------------------------------------------------------- cores

struct Flag {
  bool set = false;
  PipeClock clock;
  uint32_t site = 0;
};

struct Mutex {
  bool held = false;
  Pipe holder = Pipe::S;
  bool released_once = false;
  PipeClock released;
  uint32_t site = 0;
};

struct Counter {
  std::deque<PipeClock> arrivals;
  uint32_t site = 0;
};

struct Usage {
  uint32_t peak[kMems] = {};
};

struct Segment {
  uint32_t block;
  uint8_t core, pipe;
  uint16_t kind;
  uint64_t start, end;
};

struct Block;

struct CoreState {
  Core api{};
  Block* block = nullptr;
  int index = 0;  // 0 cube, 1 and 2 vector
  Cell* cells[kMems] = {};
  PipeClock clock[kPipes];
  uint32_t seen_scalar[kPipes] = {};  // version of the scalar clock a pipe has joined
  uint32_t scalar_version = 1;
  // In a vector function: the clocks of PIPE_V from which on stores are not ordered before later loads [0] and stores [1].
  uint32_t unordered[2] = {~0u, ~0u};
  std::map<uint32_t, Flag> flags;
  Mutex mutexes[32];
  Counter counters[2][32];                            // [0] modes 0, 1, 2; [1] intra
  std::map<std::pair<int, uint32_t>, std::deque<PipeClock>> arrived;  // by scope and id, not yet matched by the others
  Usage usage;
  std::vector<uint64_t> counts, amounts;
  std::vector<uint32_t> used_kinds;
  asim_fiber* fiber = nullptr;
  bool finished = false;
  bool polling = false;
  uint32_t polls = 0;
  // What a blocked core waits for.
  bool waiting = false;
  int wait_scope = 0;
  Pipe wait_pipe = Pipe::S;
  uint32_t wait_id = 0;
  uint32_t wait_site = 0;

  CoreState() : counts(asim::kMaxKinds), amounts(asim::kMaxKinds) {}
};

struct Block {
  CoreState cores[3];
  uint32_t index = 0;
};

struct Argument {
  std::string name;
  uint64_t address = 0;
  uint64_t read = 0, written = 0;
  // The addresses that were read ([0]) and written ([1]) lie in [begin, end).
  uint64_t begin[2] = {~0ull, ~0ull}, end[2] = {0, 0};
};

struct Done {  // counts of a finished core
  uint32_t block;
  int core;
  Usage usage;
  uint64_t time;
  std::vector<std::pair<uint32_t, std::pair<uint64_t, uint64_t>>> kinds;
};

struct Library {
  std::string path;
  uint64_t base = 0, end = 0;
};

// A page of global memory before the run, and which of its bytes the run has written.
struct Saved {
  uint8_t before[4096];
  uint64_t written[64];
};

// Scalar code that read bytes of UB that were never written.
struct Garbage {
  uint32_t block = 0, site = 0;
  int core = 0;
  uint64_t at = 0, bytes = 0;
};

struct Run {
  const asim_kernel* kernel = nullptr;
  const void* arguments = nullptr;
  uint32_t blocks = 0;
  std::vector<Block*> live;  // by block index; null when not started or finished
  uint32_t started = 0, finished = 0;
  std::deque<CoreState*> ready;
  std::vector<Argument> tensors;  // sorted by address
  size_t last_tensor = 0;
  Library library;
  std::vector<Done> done;
  std::vector<Segment> segments;
  std::unordered_map<uint64_t, Page*> pages;
  uint64_t last_page = ~0ull;
  Page* last_page_cells = nullptr;
  std::unordered_map<uint64_t, PipeClock> atomics;
  std::unordered_map<uint64_t, std::unique_ptr<Saved>> saved;
  Garbage garbage;
  bool again = false;  // the second run, with other garbage
  std::string error;
};

std::recursive_mutex run_lock;
std::unique_ptr<Run> run;
CoreState* self = nullptr;  // of the running core
std::vector<Block*> block_pool;
std::vector<Page*> page_pool;
std::string last_error, last_trace;
bool checks_enabled = true;
bool record_timeline = false;
asim_launch_hook launch_hook = nullptr;
void (*load_hook)() = nullptr;
sigjmp_buf scheduler_jump;
volatile sig_atomic_t running = 0, stop_requested = 0;
pid_t running_thread = 0;
uint8_t* arena = nullptr;  // all on-chip memory and core state, so that accesses to it can be told from global memory
uint8_t* arena_end = nullptr;
uint8_t* arena_next = nullptr;
Library core_library;

uint8_t kind_pipes[asim::kMaxKinds];  // the pipe of a kind's last instruction; a kind belongs to one pipe
constexpr uint32_t kRecordedBlocks = 2;  // of a launch, on the time line

std::vector<std::string>& kind_names() {
  static std::vector<std::string> names;
  return names;
}

// Registered global memory: start -> (bytes, name).
std::map<uint64_t, std::pair<uint64_t, std::string>>& allocations() {
  static std::map<uint64_t, std::pair<uint64_t, std::string>> map;
  return map;
}

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char* format, ...) {
  char buffer[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(buffer, sizeof(buffer), format, args);
  va_end(args);
  return buffer;
}

std::string quote(const std::string& value) {
  std::string out = "\"";
  for (unsigned char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += char(c);
    } else if (c < 32) {
      out += text("\\u%04x", c);
    } else {
      out += char(c);
    }
  }
  return out + "\"";
}

std::string core_name(int index) { return index == 0 ? "cube core" : text("vector core %d", index - 1); }
int slot_of(const CoreState* core, Pipe pipe) { return core->index * 8 + int(pipe); }

// ---------------------------------------------------------------------------------------------------------------- source lines

uint32_t to_site(const void* address) {
  const uint64_t value = reinterpret_cast<uint64_t>(address);
  return value >= run->library.base && value < run->library.end ? uint32_t(value - run->library.base) : 0;
}

struct Source {
  std::string file, line_text;
  int line = 0;
};

// The innermost frame of the inlined call chain that lies in generated source (a file named *.asc).
Source locate(uint32_t site) {
  Source source;
  if (!site) return source;
  // Keep variables of an enclosing environment (preloads and the like) away from the helper.
  const std::string command =
      text("env -u LD_PRELOAD -u LD_LIBRARY_PATH addr2line -i -e '%s' 0x%x 2>/dev/null", run->library.path.c_str(), site - 1);
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return source;
  char buffer[4096];
  while (fgets(buffer, sizeof(buffer), pipe)) {
    std::string frame(buffer);
    while (!frame.empty() && (frame.back() == '\n' || frame.back() == ' ')) frame.pop_back();
    if (const size_t note = frame.find(" (discriminator"); note != std::string::npos) frame.resize(note);
    const size_t colon = frame.rfind(':');
    if (colon == std::string::npos || colon < 4 || frame.compare(colon - 4, 4, ".asc")) continue;
    if (!source.file.empty()) continue;
    source.file = frame.substr(0, colon);
    source.line = atoi(frame.c_str() + colon + 1);
  }
  pclose(pipe);
  std::ifstream file(source.file);
  for (int i = 0; i < source.line; ++i) std::getline(file, source.line_text);
  source.line_text.erase(0, std::min(source.line_text.find_first_not_of(" \t"), source.line_text.size()));
  return source;
}

std::string source_json(uint32_t site) {
  const Source source = locate(site);
  return text("{\"file\": %s, \"line\": %d, \"text\": ", quote(source.file).c_str(), source.line) + quote(source.line_text) + "}";
}

// ---------------------------------------------------------------------------------------------------------------- reports

[[noreturn]] void leave() {
  running = 0;
  siglongjmp(scheduler_jump, 1);
}

// Records a report; `details` is a JSON fragment that starts with a comma, or empty.
void set_error(const std::string& code, const std::string& message, uint32_t block, int core, Pipe pipe, uint32_t site,
               const std::string& details) {
  if (!run->error.empty()) return;
  std::string json = "{\"code\": " + quote(code) + ", \"kernel\": " + quote(run->kernel->name) + ", \"message\": " + quote(message);
  if (core >= 0) {
    json += text(", \"block\": %u, \"core\": ", block) + quote(core_name(core));
    if (pipe != Pipe::COUNT) json += ", \"pipe\": " + quote(kPipeNames[int(pipe)]);
    json += ", \"source\": " + source_json(site);
  }
  run->error = json + details + "}";
}
void set_error(const std::string& code, const std::string& message, const CoreState* core, Pipe pipe, uint32_t site,
               const std::string& details = "") {
  set_error(code, message, core ? core->block->index : 0, core ? core->index : -1, pipe, site, details);
}

[[noreturn]] void stop(const std::string& code, const std::string& message, Pipe pipe, const void* site, const std::string& details = "") {
  set_error(code, message, self, pipe, to_site(site), details);
  leave();
}

std::string place(Mem mem, uint64_t at, uint64_t bytes) {
  if (mem != Mem::GM) return text("%s[0x%" PRIx64 ", 0x%" PRIx64 ")", kMemNames[int(mem)], at, at + bytes);
  for (size_t i = run->tensors.size(); i-- > 0;) {
    const Argument& tensor = run->tensors[i];
    if (tensor.address <= at)
      return text("GM %s[0x%" PRIx64 ", 0x%" PRIx64 ")", tensor.name.c_str(), at - tensor.address, at - tensor.address + bytes);
  }
  return text("GM 0x%" PRIx64 " (%" PRIu64 " bytes)", at, bytes);
}

// ---------------------------------------------------------------------------------------------------------------- ordering

// A pipe starts an instruction only after what the scalar unit has waited for.
void join_scalar(CoreState* core, Pipe pipe) {
  if (pipe == Pipe::S || core->seen_scalar[int(pipe)] == core->scalar_version) return;
  core->seen_scalar[int(pipe)] = core->scalar_version;
  const int own = slot_of(core, Pipe::S);
  PipeClock& clock = core->clock[int(pipe)];
  const uint32_t kept = clock.local.at[own];
  clock.join(core->clock[int(Pipe::S)]);
  clock.local.at[own] = kept;  // the scalar unit's own stores are ordered by notify only
}

bool ordered(const Entry& entry, const CoreState* core, int slot, const PipeClock& clock) {
  const uint32_t block = epoch_block(entry.epoch);
  const int other = epoch_slot(entry.epoch);
  const uint32_t time = uint32_t(entry.epoch & kClockMask);
  if (block == core->block->index) {
    if (other == slot || clock.local.at[other] >= time) return true;
    // A scalar load has returned its value before the scalar unit issues anything else.
    return other == core->index * 8 + int(Pipe::S) && !(entry.epoch & kWrite);
  }
  return clock.world && (*clock.world)[block].at[other] >= time;
}

[[noreturn]] void hazard(const Entry& earlier, Mem mem, uint64_t granule_at, uint32_t mask, bool write, Pipe pipe, const void* site) {
  const uint32_t overlap = earlier.mask & mask;
  const int first = __builtin_ctz(overlap), last = 32 - __builtin_clz(overlap);
  const bool earlier_write = earlier.epoch & kWrite;
  const int slot = epoch_slot(earlier.epoch);
  const bool one_pipe = slot == slot_of(self, pipe) && epoch_block(earlier.epoch) == self->block->index;
  const std::string where = place(mem, granule_at + first, last - first);
  const char* kind = earlier_write ? (write ? "write after write" : "read after write") : "write after read";
  const std::string message =
      text("%s of %s: %s of %s is not ordered after the earlier %s by %s of %s, block %u", kind, where.c_str(), write ? "the write" : "the read",
           kPipeNames[int(pipe)], earlier_write ? "write" : "read", kPipeNames[slot % 8], core_name(slot / 8).c_str(), epoch_block(earlier.epoch)) +
      (one_pipe ? text(": no asc_mem_bar(%s) is between them", write ? "VST_VST" : "VST_VLD") : "");
  stop(one_pipe ? "vector-race" : "hazard", message, pipe, site,
       text(", \"memory\": \"%s\", \"kind\": \"%s\", \"other\": {\"block\": %u, \"core\": \"%s\", \"pipe\": \"%s\", \"access\": \"%s\", \"source\": ",
            kMemNames[int(mem)], kind, epoch_block(earlier.epoch), core_name(slot / 8).c_str(), kPipeNames[slot % 8],
            earlier_write ? "write" : "read") +
           source_json(earlier.site) + "}");
}

Cell* gm_cells(uint64_t address) {  // the cell of the granule at `address`
  const uint64_t page = address >> 12;
  if (page != run->last_page) {
    Page*& slot = run->pages[page];
    if (!slot) {
      if (page_pool.empty()) {
        slot = new Page{};
      } else {
        slot = page_pool.back();
        page_pool.pop_back();
      }
    }
    run->last_page = page;
    run->last_page_cells = slot;
  }
  return &run->last_page_cells->cells[address >> 5 & 127];
}

struct Access {
  CoreState* core;
  int slot;
  PipeClock* clock;
  uint64_t epoch;
  uint32_t site;
  const void* address;
  Pipe pipe;
  Mem mem;
  uint32_t unordered;  // stores of the same pipe from this clock on are not ordered before the access
};

// The register that the statement at a site loads or stores, as TileLang writes them, or an empty string.
const std::string& register_of(uint32_t site) {
  static std::map<std::pair<std::string, uint32_t>, std::string> known;
  const auto [entry, is_new] = known.try_emplace({run->library.path, site});
  if (is_new) {
    static const std::regex load(R"((?:\w+ )?(\w+(?:\[\d+\])?) = simd_inst::vld\w*<)"), store(R"(simd_inst::vst\w*\((\w+(?:\[\d+\])?), )");
    const std::string statement = locate(site).line_text;
    std::smatch match;
    for (const std::regex& pattern : {load, store})
      if (std::regex_search(statement, match, pattern, std::regex_constants::match_continuous)) entry->second = match[1];
  }
  return entry->second;
}

// Stores of a vector function are ordered before its later accesses of the same bytes by asc_mem_bar, or by the use of one register.
// What a load has read since counts as ordered before a store, because the store may depend on that load.
void check_vector_function(Cell& cell, uint32_t mask, uint64_t granule_at, const Access& access, bool write) {
  for (uint32_t i = 0; write && i < cell.count; ++i) {
    const Entry& entry = cell.at(i);
    if (epoch_slot(entry.epoch) == access.slot && !(entry.epoch & kWrite)) mask &= ~entry.mask;
  }
  for (uint32_t i = 0; i < cell.count; ++i) {
    const Entry& entry = cell.at(i);
    if ((entry.mask & mask) && (entry.epoch & kWrite) && epoch_slot(entry.epoch) == access.slot &&
        uint32_t(entry.epoch & kClockMask) >= access.unordered &&
        (register_of(entry.site).empty() || register_of(entry.site) != register_of(access.site)))
      hazard(entry, access.mem, granule_at, mask, write, access.pipe, access.address);
  }
}

void touch(Cell& cell, uint32_t mask, uint64_t granule_at, const Access& access, bool write, bool atomic) {
  if (access.unordered != ~0u) check_vector_function(cell, mask, granule_at, access, write);
  bool merged = false;
  for (uint32_t i = 0; i < cell.count;) {
    Entry& entry = cell.at(i);
    const bool same_kind = entry.epoch == access.epoch;
    if (entry.mask & mask) {
      const bool entry_write = entry.epoch & kWrite;
      if ((write || entry_write) && !(atomic && (entry.epoch & kAtomicBit)) && !ordered(entry, access.core, access.slot, *access.clock))
        hazard(entry, access.mem, granule_at, mask, write, access.pipe, access.address);
      // What is ordered before a write need not be kept; of the reads, one a pipe is enough.
      const bool superseded = write ? !(atomic && (entry.epoch & kAtomicBit)) : !entry_write && (entry.epoch ^ access.epoch) >> 39 == 0;
      if (superseded && !same_kind) {
        entry.mask &= ~mask;
        if (!entry.mask) {
          cell.remove(i);
          continue;
        }
      }
    }
    if (same_kind && (entry.site == access.site || (entry.mask & ~mask) == 0)) {
      entry.mask |= mask;
      entry.site = access.site;
      merged = true;
    }
    ++i;
  }
  if (!merged) cell.add({mask, access.site, access.epoch});
}

[[noreturn]] void out_of_bounds(const std::string& message, Pipe pipe, const void* site) { stop("out-of-bounds", message, pipe, site); }

void check_bounds(CoreState* owner, Mem mem, uint64_t at, uint64_t bytes, bool write, Pipe pipe, const void* site) {
  if (mem == Mem::GM) {
    auto& map = allocations();
    if (map.empty()) return;
    auto it = map.upper_bound(at);
    if (it != map.begin()) {
      --it;
      if (at >= it->first && at + bytes <= it->first + it->second.first) return;
      if (at < it->first + it->second.first + 4096)
        out_of_bounds(text("the %s of %" PRIu64 " bytes at byte 0x%" PRIx64 " of %s goes past its end (0x%" PRIx64 " bytes)", write ? "write" : "read",
                           bytes, at - it->first, it->second.second.c_str(), it->second.first),
                      pipe, site);
    }
    auto next = map.upper_bound(at);
    if (next != map.end() && next->first - at < 4096)
      out_of_bounds(text("the %s of %" PRIu64 " bytes starts 0x%" PRIx64 " bytes before %s", write ? "write" : "read", bytes, next->first - at,
                         next->second.second.c_str()),
                    pipe, site);
    out_of_bounds(text("the %s of %" PRIu64 " bytes at address 0x%" PRIx64 " is outside every tensor", write ? "write" : "read", bytes, at), pipe, site);
  }
  if (!owner->cells[int(mem)]) stop("out-of-bounds", text("a %s has no %s", owner->index ? "vector core" : "cube core", kMemNames[int(mem)]), pipe, site);
  uint64_t limit = asim::kMemBytes[int(mem)];
  if (mem == Mem::UB) limit = run->kernel->simt ? asim::kUbUsableSimt : asim::kUbUsable;
  if (at + bytes > limit || at + bytes < at)
    out_of_bounds(text("the %s of %s is outside the memory (0x%" PRIx64 " usable bytes)", write ? "write" : "read", place(mem, at, bytes).c_str(), limit),
                  pipe, site);
  uint32_t& peak = owner->usage.peak[int(mem)];
  peak = std::max(peak, uint32_t(at + bytes));
}

uint32_t take_bits(const ByteMask& mask, uint64_t first, uint32_t count) {  // bits [first, first + count), count <= 32
  uint64_t bits = mask.w[first / 64] >> (first % 64);
  if (first % 64 && first / 64 + 1 < 4) bits |= mask.w[first / 64 + 1] << (64 - first % 64);
  return uint32_t(bits) & (count == 32 ? ~0u : (1u << count) - 1);
}

CoreState* state_of(Core* core) { return static_cast<CoreState*>(core->state); }

void poll_stop();

// Calls visit(cell, mask, granule address, offset of the granule's first byte in the access) for each granule of an access.
template <typename F>
void for_granules(CoreState* owner, Mem mem, uint64_t at, uint64_t bytes, F&& visit) {
  Cell* cells = mem == Mem::GM ? nullptr : owner->cells[int(mem)];
  for (uint64_t position = at; position < at + bytes;) {
    const uint64_t granule = position / kGranule, begin = granule * kGranule;
    const uint64_t end = std::min(begin + kGranule, at + bytes);
    const uint32_t low = uint32_t(position - begin), count = uint32_t(end - position);
    const uint32_t mask = (count == 32 ? ~0u : (1u << count) - 1) << low;
    Cell& cell = cells ? cells[granule] : *gm_cells(begin);
    visit(cell, mask, begin, position - at, low, count);
    position = end;
  }
}

void check_access(CoreState* owner, Mem mem, uint64_t at, uint64_t bytes, Pipe pipe, uint32_t align, bool write, const void* site) {
  check_bounds(owner, mem, at, bytes, write, pipe, site);
  if (align > 1 && at % align)
    stop("misaligned", text("the %s of %s must start at a multiple of %u bytes", write ? "write" : "read", place(mem, at, bytes).c_str(), align), pipe, site);
}

Access make_access(Mem mem, Pipe pipe, bool write, bool atomic, const void* site) {
  join_scalar(self, pipe);
  Access access;
  access.core = self;
  access.slot = slot_of(self, pipe);
  access.clock = &self->clock[int(pipe)];
  access.epoch = make_epoch(self->block->index, access.slot, access.clock->local.at[access.slot]) | (write ? kWrite : 0) | (atomic ? kAtomicBit : 0);
  access.site = to_site(site);
  access.address = site;
  access.pipe = pipe;
  access.mem = mem;
  access.unordered = pipe == Pipe::V && !self->api.simt_context ? self->unordered[write] : ~0u;
  return access;
}

// To be called before bytes of global memory are written.
void remember(uint64_t address, uint64_t bytes) {
  for (uint64_t at = address; at < address + bytes;) {
    const uint64_t page = at >> 12, end = std::min((page + 1) << 12, address + bytes);
    std::unique_ptr<Saved>& saved = run->saved[page];
    if (!saved) {
      saved = std::make_unique<Saved>();
      memcpy(saved->before, reinterpret_cast<const void*>(page << 12), sizeof(saved->before));
    }
    while (at < end) {
      const uint32_t first = at % 64, count = uint32_t(std::min<uint64_t>(64 - first, end - at));
      saved->written[(at & 4095) / 64] |= (count == 64 ? ~0ull : (1ull << count) - 1) << first;
      at += count;
    }
  }
}

uint32_t undefined_of(const Cell& cell, uint32_t mask) { return mask & ~cell.defined; }

[[noreturn]] void uninitialised(Mem mem, uint64_t at, uint32_t bits, const char* how, Pipe pipe, const void* site) {
  const int first = __builtin_ctz(bits), last = 32 - __builtin_clz(bits);
  stop("uninitialised", text("%s: bytes of %s were never written", how, place(mem, at + first, last - first).c_str()), pipe, site,
       text(", \"memory\": \"%s\"", kMemNames[int(mem)]));
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------- hooks

EXPORT void asim_traffic(uint64_t address, uint64_t bytes, bool write) {
  auto& tensors = run->tensors;
  size_t i = run->last_tensor;
  if (i >= tensors.size() || address < tensors[i].address || (i + 1 < tensors.size() && address >= tensors[i + 1].address)) {
    i = tensors.size();
    while (i > 0 && tensors[i - 1].address > address) --i;
    if (i == 0) return;
    run->last_tensor = --i;
  }
  (write ? tensors[i].written : tensors[i].read) += bytes;
  tensors[i].begin[write] = std::min(tensors[i].begin[write], address);
  tensors[i].end[write] = std::max(tensors[i].end[write], address + bytes);
}

EXPORT uint8_t* asim_read(Core* owner_core, Mem mem, uint64_t at, uint64_t bytes, Pipe pipe, uint32_t align, Use use, const void* site) {
  if (stop_requested) poll_stop();
  CoreState* owner = state_of(owner_core);
  if (mem == Mem::GM) asim_traffic(at, bytes, false);
  if (!checks_enabled || !bytes) return asim::host(owner_core, mem, at);
  check_access(owner, mem, at, bytes, pipe, align, false, site);
  const Access access = make_access(mem, pipe, false, false, site);
  for_granules(owner, mem, at, bytes, [&](Cell& cell, uint32_t mask, uint64_t begin, uint64_t, uint32_t, uint32_t) {
    touch(cell, mask, begin, access, false, false);
    if (use == Use::VALUE && mem != Mem::GM)
      if (const uint32_t bits = undefined_of(cell, mask))
        uninitialised(mem, begin, bits, pipe == Pipe::MTE3 ? "a copy leaves the core" : "a value is used", pipe, site);
  });
  return asim::host(owner_core, mem, at);
}

EXPORT uint8_t* asim_write(Core* owner_core, Mem mem, uint64_t at, uint64_t bytes, Pipe pipe, uint32_t align, const ByteMask* active,
                           const ByteMask* undefined, const void* site) {
  if (stop_requested) poll_stop();
  CoreState* owner = state_of(owner_core);
  if (mem == Mem::GM) asim_traffic(at, bytes, true);
  if (!checks_enabled || !bytes) return asim::host(owner_core, mem, at);
  // Only the active bytes of a masked store need to exist.
  uint64_t extent = bytes;
  if (active)
    while (extent && !(active->w[(extent - 1) / 64] >> ((extent - 1) % 64) & 1)) --extent;
  if (align > 1 && at % align) check_access(owner, mem, at, 0, pipe, align, true, site);
  if (!extent) return asim::host(owner_core, mem, at);
  check_access(owner, mem, at, extent, pipe, align, true, site);
  if (mem == Mem::GM) remember(at, extent);
  const Access access = make_access(mem, pipe, true, false, site);
  for_granules(owner, mem, at, extent, [&](Cell& cell, uint32_t mask, uint64_t begin, uint64_t offset, uint32_t low, uint32_t count) {
    if (active) mask = take_bits(*active, offset, count) << low;
    if (!mask) return;
    touch(cell, mask, begin, access, true, false);
    const uint32_t bad = undefined ? take_bits(*undefined, offset, count) << low & mask : 0;
    if (bad && mem == Mem::GM) uninitialised(mem, begin, bad, "bytes that were never written reach global memory", pipe, site);
    cell.defined = (cell.defined | mask) & ~bad;
  });
  return asim::host(owner_core, mem, at);
}

EXPORT uint8_t* asim_atomic(Core* owner_core, Mem mem, uint64_t at, uint64_t bytes, Pipe pipe, const void* site) {
  if (stop_requested) poll_stop();
  CoreState* owner = state_of(owner_core);
  if (mem == Mem::GM) {
    asim_traffic(at, bytes, false);
    asim_traffic(at, bytes, true);
  }
  if (!checks_enabled) return asim::host(owner_core, mem, at);
  check_access(owner, mem, at, bytes, pipe, uint32_t(bytes), true, site);
  if (mem == Mem::GM) remember(at, bytes);
  PipeClock& clock = self->clock[int(pipe)];
  join_scalar(self, pipe);
  const int slot = slot_of(self, pipe);
  const Access access = make_access(mem, pipe, true, true, site);
  for_granules(owner, mem, at, bytes, [&](Cell& cell, uint32_t mask, uint64_t begin, uint64_t, uint32_t, uint32_t) {
    if (const uint32_t bits = mem == Mem::GM ? 0 : undefined_of(cell, mask)) uninitialised(mem, begin, bits, "an atomic reads", pipe, site);
    touch(cell, mask, begin, access, true, true);
    cell.defined |= mask;
  });
  if (mem == Mem::GM) {
    PipeClock& published = run->atomics[at];
    auto publish = [&](const PipeClock& own) {  // clocks of other blocks travel in the world
      if (run->blocks == 1) {
        published.join(own);
        return;
      }
      auto world = published.world ? std::make_shared<World>(*published.world) : std::make_shared<World>(run->blocks);
      if (own.world)
        for (size_t i = 0; i < world->size(); ++i) (*world)[i].join((*own.world)[i]);
      (*world)[self->block->index].join(own.local);
      published.world = world;
    };
    if (run->blocks == 1) {
      clock.join(published);
    } else if (published.world) {
      clock.local.join((*published.world)[self->block->index]);
      clock.join_world(published.world);
    }
    publish(clock);
    ++clock.local.at[slot];
    if (pipe == Pipe::S) ++self->scalar_version;
  }
  return asim::host(owner_core, mem, at);
}

EXPORT void asim_undefined(Core* owner_core, Mem mem, uint64_t at, uint64_t bytes, ByteMask* out) {
  *out = {};
  if (!checks_enabled || mem == Mem::GM || at + bytes > asim::kMemBytes[int(mem)]) return;
  for_granules(state_of(owner_core), mem, at, bytes, [&](Cell& cell, uint32_t mask, uint64_t, uint64_t offset, uint32_t low, uint32_t) {
    const uint64_t bits = undefined_of(cell, mask) >> low;
    out->w[offset / 64] |= bits << (offset % 64);
    if (offset % 64 > 32 && offset / 64 + 1 < 4) out->w[offset / 64 + 1] |= bits >> (64 - offset % 64);
  });
}

EXPORT void asim_move_defined(Core* to_core, Mem to, uint64_t to_at, Core* from_core, Mem from, uint64_t from_at, uint64_t bytes, const void* site) {
  if (!checks_enabled || from == Mem::GM) return;
  for (uint64_t done = 0; done < bytes; done += 256) {
    const uint64_t part = std::min<uint64_t>(256, bytes - done);
    ByteMask bits;
    asim_undefined(from_core, from, from_at + done, part, &bits);
    if (!(bits.w[0] | bits.w[1] | bits.w[2] | bits.w[3])) continue;
    if (to == Mem::GM) {
      uint64_t first = 0;
      while (!(bits.w[first / 64] >> (first % 64) & 1)) ++first;
      const uint64_t at = from_at + done + first;
      uninitialised(from, at, 1, "bytes that were never written reach global memory", Pipe::COUNT, site);
    }
    for_granules(state_of(to_core), to, to_at + done, part, [&](Cell& cell, uint32_t, uint64_t, uint64_t offset, uint32_t low, uint32_t count) {
      cell.defined &= ~(take_bits(bits, offset, count) << low);
    });
  }
}

EXPORT void asim_set_undefined(Core* owner_core, Mem mem, uint64_t at, uint64_t bytes) {
  if (!checks_enabled) return;
  for_granules(state_of(owner_core), mem, at, bytes, [&](Cell& cell, uint32_t mask, uint64_t, uint64_t, uint32_t, uint32_t) { cell.defined &= ~mask; });
}

EXPORT void asim_copy(void* to, const void* from, size_t bytes) { memmove(to, from, bytes); }

namespace {

template <typename T>
T combine(Atomic op, T a, T b) {
  switch (op) {
    case Atomic::ADD: return T(a + b);
    case Atomic::MAX: return a < b ? b : a;
    case Atomic::MIN: return b < a ? b : a;
    case Atomic::NONE: break;
  }
  return b;
}

template <typename T>
void combine_all(Atomic op, uint8_t* to, const uint8_t* from, uint64_t bytes) {
  for (uint64_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T a, b;
    memcpy(&a, to + i, sizeof(T));
    memcpy(&b, from + i, sizeof(T));
    a = combine(op, a, b);
    memcpy(to + i, &a, sizeof(T));
  }
}

}  // namespace

EXPORT void asim_gm_store(uint64_t address, const void* source, uint64_t bytes, Pipe pipe, bool checks, const void* site) {
  Core* core = asim_core;
  auto* to = reinterpret_cast<uint8_t*>(address);
  const auto* from = static_cast<const uint8_t*>(source);
  const bool atomic = core->gm_atomic != Atomic::NONE;
  if (!checks || !checks_enabled) {
    asim_traffic(address, bytes, true);
  } else if (!atomic) {
    asim_write(core, Mem::GM, address, bytes, pipe, 1, nullptr, nullptr, site);
  } else {
    asim_traffic(address, bytes, true);
    check_access(self, Mem::GM, address, bytes, pipe, 1, true, site);
    remember(address, bytes);
    const Access access = make_access(Mem::GM, pipe, true, true, site);
    for_granules(self, Mem::GM, address, bytes,
                 [&](Cell& cell, uint32_t mask, uint64_t begin, uint64_t, uint32_t, uint32_t) { touch(cell, mask, begin, access, true, true); });
  }
  if (!atomic) {
    memcpy(to, from, bytes);
    return;
  }
  switch (core->gm_atomic_type) {
    case Type::F32: return combine_all<float>(core->gm_atomic, to, from, bytes);
    case Type::F16: return combine_all<half>(core->gm_atomic, to, from, bytes);
    case Type::BF16: return combine_all<bfloat16_t>(core->gm_atomic, to, from, bytes);
    case Type::S32: return combine_all<int32_t>(core->gm_atomic, to, from, bytes);
    case Type::S16: return combine_all<int16_t>(core->gm_atomic, to, from, bytes);
    case Type::S8: return combine_all<int8_t>(core->gm_atomic, to, from, bytes);
    case Type::U8: return combine_all<uint8_t>(core->gm_atomic, to, from, bytes);
    case Type::U16: return combine_all<uint16_t>(core->gm_atomic, to, from, bytes);
    case Type::U32: return combine_all<uint32_t>(core->gm_atomic, to, from, bytes);
  }
}

EXPORT void asim_set_gm_atomic(Atomic op, Type type) {
  asim_core->gm_atomic = op;
  asim_core->gm_atomic_type = type;
}

EXPORT int asim_kind(const char* name) {
  std::lock_guard<std::recursive_mutex> guard(run_lock);
  auto& names = kind_names();
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return int(i);
  if (names.size() == asim::kMaxKinds) {
    fprintf(stderr, "ascend-sim: too many instruction kinds (%d)\n", asim::kMaxKinds);
    abort();
  }
  names.push_back(name);
  return int(names.size() - 1);
}

// Model time: an instruction takes one unit, and one more for every `unit` of its amount.
static uint64_t cost_of(Pipe pipe, uint64_t amount) {
  switch (pipe) {
    case Pipe::V:
    case Pipe::S: return 1;
    case Pipe::M: return 1 + amount / 4096;
    default: return 1 + amount / 256;
  }
}

EXPORT void asim_issue(Pipe pipe, int kind, uint64_t amount) {
  CoreState* core = self;
  if (!core->counts[kind]) core->used_kinds.push_back(uint32_t(kind));
  ++core->counts[kind];
  core->amounts[kind] += amount;
  kind_pipes[kind] = uint8_t(pipe);
  if (pipe == Pipe::S) return;
  join_scalar(core, pipe);
  PipeClock& clock = core->clock[int(pipe)];
  const uint64_t start = clock.time;
  clock.time += cost_of(pipe, amount);
  if (!record_timeline || core->block->index >= kRecordedBlocks) return;
  auto& segments = run->segments;
  if (!segments.empty()) {
    Segment& last = segments.back();
    if (last.block == core->block->index && last.core == core->index && last.pipe == uint8_t(pipe) && last.kind == kind && last.end == start) {
      last.end = clock.time;
      return;
    }
  }
  if (segments.size() < 200000) segments.push_back({core->block->index, uint8_t(core->index), uint8_t(pipe), uint16_t(kind), start, clock.time});
}

EXPORT void asim_fail(const char* code, const char* message, const void* site) { stop(code, message, Pipe::COUNT, site); }

// ---------------------------------------------------------------------------------------------------------------- synchronisation

namespace {

PipeClock release(CoreState* core, Pipe pipe) {
  join_scalar(core, pipe);
  PipeClock snapshot = core->clock[int(pipe)];
  ++core->clock[int(pipe)].local.at[slot_of(core, pipe)];
  return snapshot;
}

void acquire(CoreState* core, Pipe pipe, const PipeClock& clock) {
  core->clock[int(pipe)].join(clock);
  if (pipe == Pipe::S) ++core->scalar_version;
}

void to_scheduler() { switch_to(&main_fiber); }

void check_pipe(const char* function, Pipe pipe, bool scalar, const void* site) {
  if (pipe == Pipe::COUNT || (pipe == Pipe::S && !scalar))
    stop("argument", text("%s: %s is not allowed", function, kPipeNames[int(pipe)]), Pipe::COUNT, site);
  if (pipe == Pipe::V && self->index == 0) stop("argument", text("%s: the cube core has no PIPE_V", function), Pipe::COUNT, site);
  if (self->index != 0 && (pipe == Pipe::M || pipe == Pipe::FIX || pipe == Pipe::MTE1))
    stop("argument", text("%s: a vector core has no %s", function, kPipeNames[int(pipe)]), Pipe::COUNT, site);
}

std::string other_json(const char* access, uint32_t site) {
  return text(", \"other\": {\"access\": \"%s\", \"source\": ", access) + source_json(site) + "}";
}

}  // namespace

EXPORT void asim_order(Pipe later, Pipe earlier) {
  join_scalar(self, later);
  acquire(self, later, release(self, earlier));
}

EXPORT void asim_fail_pair(const char* code, const char* message, const void* site, const void* other_site) {
  stop(code, message, Pipe::COUNT, site, other_json("access", to_site(other_site)));
}

EXPORT void asim_notify(Pipe from, Pipe to, uint32_t id, const void* site) {
  if (stop_requested) poll_stop();
  check_pipe("asc_sync_notify", from, true, site);
  check_pipe("asc_sync_notify", to, true, site);
  Flag& flag = self->flags[uint32_t(from) << 16 | uint32_t(to) << 8 | (id & 255)];
  if (flag.set)
    stop("double-notify",
         text("event %u of %s to %s is notified again before a wait has consumed the earlier notify", id, kPipeNames[int(from)], kPipeNames[int(to)]),
         from, site, other_json("notify", flag.site));
  flag.set = true;
  flag.clock = release(self, from);
  flag.site = to_site(site);
}

EXPORT void asim_wait(Pipe from, Pipe to, uint32_t id, const void* site) {
  if (stop_requested) poll_stop();
  check_pipe("asc_sync_wait", from, true, site);
  check_pipe("asc_sync_wait", to, true, site);
  Flag& flag = self->flags[uint32_t(from) << 16 | uint32_t(to) << 8 | (id & 255)];
  if (!flag.set)  // only this core's instruction stream could set it, and that stream waits here
    stop("deadlock", text("the wait for event %u of %s to %s can never be satisfied: no earlier notify", id, kPipeNames[int(from)], kPipeNames[int(to)]), to,
         site);
  flag.set = false;
  join_scalar(self, to);
  acquire(self, to, flag.clock);
}

EXPORT void asim_lock(Pipe pipe, uint32_t id, bool block, const void* site) {
  check_pipe("asc_lock", pipe, true, site);
  if (id > 31) stop("argument", text("asc_lock: mutex_id must be in [0, 31], got %u", id), pipe, site);
  Mutex& mutex = self->mutexes[id];
  if (mutex.held)
    stop("argument", text("asc_lock: mutex %u is locked again before its asc_unlock by %s", id, kPipeNames[int(mutex.holder)]), pipe, site,
         other_json("lock", mutex.site));
  mutex.held = true;
  mutex.holder = pipe;
  mutex.site = to_site(site);
  join_scalar(self, pipe);
  if (block && mutex.released_once) acquire(self, pipe, mutex.released);
}

EXPORT void asim_unlock(Pipe pipe, uint32_t id, bool block, const void* site) {
  check_pipe("asc_unlock", pipe, true, site);
  if (id > 31) stop("argument", text("asc_unlock: mutex_id must be in [0, 31], got %u", id), pipe, site);
  Mutex& mutex = self->mutexes[id];
  if (!mutex.held || mutex.holder != pipe)
    stop("argument", text("asc_unlock: mutex %u is not locked by %s", id, kPipeNames[int(pipe)]), pipe, site);
  mutex.held = false;
  if (!block && mutex.released_once) acquire(self, pipe, mutex.released);
  mutex.released.join(release(self, pipe));
  mutex.released_once = true;
}

EXPORT void asim_barrier(Pipe pipe, const void* site) {
  if (stop_requested) poll_stop();
  if (pipe != Pipe::COUNT) {
    check_pipe("asc_sync_pipe", pipe, true, site);
    return;  // orders a pipe after itself, which the simulator does anyway
  }
  PipeClock all;
  for (int i = 0; i < kPipes; ++i) all.join(release(self, Pipe(i)));
  for (int i = 0; i < kPipes; ++i) {
    self->clock[i].join(all);
    self->seen_scalar[i] = self->scalar_version;
  }
}

namespace {

void deliver(CoreState* to, int file, uint32_t id, const PipeClock& clock, const void* site) {
  Counter& counter = to->counters[file][id];
  if (counter.arrivals.size() == 15)
    stop("double-notify", text("cross-core flag %u of %s of block %u was notified more than 15 times without a wait", id, core_name(to->index).c_str(), to->block->index),
         Pipe::COUNT, site, other_json("arrive", counter.site));
  counter.arrivals.push_back(clock);
  counter.site = to_site(site);
  if (to->waiting && (to->wait_scope == int(asim_scope::INTRA)) == (file == 1) && to->wait_id == id) {
    to->waiting = false;
    run->ready.push_back(to);
  }
}

PipeClock across(const PipeClock& clock, const CoreState* from, bool other_block) {
  if (!other_block) return clock;
  PipeClock out;
  auto world = clock.world ? std::make_shared<World>(*clock.world) : std::make_shared<World>(run->blocks);
  (*world)[from->block->index].join(clock.local);
  out.world = world;
  out.time = clock.time;
  return out;
}

bool exists(uint32_t index) { return index == 0 ? run->kernel->cubes > 0 : index <= run->kernel->vectors; }

}  // namespace

EXPORT void asim_vector_function(bool enter) {
  self->unordered[0] = self->unordered[1] = enter ? ++self->clock[int(Pipe::V)].local.at[slot_of(self, Pipe::V)] : ~0u;
}

EXPORT void asim_mem_bar(bool loads, bool stores) {
  const uint32_t clock = ++self->clock[int(Pipe::V)].local.at[slot_of(self, Pipe::V)];
  if (loads && self->unordered[0] != ~0u) self->unordered[0] = clock;
  if (stores && self->unordered[1] != ~0u) self->unordered[1] = clock;
}

EXPORT void asim_arrive(asim_scope scope, Pipe pipe, uint64_t id, const void* site) {
  if (stop_requested) poll_stop();
  const char* name = kScopeNames[int(scope)];
  check_pipe("asc_sync_*_arrive", pipe, scope == asim_scope::INTRA || scope == asim_scope::INTER, site);
  if (id > (scope == asim_scope::INTRA && self->index == 0 ? 31u : 15u))
    stop("argument", text("asc_sync_%s_arrive: flag %" PRIu64 " is out of range", name, id), pipe, site);
  const PipeClock clock = release(self, pipe);
  CoreState* cores = self->block->cores;
  if (scope == asim_scope::INTRA) {
    if (!run->kernel->cubes) stop("argument", "asc_sync_intra_arrive: the kernel has no cube core", pipe, site);
    if (self->index) {
      deliver(&cores[0], 1, uint32_t(id) + (self->index == 2 ? 16 : 0), clock, site);
    } else if (exists(id < 16 ? 1 : 2)) {
      deliver(&cores[id < 16 ? 1 : 2], 1, uint32_t(id) & 15, clock, site);
    }
    return;
  }
  if (scope == asim_scope::BLOCK && self->index == 0) {
    for (uint32_t i = 1; i <= run->kernel->vectors; ++i) deliver(&cores[i], 0, uint32_t(id), clock, site);
    return;
  }
  // The others collect arrivals of all participants before any is let through.
  const auto key = std::make_pair(int(scope), uint32_t(id));
  self->arrived[key].push_back(clock);
  std::vector<CoreState*> participants;
  if (scope == asim_scope::INTER) {
    for (Block* block : run->live) {
      if (!block) return;  // not started yet (a finished block cannot take part any more, see the deadlock report)
      const bool cube = self->index == 0;
      for (uint32_t i = cube ? 0 : 1; i <= (cube ? 0 : run->kernel->vectors); ++i) participants.push_back(&block->cores[i]);
    }
  } else {
    for (uint32_t i = 1; i <= run->kernel->vectors; ++i) participants.push_back(&cores[i]);
  }
  for (CoreState* core : participants)
    if (core->arrived[key].empty()) return;
  PipeClock local, joined;
  for (CoreState* core : participants) {
    const PipeClock& arrival = core->arrived[key].front();
    if (scope == asim_scope::INTER && run->blocks > 1) {
      joined.join(across(arrival, core, true));
    } else {
      joined.join(arrival);
    }
    core->arrived[key].pop_front();
  }
  if (scope == asim_scope::BLOCK) {
    deliver(&cores[0], 0, uint32_t(id), joined, site);
    return;
  }
  for (CoreState* core : participants) {
    PipeClock own = joined;
    if (joined.world) own.local.join((*joined.world)[core->block->index]);
    deliver(core, 0, uint32_t(id), own, site);
  }
}

EXPORT void asim_wait_arrived(asim_scope scope, Pipe pipe, uint64_t id, const void* site) {
  if (stop_requested) poll_stop();
  const char* name = kScopeNames[int(scope)];
  check_pipe("asc_sync_*_wait", pipe, true, site);
  if (id > (scope == asim_scope::INTRA && self->index == 0 ? 31u : 15u))
    stop("argument", text("asc_sync_%s_wait: flag %" PRIu64 " is out of range", name, id), pipe, site);
  Counter& counter = self->counters[scope == asim_scope::INTRA][id];
  if (counter.arrivals.empty()) {
    self->waiting = true;
    self->wait_scope = int(scope);
    self->wait_pipe = pipe;
    self->wait_id = uint32_t(id);
    self->wait_site = to_site(site);
    to_scheduler();
  }
  join_scalar(self, pipe);
  acquire(self, pipe, counter.arrivals.front());
  counter.arrivals.pop_front();
}

// ---------------------------------------------------------------------------------------------------------------- fibers for SIMT

EXPORT asim_fiber* asim_fiber_take(void (*function)(void*), void* argument) { return fiber_take(thread_pool, kThreadStack, function, argument); }
EXPORT void asim_fiber_give(asim_fiber* fiber) { thread_pool.push_back(fiber); }
EXPORT bool asim_fiber_done(const asim_fiber* fiber) { return fiber->done; }
EXPORT void asim_fiber_resume(asim_fiber* fiber) {
  fiber->resumer = current_fiber;
  switch_to(fiber);
}
EXPORT void asim_fiber_suspend() { switch_to(current_fiber->resumer); }

EXPORT void asim_relax() {
  if (stop_requested) poll_stop();
  if (current_fiber != self->fiber) return;  // a SIMT thread: its region decides
  if (++self->polls % 64) return;            // a single load is no polling
  self->polling = true;
  run->ready.push_back(self);
  to_scheduler();
}

// ---------------------------------------------------------------------------------------------------------------- raw accesses

namespace {

bool within(uintptr_t address, const void* begin, uintptr_t bytes) { return address - reinterpret_cast<uintptr_t>(begin) < bytes; }

// Whether an address that kernel code dereferences is its own memory: stacks, variables, simulator state, launch arguments.
bool is_host_memory(uintptr_t address) {
  const asim_fiber* core_fiber = self->fiber;
  return within(address, current_fiber->stack, current_fiber->stack_bytes) || within(address, core_fiber->stack, core_fiber->stack_bytes) ||
         within(address, arena, arena_end - arena) || address - run->library.base < run->library.end - run->library.base ||
         address - core_library.base < core_library.end - core_library.base || within(address, run->arguments, run->kernel->argument_bytes);
}

// A flag of a row that does not exist is often read, and then not used; what comes of it is found by a second run.
void note_garbage(uint64_t at, uint32_t bytes, const void* site) {
  for_granules(self, Mem::UB, at, bytes, [&](Cell& cell, uint32_t mask, uint64_t, uint64_t, uint32_t, uint32_t) {
    if (undefined_of(cell, mask)) run->garbage = {self->block->index, to_site(site), self->index, at, bytes};
  });
}

// A load or store that the compiler instrumented: scalar code, or a SIMT thread.
void raw(uintptr_t address, uint32_t bytes, bool write, const void* site) {
  if (!running || !checks_enabled) return;
  if (stop_requested) poll_stop();
  const bool in_ub = within(address, asim_ub, asim::kMemBytes[int(Mem::UB)]);
  if (!in_ub && is_host_memory(address)) return;
  Core* core = asim_core;
  if (core->simt_access) {
    core->simt_access(core->simt_context, address, bytes, write, site);
    return;
  }
  const Mem mem = in_ub ? Mem::UB : Mem::GM;
  const uint64_t at = in_ub ? address - reinterpret_cast<uintptr_t>(asim_ub) : address;
  const uint32_t align = bytes & (bytes - 1) ? 1 : std::min(bytes, 8u);  // other sizes are copies of several values
  if (write) {
    asim_write(core, mem, at, bytes, Pipe::S, align, nullptr, nullptr, site);
  } else {
    asim_read(core, mem, at, bytes, Pipe::S, align, Use::MOVE, site);
    if (in_ub && !run->garbage.bytes) note_garbage(at, bytes, site);
  }
}

}  // namespace

#define ASIM_RAW(n)                                                                                                                 \
  EXPORT void __tsan_read##n(void* p) { raw(uintptr_t(p), n, false, __builtin_return_address(0)); }                                 \
  EXPORT void __tsan_write##n(void* p) { raw(uintptr_t(p), n, true, __builtin_return_address(0)); }                                 \
  EXPORT void __tsan_unaligned_read##n(void* p) { raw(uintptr_t(p), n, false, __builtin_return_address(0)); }                       \
  EXPORT void __tsan_unaligned_write##n(void* p) { raw(uintptr_t(p), n, true, __builtin_return_address(0)); }                       \
  EXPORT void __tsan_volatile_read##n(void* p) { raw(uintptr_t(p), n, false, __builtin_return_address(0)); }                        \
  EXPORT void __tsan_volatile_write##n(void* p) { raw(uintptr_t(p), n, true, __builtin_return_address(0)); }
ASIM_RAW(1)
ASIM_RAW(2)
ASIM_RAW(4)
ASIM_RAW(8)
ASIM_RAW(16)
#undef ASIM_RAW
EXPORT void __tsan_read_range(void* p, size_t n) { raw(uintptr_t(p), uint32_t(n), false, __builtin_return_address(0)); }
EXPORT void __tsan_write_range(void* p, size_t n) { raw(uintptr_t(p), uint32_t(n), true, __builtin_return_address(0)); }
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void*) {}
EXPORT void __tsan_func_exit(void*) {}
EXPORT void __tsan_vptr_update(void**, void*) {}
EXPORT void __tsan_vptr_read(void**) {}

// ---------------------------------------------------------------------------------------------------------------- crashes and limits

namespace {

timer_t limit_timer;
double limit_seconds = 60;
struct sigaction old_actions[6];
const int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
int limit_signal() { return SIGRTMIN + 7; }

void poll_stop() {
  stop_requested = 0;
  set_error("timeout", text("the kernel took more than %g s of processor time (ASCEND_SIM_TIMEOUT)", limit_seconds), self, Pipe::COUNT, 0);
  leave();
}

void on_crash(int signal, siginfo_t* info, void* context) {
  if (!running || syscall(SYS_gettid) != running_thread) {
    // Not ours: behave as if the simulator were not there.
    for (size_t i = 0; i < std::size(kSignals); ++i)
      if (kSignals[i] == signal) sigaction(signal, &old_actions[i], nullptr);
    raise(signal);
    return;
  }
  (void)info;
  const auto pc = reinterpret_cast<const void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  running = 0;
  const char* name = signal == SIGSEGV ? "segmentation fault" : signal == SIGBUS ? "bus error" : signal == SIGFPE ? "arithmetic exception"
                     : signal == SIGILL ? "illegal instruction" : "abort (a failed assertion)";
  set_error("crash", text("%s in the kernel", name), self, Pipe::COUNT, to_site(static_cast<const char*>(pc) + 1));
  siglongjmp(scheduler_jump, 1);
}

void on_limit(int, siginfo_t*, void* context) {
  if (!running) return;
  const uint64_t pc = uint64_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  if (pc < run->library.base || pc >= run->library.end) {
    stop_requested = 1;  // in the core library or libc: stop at the next hook, or at the next tick inside the kernel
    return;
  }
  running = 0;
  set_error("timeout", text("the kernel took more than %g s of processor time (ASCEND_SIM_TIMEOUT)", limit_seconds), self, Pipe::COUNT, to_site(reinterpret_cast<const void*>(pc + 1)));
  siglongjmp(scheduler_jump, 1);
}

struct Guard {  // signal handlers and the time limit for the duration of a run
  struct sigaction previous_limit;
  stack_t previous_stack;
  bool timed = false;

  Guard() {
    static uint8_t stack[128 << 10];
    stack_t own{};
    own.ss_sp = stack;
    own.ss_size = sizeof(stack);
    sigaltstack(&own, &previous_stack);
    struct sigaction action{};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &old_actions[i]);
    action.sa_sigaction = on_limit;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(limit_signal(), &action, &previous_limit);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = limit_signal();
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
    running_thread = pid_t(syscall(SYS_gettid));
    event.sigev_notify_thread_id = running_thread;
    if (limit_seconds > 0 && timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &limit_timer) == 0) {
      timed = true;
      itimerspec spec{};
      spec.it_value.tv_sec = time_t(limit_seconds);
      spec.it_value.tv_nsec = long((limit_seconds - double(time_t(limit_seconds))) * 1e9);
      spec.it_interval.tv_nsec = 20000000;
      timer_settime(limit_timer, 0, &spec, nullptr);
    }
  }
  ~Guard() {
    if (timed) timer_delete(limit_timer);
    sigaction(limit_signal(), &previous_limit, nullptr);
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &old_actions[i], nullptr);
    sigaltstack(&previous_stack, nullptr);
  }
};

// ---------------------------------------------------------------------------------------------------------------- running

uint8_t* arena_take(size_t bytes) {
  constexpr size_t kReserved = size_t(64) << 30;
  if (!arena) {
    arena = static_cast<uint8_t*>(mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (arena == MAP_FAILED) abort();
    arena_end = arena + kReserved;
    arena_next = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(arena) + 0xfffff) & ~uintptr_t(0xfffff));
  }
  uint8_t* memory = arena_next;
  arena_next += (bytes + 0xfffff + 4096) & ~size_t(0xfffff);  // an unmapped gap follows
  if (arena_next > arena_end || mprotect(memory, bytes, PROT_READ | PROT_WRITE)) abort();
  return memory;
}

// On-chip memory and its shadow, for a core that is used for the first time.
void give_memory(CoreState& core) {
  for (int m = 1; m < kMems; ++m) {
    const Mem mem = Mem(m);
    if (core.index == 0 && mem == Mem::UB) {  // a window of addresses that stands for the vector cores' UB
      core.api.base[m] = arena_take(asim::kMemBytes[m]);
      mprotect(core.api.base[m], asim::kMemBytes[m], PROT_NONE);
    } else if ((mem == Mem::UB) == (core.index != 0)) {
      core.api.base[m] = arena_take(asim::kMemBytes[m]);
      memset(core.api.base[m], 0xa5, asim::kMemBytes[m]);
      core.cells[m] = reinterpret_cast<Cell*>(arena_take(asim::kMemBytes[m] / kGranule * sizeof(Cell)));
    }
  }
}

Block* block_take(uint32_t index) {
  Block* block;
  if (block_pool.empty()) {
    block = new (arena_take(sizeof(Block))) Block;
    for (int i = 0; i < 3; ++i) {
      CoreState& core = block->cores[i];
      core.block = block;
      core.index = i;
      core.api.state = &core;
      core.api.is_cube = i == 0;
      core.api.sub_block = i == 2;
    }
  } else {
    block = block_pool.back();
    block_pool.pop_back();
  }
  for (int i = 0; i < 3; ++i)
    if (exists(i) && !block->cores[i].api.base[int(Mem::UB)]) give_memory(block->cores[i]);
  // What a kernel reads before it writes does not depend on the kernels before it.
  for (int i = 1; i < 3 && checks_enabled; ++i)
    if (exists(i)) memset(block->cores[i].api.base[int(Mem::UB)], run->again ? 0x5a : 0xa5, asim::kMemBytes[int(Mem::UB)]);
  block->index = index;
  const asim_kernel* kernel = run->kernel;
  for (int i = 0; i < 3; ++i) {
    CoreState& core = block->cores[i];
    Core& api = core.api;
    api.block_idx = index;
    api.block_num = run->blocks;
    api.sub_blocks = kernel->vectors;
    api.cube = kernel->cubes ? &block->cores[0].api : nullptr;
    api.vector[0] = kernel->vectors > 0 ? &block->cores[1].api : nullptr;
    api.vector[1] = kernel->vectors > 1 ? &block->cores[2].api : nullptr;
    api.simt_access = nullptr;
    api.simt_context = nullptr;
    api.gm_atomic = Atomic::NONE;
    memset(api.special, 0, sizeof(api.special));
    memset(api.unit_flags, 0, sizeof(api.unit_flags));
    api.counts = core.counts.data();
    api.amounts = core.amounts.data();
    for (int p = 0; p < kPipes; ++p) {
      core.clock[p] = PipeClock{};
      core.clock[p].local.at[slot_of(&core, Pipe(p))] = 1;
      core.seen_scalar[p] = 0;
    }
    core.scalar_version = 1;
    core.unordered[0] = core.unordered[1] = ~0u;
    core.flags.clear();
    for (Mutex& mutex : core.mutexes) mutex = Mutex{};
    for (auto& file : core.counters)
      for (Counter& counter : file) counter = Counter{};
    core.arrived.clear();
    for (uint32_t kind : core.used_kinds) core.counts[kind] = core.amounts[kind] = 0;
    core.used_kinds.clear();
    core.usage = Usage{};
    core.finished = core.waiting = false;
    core.fiber = nullptr;
  }
  return block;
}

// Forgets what the block's kernel did to the shadow memory.
void block_give(Block* block) {
  for (CoreState& core : block->cores) {
    for (int m = 1; m < kMems; ++m) {
      if (!core.cells[m]) continue;
      const uint32_t used = (core.usage.peak[m] + kGranule - 1) / kGranule;
      for (uint32_t i = 0; i < used; ++i)
        if (core.cells[m][i].count || core.cells[m][i].defined) core.cells[m][i].clear();
    }
    if (core.fiber) {
      core_pool.push_back(core.fiber);
      core.fiber = nullptr;
    }
  }
  block_pool.push_back(block);
}

void core_main(void*) {
  run->kernel->body(run->arguments);
  self->finished = true;
}

void start_block() {
  if (arena && arena_end - arena_next < (64 << 20)) {
    set_error("unsupported", text("the kernel needs more than %u blocks at once", run->started), nullptr, Pipe::COUNT, 0);
    return;
  }
  Block* block = block_take(run->started);
  run->live[run->started++] = block;
  for (int i = 0; i < 3; ++i) {
    if (!exists(i)) {
      block->cores[i].finished = true;
      continue;
    }
    block->cores[i].fiber = fiber_take(core_pool, kCoreStack, core_main, nullptr);
    run->ready.push_back(&block->cores[i]);
  }
}

void resume(CoreState* core) {
  self = core;
  asim_core = &core->api;
  asim_ub = core->api.base[int(Mem::UB)];
  block_idx = core->block->index;
  block_num = run->blocks;
  core->fiber->resumer = &main_fiber;
  switch_to(core->fiber);
}

uint64_t finish_time(const CoreState& core) {
  uint64_t time = 0;
  for (const PipeClock& clock : core.clock) time = std::max(time, clock.time);
  return time;
}

// At a core's end nothing may be pending.
void check_end(CoreState& core) {
  for (auto& [key, flag] : core.flags) {
    if (!flag.set) continue;
    set_error("pending-notify",
              text("event %u of %s to %s is notified but never waited for", key & 255, kPipeNames[key >> 16], kPipeNames[key >> 8 & 255]), &core,
              Pipe(key >> 16), flag.site);
    return;
  }
  for (int id = 0; id < 32; ++id) {
    if (!core.mutexes[id].held) continue;
    set_error("pending-notify", text("mutex %d is locked but never unlocked", id), &core, core.mutexes[id].holder, core.mutexes[id].site);
    return;
  }
}

void check_block_end(Block& block) {
  for (CoreState& core : block.cores) {
    for (int file = 0; file < 2; ++file) {
      for (int id = 0; id < 32; ++id) {
        Counter& counter = core.counters[file][id];
        if (counter.arrivals.empty()) continue;
        set_error("pending-notify",
                  text("%zu notification(s) of cross-core flag %d to %s are never waited for", counter.arrivals.size(), id, core_name(core.index).c_str()), &core,
                  Pipe::COUNT, counter.site);
        return;
      }
    }
  }
}

void block_done(Block* block) {
  for (int i = 0; i < 3; ++i) {
    CoreState& core = block->cores[i];
    if (!exists(i)) continue;
    Done done{block->index, i, core.usage, finish_time(core), {}};
    for (uint32_t kind : core.used_kinds) done.kinds.push_back({kind, {core.counts[kind], core.amounts[kind]}});
    run->done.push_back(std::move(done));
  }
  ++run->finished;
  run->live[block->index] = nullptr;
  block_give(block);
}

void report_deadlock() {
  std::string waits;
  const CoreState* first = nullptr;
  for (Block* block : run->live) {
    if (!block) continue;
    for (CoreState& core : block->cores) {
      if (core.finished || !core.waiting) continue;
      if (!first) first = &core;
      if (!waits.empty()) waits += ", ";
      waits += text("{\"block\": %u, \"core\": \"%s\", \"pipe\": \"%s\", \"waits_for\": \"%s flag %u\", \"source\": ", block->index,
                    core_name(core.index).c_str(), kPipeNames[int(core.wait_pipe)], kScopeNames[core.wait_scope], core.wait_id) +
               source_json(core.wait_site) + "}";
      if (waits.size() > 4000) goto enough;
    }
  }
enough:
  set_error("deadlock", text("every core that has not finished waits for another; %s of block %u waits for %s flag %u", core_name(first->index).c_str(),
                             first->block->index, kScopeNames[first->wait_scope], first->wait_id),
            first, first->wait_pipe, first->wait_site, ", \"waits\": [" + waits + "]");
}

// Runs until all blocks are done or there is an error. Blocks start when no started core can run, as they would on idle cores.
void schedule() {
  while (run->error.empty()) {
    if (run->ready.empty()) {
      if (run->started < run->blocks) {
        start_block();
        continue;
      }
      if (run->finished < run->blocks) report_deadlock();
      return;
    }
    CoreState* core = run->ready.front();
    run->ready.pop_front();
    if (core->polling && run->started < run->blocks) start_block();  // it may poll for a block that has not started
    core->polling = false;
    resume(core);
    if (!core->finished) continue;
    check_end(*core);
    Block* block = core->block;
    if (std::all_of(std::begin(block->cores), std::end(block->cores), [](const CoreState& c) { return c.finished; })) {
      if (run->error.empty()) check_block_end(*block);
      if (run->error.empty()) block_done(block);
    }
  }
}

Library library_of(const void* address) {
  Dl_info info{};
  Library library;
  if (!dladdr(address, &info)) return library;
  library.path = info.dli_fname;
  library.base = reinterpret_cast<uint64_t>(info.dli_fbase);
  dl_iterate_phdr(
      [](dl_phdr_info* entry, size_t, void* data) {
        auto* out = static_cast<Library*>(data);
        for (int i = 0; i < entry->dlpi_phnum; ++i) {
          const auto& header = entry->dlpi_phdr[i];
          const uint64_t begin = entry->dlpi_addr + header.p_vaddr;
          if (header.p_type == PT_LOAD && entry->dlpi_addr == out->base) out->end = std::max(out->end, begin + header.p_memsz);
        }
        return 0;
      },
      &library);
  return library;
}

std::string trace_json(bool with_segments) {
  std::string json = "{\"kernel\": " + quote(run->kernel->name) + text(", \"blocks\": %u, \"error\": ", run->blocks) +
                     (run->error.empty() ? "null" : run->error) + ", \"tensors\": [";
  for (size_t i = 0; i < run->tensors.size(); ++i) {
    const Argument& tensor = run->tensors[i];
    json += (i ? ", " : "") + ("{\"name\": " + quote(tensor.name)) + text(", \"read\": %" PRIu64 ", \"written\": %" PRIu64 "}", tensor.read, tensor.written);
  }
  json += "], \"cores\": [";
  std::sort(run->done.begin(), run->done.end(), [](const Done& a, const Done& b) { return std::make_pair(a.block, a.core) < std::make_pair(b.block, b.core); });
  for (size_t i = 0; i < run->done.size(); ++i) {
    const Done& done = run->done[i];
    json += (i ? ", " : "") + text("{\"block\": %u, \"core\": \"%s\", \"time\": %" PRIu64 ", \"peak\": {", done.block, core_name(done.core).c_str(), done.time);
    bool first = true;
    for (int m = 1; m < kMems; ++m) {
      if (!done.usage.peak[m]) continue;
      json += text("%s\"%s\": %u", first ? "" : ", ", kMemNames[m], done.usage.peak[m]);
      first = false;
    }
    json += "}, \"kinds\": {";
    for (size_t k = 0; k < done.kinds.size(); ++k)
      json += (k ? ", " : "") + quote(kind_names()[done.kinds[k].first]) + text(": [%" PRIu64 ", %" PRIu64 ", \"%s\"]", done.kinds[k].second.first,
                                                                                      done.kinds[k].second.second, kPipeNames[kind_pipes[done.kinds[k].first]]);
    json += "}}";
  }
  json += "]";
  if (with_segments) {
    json += ", \"segments\": [";
    for (size_t i = 0; i < run->segments.size(); ++i) {
      const Segment& s = run->segments[i];
      json += (i ? ", " : "") + text("[%u, \"%s\", \"%s\", \"%s\", %" PRIu64 ", %" PRIu64 "]", s.block, core_name(s.core).c_str(), kPipeNames[s.pipe],
                                     kind_names()[s.kind].c_str(), s.start, s.end);
    }
    json += "]";
  }
  return json + "}";
}

}  // namespace

namespace {

std::unique_ptr<Run> make_run(const asim_kernel* kernel, uint32_t blocks, const void* arguments) {
  auto made = std::make_unique<Run>();
  made->kernel = kernel;
  made->blocks = blocks;
  made->arguments = arguments;
  made->live.assign(blocks, nullptr);
  made->library = library_of(reinterpret_cast<const void*>(kernel->body));
  const char* name = kernel->parameters;
  for (uint32_t i = 0; i < kernel->argument_count; ++i) {
    const size_t length = strcspn(name, ",");
    if (kernel->is_pointer[i]) {
      uint64_t address;
      memcpy(&address, static_cast<const uint8_t*>(arguments) + kernel->offsets[i], 8);
      made->tensors.push_back({std::string(name, length), address});
    }
    name += length + (name[length] == ',');
  }
  std::stable_sort(made->tensors.begin(), made->tensors.end(), [](const Argument& a, const Argument& b) { return a.address < b.address; });
  return made;
}

void execute() {
  {
    Guard signals;
    stop_requested = 0;
    current_fiber = &main_fiber;
    if (sigsetjmp(scheduler_jump, 1) == 0) {
      running = 1;
      schedule();
    }
    running = 0;
    current_fiber = &main_fiber;
    self = nullptr;
    asim_core = nullptr;
  }
  for (Block*& block : run->live) {
    if (!block) continue;
    for (CoreState& core : block->cores)  // after an error usage may lag behind the shadow
      for (int m = 1; m < kMems; ++m) core.usage.peak[m] = core.cells[m] ? asim::kMemBytes[m] : 0;
    block_give(block);
    block = nullptr;
  }
  for (auto& [address, page] : run->pages) {
    for (Cell& cell : page->cells)
      if (cell.count) cell.clear();
    page_pool.push_back(page);
  }
  run->pages.clear();
}

// Exchanges the bytes that a run has written with those that were there before.
void exchange(Run& of) {
  for (auto& [page, saved] : of.saved) {
    auto* memory = reinterpret_cast<uint8_t*>(page << 12);
    for (int i = 0; i < 4096; ++i)
      if (saved->written[i / 64] >> (i % 64) & 1) std::swap(memory[i], saved->before[i]);
  }
}

// Whether a run that has been undone, so that `before` holds its results, wrote what is in memory and was written by `other`.
bool wrote_the_same(const Run& undone, const Run& other) {
  if (undone.saved.size() != other.saved.size()) return false;
  for (const auto& [page, saved] : undone.saved) {
    const auto found = other.saved.find(page);
    if (found == other.saved.end() || memcmp(saved->written, found->second->written, sizeof(saved->written))) return false;
    const auto* memory = reinterpret_cast<const uint8_t*>(page << 12);
    for (int i = 0; i < 4096; ++i)
      if ((saved->written[i / 64] >> (i % 64) & 1) && memory[i] != saved->before[i]) return false;
  }
  return true;
}

// Runs the kernel a second time, with other garbage in UB, and compares what it writes. Leaves the first run's results.
void run_again() {
  exchange(*run);
  std::unique_ptr<Run> first = std::move(run);
  const bool recorded = record_timeline;
  record_timeline = false;
  run = make_run(first->kernel, first->blocks, first->arguments);
  run->again = true;
  execute();
  record_timeline = recorded;
  const bool same = run->error.empty() && wrote_the_same(*first, *run);
  exchange(*run);
  exchange(*first);
  run = std::move(first);
  if (same) return;
  const Garbage& garbage = run->garbage;
  set_error("uninitialised",
            text("scalar code reads bytes of %s that were never written, and what the kernel writes depends on them",
                 place(Mem::UB, garbage.at, garbage.bytes).c_str()),
            garbage.block, garbage.core, Pipe::S, garbage.site, ", \"memory\": \"UB\"");
}

}  // namespace

namespace {

// Reads the environment; returns what is wrong with it.
std::string read_settings() {
  const char* checks = getenv("ASCEND_SIM_CHECKS");
  checks_enabled = !checks || strcmp(checks, "off") != 0;
  if (checks && checks_enabled && strcmp(checks, "on") != 0) return text("ASCEND_SIM_CHECKS must be on or off, got '%s'", checks);
  limit_seconds = 60;
  if (const char* limit = getenv("ASCEND_SIM_TIMEOUT")) {
    char* end;
    limit_seconds = strtod(limit, &end);
    if (end == limit || *end || !(limit_seconds >= 0 && limit_seconds < 1e9))
      return text("ASCEND_SIM_TIMEOUT must be a number of seconds, got '%s'", limit);
  }
  return "";
}

}  // namespace

EXPORT int asim_run(const asim_kernel* kernel, uint32_t blocks, const void* arguments, size_t bytes) {
  std::lock_guard<std::recursive_mutex> guard(run_lock);
  run = make_run(kernel, blocks, arguments);
  if (core_library.base == 0) core_library = library_of(reinterpret_cast<const void*>(&asim_run));
  const std::string wrong = read_settings();
  const char* report = getenv("ASCEND_SIM_REPORT");
  record_timeline = report && *report;
  if (!wrong.empty()) set_error("argument", wrong, nullptr, Pipe::COUNT, 0);
  if (bytes < kernel->argument_bytes)
    set_error("argument", text("the launch passes %zu bytes of arguments, the kernel takes %u", bytes, kernel->argument_bytes), nullptr, Pipe::COUNT, 0);
  execute();
  if (run->error.empty() && run->garbage.bytes) run_again();
  last_error = run->error;
  last_trace.clear();
  if (record_timeline) {
    const std::string path = text("%s/launches-%d.jsonl", report, int(getpid()));
    if (FILE* file = fopen(path.c_str(), "a")) {
      const std::string json = trace_json(true);
      fprintf(file, "%s\n", json.c_str());
      fclose(file);
    }
  }
  return run->error.empty() ? 0 : 1;
}

EXPORT int asim_launch(const asim_kernel* kernel, uint32_t blocks, void* stream, const void* arguments, size_t bytes) {
  if (!launch_hook) return asim_run(kernel, blocks, arguments, bytes);
  last_error.clear();  // the hook may run something else, or nothing yet
  return launch_hook(kernel, blocks, stream, arguments, bytes);
}

EXPORT void asim_set_launch_hook(asim_launch_hook hook) { launch_hook = hook; }

EXPORT void asim_set_load_hook(void (*hook)()) { load_hook = hook; }
EXPORT void asim_library_loaded() {
  if (load_hook) load_hook();
}

EXPORT void asim_global_accesses(void (*visit)(void*, uint64_t, uint64_t, bool), void* context) {
  for (const Argument& tensor : run->tensors)
    for (int write = 0; write < 2; ++write)
      if (tensor.begin[write] < tensor.end[write]) visit(context, tensor.begin[write], tensor.end[write], write);
}

EXPORT void asim_set_error(const char* report) { last_error = report; }
EXPORT const char* asim_error() { return last_error.c_str(); }
EXPORT int asim_last_error() { return last_error.empty() ? 0 : 507015; }  // ACL_ERROR_RT_AICORE_EXCEPTION

EXPORT const char* asim_trace() {
  std::lock_guard<std::recursive_mutex> guard(run_lock);
  if (run && last_trace.empty()) last_trace = trace_json(false);
  return last_trace.c_str();
}

EXPORT void asim_memory_add(const void* address, size_t bytes, const char* name) {
  std::lock_guard<std::recursive_mutex> guard(run_lock);
  if (bytes) allocations()[reinterpret_cast<uint64_t>(address)] = {bytes, name ? name : "memory"};
}

EXPORT void asim_memory_remove(const void* address) {
  std::lock_guard<std::recursive_mutex> guard(run_lock);
  allocations().erase(reinterpret_cast<uint64_t>(address));
}
