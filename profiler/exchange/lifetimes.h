// Who lives when: the allocations of one space of a recording, each with its beginning, its end,
// the bytes given and the category that it had all along. `recategorise` says what a block was from
// its allocation on, so this is known only when the whole recording has been seen.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profiler/profile.h"

namespace shardlens::profiler {

struct Lifetime {
  uint32_t begin = 0;  // of Profile::events
  int64_t given_bytes = 0;
  Category category{};
};

/// At one event a life begins or ends.
struct LifeChange {
  uint32_t event = 0;
  uint32_t life = 0;
  bool begins = false;
};

struct Lifetimes {
  std::vector<Lifetime> lives;      // by their beginning
  std::vector<LifeChange> changes;  // in order
  std::vector<uint32_t> last;       // lives that never end, by address
};

/// Of `device` or `host`. Bytes of the device are those that the caching allocator gave. Where a
/// free is missing, a life ends when its address is allocated again. At most 2^32 - 1 events;
/// throws std::invalid_argument for more.
Lifetimes lifetimes_of(const Profile& profile, Space space);

}  // namespace shardlens::profiler
