// What the generated aclnn functions are made of: descriptors of tensors and scalars, and bodies that compute on CPU tensors.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/CPUGeneratorImpl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "acl/acl.h"
#include "device.h"

struct TensorDescriptor {
    std::vector<int64_t> sizes, strides;
    int64_t offset;
    aclDataType type;
    char* data;
};

// The handles of the C interface. A body may run after its caller destroyed them, so what they hold is shared.
struct aclTensor {
    std::shared_ptr<TensorDescriptor> held;
};
struct aclScalar {
    at::Scalar held;
};
struct aclIntArray {
    std::vector<int64_t> held;
};
struct aclFloatArray {
    std::vector<float> held;
};
struct aclBoolArray {
    std::vector<bool> held;
};
struct aclTensorList {
    std::vector<std::shared_ptr<TensorDescriptor>> held;
};
struct aclScalarList {
    std::vector<at::Scalar> held;
};
struct aclOpExecutor {
    std::string name;
    std::vector<asim::Access> accesses;
    std::function<void()> body;
};

namespace asim {

using Held = std::shared_ptr<TensorDescriptor>;

at::ScalarType scalar_type(aclDataType type);
at::Tensor tensor(const Held& held);
inline std::optional<at::Tensor> optional_tensor(const Held& held) {
    return held ? std::optional<at::Tensor>(tensor(held)) : std::nullopt;
}
std::vector<at::Tensor> tensors(const std::vector<Held>& list);

inline Held hold(const aclTensor* handle) { return handle ? handle->held : nullptr; }
Held hold_required(const aclTensor* handle, const char* function, const char* parameter);
inline at::Scalar hold(const aclScalar* handle) { return handle->held; }
inline std::optional<at::Scalar> hold_optional(const aclScalar* handle) {
    return handle ? std::optional<at::Scalar>(handle->held) : std::nullopt;
}
inline std::vector<int64_t> hold(const aclIntArray* handle) { return handle ? handle->held : std::vector<int64_t>(); }
inline std::vector<bool> hold(const aclBoolArray* handle) { return handle->held; }
inline std::vector<Held> hold(const aclTensorList* handle) { return handle ? handle->held : std::vector<Held>(); }

void add_access(std::vector<Access>& accesses, const Held& held, bool write);
inline void add_access(std::vector<Access>& accesses, const std::vector<Held>& list, bool write) {
    for (const Held& held : list) add_access(accesses, held, write);
}

int prepare(const char* name, uint64_t* workspace, aclOpExecutor** executor, const std::function<void(aclOpExecutor&)>& fill);
int execute(aclOpExecutor* executor, aclrtStream stream);

// Copies values into out tensors, in order; absent ones are skipped.
inline void give(const at::Tensor& value, const at::Tensor& out) { out.copy_(value); }
inline void give(const at::Tensor& value, const std::optional<at::Tensor>& out) {
    if (out && value.defined()) out->copy_(value.reshape(out->sizes()));
}
template <class Values, class... Outs, size_t... I>
void give_each(const Values& values, std::index_sequence<I...>, const Outs&... outs) {
    (give(std::get<I>(values), outs), ...);
}
template <class... Values, class... Outs>
void give(const std::tuple<Values...>& values, const Outs&... outs) {
    give_each(values, std::index_sequence_for<Outs...>(), outs...);
}
inline bool empty(const at::Tensor& out) { return out.numel() == 0; }
inline bool empty(const std::optional<at::Tensor>& out) { return !out || out->numel() == 0; }

// ---- Helpers of the table

inline std::optional<c10::string_view> rounding(int64_t mode) {
    if (mode == 0) return std::nullopt;
    return mode == 1 ? c10::string_view("trunc") : c10::string_view("floor");
}
// An empty list of dimensions means all of them.
inline at::OptionalIntArrayRef whole(const std::vector<int64_t>& dims) {
    return dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
}
inline std::array<bool, 3> three(const std::vector<bool>& mask) { return {mask.at(0), mask.at(1), mask.at(2)}; }
inline at::Generator generator(int64_t seed, int64_t offset) {
    return at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(offset));
}
inline at::Generator generator(const at::Tensor& seed, const at::Tensor& offset, int64_t intragraph) {
    return generator(seed.item<int64_t>(), offset.item<int64_t>() + intragraph);
}
// A dimension without an index comes as an empty tensor.
c10::List<std::optional<at::Tensor>> optional(const std::vector<at::Tensor>& indices);
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& mean,
                                                                   const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                                                   const std::optional<at::Tensor>& bias, const std::vector<bool>& mask);
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& input, const at::Tensor& weight, double eps);
void split_into(const at::Tensor& input, at::IntArrayRef sizes, int64_t dim, const std::vector<at::Tensor>& outs);
template <class Source>
void scatter_into(const at::Tensor& self, int64_t dim, const at::Tensor& index, const Source& source, int64_t reduction) {
    at::Tensor target = self;
    const at::Tensor positions = index.to(at::kLong);
    if (reduction == 0) {
        target.scatter_(dim, positions, source);
    } else {
        target.scatter_(dim, positions, source, reduction == 1 ? "add" : "multiply");
    }
}
// Gives an out tensor the values and the shape that they have.
void shrink(const Held& out, const at::Tensor& value);
inline void shrink(const std::tuple<at::Tensor, at::Tensor, at::Tensor>& values, const Held& first, const Held& second, const Held& third) {
    shrink(first, std::get<0>(values));
    shrink(second, std::get<1>(values));
    shrink(third, std::get<2>(values));
}

}  // namespace asim
