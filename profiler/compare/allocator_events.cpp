#include "profiler/compare/allocator_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "profiler/file/reader.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kShownEvents = 5;

auto key_of(const Event& event) {
  return std::tuple(event.kind, event.space, event.stream, event.value);
}

/// Gives the allocator's events of a file one by one, and frees that follow each other sorted.
class AllocatorEvents {
 public:
  AllocatorEvents(const std::string& path, bool has_segments)
      : reader_(path), has_segments_(has_segments), next_(read()) {}

  std::optional<Event> next() {
    if (given_ == frees_.size()) take_frees();
    if (given_ < frees_.size()) return frees_[given_++];
    return std::exchange(next_, read());
  }

 private:
  /// Takes the frees up to the next event of another kind.
  void take_frees() {
    frees_.clear();
    given_ = 0;
    for (; next_ && next_->kind == EventKind::free; next_ = read()) frees_.push_back(*next_);
    std::ranges::sort(frees_, {}, key_of);
  }

  bool is_wanted(const Event& event) const {
    return is_of_allocator(event) && (has_segments_ || event.space != Space::segment);
  }

  std::optional<Event> read() {
    while (true) {
      for (; at_ < events_.size(); ++at_) {
        if (is_wanted(events_[at_])) return events_[at_++];
      }
      at_ = 0;
      if (!reader_.next(events_)) return std::nullopt;
    }
  }

  Reader reader_;
  bool has_segments_;
  std::vector<Event> events_ = {};
  size_t at_ = 0;
  std::optional<Event> next_;
  std::vector<Event> frees_ = {};
  size_t given_ = 0;
};

/// Takes the rest of the events, and returns how many there are; the first few are shown.
int64_t take_rest(std::optional<Event> event, AllocatorEvents& events,
                  std::vector<std::string>& shown) {
  int64_t count = 0;
  for (; event; event = events.next(), ++count) {
    if (shown.size() < kShownEvents) shown.push_back(allocator_event_text(*event));
  }
  return count;
}

bool have_same_requests(const std::string& one, const std::string& other) {
  AllocatorEvents ones(one, false), others(other, false);
  std::optional<Event> first = ones.next(), second = others.next();
  while (first && second && key_of(*first) == key_of(*second)) {
    first = ones.next();
    second = others.next();
  }
  return !first && !second;
}

}  // namespace

bool is_of_allocator(const Event& event) {
  if (event.kind == EventKind::out_of_memory) return true;
  if (event.kind != EventKind::alloc && event.kind != EventKind::free) return false;
  return event.space == Space::device || event.space == Space::segment;
}

std::string allocator_event_text(const Event& event) {
  const bool is_segment = event.space == Space::segment;
  std::string_view word = is_segment ? "segment_free" : "free";
  if (event.kind == EventKind::alloc) word = is_segment ? "segment_alloc" : "alloc";
  if (event.kind == EventKind::out_of_memory) word = "out_of_memory";
  const std::string stream = event.stream == 0 ? "" : fmt::format(", stream {}", event.stream);
  return fmt::format("{} {} bytes{}", word, event.value, stream);
}

AllocatorComparison compare_allocators(const std::string& one, const std::string& other) {
  AllocatorEvents ones(one, true), others(other, true);
  AllocatorComparison comparison;
  std::optional<Event> first = ones.next(), second = others.next();
  for (; first && second && key_of(*first) == key_of(*second); ++comparison.equal_events) {
    first = ones.next();
    second = others.next();
  }
  comparison.one_events = comparison.equal_events + take_rest(first, ones, comparison.one);
  comparison.other_events = comparison.equal_events + take_rest(second, others, comparison.other);
  comparison.has_same_requests = have_same_requests(one, other);
  return comparison;
}

}  // namespace shardlens::profiler
