#include "opapi.h"

#include <ATen/record_function.h>
#include <torch_npu/csrc/core/npu/NPUCachingAllocator.h>

#include <cstring>

namespace asim {

at::ScalarType scalar_type(aclDataType type) {
    switch (type) {
        case ACL_FLOAT: return at::kFloat;
        case ACL_FLOAT16: return at::kHalf;
        case ACL_BF16: return at::kBFloat16;
        case ACL_DOUBLE: return at::kDouble;
        case ACL_INT8: return at::kChar;
        case ACL_INT16: return at::kShort;
        case ACL_INT32: return at::kInt;
        case ACL_INT64: return at::kLong;
        case ACL_UINT8: return at::kByte;
        case ACL_UINT16: return at::kUInt16;
        case ACL_UINT32: return at::kUInt32;
        case ACL_UINT64: return at::kUInt64;
        case ACL_BOOL: return at::kBool;
        case ACL_COMPLEX64: return at::kComplexFloat;
        case ACL_COMPLEX128: return at::kComplexDouble;
        case ACL_FLOAT8_E5M2: return at::kFloat8_e5m2;
        case ACL_FLOAT8_E4M3FN: return at::kFloat8_e4m3fn;
        default: throw Error(ACL_ERROR_INVALID_PARAM, "data type " + std::to_string(type) + " is not simulated");
    }
}

at::Tensor tensor(const Held& held) {
    const at::ScalarType type = scalar_type(held->type);
    char* data = held->data + held->offset * static_cast<int64_t>(c10::elementSize(type));
    return at::from_blob(data, held->sizes, held->strides, at::TensorOptions().dtype(type));
}

std::vector<at::Tensor> tensors(const std::vector<Held>& list) {
    std::vector<at::Tensor> result;
    for (const Held& held : list) result.push_back(tensor(held));
    return result;
}

Held hold_required(const aclTensor* handle, const char* function, const char* parameter) {
    if (!handle) throw Error(ACL_ERROR_INVALID_PARAM, std::string(function) + ": the tensor '" + parameter + "' is missing");
    return handle->held;
}

// The ranges of memory that a strided tensor covers: exact for up to 1024 of them, one around everything beyond.
void add_access(std::vector<Access>& accesses, const Held& held, bool write) {
    if (!held || !is_device(held->data)) return;
    const int64_t bytes = static_cast<int64_t>(c10::elementSize(scalar_type(held->type)));
    int64_t run = 1, outer = 1, extent = 1;
    int64_t inner = static_cast<int64_t>(held->sizes.size());
    for (int64_t size : held->sizes) {
        if (size == 0) return;
    }
    while (inner > 0 && held->strides[static_cast<size_t>(inner - 1)] == run) run *= held->sizes[static_cast<size_t>(--inner)];
    for (int64_t i = 0; i < inner; ++i) outer *= held->sizes[static_cast<size_t>(i)];
    for (size_t i = 0; i < held->sizes.size(); ++i) extent += (held->sizes[i] - 1) * held->strides[i];
    const auto base = reinterpret_cast<uintptr_t>(held->data) + static_cast<uintptr_t>(held->offset * bytes);
    if (outer == 1 || outer > 1024) {
        accesses.push_back({base, base + static_cast<uintptr_t>((outer == 1 ? run : extent) * bytes), write});
        return;
    }
    std::vector<int64_t> position(static_cast<size_t>(inner), 0);
    for (int64_t n = 0; n < outer; ++n) {
        int64_t at = 0;
        for (size_t i = 0; i < position.size(); ++i) at += position[i] * held->strides[i];
        const uintptr_t begin = base + static_cast<uintptr_t>(at * bytes);
        accesses.push_back({begin, begin + static_cast<uintptr_t>(run * bytes), write});
        for (size_t i = position.size(); i-- > 0;) {
            if (++position[i] < held->sizes[i]) break;
            position[i] = 0;
        }
    }
}

int prepare(const char* name, uint64_t* workspace, aclOpExecutor** executor, const std::function<void(aclOpExecutor&)>& fill) {
    return guarded(name, [&] {
        auto made = std::make_unique<aclOpExecutor>();
        made->name = name;
        fill(*made);
        *workspace = 0;
        *executor = made.release();
    });
}

int execute(aclOpExecutor* executor, aclrtStream stream) {
    const std::unique_ptr<aclOpExecutor> owned(executor);
    return guarded(owned->name.c_str(), [&] {
        enqueue_work(as_stream(stream), owned->name, std::move(owned->accesses), [name = owned->name, body = owned->body](Task&) {
            // The caller's autograd, modes and profiler must not see the host's computation.
            const at::AutoDispatchBelowADInplaceOrView below_autograd;
            const c10::impl::ExcludeDispatchKeyGuard no_python(
                c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
            const at::DisableRecordFunctionGuard no_record;
            try {
                body();
            } catch (const c10::Error& error) {
                throw Error(ACL_ERROR_INVALID_PARAM, name + ": " + error.what_without_backtrace());
            }
        });
    });
}

c10::List<std::optional<at::Tensor>> optional(const std::vector<at::Tensor>& indices) {
    c10::List<std::optional<at::Tensor>> result;
    for (const at::Tensor& index : indices) {
        if (index.dim() == 1 && index.numel() == 0) {
            result.push_back(std::nullopt);
        } else {
            result.push_back(index.scalar_type() == at::kInt ? index.to(at::kLong) : index);
        }
    }
    return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& mean,
                                                                   const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                                                   const std::optional<at::Tensor>& bias, const std::vector<bool>& mask) {
    return at::native_layer_norm_backward(grad.contiguous(), input.contiguous(), shape, mean, rstd, weight, bias, three(mask));
}

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& input, const at::Tensor& weight, double eps) {
    const at::Tensor wide = input.to(at::kFloat);
    std::vector<int64_t> dims;
    for (int64_t i = input.dim() - weight.dim(); i < input.dim(); ++i) dims.push_back(i);
    const at::Tensor rstd = at::rsqrt(wide.square().mean(dims, true) + eps);
    return {wide * rstd * weight.to(at::kFloat), rstd};
}

void split_into(const at::Tensor& input, at::IntArrayRef sizes, int64_t dim, const std::vector<at::Tensor>& outs) {
    const std::vector<at::Tensor> parts = at::split_with_sizes(input, sizes, dim);
    for (size_t i = 0; i < outs.size(); ++i) outs[i].copy_(parts.at(i));
}

void shrink(const Held& out, const at::Tensor& value) {
    out->sizes = value.sizes().vec();
    out->strides = at::empty(value.sizes(), at::TensorOptions().device(at::kMeta)).strides().vec();
    tensor(out).copy_(value);
}

}  // namespace asim

using namespace asim;

extern "C" {

aclTensor* aclCreateTensor(const int64_t* dims, uint64_t count, aclDataType type, const int64_t* strides, int64_t offset, aclFormat, const int64_t*,
                           uint64_t, void* data) {
    auto held = std::make_shared<TensorDescriptor>();
    held->sizes.assign(dims, dims + count);
    held->strides.assign(strides, strides + count);
    held->offset = offset;
    held->type = type;
    held->data = static_cast<char*>(data);
    return new aclTensor{held};
}

aclScalar* aclCreateScalar(void* value, aclDataType type) {
    try {
        return new aclScalar{at::from_blob(value, {}, at::TensorOptions().dtype(scalar_type(type))).item()};
    } catch (const Error& error) {
        fail(error.code, error.what());
        return nullptr;
    }
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) { return new aclIntArray{std::vector<int64_t>(value, value + size)}; }
aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) { return new aclFloatArray{std::vector<float>(value, value + size)}; }
aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) { return new aclBoolArray{std::vector<bool>(value, value + size)}; }

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
    auto* list = new aclTensorList();
    for (uint64_t i = 0; i < size; ++i) {
        list->held.push_back(value[i]->held);
        delete value[i];  // the list owns its members
    }
    return list;
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
    auto* list = new aclScalarList();
    for (uint64_t i = 0; i < size; ++i) {
        list->held.push_back(value[i]->held);
        delete value[i];
    }
    return list;
}

int aclDestroyTensor(const aclTensor* handle) { return delete handle, ACL_SUCCESS; }
int aclDestroyScalar(const aclScalar* handle) { return delete handle, ACL_SUCCESS; }
int aclDestroyIntArray(const aclIntArray* handle) { return delete handle, ACL_SUCCESS; }
int aclDestroyFloatArray(const aclFloatArray* handle) { return delete handle, ACL_SUCCESS; }
int aclDestroyBoolArray(const aclBoolArray* handle) { return delete handle, ACL_SUCCESS; }
int aclDestroyTensorList(const aclTensorList* handle) { return delete handle, ACL_SUCCESS; }
int aclDestroyScalarList(const aclScalarList* handle) { return delete handle, ACL_SUCCESS; }
int aclDestroyAclOpExecutor(aclOpExecutor* handle) { return delete handle, ACL_SUCCESS; }

// The caller releases the dimensions with delete[].
int aclGetViewShape(const aclTensor* handle, int64_t** dims, uint64_t* count) {
    const std::vector<int64_t>& sizes = handle->held->sizes;
    *count = sizes.size();
    *dims = new int64_t[sizes.size()];
    std::copy(sizes.begin(), sizes.end(), *dims);
    return ACL_SUCCESS;
}

// Called by the runtime at its first allocation: from then on it knows every tensor's memory.
void asim_watch_caching_allocator() {
    using c10_npu::NPUCachingAllocator::TraceEntry;
    c10_npu::NPUCachingAllocator::get()->attachAllocatorTraceTracker([](const TraceEntry& entry) {
        const auto address = static_cast<uintptr_t>(entry.addr_);
        const bool pooled = entry.mempool_.first != 0 || entry.mempool_.second != 0;
        switch (entry.action_) {
            case TraceEntry::SEGMENT_ALLOC: note_segment(address, pooled); break;
            case TraceEntry::ALLOC: note_block(address, static_cast<size_t>(entry.size_)); break;
            case TraceEntry::FREE_COMPLETED: forget_block(address); break;
            default: break;
        }
    });
}

}  // extern "C"
