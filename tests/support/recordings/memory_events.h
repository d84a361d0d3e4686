// Memory events in one space of a recording, or of a prediction, so that two can be compared:
// blocks by the order in which they were taken, whatever their addresses.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::tests {

struct MemoryEvent {
  bool taken = false;
  int block = -1;  // -1: taken before the beginning, and not alive then
  int64_t bytes = 0;
  profiler::Category category{};
  int32_t action = -1;
  std::string_view label{};
  int64_t step = -1;

  bool operator==(const MemoryEvent&) const = default;
};

inline std::string to_text(const MemoryEvent& event) {
  return fmt::format("{} #{} {} {} '{}' action {} step {}", event.taken ? '+' : '-', event.block,
                     event.bytes, to_string(event.category), event.label, event.action, event.step);
}

/// The beginning of a comparison.
enum class ComparisonStart { start, first_step };

class MemoryEvents {
 public:
  MemoryEvents(const std::vector<profiler::Event>& events, const std::vector<std::string>& strings,
               profiler::Space space, ComparisonStart from)
      : strings_(strings) {
    for (const profiler::Event& event : events) {
      // Frees at the end come in whatever order the program's objects have.
      if (event.kind == profiler::EventKind::phase &&
          event.value == static_cast<int64_t>(profiler::Phase::ending)) {
        break;
      }
      if (event.kind == profiler::EventKind::step) begin_step(event.value, from);
      if (event.space == space) take(event);
    }
    drop_end();
  }

  const std::vector<MemoryEvent>& list() const { return list_; }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct AliveBlock {
    int block = -1;
    int64_t bytes = 0;
    size_t place = 0;  // in the list
  };

  void begin_step(int64_t step, ComparisonStart from) {
    if (from == ComparisonStart::first_step && step_ < 0) renumber();
    step_ = step;
  }

  void renumber() {
    std::vector<std::pair<int, uint64_t>> order;
    for (const auto& [address, alive] : alive_) order.emplace_back(alive.block, address);
    std::sort(order.begin(), order.end());
    next_ = 0;
    for (const auto& [block, address] : order) alive_[address].block = next_++;
    list_.clear();
  }

  void take(const profiler::Event& event) {
    using profiler::EventKind;
    if (event.kind == EventKind::alloc) {
      alive_[event.address] = {next_, event.value, list_.size()};
      bytes_ += event.value;
      peak_bytes_ = std::max(peak_bytes_, bytes_);
      list_.push_back(
          {true, next_++, event.value, event.category, event.action, strings_[event.label], step_});
    } else if (event.kind == EventKind::recategorise) {
      const auto found = alive_.find(event.address);
      if (found != alive_.end() && found->second.place < list_.size()) {
        list_[found->second.place].category = event.category;
      }
    } else if (event.kind == EventKind::free) {
      const auto found = alive_.find(event.address);
      if (found == alive_.end()) return;
      bytes_ -= found->second.bytes;
      list_.push_back({.block = found->second.block, .bytes = found->second.bytes, .step = step_});
      alive_.erase(found);
    }
  }

  /// The frees after the last allocation.
  void drop_end() {
    while (!list_.empty() && !list_.back().taken) list_.pop_back();
  }

  const std::vector<std::string>& strings_;
  std::map<uint64_t, AliveBlock> alive_;
  std::vector<MemoryEvent> list_;
  int next_ = 0;
  int64_t step_ = -1;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

/// Numbers blocks by the order in which they were taken, in a list that lacks some.
inline std::vector<MemoryEvent> renumbered(std::vector<MemoryEvent> list) {
  std::map<int, int> numbers;
  int next = 0;
  for (MemoryEvent& event : list) {
    if (event.taken) numbers[event.block] = next++;
  }
  for (MemoryEvent& event : list) {
    const auto number = numbers.find(event.block);
    event.block = number == numbers.end() ? -1 : number->second;
  }
  return list;
}

/// Leaves out blocks that were freed before anything else was taken that stayed.
inline std::vector<MemoryEvent> without_passing(const std::vector<MemoryEvent>& list) {
  std::vector<MemoryEvent> kept;
  for (const MemoryEvent& event : list) {
    const bool passes =
        !event.taken && !kept.empty() && kept.back().taken && kept.back().block == event.block;
    passes ? kept.pop_back() : kept.push_back(event);
  }
  if (!kept.empty() && kept.back().taken) kept.pop_back();  // its free was cut off
  return renumbered(std::move(kept));
}

/// Empty if both are the same; else the first difference and what came before it.
inline std::string first_difference(const std::vector<MemoryEvent>& recorded,
                                    const std::vector<MemoryEvent>& predicted) {
  const auto [a, b] =
      std::mismatch(recorded.begin(), recorded.end(), predicted.begin(), predicted.end());
  if (a == recorded.end() && b == predicted.end()) return {};
  const auto at = a - recorded.begin();
  std::string text = fmt::format("event {} of {} recorded and {} predicted ones:\n", at,
                                 recorded.size(), predicted.size());
  for (auto i = std::max<std::ptrdiff_t>(at - 5, 0); i < at; ++i) {
    text += "  both      " + to_text(recorded[static_cast<size_t>(i)]) + '\n';
  }
  text += "  recorded  " + (a == recorded.end() ? "nothing" : to_text(*a)) + '\n';
  text += "  predicted " + (b == predicted.end() ? "nothing" : to_text(*b)) + '\n';
  return text;
}

}  // namespace shardlens::tests
