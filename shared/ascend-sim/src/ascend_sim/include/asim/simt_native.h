// SIMT: what kernels and native/simt.cpp share.
#pragma once

#include "asim/core.h"

namespace asim {

struct Index3 {
  uint32_t x, y, z;
};

}  // namespace asim

extern "C" {
// Set for the running thread. To a thread they are constants.
#ifdef ASIM_NATIVE
extern asim::Index3 threadIdx, blockDim, blockIdx, gridDim;
#else
extern const asim::Index3 threadIdx, blockDim, blockIdx, gridDim;
#endif

void asim_simt_run(const asim::Index3* size, void (*body)(void*), void* argument, bool checks, const void* site);
// `where` identifies the call in the source, `site` in the machine code.
void asim_simt_barrier(const void* where, const void* site);
// Waits for the other lanes of the warp; returns the lanes that take part and what each brought.
uint32_t asim_warp_gather(uint64_t value, const uint64_t** values, const void* where, const void* site);
uint64_t asim_warp_shuffle(uint64_t value, uint32_t lane, const void* where, const void* site);
uint32_t asim_lane();
// Checks an atomic access to UB or GM and returns its address.
uint8_t* asim_simt_atomic(uint64_t address, uint32_t bytes, bool checks, const void* site);
}
