#pragma once

#include "asim/simt_fp8.h"
