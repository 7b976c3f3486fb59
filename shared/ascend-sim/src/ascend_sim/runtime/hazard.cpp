// Conflicting accesses of two streams with nothing that orders them: no event, no synchronisation of the host between.
#include <sstream>

#include "acl/acl.h"
#include "device.h"

namespace asim {
namespace {

struct Use {
    uint64_t tick = 0;
    std::string name;
};

// What is remembered of a range: the last write, and each stream's last read since.
struct Cell {
    uintptr_t end;
    uint32_t writer = 0;
    Use write;
    std::map<uint32_t, Use> reads;
};

std::map<uintptr_t, Cell> cells;

// Makes `address` a boundary between cells.
void split(uintptr_t address) {
    auto next = cells.lower_bound(address);
    if (next == cells.begin()) return;
    auto cell = std::prev(next);
    if (cell->second.end <= address) return;
    Cell upper = cell->second;
    cell->second.end = address;
    cells.emplace_hint(next, address, std::move(upper));
}

bool ordered(uint32_t stream, uint64_t tick, const Clock& clock) {
    auto found = clock.find(stream);
    return tick == 0 || (found != clock.end() && found->second >= tick);
}

std::string who(const std::string& name, uint32_t stream) {
    return "'" + name + "' " + (stream == HOST ? std::string("of the host") : "on stream " + std::to_string(stream));
}

[[noreturn]] void report(const std::string& name, uint32_t stream, bool write, const Use& other, uint32_t other_stream,
                         bool other_write, uintptr_t begin, uintptr_t end) {
    std::ostringstream text;
    text << "hazard between streams: " << who(name, stream) << (write ? " writes " : " reads ") << end - begin
         << " bytes at 0x" << std::hex << begin << std::dec << " that " << who(other.name, other_stream)
         << (other_write ? " writes" : " reads")
         << ", and nothing orders the two. Launch on the current stream, or make one stream wait for an event of the "
            "other.";
    throw Error(ACL_ERROR_RT_INTERNAL_ERROR, text.str());
}

void check(const std::string& name, const Access& access, uint32_t stream, const Clock& clock) {
    if (access.begin >= access.end) return;
    split(access.begin);
    split(access.end);
    const uint64_t tick = clock.at(stream);
    auto cell = cells.lower_bound(access.begin);
    for (auto it = cell; it != cells.end() && it->first < access.end; ++it) {
        const Cell& seen = it->second;
        if (!ordered(seen.writer, seen.write.tick, clock)) {
            report(name, stream, access.write, seen.write, seen.writer, true, it->first, seen.end);
        }
        if (!access.write) continue;
        for (const auto& [reader, read] : seen.reads) {
            if (!ordered(reader, read.tick, clock)) {
                report(name, stream, true, read, reader, false, it->first, seen.end);
            }
        }
    }
    if (access.write) {
        cells.erase(cell, cells.lower_bound(access.end));
        cells[access.begin] = {access.end, stream, {tick, name}, {}};
        return;
    }
    uintptr_t position = access.begin;
    while (position < access.end) {
        auto next = cells.lower_bound(position);
        if (next == cells.end() || next->first != position) {
            const uintptr_t end = next == cells.end() ? access.end : std::min(access.end, next->first);
            next = cells.emplace_hint(next, position, Cell{end, 0, {}, {}});
        }
        next->second.reads[stream] = {tick, name};
        position = next->second.end;
    }
}

}  // namespace

void check_accesses(const std::string& name, const std::vector<Access>& accesses, uint32_t stream, const Clock& clock) {
    // Reads first: a task that updates in place is no hazard with itself.
    for (const Access& access : accesses) {
        if (!access.write) check(name, access, stream, clock);
    }
    for (const Access& access : accesses) {
        if (access.write) check(name, access, stream, clock);
    }
}

void forget_accesses(uintptr_t begin, uintptr_t end) {
    split(begin);
    split(end);
    cells.erase(cells.lower_bound(begin), cells.lower_bound(end));
}

}  // namespace asim
