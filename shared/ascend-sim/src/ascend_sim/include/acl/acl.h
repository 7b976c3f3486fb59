// What generated host code uses of the ACL; the functions belong to the runtime.
#pragma once

#include "asim/launch.h"

using aclError = int;
using aclrtStream = void*;
enum aclrtLastErrLevel { ACL_RT_THREAD_LEVEL = 0 };
inline constexpr int ACL_SUCCESS = 0;

static inline aclError aclrtGetLastError(aclrtLastErrLevel) { return asim_last_error(); }
