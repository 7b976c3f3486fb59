#pragma once

#include "asim/core.h"
#include "asim/types.h"
