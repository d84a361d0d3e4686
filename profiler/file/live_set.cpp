#include "profiler/file/live_set.h"

#include <algorithm>
#include <tuple>

namespace shardlens::profiler {

void LiveSet::apply(const Event& event) {
  const Key key{event.address, event.space};
  switch (event.kind) {
    case EventKind::alloc:
      blocks_.insert_or_assign(key, event);
      break;
    case EventKind::free:
      blocks_.erase(key);
      break;
    case EventKind::recategorise:
      if (const auto found = blocks_.find(key); found != blocks_.end()) {
        found->second.category = event.category;
      }
      break;
    case EventKind::phase:
      phase_ = event;
      break;
    case EventKind::step:
      step_ = event;
      break;
    case EventKind::out_of_memory:
    case EventKind::action_begin:
    case EventKind::action_end:
    case EventKind::counter:
    case EventKind::hold:
    case EventKind::release:
    case EventKind::module:
      break;
  }
}

std::vector<Event> LiveSet::snapshot() const {
  std::vector<Event> events;
  events.reserve(blocks_.size() + 2);
  if (phase_) events.push_back(*phase_);
  if (step_) events.push_back(*step_);
  const auto first_block = static_cast<std::ptrdiff_t>(events.size());
  for (const auto& [key, allocation] : blocks_) events.push_back(allocation);
  std::sort(events.begin() + first_block, events.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.time_ns, a.space, a.address) < std::tuple(b.time_ns, b.space, b.address);
  });
  return events;
}

const Event* LiveSet::find(const Event& event) const {
  const auto found = blocks_.find({event.address, event.space});
  return found == blocks_.end() ? nullptr : &found->second;
}

LiveSet LiveSet::common_with(const LiveSet& other) const {
  LiveSet common = *this;
  std::erase_if(common.blocks_, [&](const auto& block) {
    const Event* there = other.find(block.second);
    return there == nullptr || there->time_ns != block.second.time_ns;
  });
  return common;
}

std::vector<Event> LiveSet::path_to(const LiveSet& target, int64_t time_ns) const {
  std::vector<Event> path;
  const auto add = [&](Event event, EventKind kind) {
    event.time_ns = time_ns;
    event.kind = kind;
    path.push_back(event);
  };
  if (target.phase_ && target.phase_ != phase_) add(*target.phase_, EventKind::phase);
  if (target.step_ && target.step_ != step_) add(*target.step_, EventKind::step);
  for (const Event& here : snapshot()) {
    if (here.kind != EventKind::alloc) continue;
    const Event* there = target.find(here);
    const bool stays = there != nullptr && there->time_ns == here.time_ns;
    if (!stays) add(here, EventKind::free);
    if (stays && there->category != here.category) add(*there, EventKind::recategorise);
  }
  for (const Event& there : target.snapshot()) {
    if (there.kind != EventKind::alloc) continue;
    const Event* here = find(there);
    if (here == nullptr || here->time_ns != there.time_ns) add(there, EventKind::alloc);
  }
  return path;
}

}  // namespace shardlens::profiler
