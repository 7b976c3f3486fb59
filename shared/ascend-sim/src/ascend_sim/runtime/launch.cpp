// Kernels: device modules loaded through the ACL, and the launches of both of TileLang's execution backends.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "acl/acl.h"
#include "asim/launch.h"
#include "device.h"

using namespace asim;

namespace {

struct Argument {
    std::string name;
    Allocation allocation;
};

std::vector<std::string> parameter_names(const asim_kernel& kernel) {
    std::vector<std::string> names;
    std::string text = kernel.parameters;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        names.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    names.resize(kernel.argument_count);
    return names;
}

// A report as lines: JSON without its quotes and outer braces, a line for every member at the top.
std::string readable(const std::string& json) {
    std::string text;
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (quoted && c == '\\' && i + 1 < json.size()) {
            const char escaped = json[++i];
            text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (quoted) {
            text += c;
        } else if (c == '{' || c == '[') {
            if (depth++ > 0) text += "(";
        } else if (c == '}' || c == ']') {
            if (--depth > 0) text += ")";
        } else if (c == ',' && depth == 1) {
            text += "\n ";
        } else {
            text += c;
        }
    }
    return text;
}

void run_kernel(Task& task, const asim_kernel& kernel, uint32_t blocks, const std::vector<char>& arguments,
                const std::vector<Argument>& tensors) {
    // A kernel may touch the tensors that it was given and no others; the extra byte keeps that check on without any.
    static char nothing;
    asim_memory_add(&nothing, 1, "nothing");
    for (const Argument& tensor : tensors) {
        asim_memory_add(reinterpret_cast<void*>(tensor.allocation.begin), tensor.allocation.end - tensor.allocation.begin,
                        tensor.name.c_str());
    }
    const int status = asim_run(&kernel, blocks, arguments.data(), arguments.size());
    for (const Argument& tensor : tensors) asim_memory_remove(reinterpret_cast<void*>(tensor.allocation.begin));
    asim_memory_remove(&nothing);
    if (status != 0) throw Error(ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "a check failed\n  " + readable(asim_error()));
    asim_global_accesses(
        [](void* context, uint64_t begin, uint64_t end, bool write) {
            static_cast<Task*>(context)->accesses.push_back({begin, end, write});
        },
        &task);
}

void launch(const asim_kernel* kernel, uint32_t blocks, void* stream, const void* packed, size_t bytes) {
    if (bytes < kernel->argument_bytes) {
        throw Error(ACL_ERROR_INVALID_PARAM, std::string("kernel ") + kernel->name + " takes " +
                                                 std::to_string(kernel->argument_bytes) + " bytes of arguments, not " +
                                                 std::to_string(bytes));
    }
    const auto* first = static_cast<const char*>(packed);
    std::vector<char> arguments(first, first + kernel->argument_bytes);
    const std::vector<std::string> names = parameter_names(*kernel);
    std::vector<Argument> tensors;
    auto task = std::make_shared<Task>();
    task->name = kernel->name;
    for (uint32_t i = 0; i < kernel->argument_count; ++i) {
        if (!kernel->is_pointer[i]) continue;
        uintptr_t address;
        std::memcpy(&address, arguments.data() + kernel->offsets[i], sizeof address);
        const Allocation allocation = live_allocation(address);
        if (!allocation) continue;  // null, or the end of an empty tensor: the kernel may not touch it
        task->pointers.push_back(address);
        const bool known = std::any_of(tensors.begin(), tensors.end(),
                                       [&](const Argument& other) { return other.allocation.begin == allocation.begin; });
        if (!known) tensors.push_back({names[i], allocation});
    }
    task->run = [=](Task& running) { run_kernel(running, *kernel, blocks, arguments, tensors); };
    enqueue(as_stream(stream), std::move(task));
}

int launch_hook(const asim_kernel* kernel, uint32_t blocks, void* stream, const void* arguments, size_t bytes) {
    const int status = guarded(kernel->name, [&] { launch(kernel, blocks, stream, arguments, bytes); });
    if (status != 0) asim_set_error(peek_message().c_str());
    return status;
}

void load_hook() {
    guarded("loading a kernel library", [] { refuse_while_capturing("loading a kernel library"); });
}

// The file stays open while the module is loaded: the loader takes equal paths for the same library, and reports of failed
// checks look source lines up in it.
struct Module {
    void* library = nullptr;
    int file = -1;
    ~Module() {
        if (library) dlclose(library);
        if (file >= 0) close(file);
    }
};

__attribute__((constructor)) void install() {
    asim_set_launch_hook(launch_hook);
    asim_set_load_hook(load_hook);
}

}  // namespace

extern "C" {

aclError aclrtBinaryLoadFromData(const void* data, size_t length, const aclrtBinaryLoadOptions*, aclrtBinHandle* handle) {
    return guarded("aclrtBinaryLoadFromData", [&] {
        refuse_while_capturing("loading a device module");
        // An anonymous file: nothing is left behind however the process ends.
        auto module = std::make_unique<Module>();
        module->file = memfd_create("ascend-sim-kernel", MFD_CLOEXEC);
        if (module->file < 0) throw Error(ACL_ERROR_INTERNAL_ERROR, "no anonymous file could be made for a device module");
        for (size_t done = 0; done < length;) {
            const ssize_t step = write(module->file, static_cast<const char*>(data) + done, length - done);
            if (step <= 0) throw Error(ACL_ERROR_INTERNAL_ERROR, "a device module could not be written to memory");
            done += static_cast<size_t>(step);
        }
        const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(module->file);
        module->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!module->library) throw Error(ACL_ERROR_RT_INTERNAL_ERROR, std::string("a device module could not be loaded: ") + dlerror());
        *handle = module.release();
    });
}

aclError aclrtBinaryUnLoad(aclrtBinHandle handle) {
    return guarded("aclrtBinaryUnLoad", [&] {
        synchronize_device();
        delete static_cast<Module*>(handle);
    });
}

aclError aclrtBinaryGetFunction(const aclrtBinHandle handle, const char* name, aclrtFuncHandle* function) {
    return guarded("aclrtBinaryGetFunction", [&] {
        *function = dlsym(static_cast<Module*>(handle)->library, (std::string("asim_kernel_") + name).c_str());
        if (!*function) throw Error(ACL_ERROR_RT_KERNEL_LOOKUP, std::string("the device module has no kernel named ") + name);
    });
}

aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle function, uint32_t blocks, aclrtStream stream, aclrtLaunchKernelCfg*,
                                       void* arguments, size_t bytes, aclrtPlaceHolderInfo*, size_t placeholders) {
    return guarded("aclrtLaunchKernelWithHostArgs", [&] {
        if (placeholders != 0) {
            throw Error(ACL_ERROR_API_NOT_SUPPORT, "aclrtLaunchKernelWithHostArgs: placeholders are not simulated");
        }
        launch(static_cast<const asim_kernel*>(function), blocks, stream, arguments, bytes);
    });
}

}  // extern "C"
