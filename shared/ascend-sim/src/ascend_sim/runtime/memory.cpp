// Device memory is host memory. Segments come from the driver calls; blocks are the tensors inside them.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "acl/acl.h"
#include "device.h"

namespace asim {
namespace {

struct Segment {
    uintptr_t end;
    uint64_t serial;
    bool blocks_known = false;  // a caching allocator reports the tensors inside
    bool pooled = false;        // belongs to a private pool of a graph
};

struct Block {
    uintptr_t end;
    uint64_t serial;
};

// Simulated cores ask from threads of their own, so memory has a lock apart from the device's.
std::mutex mutex;
std::map<uintptr_t, Segment> segments;
std::map<uintptr_t, Block> blocks;
std::map<uintptr_t, size_t> host_ranges;
size_t used = 0;
uint64_t serial = 0;

size_t round_to_pages(size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

template <class Map>
auto containing(Map& map, uintptr_t address) {
    auto next = map.upper_bound(address);
    if (next == map.begin()) return map.end();
    --next;
    return next;
}

}  // namespace

void* allocate_device(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    const Settings& settings = Settings::get();
    const size_t size = round_to_pages(bytes ? bytes : 1);
    if (size > settings.memory_bytes - used) {
        throw Error(ACL_ERROR_RT_MEMORY_ALLOCATION,
                    "out of device memory: " + std::to_string(bytes) + " bytes were asked for, " +
                        std::to_string(settings.memory_bytes - used) + " of " +
                        std::to_string(settings.memory_bytes) + " are free (ASCEND_SIM_MEMORY sets the size)");
    }
    void* pointer = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pointer == MAP_FAILED) {
        throw Error(ACL_ERROR_RT_MEMORY_ALLOCATION,
                    "the host has no memory left for " + std::to_string(bytes) + " bytes of simulated device memory");
    }
    // Fresh device memory is not zero on a board. All ones is NaN in every float type, so what reads it shows.
    std::memset(pointer, 0xFF, size);
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    segments[begin] = {begin + size, ++serial};
    used += size;
    return pointer;
}

void free_device(void* pointer) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    auto found = segments.find(begin);
    if (found == segments.end()) {
        throw Error(ACL_ERROR_INVALID_PARAM, "aclrtFree: the address was not returned by aclrtMalloc, or is free already");
    }
    const uintptr_t end = found->second.end;
    blocks.erase(blocks.lower_bound(begin), blocks.lower_bound(end));
    segments.erase(found);
    used -= end - begin;
    munmap(pointer, end - begin);
}

void* allocate_host(size_t bytes) {
    void* pointer = nullptr;
    if (posix_memalign(&pointer, 4096, bytes ? bytes : 1) != 0) {
        throw Error(ACL_ERROR_BAD_ALLOC, "the host has no memory left for " + std::to_string(bytes) + " bytes");
    }
    std::lock_guard<std::mutex> lock(mutex);
    host_ranges[reinterpret_cast<uintptr_t>(pointer)] = bytes ? bytes : 1;
    return pointer;
}

void free_host(void* pointer) {
    std::lock_guard<std::mutex> lock(mutex);
    if (host_ranges.erase(reinterpret_cast<uintptr_t>(pointer)) == 0) {
        throw Error(ACL_ERROR_INVALID_PARAM,
                    "aclrtFreeHost: the address was not returned by aclrtMallocHost, or is free already");
    }
    std::free(pointer);
}

bool is_pinned_host(const void* pointer) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    auto found = containing(host_ranges, address);
    return found != host_ranges.end() && address < found->first + found->second;
}

bool is_device(const void* pointer) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    auto found = containing(segments, address);
    return found != segments.end() && address < found->second.end;
}

size_t device_bytes_used() {
    std::lock_guard<std::mutex> lock(mutex);
    return used;
}

uint64_t allocation_serial() {
    std::lock_guard<std::mutex> lock(mutex);
    return serial;
}

Allocation live_allocation(uintptr_t address) {
    std::lock_guard<std::mutex> lock(mutex);
    auto block = containing(blocks, address);
    if (block != blocks.end() && address < block->second.end) {
        return {block->first, block->second.end, block->second.serial};
    }
    auto segment = containing(segments, address);
    if (segment != segments.end() && address < segment->second.end && !segment->second.blocks_known) {
        return {segment->first, segment->second.end, segment->second.serial};
    }
    return {};
}

Allocation segment_at(uintptr_t address) {
    std::lock_guard<std::mutex> lock(mutex);
    auto segment = containing(segments, address);
    if (segment == segments.end() || address >= segment->second.end) return {};
    return {segment->first, segment->second.end, segment->second.serial};
}

bool in_graph_pool(uintptr_t address) {
    std::lock_guard<std::mutex> lock(mutex);
    auto segment = containing(segments, address);
    return segment != segments.end() && address < segment->second.end && segment->second.pooled;
}

void note_segment(uintptr_t begin, bool pooled) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = segments.find(begin);
    if (found == segments.end()) return;
    found->second.blocks_known = true;
    found->second.pooled = pooled;
}

void note_block(uintptr_t begin, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    blocks[begin] = {begin + bytes, ++serial};
}

void forget_block(uintptr_t begin) {
    std::lock_guard<std::mutex> lock(mutex);
    blocks.erase(begin);
}

}  // namespace asim
