// Finds what is alive at a moment of a recording in memory: at its peak, at its end, or at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"
#include "profiler/report/alive_tree.h"

namespace shardlens::profiler {

struct AliveMoment {
  enum class Kind : uint8_t { peak, end, time } at = Kind::peak;
  int64_t time_ns = 0;  // with Kind::time: after all events up to then
};

/// Parses "peak", "end" or seconds since the recording began. Throws std::invalid_argument, which
/// names --at, for anything else.
AliveMoment parse_moment(const std::string& text);

struct AliveBlocks {
  int64_t time_ns = 0;  // of the event that led there
  int64_t step = -1;    // the last that had begun; -1: none
  int64_t bytes = 0;    // as the allocator gave them
  int64_t count = 0;
  std::vector<AliveGroup> groups;
};

/// Returns what is alive on the device, or on the host if nothing was allocated on a device. The
/// first of equally high peaks counts.
AliveBlocks alive_at(const Profile& profile, const AliveMoment& moment);

}  // namespace shardlens::profiler
