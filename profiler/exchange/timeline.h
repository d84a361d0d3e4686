// Reduces a recording's memory over time, by category, to as many points as the caller wants to
// draw. The peak of every stretch of time stays exact.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "profiler/exchange/event_source.h"
#include "profiler/exchange/place_names.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

using BytesByCategory = std::array<int64_t, kCategories>;

struct TimelinePoint {
  int64_t time_ns = 0;
  Place place;
  BytesByCategory bytes{};
  int64_t total_bytes = 0;
};

/// A tensor that is alive at the peak.
struct PeakTensor {
  int64_t bytes = 0;
  Category category{};
  std::string label = {};
  uint32_t innermost_frame = 0;  // of its stack, in EventSource::stacks; 0: none
  Place place = {};              // of its allocation
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

struct MemoryTimeline {
  Header header;
  Judgement judgement;
  Space space = Space::host;
  std::vector<TimelinePoint> points;  // in order
  TimelinePoint peak;                 // the first of its height; one of the points
  std::vector<PeakTensor> largest;    // the largest first
  int64_t end_ns = 0;

  bool uses(Category category) const;
};

/// Returns the space that a recording is mainly about: the device if it has any event there, else
/// the host.
Space main_space_of(const EventSource& source);

/// Calls `visit` after each usable event with the event and the state then, whose time is that of
/// the last change. Goes through the events three times. Throws as timeline_of does.
void follow_timeline(const EventSource& source,
                     const std::function<void(const Event&, const TimelinePoint&)>& visit);

/// Returns the timeline in at most `most_points` points, with the largest tensors of its peak.
/// Bytes of the device are those that the caching allocator gave, as in the report; if no device
/// was recorded, they are the bytes asked for on the host. If there are more changes than
/// `most_points`, time is cut into stretches of equal length, each of which keeps its highest point
/// and its last. Goes through the events three times, and keeps in memory only what is alive and a
/// byte for each life. Throws std::invalid_argument for more than 2^32 - 2 lives and for fewer than
/// two points.
MemoryTimeline timeline_of(const EventSource& source, size_t most_points, size_t most_tensors = 10);

}  // namespace shardlens::profiler
