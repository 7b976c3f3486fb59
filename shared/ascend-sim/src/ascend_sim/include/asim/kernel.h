// What the compiler driver adds to generated source: descriptors and launches.
#pragma once

#include <cstdio>
#include <utility>

#include "asim/core.h"
#include "asim/launch.h"

namespace asim {

template <auto function>
struct Kernel;

template <typename... Args, void (*function)(Args...)>
struct Kernel<function> {
  static constexpr uint32_t count = sizeof...(Args);

  // The layout of aclrtLaunchKernelWithHostArgs.
  struct Layout {
    uint32_t offsets[count + 1];
    uint8_t is_pointer[count + 1];
    uint32_t bytes;
  };
  static constexpr Layout make_layout() {
    Layout layout{};
    const uint32_t sizes[] = {sizeof(Args)..., 1};
    const uint32_t aligns[] = {alignof(Args)..., 1};
    const bool pointers[] = {std::is_pointer_v<Args>..., false};
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t align = aligns[i] < 4 ? 4 : aligns[i];
      at = (at + align - 1) / align * align;
      layout.offsets[i] = at;
      layout.is_pointer[i] = pointers[i];
      at += sizes[i];
    }
    layout.bytes = (at + 7) / 8 * 8;
    return layout;
  }
  static constexpr Layout layout = make_layout();

  template <typename T>
  static T argument(const void* arguments, uint32_t i) {
    T value;
    copy(&value, static_cast<const uint8_t*>(arguments) + layout.offsets[i], sizeof(T));
    return value;
  }
  template <size_t... I>
  static void call(const void* arguments, std::index_sequence<I...>) {
    function(argument<Args>(arguments, I)...);
  }
  __attribute__((no_sanitize("thread"))) static void body(const void* arguments) { call(arguments, std::index_sequence_for<Args...>()); }
};

template <auto function, typename... Args>
inline void launch(const asim_kernel& kernel, uint32_t blocks, void* stream, Args... args) {
  using Entry = Kernel<function>;
  static_assert(sizeof...(Args) == Entry::count, "the launch passes another number of arguments than the kernel takes");
  alignas(8) uint8_t packed[Entry::layout.bytes + 8] = {};
  [&]<typename... Types, size_t... I>(void (*)(Types...), std::index_sequence<I...>) {
    ([&] {
      Types value = (Types)args;
      __builtin_memcpy(packed + Entry::layout.offsets[I], &value, sizeof(Types));
    }(), ...);
  }(function, std::index_sequence_for<Args...>());
  asim_launch(&kernel, blocks, stream, packed, Entry::layout.bytes);
}

}  // namespace asim

__attribute__((constructor)) static void asim_announce_library() { asim_library_loaded(); }

// In place of TileLang's TILELANG_CHECK_LAST_ERROR, which knows a number only.
#define ASIM_CHECK_LAST_ERROR(kernel_name)                                        \
  do {                                                                            \
    if (asim_last_error() != 0) {                                                 \
      snprintf(error_buf, ERROR_BUF_SIZE, "%s: %s", kernel_name, asim_error());   \
      return -1;                                                                  \
    }                                                                             \
  } while (0)

#define ASIM_KERNEL(name, cubes, vectors, simt, parameters)                                                                \
  extern "C" __attribute__((visibility("default"), used)) const asim_kernel asim_kernel_##name = {                         \
      #name, parameters, cubes, vectors, simt, &asim::Kernel<&name>::body, asim::Kernel<&name>::count,                     \
      asim::Kernel<&name>::layout.is_pointer, asim::Kernel<&name>::layout.offsets, asim::Kernel<&name>::layout.bytes};
