#include "profiler/report/growth_watch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "profiler/recording/blocks.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kLeastStreak = 8;      // marks
constexpr double kMostGrownShare = 0.4;  // of the labels, besides the one that grows

/// True for what the optimizer makes when it first meets a parameter, however late.
bool is_state(Category category) { return category == Category::optimizer_state; }

bool is_gradient(Category category) {
  return category == Category::gradient || category == Category::gradient_shard;
}

/// True for blocks that a later step replaces by larger ones for reasons of its own.
bool may_be_resized(Category category) {
  return category == Category::workspace || category == Category::parameter_shard ||
         category == Category::unsharded_parameter || category == Category::reduce_buffer ||
         category == Category::communication || is_gradient(category) || is_state(category);
}

}  // namespace

GrowthWatch::Log& GrowthWatch::log_of(uint32_t label) {
  if (label >= index_of_label_.size()) index_of_label_.resize(label + 1);
  uint32_t& index = index_of_label_[label];
  if (index == 0) {
    logs_.push_back({.span = {.label = label}});
    index = static_cast<uint32_t>(logs_.size());
  }
  return logs_[index - 1];
}

void GrowthWatch::touch(Log& log) {
  if (log.is_touched) return;
  log.is_touched = true;
  touched_.push_back(static_cast<uint32_t>(&log - logs_.data()));
}

void GrowthWatch::allocated(const LiveAllocation& live, const PeakSet& set) {
  last_version_ = live.version;
  Log& log = log_of(live.label);
  touch(log);
  if (++log.span.count == 1) log.span.first = live.version;
  log.span.last = live.version;
  log.category = live.category;
  log.largest_bytes = std::max(log.largest_bytes, live.asked_bytes);
  log.held_bytes += live.asked_bytes;
  log.made_bytes += live.asked_bytes;
  new_blocks_.push_back({live.address, live.version});
  if (new_blocks_.size() < most_new_) return;
  new_blocks_ = alive(new_blocks_, set);
  most_new_ = std::max(kLeastNew, 2 * new_blocks_.size());
}

void GrowthWatch::freed(const LiveAllocation& live) {
  Log& log = log_of(live.label);
  touch(log);
  log.held_bytes -= live.asked_bytes;
  if (live.version <= kept_version_) log.kept_bytes -= live.asked_bytes;
  has_freed_ = has_freed_ || live.version > mark_version_;
}

void GrowthWatch::keep(const LiveAllocation& live) {
  Log& log = log_of(live.label);
  touch(log);
  log.kept_bytes += live.asked_bytes;
  log.category = live.category;  // known by now
}

std::vector<GrowthWatch::Block> GrowthWatch::alive(const std::vector<Block>& blocks,
                                                   const PeakSet& set) const {
  std::vector<Block> left;
  for (const Block& block : blocks) {
    const LiveAllocation* const found = set.find(block.address);
    if (found != nullptr && found->version == block.version) left.push_back(block);
  }
  return left;
}

std::vector<LabelSpan> GrowthWatch::spans() const {
  std::vector<LabelSpan> spans;
  for (const Log& log : logs_) spans.push_back(log.span);
  return spans;
}

void GrowthWatch::mark(const PeakSet& set) {
  for (const Block& block : alive(young_, set)) keep(*set.find(block.address));
  young_ = alive(new_blocks_, set);
  new_blocks_.clear();
  if (std::exchange(has_freed_, false)) ++marks_with_frees_;
  kept_version_ = mark_version_;
  mark_version_ = last_version_;
  double made = 0, grown = 0;
  for (const uint32_t index : touched_) {
    Log& log = logs_[index];
    if (log.made_bytes > 0 && log.made_before_bytes > 0) {
      made += 1;
      grown += log.made_bytes > log.made_before_bytes ? 1 : 0;
    }
    note(log);
  }
  touched_.clear();
  made_.push_back(made);
  grown_.push_back(grown);
  ++marks_;
}

/// Ends a step of a label.
void GrowthWatch::note(Log& log) {
  log.is_touched = false;
  if (log.made_bytes > 0) log.made_before_bytes = std::exchange(log.made_bytes, 0);
  if ((log.kept.empty() ? 0 : log.kept.back().bytes) != log.kept_bytes) {
    log.kept.push_back({marks_, log.kept_bytes});
  }
  Streak& streak = log.streak;
  if (streak.last != marks_ - 1 || log.held_bytes <= streak.last_bytes) {
    streak.first = marks_;
    streak.first_bytes = log.held_bytes;
  }
  streak.last = marks_;
  streak.last_bytes = log.held_bytes;
}

/// True if most labels, besides one that did, made more from mark to mark.
bool GrowthWatch::most_others_grew(int64_t first_mark) const {
  const auto others_since = [&](const std::vector<double>& counts) {
    const auto first = counts.begin() + first_mark + 1;
    return std::accumulate(first, counts.end(), 0.0) - static_cast<double>(counts.end() - first);
  };
  return others_since(grown_) > kMostGrownShare * others_since(made_);
}

bool GrowthWatch::is_replaced_by_more(const Log& log) const {
  const Streak& streak = log.streak;
  const int64_t length = streak.last - streak.first + 1;
  return streak.last == marks_ - 1 && length >= kLeastStreak && 2 * length >= marks_ &&
         !may_be_resized(log.category) && !most_others_grew(streak.first);
}

std::vector<GrowingLabel> GrowthWatch::growing() const {
  std::vector<GrowingLabel> found;
  for (const Log& log : logs_) {
    if (is_state(log.category)) continue;
    GrowingLabel one{.label = log.span.label,
                     .category = log.category,
                     .are_numbers = log.largest_bytes <= kBlockBytes,
                     .rise = {}};
    if (const auto rise = find_steady_rise(log.kept, marks_ - 1)) {
      // A layer that is trained from some step on has a gradient from there on.
      if (is_gradient(log.category) && rise->every > 1) continue;
      one.rise = *rise;
    } else if (is_replaced_by_more(log)) {
      const Streak& streak = log.streak;
      one.is_replaced = true;
      one.rise = {.first = streak.first,
                  .last = streak.last,
                  .every = 1,
                  .bytes_per_moment = static_cast<double>(streak.last_bytes - streak.first_bytes) /
                                      static_cast<double>(streak.last - streak.first)};
    } else {
      continue;
    }
    found.push_back(one);
  }
  return found;
}

}  // namespace shardlens::profiler
