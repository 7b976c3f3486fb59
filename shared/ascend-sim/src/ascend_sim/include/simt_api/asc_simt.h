#pragma once

#include "asim/simt.h"
