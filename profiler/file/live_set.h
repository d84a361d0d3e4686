// What is allocated at one moment of a recording, and the phase and step that it is in: what a
// snapshot holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "profiler/profile.h"

namespace shardlens::profiler {

class LiveSet {
 public:
  /// A block that is allocated again was freed unseen; a free of an unknown one changes nothing.
  void apply(const Event& event);

  size_t size() const { return blocks_.size(); }

  /// Events that lead here from nothing: the phase, the step, then each live allocation with its
  /// present category, oldest first.
  std::vector<Event> snapshot() const;

  /// Keeps what has been live in both since the same moment; phase and step stay as here.
  LiveSet common_with(const LiveSet& other) const;

  /// Events that lead from here to `target`, all at `time_ns`.
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

  std::unordered_map<Key, Event, Hash> blocks_;  // by address: the event that allocated it
  std::optional<Event> phase_;
  std::optional<Event> step_;
};

}  // namespace shardlens::profiler
