// Streams are ordered queues. Without ASCEND_SIM_ASYNC a task runs as soon as it is enqueued.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "acl/acl.h"
#include "device.h"

namespace asim {
namespace {

std::mutex mutex;
std::condition_variable idle;
thread_local std::unique_lock<std::mutex>* held = nullptr;

std::vector<Stream*> streams;
Clock host_clock;
uint32_t stream_ids = HOST;
std::unique_ptr<Error> deferred_error;  // of a task that ran after the call that enqueued it had returned

std::mutex message_mutex;
std::string message;
std::atomic<bool> message_read = false;
thread_local int thread_error = 0;

size_t parse_bytes(const char* name, const char* text) {
    char* unit = nullptr;
    const unsigned long long number = std::strtoull(text, &unit, 10);
    const std::string suffix = unit;
    const int shift = suffix.empty() ? 0 : suffix == "K" ? 10 : suffix == "M" ? 20 : suffix == "G" ? 30 : -1;
    if (unit == text || shift < 0 || number == 0) {
        throw Error(ACL_ERROR_INVALID_PARAM, std::string(name) + " must be a positive number of bytes, or one followed "
                                                 "by K, M or G, not '" + text + "'");
    }
    return static_cast<size_t>(number) << shift;
}

template <class Parse, class Value>
Value from_environment(const char* name, Value fallback, Parse parse) {
    const char* text = std::getenv(name);
    return text && *text ? static_cast<Value>(parse(name, text)) : fallback;
}

int64_t parse_cores(const char* name, const char* text) {
    char* rest = nullptr;
    const long value = std::strtol(text, &rest, 10);
    if (*rest || value < 1) {
        throw Error(ACL_ERROR_INVALID_PARAM, std::string(name) + " must be a positive integer, not '" + text + "'");
    }
    return value;
}

bool parse_switch(const char* name, const char* text) {
    const std::string value = text;
    if (value != "0" && value != "1") {
        throw Error(ACL_ERROR_INVALID_PARAM, std::string(name) + " must be 0 or 1, not '" + value + "'");
    }
    return value == "1";
}

uint64_t now() {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch()).count());
}

void run_task(Task& task) {
    if (task.kind == Task::RECORD) {
        task.record->done = true;
        task.record->nanoseconds = now();
    } else if (task.kind == Task::WORK) {
        task.run(task);
        check_accesses(task.name, task.accesses, task.stream, task.clock);
    }
}

void keep_error(const Error& error) {
    if (deferred_error && !message_read) return;  // the first one explains the others
    message_read = false;
    deferred_error = std::make_unique<Error>(error);
}

}  // namespace

// A caller may drop the code that a synchronisation returned, so the error stays until someone asked for its message.
void throw_deferred_error() {
    if (deferred_error && message_read) deferred_error.reset();
    if (!deferred_error) return;
    message_read = false;
    throw Error(*deferred_error);
}

const Settings& Settings::get() {
    static const Settings settings = {
        from_environment("ASCEND_SIM_ASYNC", false, parse_switch),
        from_environment("ASCEND_SIM_MEMORY", size_t{16} << 30, parse_bytes),
        from_environment("ASCEND_SIM_CUBE_CORES", int64_t{28}, parse_cores),
        from_environment("ASCEND_SIM_VECTOR_CORES", int64_t{56}, parse_cores),
    };
    return settings;
}

int fail(int code, const std::string& text) {
    std::lock_guard<std::mutex> lock(message_mutex);
    message = "ascend-sim: " + text;
    thread_error = code;
    return code;
}

int last_error(bool clear) {
    const int code = thread_error;
    if (clear) thread_error = 0;
    return code;
}

const char* recent_message() {
    thread_local std::string handed_out;
    std::lock_guard<std::mutex> lock(message_mutex);
    handed_out = message;
    message_read = true;
    message.clear();
    return handed_out.c_str();
}

std::string peek_message() {
    std::lock_guard<std::mutex> lock(message_mutex);
    return message;
}

int guarded(const char* function, const std::function<void()>& body) {
    try {
        if (held) {  // a host callback of a task may not come back in, a task's own code may
            body();
            return ACL_SUCCESS;
        }
        std::unique_lock<std::mutex> lock(mutex);
        held = &lock;
        struct Release {
            ~Release() { held = nullptr; }
        } release;
        body();
        return ACL_SUCCESS;
    } catch (const Error& error) {
        return fail(error.code, error.what());
    } catch (const std::exception& error) {
        return fail(ACL_ERROR_INTERNAL_ERROR, std::string(function) + ": " + error.what());
    }
}

void unlocked(const std::function<void()>& body) {
    std::unique_lock<std::mutex>* lock = held;
    held = nullptr;
    lock->unlock();
    struct Relock {
        std::unique_lock<std::mutex>* lock;
        ~Relock() {
            lock->lock();
            held = lock;
        }
    } relock{lock};
    body();
}

uint32_t next_stream_id() { return ++stream_ids; }

Stream* create_stream() {
    auto* stream = new Stream();
    stream->id = next_stream_id();
    streams.push_back(stream);
    return stream;
}

Stream* as_stream(void* handle) {
    static Stream* default_stream = create_stream();
    if (handle == nullptr) return default_stream;
    auto* stream = static_cast<Stream*>(handle);
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
        throw Error(ACL_ERROR_INVALID_PARAM, "the stream was destroyed, or never created");
    }
    return stream;
}

void destroy_stream(Stream* stream) {
    if (stream->graph) {
        throw Error(ACL_ERROR_RT_STREAM_CAPTURED, "a stream cannot be destroyed while it is captured");
    }
    drain(stream);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    // Records of events may still name it; what they order is in their clocks.
    delete stream;
}

void join(Clock& into, const Clock& other) {
    for (const auto& [stream, tick] : other) {
        uint64_t& mine = into[stream];
        mine = std::max(mine, tick);
    }
}

void enqueue(Stream* stream, std::shared_ptr<Task> task) {
    if (stream->graph) {
        add_to_graph(stream, std::move(task));
        return;
    }
    if (task->kind == Task::WORK) {
        refuse_while_capturing("'" + task->name + "' on a stream that takes no part in the capture");
    }
    join(stream->clock, host_clock);
    if (task->kind == Task::WAIT) join(stream->clock, task->record->clock);
    ++stream->clock[stream->id];
    task->stream = stream->id;
    task->clock = stream->clock;
    if (task->kind == Task::RECORD) {
        task->record->stream = stream;
        task->record->clock = stream->clock;
    }
    stream->queue.push_back(std::move(task));
    if (!Settings::get().deferred) {
        drain(stream);
        if (const std::unique_ptr<Error> error = std::move(deferred_error)) throw Error(*error);
    }
}

void enqueue_work(Stream* stream, std::string name, std::vector<Access> accesses, std::function<void(Task&)> run) {
    auto task = std::make_shared<Task>();
    task->name = std::move(name);
    task->accesses = std::move(accesses);
    task->run = std::move(run);
    enqueue(stream, std::move(task));
}

bool advance(Stream* stream) {
    while (stream->busy) idle.wait(*held);
    if (stream->queue.empty()) return false;
    const std::shared_ptr<Task> task = stream->queue.front();
    if (task->kind == Task::WAIT) {
        // Each turn may run a task with the device unlocked, so look anew.
        while (!task->record->done && advance(task->record->stream)) {
        }
        if (stream->queue.empty() || stream->queue.front() != task) return true;
    }
    stream->queue.pop_front();
    stream->busy = true;
    try {
        run_task(*task);
    } catch (const Error& error) {
        keep_error(error);
    } catch (const std::exception& error) {
        keep_error(Error(ACL_ERROR_INTERNAL_ERROR, task->name + ": " + error.what()));
    }
    stream->busy = false;
    idle.notify_all();
    return true;
}

void drain(Stream* stream) {
    while (advance(stream)) {
    }
}

void record_event(Event* event, Stream* stream) {
    auto task = std::make_shared<Task>();
    task->kind = Task::RECORD;
    task->name = "event record";
    task->record = std::make_shared<Record>();
    event->last = task->record;
    enqueue(stream, std::move(task));
}

void wait_event(Stream* stream, Event* event) {
    if (!event->last) return;  // an event never recorded counts as complete
    if (event->last->graph && !stream->graph) join_capture(stream, event->last);
    auto task = std::make_shared<Task>();
    task->kind = Task::WAIT;
    task->name = "event wait";
    task->record = event->last;
    enqueue(stream, std::move(task));
}

bool query_event(Event* event) {
    if (!event->last) return true;
    if (event->last->graph) {
        throw Error(ACL_ERROR_RT_EVENT_CAPTURED, "the event was recorded in a capture and cannot be queried");
    }
    // A host that polls must see the device make progress.
    if (!event->last->done) advance(event->last->stream);
    if (event->last->done) join(host_clock, event->last->clock);
    return event->last->done;
}

bool query_stream(Stream* stream) {
    if (stream->graph) {
        spoil(*stream->graph, "a captured stream was queried");
        throw Error(ACL_ERROR_RT_STREAM_CAPTURED, "a stream cannot be queried while it is captured");
    }
    advance(stream);
    if (!stream->queue.empty()) return false;
    join(host_clock, stream->clock);
    throw_deferred_error();
    return true;
}

void synchronize_event(Event* event) {
    refuse_while_capturing("synchronising the host with an event");
    if (!event->last) return;
    if (event->last->graph) {
        throw Error(ACL_ERROR_RT_EVENT_CAPTURED, "the event was recorded in a capture and cannot be synchronised with");
    }
    while (!event->last->done && advance(event->last->stream)) {
    }
    join(host_clock, event->last->clock);
    throw_deferred_error();
}

void synchronize_stream(Stream* stream) {
    refuse_while_capturing("synchronising the host with a stream");
    if (stream->graph) {
        spoil(*stream->graph, "the host synchronised with a captured stream");
        throw Error(ACL_ERROR_RT_STREAM_CAPTURED, "the host cannot synchronise with a stream while it is captured");
    }
    drain(stream);
    join(host_clock, stream->clock);
    throw_deferred_error();
}

void synchronize_device() {
    refuse_while_capturing("synchronising the host with the device");
    for (size_t i = 0; i < streams.size(); ++i) {
        if (streams[i]->graph) continue;
        drain(streams[i]);
        join(host_clock, streams[i]->clock);
    }
    throw_deferred_error();
}

void host_access(const std::string& name, const std::vector<Access>& accesses) {
    ++host_clock[HOST];
    check_accesses(name, accesses, HOST, host_clock);
}

Clock start_of_replay(Stream* stream) {
    join(stream->clock, host_clock);
    return stream->clock;
}

}  // namespace asim
