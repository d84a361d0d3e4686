#include "profiler/exchange/lifetimes.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "profiler/recording/events.h"
#include "profiler/report/address_map.h"
#include "profiler/report/block_tracker.h"

namespace shardlens::profiler {

namespace {

class LifetimeBuilder {
 public:
  LifetimeBuilder(const Profile& profile, Space space) : profile_(profile), space_(space) {}

  Lifetimes build() {
    for (size_t i = 0; i < profile_.events.size(); ++i) take(static_cast<uint32_t>(i));
    for (uint32_t life = 0; life < lives_.lives.size(); ++life) {
      if (alive_.find(address_of(life)) == life) lives_.last.push_back(life);
    }
    std::ranges::sort(lives_.last, {}, [&](uint32_t life) { return address_of(life); });
    return std::move(lives_);
  }

 private:
  uint64_t address_of(uint32_t life) const {
    return profile_.events[lives_.lives[life].begin].address;
  }

  void take(uint32_t index) {
    const Event& event = profile_.events[index];
    if (!is_usable(event)) return;
    const int64_t given = space_ == Space::device ? tracker_.take(event) : event.value;
    if (event.space != space_) return;
    if (event.kind == EventKind::alloc) return begin(index, given);
    if (event.kind == EventKind::free) return end(index);
    if (event.kind != EventKind::recategorise) return;
    const uint32_t life = alive_.find(event.address);
    if (life != AddressMap::kNone) lives_.lives[life].category = event.category;
  }

  void begin(uint32_t index, int64_t given) {
    const Event& event = profile_.events[index];
    end(index);
    const auto life = static_cast<uint32_t>(lives_.lives.size());
    lives_.lives.push_back({.begin = index, .given_bytes = given, .category = event.category});
    lives_.changes.push_back({.event = index, .life = life, .begins = true});
    alive_.insert(event.address, life);
  }

  void end(uint32_t index) {
    const uint32_t life = alive_.erase(profile_.events[index].address);
    if (life == AddressMap::kNone) return;
    lives_.changes.push_back({.event = index, .life = life, .begins = false});
  }

  const Profile& profile_;
  Space space_;
  BlockTracker tracker_;
  AddressMap alive_;
  Lifetimes lives_;
};

}  // namespace

Lifetimes lifetimes_of(const Profile& profile, Space space) {
  if (profile.events.size() >= std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument("the recording has too many events to export; at most 2^32 - 2");
  }
  return LifetimeBuilder(profile, space).build();
}

}  // namespace shardlens::profiler
