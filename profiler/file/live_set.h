// The state at one moment of a recording, which a snapshot holds: the live allocations, the phase
// and the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

class LiveSet {
 public:
  /// Updates the state by an event. An allocation at the address of a live block replaces it, since
  /// its free is missing; a free of an unknown block changes nothing.
  void apply(const Event& event);

  size_t size() const { return blocks_.size(); }

  /// Returns the events that lead here from an empty state: the phase, the step, then each live
  /// allocation with its present category, oldest first.
  std::vector<Event> snapshot() const;

  /// Returns this state with only those allocations that `other` has had since the same moment;
  /// phase and step stay as they are here.
  LiveSet common_with(const LiveSet& other) const;

  /// Returns the events that lead from here to `target`, all at `time_ns`.
  std::vector<Event> path_to(const LiveSet& target, int64_t time_ns) const;

 private:
  struct Key {
    uint64_t address;
    Space space;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return (key.address ^ static_cast<uint64_t>(key.space)) * 0x9E37'79B9'7F4A'7C15U >> 7;
    }
  };

  const Event* find(const Event& event) const;

  std::unordered_map<Key, Event, Hash> blocks_;  // the event that allocated it
  std::optional<Event> phase_;
  std::optional<Event> step_;
};

}  // namespace shardlens::profiler
