// The words of the AscendC language that a host compiler does not know.
#pragma once

#include "asim/core.h"

#define __NPU_ARCH__ 3510

#define __global__
#define __vector__
#define __cube__
#define __mix__(cubes, vectors)
#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __biasbuf__
#define __fbuf__
#define __grid_constant__
#define __launch_bounds__(threads)

// Everything that runs on a core is inlined up to the kernel or vector function, so that a code address leads to its source line.
#define __aicore__ __attribute__((always_inline))
#define __simd_callee__ __attribute__((always_inline))
#define __simt_callee__ __attribute__((always_inline))
#define __SIMT_DEVICE_FUNCTIONS_DECL__ __attribute__((always_inline))
// Vector functions touch memory through intrinsics only; SIMT functions dereference pointers, which the instrumentation sees.
#define __simd_vf__ __attribute__((noinline, no_sanitize("thread")))
#define __simt_vf__ __attribute__((noinline))

#define ASC_IS_AIC (asim_core->is_cube)
#define ASC_IS_AIV (!asim_core->is_cube)

namespace AscendC {}  // templates say `using namespace AscendC`
