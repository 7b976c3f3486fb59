#pragma once

#include "asim/simt_fp16.h"
