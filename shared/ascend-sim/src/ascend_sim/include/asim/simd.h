// The vector unit: every instruction works on 256-byte registers and belongs to pipe V.
#pragma once

#include "asim/keywords.h"
#include "asim/simd_register.h"
#include "asim/simd_mask.h"
#include "asim/simd_compute.h"
#include "asim/simd_memory.h"
#include "asim/simd_convert.h"
