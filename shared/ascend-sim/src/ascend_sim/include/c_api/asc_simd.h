#pragma once

#include "asim/core.h"
#include "asim/keywords.h"
#include "asim/types.h"
#include "asim/sync.h"
#include "asim/dma.h"
#include "asim/simd.h"
#include "asim/cube.h"
