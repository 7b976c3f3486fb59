// How a compiled kernel library, the runtime and the core library meet.
//
// For every `__global__` function the compiler driver appends ASIM_KERNEL(name, cubes, vectors, "parameter names"), which exports a
// descriptor `asim_kernel_<name>`, and turns `name<<<grid, ub, stream>>>(args...)` into asim::launch(descriptor, grid, stream, args...).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct asim_kernel {
  const char* name;
  const char* parameters;                // names, comma separated, in order
  uint32_t cubes;                        // cube cores a block: 0 or 1
  uint32_t vectors;                      // vector cores a block: 0, 1 or 2
  bool simt;                             // has SIMT regions, so the data cache takes part of UB
  void (*body)(const void* arguments);   // one core's instruction stream
  uint32_t argument_count;
  const uint8_t* is_pointer;             // a byte an argument
  const uint32_t* offsets;               // of each argument in the packed buffer
  uint32_t argument_bytes;
};

// Launches `blocks` blocks; arguments are packed as for aclrtLaunchKernelWithHostArgs (each aligned to max(4, its alignment)).
// Returns 0, or nonzero with the report in asim_error(). With a hook set (a runtime with queues and capture), the hook decides when
// to call asim_run; without, it runs at once.
int asim_launch(const asim_kernel* kernel, uint32_t blocks, void* stream, const void* arguments, size_t bytes);
int asim_run(const asim_kernel* kernel, uint32_t blocks, const void* arguments, size_t bytes);
using asim_launch_hook = int (*)(const asim_kernel*, uint32_t blocks, void* stream, const void* arguments, size_t bytes);
void asim_set_launch_hook(asim_launch_hook hook);

// The report of the last failed run in this process (JSON), or "". A hook that fails sets its own.
const char* asim_error();
int asim_last_error();  // its ACL error number, or 0
void asim_set_error(const char* report);
// Called when a kernel library is loaded.
void asim_set_load_hook(void (*hook)());
void asim_library_loaded();
// For every tensor argument of the last run, the range of addresses read and the one written.
void asim_global_accesses(void (*visit)(void* context, uint64_t begin, uint64_t end, bool write), void* context);
// Counts of the last run (JSON).
const char* asim_trace();
// Device allocations; kernels may touch registered global memory only (no check while nothing is registered).
void asim_memory_add(const void* address, size_t bytes, const char* name);
void asim_memory_remove(const void* address);
}
