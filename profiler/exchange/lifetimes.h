// Finds the lifetime of every allocation in one space of a recording: its beginning, its end, the
// bytes given and its category, which holds for the whole life. `recategorise` changes a category
// from the allocation on, so categories are known only at the end of the recording.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct Lifetime {
  uint32_t begin = 0;  // of Profile::events
  int64_t given_bytes = 0;
  Category category{};
};

/// One event at which a life begins or ends.
struct LifeChange {
  uint32_t event = 0;
  uint32_t life = 0;
  bool begins = false;
};

struct Lifetimes {
  std::vector<Lifetime> lives;      // in the order of their beginnings
  std::vector<LifeChange> changes;  // in order
  std::vector<uint32_t> last;       // lives that never end, by address
};

/// Returns the lifetimes in `device` or `host`. Bytes of the device are those that the caching
/// allocator gave. If a free is missing, the life ends when its address is allocated again. Throws
/// std::invalid_argument for more than 2^32 - 2 events.
Lifetimes lifetimes_of(const Profile& profile, Space space);

}  // namespace shardlens::profiler
