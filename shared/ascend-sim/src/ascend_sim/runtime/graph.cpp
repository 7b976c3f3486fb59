// Capture and replay. While a stream is captured its tasks are recorded, not run.
#include <algorithm>
#include <functional>
#include <sstream>
#include <thread>

#include "acl/acl.h"
#include "device.h"

namespace asim {
// The first reason explains the others.
void spoil(Graph& graph, const std::string& why) {
    if (graph.broken.empty()) graph.broken = why;
}

namespace {

std::vector<std::shared_ptr<Graph>> capturing;
uint32_t graph_ids = 0;
thread_local int thread_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

uint64_t this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }

std::string hexadecimal(uintptr_t address) {
    std::ostringstream text;
    text << "0x" << std::hex << address;
    return text.str();
}

std::vector<uintptr_t> addresses(const Task& task) {
    std::vector<uintptr_t> result = task.pointers;
    for (const Access& access : task.accesses) {
        if (access.begin < access.end) result.push_back(access.begin);
    }
    return result;
}

// A graph writes to what it captured at every replay, so its own tensors must come from a pool that is kept for it.
void check_pool(Graph& graph, const Task& task) {
    if (!graph.broken.empty()) return;  // torch_npu no longer allocates from the pool of a capture that failed
    for (uintptr_t address : addresses(task)) {
        const Allocation allocation = live_allocation(address);
        if (!allocation || allocation.serial <= graph.serial_at_begin || in_graph_pool(address)) continue;
        spoil(graph, "'" + task.name + "' uses memory at " + hexadecimal(address) +
                         " that was allocated during the capture, outside the graph's pool");
        throw Error(ACL_ERROR_RT_CAPTURE_DEPENDENCY, "capture: " + graph.broken);
    }
}

void check_alive(const Graph& graph, const Task& task) {
    for (uintptr_t address : addresses(task)) {
        if (!is_device(reinterpret_cast<void*>(address))) {
            throw Error(ACL_ERROR_RT_MODEL_EXECUTE, "replay of graph " + std::to_string(graph.id) + ": '" + task.name +
                                                        "' uses memory at " + hexadecimal(address) +
                                                        " that was given back to the device");
        }
        if (!live_allocation(address) && !in_graph_pool(address)) {
            throw Error(ACL_ERROR_RT_MODEL_EXECUTE, "replay of graph " + std::to_string(graph.id) + ": '" + task.name +
                                                        "' uses memory at " + hexadecimal(address) +
                                                        " whose tensor was freed after the capture");
        }
    }
}

}  // namespace

int exchange_capture_mode(int mode) {
    if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        throw Error(ACL_ERROR_INVALID_PARAM, "capture mode " + std::to_string(mode) + " does not exist");
    }
    std::swap(mode, thread_mode);
    return mode;
}

void refuse_while_capturing(const std::string& what) {
    if (thread_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return;
    for (const auto& graph : capturing) {
        if (graph->mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) continue;
        const bool everywhere =
            graph->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL && thread_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
        if (!everywhere && graph->thread != this_thread()) continue;
        const std::string why = what + " is not allowed while a stream is captured";
        spoil(*graph, why);
        throw Error(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "capture: " + why);
    }
}

void begin_capture(Stream* stream, int mode) {
    if (stream->graph) throw Error(ACL_ERROR_RT_STREAM_CAPTURED, "the stream is captured already");
    if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED) {
        throw Error(ACL_ERROR_INVALID_PARAM, "capture mode " + std::to_string(mode) + " does not exist");
    }
    auto graph = std::make_shared<Graph>();
    graph->id = ++graph_ids;
    graph->mode = mode;
    graph->thread = this_thread();
    graph->serial_at_begin = allocation_serial();
    graph->streams = {stream};
    graph->lane_ids = {0};
    graph->lane_ticks = {0};
    graph->unjoined = {false};
    stream->graph = graph;
    stream->lane = 0;
    capturing.push_back(graph);
}

void join_capture(Stream* stream, const std::shared_ptr<Record>& record) {
    const std::shared_ptr<Graph>& graph = record->graph;
    if (std::find(capturing.begin(), capturing.end(), graph) == capturing.end()) {
        throw Error(ACL_ERROR_RT_CAPTURE_DEPENDENCY, "a stream waits for an event recorded in a capture that has ended");
    }
    stream->graph = graph;
    stream->lane = static_cast<uint32_t>(graph->streams.size());
    graph->streams.push_back(stream);
    graph->lane_ids.push_back(next_stream_id());
    graph->lane_ticks.push_back(0);
    graph->unjoined.push_back(false);
}

void add_to_graph(Stream* stream, std::shared_ptr<Task> task) {
    Graph& graph = *stream->graph;
    task->lane = stream->lane;
    if (task->kind == Task::RECORD) {
        task->record->graph = stream->graph;
        task->record->stream = stream;
        // Until replay, the record's clock says which lanes it follows, by lane.
        task->record->clock[task->lane] = 1;
        for (const auto& earlier : graph.tasks) {
            if (earlier->kind == Task::WAIT && earlier->lane == task->lane) {
                join(task->record->clock, earlier->record->clock);
            }
        }
    } else if (task->kind == Task::WAIT) {
        if (task->record->graph != stream->graph) {
            const std::string why = "a captured stream waits for an event recorded outside the capture";
            spoil(graph, why);
            throw Error(ACL_ERROR_RT_CAPTURE_DEPENDENCY, "capture: " + why);
        }
        if (task->lane == 0) {
            for (const auto& [lane, tick] : task->record->clock) graph.unjoined[lane] = false;
        }
    } else {
        check_pool(graph, *task);
    }
    if (task->kind == Task::WORK && task->lane != 0) graph.unjoined[task->lane] = true;
    graph.tasks.push_back(std::move(task));
}

std::shared_ptr<Graph> end_capture(Stream* stream) {
    const std::shared_ptr<Graph> graph = stream->graph;
    if (!graph) throw Error(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "the stream is not captured");
    if (stream->lane != 0) {
        throw Error(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, "a capture must end on the stream that it began on");
    }
    if (graph->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && graph->thread != this_thread()) {
        throw Error(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, "a capture must end in the thread that it began in");
    }
    for (Stream* member : graph->streams) member->graph.reset();
    graph->streams.clear();
    capturing.erase(std::find(capturing.begin(), capturing.end(), graph));
    if (std::find(graph->unjoined.begin(), graph->unjoined.end(), true) != graph->unjoined.end()) {
        spoil(*graph, "a stream joined it, and the first stream does not wait for its work");
    }
    if (!graph->broken.empty()) {
        throw Error(ACL_ERROR_RT_CAPTURE_DEPENDENCY, "the capture failed: " + graph->broken);
    }
    return graph;
}

void replay(const std::shared_ptr<Graph>& graph, Stream* stream) {
    if (std::find(capturing.begin(), capturing.end(), graph) != capturing.end()) {
        throw Error(ACL_ERROR_RT_MODEL_CAPTURED, "a graph cannot be replayed before its capture has ended");
    }
    auto tasks = std::make_shared<std::vector<Task>>();
    std::map<const Record*, Clock> records;
    std::vector<Clock> lanes(graph->lane_ids.size());
    auto whole = std::make_shared<Task>();
    whole->name = "graph " + std::to_string(graph->id);
    whole->run = [graph, tasks](Task&) {
        for (const Task& task : *tasks) check_alive(*graph, task);
        for (Task& task : *tasks) {
            task.run(task);
            check_accesses(task.name, task.accesses, task.stream, task.clock);
        }
    };
    if (stream->graph) throw Error(ACL_ERROR_RT_STREAM_CAPTURED, "a graph cannot be replayed into a capture");
    // Nothing runs between the clocks' computation and the enqueueing, so the stream's clock is the replay's start.
    lanes[0] = start_of_replay(stream);
    for (const auto& original : graph->tasks) {
        const uint32_t lane = original->lane;
        if (original->kind == Task::RECORD) {
            records[original->record.get()] = lanes[lane];
        } else if (original->kind == Task::WAIT) {
            join(lanes[lane], records[original->record.get()]);
        } else {
            Task task = *original;
            task.stream = lane == 0 ? stream->id : graph->lane_ids[lane];
            lanes[lane][task.stream] = lane == 0 ? lanes[0][stream->id] + 1 : ++graph->lane_ticks[lane];
            task.clock = lanes[lane];
            tasks->push_back(std::move(task));
        }
    }
    stream->clock = lanes[0];
    enqueue(stream, std::move(whole));
}

}  // namespace asim
