// The simulated device as the runtime's functions see it: memory, streams of tasks, events, and graphs being captured.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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
    bool deferred;          // ASCEND_SIM_ASYNC: tasks wait for a synchronisation
    size_t memory_bytes;    // ASCEND_SIM_MEMORY: bytes of device memory, with K, M or G
    int64_t cube_cores;     // ASCEND_SIM_CUBE_CORES
    int64_t vector_cores;   // ASCEND_SIM_VECTOR_CORES
    std::string soc_name;   // ASCEND_SIM_SOC
    static const Settings& get();
};

// One lock for the whole device. Host callbacks run without it, since they may need the interpreter's lock.
using Lock = std::unique_lock<std::recursive_mutex>;
std::recursive_mutex& device_mutex();

// Memory. A segment is what aclrtMalloc returned; a block is a tensor's part of it, known when torch_npu's caching
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
bool in_graph_pool(uintptr_t address);
// What the caching allocator tells: a segment is its own (and a graph pool's), a tensor's block came or went.
void note_segment(uintptr_t begin, bool pooled);
void note_block(uintptr_t begin, size_t bytes);
void forget_block(uintptr_t begin);

// An access of a task to a range of device memory.
struct Access {
    uintptr_t begin, end;
    bool write;
};

// Logical time: how far each stream had got, as seen from some point.
using Clock = std::map<uint32_t, uint64_t>;
void join(Clock& into, const Clock& other);

struct Stream;
struct Graph;

// One use of an event: made by a record, looked at by the waits enqueued after it.
struct Record {
    Clock clock;
    Stream* stream = nullptr;
    bool done = false;
    uint64_t nanoseconds = 0;
    std::shared_ptr<Graph> graph;  // set while recorded in a capture
    uint32_t lane = 0;             // the stream's place in that graph
};

struct Event {
    std::shared_ptr<Record> last;
    uint32_t flag = 0;
};

// A unit of work. `run` throws to fail. `accesses` holds what is known beforehand; `run` may add what it found out.
struct Task {
    enum Kind { WORK, RECORD, WAIT } kind = WORK;
    std::string name;
    std::function<void(Task&)> run;
    std::vector<Access> accesses;
    std::vector<uintptr_t> pointers;   // addresses whose extent the task does not know
    std::shared_ptr<Record> record;    // of RECORD and WAIT
    Clock clock;
    uint32_t lane = 0;                 // in a graph: which of its streams
};

struct Stream {
    uint32_t id;                       // component of the clocks, never reused
    Clock clock;
    std::deque<std::shared_ptr<Task>> queue;
    std::shared_ptr<Graph> graph;      // while capturing
    uint32_t lane = 0;
    uint32_t flag = 0, priority = 0;
};

struct Graph {
    uint32_t id;
    int mode;
    uint64_t thread;
    Stream* origin;
    uint64_t serial_at_begin;          // allocations younger than this were made during the capture
    bool capturing = true;
    std::string broken;                // why the capture can no longer succeed
    std::vector<Stream*> streams;      // by lane; lane 0 is the origin
    std::vector<uint32_t> lane_ids;    // clock component of each lane when replayed
    std::vector<std::shared_ptr<Task>> tasks;
    std::vector<bool> joined;          // by lane: everything on it precedes the origin's last task
};

Stream* create_stream();
Stream* as_stream(void* handle);       // the default stream for null
void destroy_stream(Stream* stream);
void enqueue(Stream* stream, std::shared_ptr<Task> task);
void record_event(Event* event, Stream* stream);
void wait_event(Stream* stream, Event* event);
bool query_event(Event* event);
void synchronize_stream(Stream* stream);
void synchronize_event(Event* event);
void synchronize_device();
bool advance(Stream* stream);          // runs one task, true if there was one

// Capture.
void begin_capture(Stream* stream, int mode);
std::shared_ptr<Graph> end_capture(Stream* stream);
void replay(std::shared_ptr<Graph> graph, Stream* stream);
int exchange_capture_mode(int mode);
void refuse_while_capturing(const char* what);  // throws, and spoils the capture

// Hazards between streams.
void check_accesses(const Task& task, const Clock& clock, uint32_t stream_id);
void forget_accesses(uintptr_t begin, uintptr_t end);

// Runs `body`, turning an exception into its error code and message.
int guarded(const char* function, const std::function<void()>& body);
int failed(int code, const std::string& message);

}  // namespace asim
