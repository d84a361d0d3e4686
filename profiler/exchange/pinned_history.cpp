#include "profiler/exchange/pinned_history.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace shardlens::profiler {

namespace {

class PinnedWriter {
 public:
  explicit PinnedWriter(int64_t start_us) : start_us_(start_us) {}

  std::vector<Event> run(const PinnedHistory& history) {
    note_labels(history);
    begin(history);
    for (const PinnedEntry& entry : history.entries) write(entry);
    return std::move(events_);
  }

 private:
  struct Segment {
    int64_t bytes = 0;
    bool is_used = false;
  };

  /// A segment is named by the first block in it, which made the allocator take it.
  void note_labels(const PinnedHistory& history) {
    for (const PinnedSegment& segment : history.at_end) labels_[segment.address] = segment.label;
    for (auto entry = history.entries.rbegin(); entry != history.entries.rend(); ++entry) {
      if (entry->action == PinnedAction::alloc) labels_[entry->address] = entry->label;
    }
  }

  /// Gives the segments that are older than the history. One whose first entry frees its block was
  /// in use; one without an entry was as it is at the end.
  void begin(const PinnedHistory& history) {
    std::map<uint64_t, const PinnedEntry*> first;
    for (const PinnedEntry& entry : history.entries) first.try_emplace(entry.address, &entry);
    std::set<uint64_t> given;
    const auto give = [&](uint64_t address, int64_t bytes, bool is_used) {
      if (!given.insert(address).second) return;
      give_segment(address, bytes);
      if (is_used) use(address, true);
    };
    for (const auto& [address, entry] : first) {
      if (entry->action == PinnedAction::segment_alloc) continue;
      give(address, entry->bytes, entry->action == PinnedAction::free_requested);
    }
    for (const PinnedSegment& segment : history.at_end) {
      if (!first.contains(segment.address)) {
        give(segment.address, segment.bytes, segment.is_used);
      }
    }
  }

  void write(const PinnedEntry& entry) {
    time_ns_ = std::max(time_ns_, (entry.time_us - start_us_) * 1000);
    switch (entry.action) {
      case PinnedAction::segment_alloc:
        return give_segment(entry.address, entry.bytes);
      case PinnedAction::segment_free:
        return take_segment(entry.address);
      case PinnedAction::alloc:
        return use(entry.address, true);
      case PinnedAction::free_requested:
        return use(entry.address, false);
    }
  }

  void give_segment(uint64_t address, int64_t bytes) {
    if (!segments_.try_emplace(address, Segment{.bytes = bytes}).second) return;
    held_ += static_cast<uint64_t>(bytes);
    push({.address = address,
          .value = bytes,
          .label = labels_[address],
          .kind = EventKind::alloc,
          .space = Space::pinned});
    count(Counter::pinned_held, held_);
  }

  void take_segment(uint64_t address) {
    use(address, false);
    const auto found = segments_.find(address);
    if (found == segments_.end()) return;
    held_ -= static_cast<uint64_t>(found->second.bytes);
    push({.address = address,
          .value = found->second.bytes,
          .kind = EventKind::free,
          .space = Space::pinned});
    segments_.erase(found);
    count(Counter::pinned_held, held_);
  }

  void use(uint64_t address, bool is_used) {
    const auto found = segments_.find(address);
    if (found == segments_.end() || found->second.is_used == is_used) return;
    found->second.is_used = is_used;
    const auto bytes = static_cast<uint64_t>(found->second.bytes);
    used_ = is_used ? used_ + bytes : used_ - bytes;
    count(Counter::pinned_used, used_);
  }

  void count(Counter counter, uint64_t value) {
    push({.address = static_cast<uint64_t>(counter),
          .value = static_cast<int64_t>(value),
          .kind = EventKind::counter});
  }

  void push(Event event) {
    event.time_ns = time_ns_;
    events_.push_back(event);
  }

  const int64_t start_us_;
  int64_t time_ns_ = 0;
  uint64_t held_ = 0;  // unsigned, since a damaged snapshot may overflow it
  uint64_t used_ = 0;
  std::map<uint64_t, uint32_t> labels_;
  std::map<uint64_t, Segment> segments_;
  std::vector<Event> events_;
};

}  // namespace

std::vector<Event> with_pinned(std::vector<Event> events, const PinnedHistory& history,
                               int64_t start_us) {
  if (history.entries.empty() && history.at_end.empty()) return events;
  const std::vector<Event> pinned = PinnedWriter(start_us).run(history);
  std::vector<Event> all;
  all.reserve(events.size() + pinned.size());
  std::ranges::merge(events, pinned, std::back_inserter(all), {}, &Event::time_ns, &Event::time_ns);
  return all;
}

}  // namespace shardlens::profiler
