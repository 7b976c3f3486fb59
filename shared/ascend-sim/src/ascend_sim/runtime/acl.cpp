// The ACL functions that torch_npu and TileLang link or look up by name.
#include "acl/acl.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdarg>
#include <cstring>
#include <mutex>

#include "acl/acl_op_compiler.h"
#include "device.h"

using namespace asim;

namespace {

// Only the caching allocator may extend a graph's pool while a capture is on; it does so from inside libtorch_npu.
bool called_from_torch_npu(const void* return_address) {
    Dl_info info;
    return dladdr(return_address, &info) && std::strstr(info.dli_fname, "libtorch_npu") != nullptr;
}

// libopapi knows torch_npu's caching allocator, and through it the tensors inside the segments.
void watch_caching_allocator() {
    if (!dlopen("libtorch_npu.so", RTLD_NOW | RTLD_NOLOAD)) return;
    void* library = dlopen("libopapi.so", RTLD_NOW);
    void* watch = library ? dlsym(library, "asim_watch_caching_allocator") : nullptr;
    if (!watch) throw Error(ACL_ERROR_INTERNAL_ERROR, std::string("libopapi.so cannot be loaded: ") + dlerror());
    reinterpret_cast<void (*)()>(watch)();
}

aclError allocate(const char* name, void** pointer, size_t size, const void* caller) {
    // Without the device's lock: loading a library may run anything.
    static std::once_flag once;
    try {
        std::call_once(once, watch_caching_allocator);
    } catch (const Error& error) {
        return fail(error.code, error.what());
    }
    return guarded(name, [&] {
        if (!called_from_torch_npu(caller)) refuse_while_capturing(std::string("allocating device memory with ") + name);
        *pointer = allocate_device(size);
    });
}

std::vector<Access> range(const void* pointer, size_t bytes, bool write) {
    if (bytes == 0 || !is_device(pointer)) return {};
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    return {{begin, begin + bytes, write}};
}

std::vector<Access> copy_accesses(const void* to, const void* from, size_t bytes) {
    std::vector<Access> accesses = range(from, bytes, false);
    for (const Access& access : range(to, bytes, true)) accesses.push_back(access);
    return accesses;
}

void check_capacity(const char* name, size_t bytes, size_t capacity) {
    if (bytes > capacity) {
        throw Error(ACL_ERROR_INVALID_PARAM, std::string(name) + ": " + std::to_string(bytes) +
                                                 " bytes do not fit the destination of " + std::to_string(capacity));
    }
}

struct Callback {
    aclrtCallback function;
    void* data;
    bool done = false;
};

// Callbacks of aclrtLaunchCallback run in the thread that calls aclrtProcessReport.
std::mutex callback_mutex;
std::condition_variable callback_change;
std::deque<std::shared_ptr<Callback>> callbacks;
std::map<Stream*, uint64_t> subscribers;

thread_local int current_device = -1;

}  // namespace

extern "C" {

// ---- Initialisation and information

aclError aclInit(const char*) {
    return guarded("aclInit", [] { Settings::get(); });
}

aclError aclFinalize() { return ACL_SUCCESS; }

const char* aclGetRecentErrMsg() { return recent_message(); }

void aclAppLog(aclLogLevel, const char*, const char*, uint32_t, const char*, ...) {}

aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return last_error(false); }
aclError aclrtGetLastError(aclrtLastErrLevel) { return last_error(true); }

const char* aclrtGetSocName() { return SOC_NAME; }

aclError aclrtGetDeviceCount(uint32_t* count) {
    *count = 1;
    return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t device) {
    if (device != 0) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "device " + std::to_string(device) + " does not exist: there is one, 0");
    current_device = device;
    return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t) {
    current_device = -1;
    return guarded("aclrtResetDevice", [] { synchronize_device(); });
}

aclError aclrtGetDevice(int32_t* device) {
    if (current_device < 0) return ACL_ERROR_RT_CONTEXT_NULL;  // torch_npu asks in order to find out
    *device = current_device;
    return ACL_SUCCESS;
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t user, int32_t* const logic) {
    *logic = user;
    return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
    static char the_context;
    *context = &the_context;
    return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext) {
    current_device = 0;
    return ACL_SUCCESS;
}

aclError aclrtGetPrimaryCtxState(int32_t, uint32_t* flags, int32_t* active) {
    if (flags) *flags = 0;
    *active = current_device >= 0;
    return ACL_SUCCESS;
}

aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) {
    *can = 0;
    return ACL_SUCCESS;
}

aclError aclrtGetDeviceInfo(uint32_t, aclrtDevAttr attribute, int64_t* value) {
    const Settings& settings = Settings::get();
    switch (attribute) {
        case ACL_DEV_ATTR_AICORE_CORE_NUM:
        case ACL_DEV_ATTR_CUBE_CORE_NUM: *value = settings.cube_cores; break;
        case ACL_DEV_ATTR_VECTOR_CORE_NUM: *value = settings.vector_cores; break;
        case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE: *value = static_cast<int64_t>(settings.memory_bytes); break;
        case ACL_DEV_ATTR_UBUF_PER_VECTOR_CORE: *value = 256 << 10; break;
        case ACL_DEV_ATTR_L2_CACHE_SIZE: *value = 128 << 20; break;
        case ACL_DEV_ATTR_WARP_SIZE: *value = 32; break;
        case ACL_DEV_ATTR_MAX_THREAD_PER_VECTOR_CORE: *value = 2048; break;
        case ACL_DEV_ATTR_NPU_ARCH: *value = 3510; break;
        case ACL_DEV_ATTR_IS_VIRTUAL: *value = 0; break;
        default:
            return fail(ACL_ERROR_INVALID_PARAM,
                        "aclrtGetDeviceInfo: attribute " + std::to_string(attribute) + " is not simulated");
    }
    return ACL_SUCCESS;
}

aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo info, int64_t* value) {
    const Settings& settings = Settings::get();
    switch (info) {
        case ACL_DEVICE_INFO_AI_CORE_NUM: *value = settings.cube_cores; break;
        case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = settings.vector_cores; break;
        case ACL_DEVICE_INFO_L2_SIZE: *value = 128 << 20; break;
        default:
            return fail(ACL_ERROR_INVALID_PARAM,
                        "aclGetDeviceCapability: information " + std::to_string(info) + " is not simulated");
    }
    return ACL_SUCCESS;
}

static aclError core_limit(aclrtDevResLimitType type, uint32_t* value) {
    const Settings& settings = Settings::get();
    *value = static_cast<uint32_t>(type == ACL_RT_DEV_RES_CUBE_CORE ? settings.cube_cores : settings.vector_cores);
    return ACL_SUCCESS;
}
aclError aclrtGetDeviceResLimit(int32_t, aclrtDevResLimitType type, uint32_t* value) { return core_limit(type, value); }
aclError aclrtGetStreamResLimit(aclrtStream, aclrtDevResLimitType type, uint32_t* value) { return core_limit(type, value); }
aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t* value) { return core_limit(type, value); }
aclError aclrtUseStreamResInCurrentThread(aclrtStream) { return ACL_SUCCESS; }
aclError aclrtUnuseStreamResInCurrentThread(aclrtStream) { return ACL_SUCCESS; }

// Settings of a board that change nothing in a functional simulation.
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode) { return ACL_SUCCESS; }
aclError aclrtSetOpExecuteTimeOut(uint32_t) { return ACL_SUCCESS; }
aclError aclrtSetOpWaitTimeout(uint32_t) { return ACL_SUCCESS; }
aclError aclrtSetStreamAttribute(aclrtStream, aclrtStreamAttr, aclrtStreamAttrValue*) { return ACL_SUCCESS; }
aclError aclrtSetStreamFailureMode(aclrtStream, uint64_t) { return ACL_SUCCESS; }

static int64_t system_options[8];
static std::mutex option_mutex;
aclError aclrtGetSysParamOpt(aclSysParamOpt option, int64_t* value) {
    if (option >= std::size(system_options)) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetSysParamOpt: option " + std::to_string(option));
    std::lock_guard<std::mutex> lock(option_mutex);
    *value = system_options[option];
    return ACL_SUCCESS;
}
aclError aclrtSetSysParamOpt(aclSysParamOpt option, int64_t value) {
    if (option >= std::size(system_options)) return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetSysParamOpt: option " + std::to_string(option));
    std::lock_guard<std::mutex> lock(option_mutex);
    system_options[option] = value;
    return ACL_SUCCESS;
}
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt option, int64_t value) { return aclrtSetSysParamOpt(option, value); }

// Options of CANN's just-in-time operator compiler, which nothing here uses.
aclError aclSetCompileopt(aclCompileOpt, const char*) { return ACL_SUCCESS; }

// ---- Memory

aclError aclrtMalloc(void** pointer, size_t size, aclrtMemMallocPolicy) {
    return allocate("aclrtMalloc", pointer, size, __builtin_return_address(0));
}

aclError aclrtMallocAlign32(void** pointer, size_t size, aclrtMemMallocPolicy) {
    return allocate("aclrtMallocAlign32", pointer, size, __builtin_return_address(0));
}

aclError aclrtFree(void* pointer) {
    return guarded("aclrtFree", [&] {
        refuse_while_capturing("freeing device memory with aclrtFree");
        synchronize_device();  // tasks in the queues may still use it
        const Allocation whole = segment_at(reinterpret_cast<uintptr_t>(pointer));
        free_device(pointer);
        forget_accesses(whole.begin, whole.end);
    });
}

aclError aclrtMallocHost(void** pointer, size_t size) {
    return guarded("aclrtMallocHost", [&] { *pointer = allocate_host(size); });
}

aclError aclrtMallocHostWithCfg(void** pointer, uint64_t size, aclrtMallocConfig*) {
    return guarded("aclrtMallocHostWithCfg", [&] { *pointer = allocate_host(size); });
}

aclError aclrtFreeHost(void* pointer) {
    return guarded("aclrtFreeHost", [&] { free_host(pointer); });
}

aclError aclrtGetMemInfo(aclrtMemAttr, size_t* free, size_t* total) {
    return guarded("aclrtGetMemInfo", [&] {
        *total = Settings::get().memory_bytes;
        *free = *total - device_bytes_used();
    });
}

aclError aclrtPointerGetAttributes(const void* pointer, aclrtPtrAttributes* attributes) {
    *attributes = {};
    attributes->location.type = is_device(pointer)        ? ACL_MEM_LOCATION_TYPE_DEVICE
                                : is_pinned_host(pointer) ? ACL_MEM_LOCATION_TYPE_HOST
                                                          : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
    return ACL_SUCCESS;
}

aclError aclrtMemcpy(void* to, size_t capacity, const void* from, size_t bytes, aclrtMemcpyKind) {
    return guarded("aclrtMemcpy", [&] {
        check_capacity("aclrtMemcpy", bytes, capacity);
        refuse_while_capturing("copying memory with aclrtMemcpy");
        throw_deferred_error();
        host_access("aclrtMemcpy", copy_accesses(to, from, bytes));
        std::memmove(to, from, bytes);
    });
}

aclError aclrtMemcpyAsync(void* to, size_t capacity, const void* from, size_t bytes, aclrtMemcpyKind kind, aclrtStream stream) {
    return guarded("aclrtMemcpyAsync", [&] {
        check_capacity("aclrtMemcpyAsync", bytes, capacity);
        std::shared_ptr<std::vector<char>> staged;
        if (kind == ACL_MEMCPY_HOST_TO_DEVICE && !is_pinned_host(from)) {
            // Pageable memory may change as soon as the call returns, so it is taken now.
            staged = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
        }
        enqueue_work(as_stream(stream), "aclrtMemcpyAsync", copy_accesses(to, from, bytes),
                     [=](Task&) { std::memmove(to, staged ? staged->data() : from, bytes); });
    });
}

aclError aclrtMemset(void* pointer, size_t capacity, int32_t value, size_t bytes) {
    return guarded("aclrtMemset", [&] {
        check_capacity("aclrtMemset", bytes, capacity);
        refuse_while_capturing("setting memory with aclrtMemset");
        host_access("aclrtMemset", range(pointer, bytes, true));
        std::memset(pointer, value, bytes);
    });
}

aclError aclrtMemsetAsync(void* pointer, size_t capacity, int32_t value, size_t bytes, aclrtStream stream) {
    return guarded("aclrtMemsetAsync", [&] {
        check_capacity("aclrtMemsetAsync", bytes, capacity);
        enqueue_work(as_stream(stream), "aclrtMemsetAsync", range(pointer, bytes, true),
                     [=](Task&) { std::memset(pointer, value, bytes); });
    });
}

// ---- Streams and events

aclError aclrtCreateStream(aclrtStream* stream) {
    return guarded("aclrtCreateStream", [&] { *stream = create_stream(); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) { return aclrtCreateStream(stream); }

aclError aclrtDestroyStream(aclrtStream stream) {
    return guarded("aclrtDestroyStream", [&] { destroy_stream(as_stream(stream)); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) { return aclrtDestroyStream(stream); }

aclError aclrtStreamGetId(aclrtStream stream, int32_t* id) {
    return guarded("aclrtStreamGetId", [&] { *id = static_cast<int32_t>(as_stream(stream)->id); });
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
    return guarded("aclrtStreamQuery", [&] {
        *status = query_stream(as_stream(stream)) ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
    return guarded("aclrtSynchronizeStream", [&] { synchronize_stream(as_stream(stream)); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t) { return aclrtSynchronizeStream(stream); }

aclError aclrtSynchronizeDevice() {
    return guarded("aclrtSynchronizeDevice", [] { synchronize_device(); });
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return aclrtSynchronizeDevice(); }

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t) {
    *event = new Event();
    return ACL_SUCCESS;
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) { return aclrtCreateEventWithFlag(event, flag); }

aclError aclrtDestroyEvent(aclrtEvent event) {
    delete static_cast<Event*>(event);
    return ACL_SUCCESS;
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
    return guarded("aclrtRecordEvent", [&] { record_event(static_cast<Event*>(event), as_stream(stream)); });
}

// A record replaces the one before, so there is nothing to reset.
aclError aclrtResetEvent(aclrtEvent, aclrtStream) { return ACL_SUCCESS; }

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
    return guarded("aclrtStreamWaitEvent", [&] { wait_event(as_stream(stream), static_cast<Event*>(event)); });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
    return guarded("aclrtSynchronizeEvent", [&] { synchronize_event(static_cast<Event*>(event)); });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
    return guarded("aclrtQueryEventStatus", [&] {
        *status = query_event(static_cast<Event*>(event)) ? ACL_EVENT_RECORDED_STATUS_COMPLETE
                                                          : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    });
}

// The time is the host's: it says when the simulator passed the event, nothing about a board.
aclError aclrtEventElapsedTime(float* milliseconds, aclrtEvent start, aclrtEvent end) {
    return guarded("aclrtEventElapsedTime", [&] {
        const auto& from = static_cast<Event*>(start)->last;
        const auto& to = static_cast<Event*>(end)->last;
        if (!from || !to || !from->done || !to->done) {
            throw Error(ACL_ERROR_RT_EVENT_NOT_COMPLETE, "aclrtEventElapsedTime: both events must be recorded and complete");
        }
        *milliseconds = static_cast<float>(static_cast<double>(to->nanoseconds - from->nanoseconds) * 1e-6);
    });
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* microseconds) {
    return guarded("aclrtEventGetTimestamp", [&] {
        const auto& record = static_cast<Event*>(event)->last;
        if (!record || !record->done) {
            throw Error(ACL_ERROR_RT_EVENT_NOT_COMPLETE, "aclrtEventGetTimestamp: the event must be recorded and complete");
        }
        *microseconds = record->nanoseconds / 1000;
    });
}

// ---- Callbacks

aclError aclrtSubscribeReport(uint64_t thread, aclrtStream stream) {
    return guarded("aclrtSubscribeReport", [&] { subscribers[as_stream(stream)] = thread; });
}

aclError aclrtUnSubscribeReport(uint64_t, aclrtStream stream) {
    return guarded("aclrtUnSubscribeReport", [&] { subscribers.erase(as_stream(stream)); });
}

aclError aclrtLaunchCallback(aclrtCallback function, void* data, aclrtCallbackBlockType block, aclrtStream handle) {
    return guarded("aclrtLaunchCallback", [&] {
        Stream* stream = as_stream(handle);
        if (subscribers.count(stream) == 0) {
            throw Error(ACL_ERROR_RT_STREAM_NO_CB_REG, "aclrtLaunchCallback: no thread subscribed to the stream's reports");
        }
        enqueue_work(stream, "callback", {}, [=](Task&) {
            auto callback = std::make_shared<Callback>(Callback{function, data});
            unlocked([&] {
                std::unique_lock<std::mutex> lock(callback_mutex);
                callbacks.push_back(callback);
                callback_change.notify_all();
                if (block == ACL_CALLBACK_BLOCK) callback_change.wait(lock, [&] { return callback->done; });
            });
        });
    });
}

aclError aclrtProcessReport(int32_t timeout) {
    std::unique_lock<std::mutex> lock(callback_mutex);
    const auto waiting = [] { return !callbacks.empty(); };
    if (timeout < 0) {
        callback_change.wait(lock, waiting);
    } else if (!callback_change.wait_for(lock, std::chrono::milliseconds(timeout), waiting)) {
        return ACL_ERROR_RT_REPORT_TIMEOUT;
    }
    const std::shared_ptr<Callback> callback = callbacks.front();
    callbacks.pop_front();
    lock.unlock();
    callback->function(callback->data);
    lock.lock();
    callback->done = true;
    callback_change.notify_all();
    return ACL_SUCCESS;
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc function, void* data) {
    return guarded("aclrtLaunchHostFunc", [&] {
        enqueue_work(as_stream(stream), "host function", {}, [=](Task&) { unlocked([&] { function(data); }); });
    });
}

// ---- Capture and replay. A handle is a graph's shared pointer on the heap.

static std::map<Graph*, aclmdlRI> handles;

static aclmdlRI handle_of(const std::shared_ptr<Graph>& graph) {
    aclmdlRI& handle = handles[graph.get()];
    if (!handle) handle = new std::shared_ptr<Graph>(graph);
    return handle;
}

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
    return guarded("aclmdlRICaptureBegin", [&] { begin_capture(as_stream(stream), mode); });
}

aclError aclmdlRICaptureGetInfo(aclrtStream handle, aclmdlRICaptureStatus* status, aclmdlRI* ri) {
    return guarded("aclmdlRICaptureGetInfo", [&] {
        const std::shared_ptr<Graph>& graph = as_stream(handle)->graph;
        *status = !graph                 ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
                  : graph->broken.empty() ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE
                                          : ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED;
        if (ri) *ri = graph ? handle_of(graph) : nullptr;
    });
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* ri) {
    return guarded("aclmdlRICaptureEnd", [&] {
        *ri = nullptr;
        const std::shared_ptr<Graph> graph = as_stream(stream)->graph;
        try {
            *ri = handle_of(end_capture(as_stream(stream)));
        } catch (const Error&) {
            // Nobody will destroy the handle of a capture that failed.
            if (const auto found = handles.find(graph.get()); found != handles.end() && !as_stream(stream)->graph) {
                delete static_cast<std::shared_ptr<Graph>*>(found->second);
                handles.erase(found);
            }
            throw;
        }
    });
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
    return guarded("aclmdlRICaptureThreadExchangeMode",
                   [&] { *mode = static_cast<aclmdlRICaptureMode>(exchange_capture_mode(*mode)); });
}

aclError aclmdlRIGetId(aclmdlRI ri, uint32_t* id) {
    *id = (*static_cast<std::shared_ptr<Graph>*>(ri))->id;
    return ACL_SUCCESS;
}

aclError aclmdlRIExecuteAsync(aclmdlRI ri, aclrtStream stream) {
    return guarded("aclmdlRIExecuteAsync", [&] { replay(*static_cast<std::shared_ptr<Graph>*>(ri), as_stream(stream)); });
}

aclError aclmdlRIDestroy(aclmdlRI ri) {
    return guarded("aclmdlRIDestroy", [&] {
        auto* graph = static_cast<std::shared_ptr<Graph>*>(ri);
        handles.erase(graph->get());
        delete graph;
    });
}

}  // extern "C"
