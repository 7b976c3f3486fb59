#pragma once

#include "asim/simt_groups.h"
