// The simulated device as the runtime's functions see it: memory, streams of tasks, events, and graphs being captured.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace asim {

// What a call failed with: an ACL error code and the sentence that aclGetRecentErrMsg hands out.
struct Error : std::runtime_error {
    Error(int code, const std::string& message) : std::runtime_error(message), code(code) {}
    int code;
};

// Settings come from the environment, read once.
struct Settings {
    bool deferred;         // ASCEND_SIM_ASYNC=1: tasks wait for a synchronisation
    size_t memory_bytes;   // ASCEND_SIM_MEMORY: device memory in bytes, or with a K, M or G behind
    int64_t cube_cores;    // ASCEND_SIM_CUBE_CORES
    int64_t vector_cores;  // ASCEND_SIM_VECTOR_CORES
    static const Settings& get();
};
constexpr const char* SOC_NAME = "Ascend950DT_9591";

// ---- Memory. A segment is what aclrtMalloc returned; a block is a tensor's part of it, known when torch_npu's caching
// allocator tells. An address inside a segment that has blocks is alive only inside one of them.
struct Allocation {
    uintptr_t begin = 0, end = 0;
    uint64_t serial = 0;  // counts up with every allocation
    explicit operator bool() const { return end != 0; }
};
void* allocate_device(size_t bytes);
void free_device(void* pointer);
void* allocate_host(size_t bytes);
void free_host(void* pointer);
bool is_pinned_host(const void* pointer);
bool is_device(const void* pointer);
size_t device_bytes_used();
uint64_t allocation_serial();
Allocation live_allocation(uintptr_t address);
Allocation segment_at(uintptr_t address);
bool in_graph_pool(uintptr_t address);
// What the caching allocator tells: a segment is its own (and a graph pool's), a tensor's block came or went.
void note_segment(uintptr_t begin, bool pooled);
void note_block(uintptr_t begin, size_t bytes);
void forget_block(uintptr_t begin);

// ---- Order. A clock says how far each stream had got, as seen from some point.
using Clock = std::map<uint32_t, uint64_t>;
void join(Clock& into, const Clock& other);
constexpr uint32_t HOST = 0;  // the host's component of a clock

// An access of a task to a range of device memory.
struct Access {
    uintptr_t begin, end;
    bool write;
};
// Throws if an access conflicts with an earlier one of another stream that `clock` does not know of.
void check_accesses(const std::string& name, const std::vector<Access>& accesses, uint32_t stream, const Clock& clock);
void forget_accesses(uintptr_t begin, uintptr_t end);

struct Stream;
struct Graph;

// One use of an event: made by a record, looked at by the waits enqueued after it.
struct Record {
    Stream* stream = nullptr;
    Clock clock;
    bool done = false;
    uint64_t nanoseconds = 0;
    std::shared_ptr<Graph> graph;  // set if recorded in a capture
};

struct Event {
    std::shared_ptr<Record> last;
};

// A unit of work. `run` throws to fail; it may add accesses that it found out by running.
struct Task {
    enum Kind { WORK, RECORD, WAIT } kind = WORK;
    std::string name;
    std::function<void(Task&)> run;
    std::vector<Access> accesses;     // known before it runs
    std::vector<uintptr_t> pointers;  // further addresses it was given, extent unknown
    std::shared_ptr<Record> record;   // of RECORD and WAIT
    uint32_t stream = 0;              // component of `clock` that this task advances
    Clock clock;
    uint32_t lane = 0;                // in a graph: which of its streams
};

struct Stream {
    uint32_t id;  // never reused
    Clock clock;
    std::deque<std::shared_ptr<Task>> queue;
    bool busy = false;             // a task of it runs with the device unlocked
    std::shared_ptr<Graph> graph;  // while it is captured
    uint32_t lane = 0;
};

struct Graph {
    uint32_t id;
    int mode;
    uint64_t thread;
    uint64_t serial_at_begin;          // younger allocations were made during the capture
    std::string broken;                // why the capture can no longer succeed
    std::vector<Stream*> streams;      // while captured, by lane; lane 0 is the stream that began
    std::vector<uint32_t> lane_ids;    // clock components of the lanes after the first
    std::vector<uint64_t> lane_ticks;  // and how far they got
    std::vector<bool> unjoined;        // by lane: has work that the first lane does not follow yet
    std::vector<std::shared_ptr<Task>> tasks;
};

// Runs `body` with the device locked; an exception becomes its code, its message the recent one.
int guarded(const char* function, const std::function<void()>& body);
void unlocked(const std::function<void()>& body);  // inside guarded: runs `body` without the lock
int fail(int code, const std::string& message);
int last_error(bool clear);
const char* recent_message();  // and forgets it
std::string peek_message();

// All of these are called inside guarded.
Stream* create_stream();
Stream* as_stream(void* handle);  // null is the default stream
void destroy_stream(Stream* stream);
void enqueue(Stream* stream, std::shared_ptr<Task> task);
void enqueue_work(Stream* stream, std::string name, std::vector<Access> accesses, std::function<void(Task&)> run);
bool advance(Stream* stream);  // runs the first task in the queue, if there is one
void drain(Stream* stream);
void record_event(Event* event, Stream* stream);
void wait_event(Stream* stream, Event* event);
bool query_event(Event* event);
bool query_stream(Stream* stream);
void synchronize_event(Event* event);
void synchronize_stream(Stream* stream);
void synchronize_device();
void throw_deferred_error();
void host_access(const std::string& name, const std::vector<Access>& accesses);
Clock start_of_replay(Stream* stream);

void spoil(Graph& graph, const std::string& why);
void begin_capture(Stream* stream, int mode);
std::shared_ptr<Graph> end_capture(Stream* stream);
void replay(const std::shared_ptr<Graph>& graph, Stream* stream);
int exchange_capture_mode(int mode);
void add_to_graph(Stream* stream, std::shared_ptr<Task> task);
void join_capture(Stream* stream, const std::shared_ptr<Record>& record);
void refuse_while_capturing(const std::string& what);  // throws, and spoils the capture
uint32_t next_stream_id();

}  // namespace asim
