// Cooperative groups: the lanes of a warp that are active together.
#pragma once

#include "asim/simt.h"

namespace cooperative_groups {

class coalesced_group {
 public:
  ASIM_METHOD explicit coalesced_group(uint32_t mask) : mask_(mask) {}
  ASIM_METHOD void sync(const void* where = __builtin_source_location()) const {
    const uint64_t* values;
    uint32_t active = asim_warp_gather(0, &values, where, ASIM_SITE);
    if (active != mask_) asim::fail("deadlock", "coalesced_group::sync: lanes %#x of the group, but lanes %#x arrived", mask_, active);
  }
  ASIM_METHOD unsigned long long num_threads() const { return __builtin_popcount(mask_); }
  ASIM_METHOD unsigned long long size() const { return num_threads(); }
  ASIM_METHOD unsigned long long thread_rank() const { return __builtin_popcount(mask_ & ((1u << asim_lane()) - 1)); }

 private:
  uint32_t mask_;
};

ASIM_FN coalesced_group coalesced_threads(const void* where = __builtin_source_location()) {
  return coalesced_group(asc_activemask(where));
}

}  // namespace cooperative_groups
