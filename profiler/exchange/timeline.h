// How much memory a recording held over time, by category, in as many points as somebody wants to
// draw: the peak of every stretch stays what it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/exchange/event_source.h"
#include "profiler/exchange/place_names.h"
#include "profiler/profile.h"

namespace shardlens::profiler {

using BytesByCategory = std::array<int64_t, kCategories>;

struct TimelinePoint {
  int64_t time_ns = 0;
  Place place;
  BytesByCategory bytes{};
  int64_t total_bytes = 0;
};

struct StepMark {
  int64_t time_ns = 0;
  int64_t step = 0;
};

/// Alive at the peak.
struct PeakTensor {
  int64_t bytes = 0;
  Category category{};
  std::string label;
  Place place;  // of its allocation
};

struct Timeline {
  Header header;
  Judgement judgement;
  Space space = Space::host;
  std::vector<TimelinePoint> points;  // in order
  TimelinePoint peak;                 // the first of its height; one of the points
  std::string peak_place;
  std::vector<StepMark> steps;      // of training; of very many some
  std::vector<PeakTensor> largest;  // at most ten, the largest first
  int64_t end_ns = 0;

  bool uses(Category category) const;
};

/// The space that a recording is about: the device where it has any event of it, else the host.
Space main_space_of(const EventSource& source);

/// Bytes as the report counts them: of the device, those that the caching allocator gave; of the
/// host, where no device was recorded, those asked for. Where there are more changes than
/// `most_points`, time is cut into stretches of equal length, of each of which the highest point
/// and the last stay. Goes through the events three times and keeps what is alive and a byte a life
/// of them. At most 2^32 - 2 lives; throws std::invalid_argument for more, and for fewer than two
/// points.
Timeline timeline_of(const EventSource& source, size_t most_points);

}  // namespace shardlens::profiler
