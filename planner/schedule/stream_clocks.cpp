#include "planner/schedule/stream_clocks.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace shardlens::planner {

StreamClocks::Clock StreamClocks::nothing() {
  Clock clock;
  clock.fill(-1);
  return clock;
}

bool StreamClocks::holds(const Clock& clock, int action) const {
  const auto stream = static_cast<size_t>(streams_[static_cast<size_t>(action)]);
  return clock[stream] >= action;
}

StreamClocks::Clock StreamClocks::clock_of_next(Stream stream) const {
  const int previous = last_[static_cast<size_t>(stream)];
  return previous < 0 ? nothing() : clocks_[static_cast<size_t>(previous)];
}

void StreamClocks::merge(Clock& into, int action) const {
  const Clock& other = clocks_[static_cast<size_t>(action)];
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

std::vector<int> StreamClocks::minimal_waits(Stream stream, std::vector<int> waits) const {
  // Visit waits in falling order, because an action can imply only those before it.
  std::sort(waits.begin(), waits.end(), std::greater<>());
  Clock clock = clock_of_next(stream);
  std::vector<int> kept;
  for (const int wait : waits) {
    check(wait >= 0 && wait < static_cast<int>(clocks_.size()), "a wait for what has not begun");
    if (holds(clock, wait)) continue;
    merge(clock, wait);
    kept.push_back(wait);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

void StreamClocks::append(Stream stream, const std::vector<int>& waits) {
  Clock clock = clock_of_next(stream);
  for (const int wait : waits) merge(clock, wait);
  const auto id = static_cast<int>(clocks_.size());
  clock[static_cast<size_t>(stream)] = id;
  check(last_[static_cast<size_t>(stream)] < id, "an action is appended before an earlier one");
  clocks_.push_back(clock);
  streams_.push_back(stream);
  last_[static_cast<size_t>(stream)] = id;
}

bool StreamClocks::precedes(int earlier, int later) const {
  check(later < static_cast<int>(clocks_.size()), "an order is asked of what was not appended");
  return earlier < later && holds(clocks_[static_cast<size_t>(later)], earlier);
}

}  // namespace shardlens::planner
