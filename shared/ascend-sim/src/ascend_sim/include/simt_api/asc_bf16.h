#pragma once

#include "asim/simt_bf16.h"
