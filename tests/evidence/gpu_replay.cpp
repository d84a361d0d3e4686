#include "tests/evidence/gpu_replay.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace shardlens::tests {

using planner::Allocation;
using planner::AllocationFailure;
using planner::AllocatorEvent;
using planner::AllocatorEventKind;
using planner::BlockId;
using planner::SegmentIndex;

namespace {

/// Stands for a segment that the GPU does not have.
constexpr uint64_t kNowhere = UINT64_MAX - 1;

}  // namespace

GpuReplay::GpuReplay(const GpuHistory& history, bool gives_addresses)
    : history_(history),
      model_(settings_of(history), planner::default_and_pool_streams(history.streams)) {
  if (gives_addresses) {
    model_.give_addresses(
        [this](SegmentIndex) { return taken_.empty() ? kNowhere : taken_.back(); });
  }
  const std::vector<BlockId> blocks = model_.lay_out(history.start);
  for (size_t i = 0; i < blocks.size(); ++i) live_[history.held[i]] = blocks[i];
  for (SegmentIndex i = 0; i < history.start.size(); ++i) {
    Segment segment{.model = i};
    for (const planner::BlockLayout& block : history.start[i].blocks) segment.bytes += block.bytes;
    segments_[history.start[i].address] = segment;
    addresses_[i] = history.start[i].address;
  }
  reserved_bytes_ = seen_.reserved_bytes = model_.counters().all.reserved_bytes.current;
  model_.set_listener([this](const AllocatorEvent& event) {
    if (event.kind == AllocatorEventKind::segment_alloc) model_taken_.push_back(event);
    if (event.kind != AllocatorEventKind::segment_free) return;
    const auto known = addresses_.extract(event.segment);
    model_freed_.push_back(known.empty() ? kNowhere : known.mapped());
  });
}

Comparison GpuReplay::run() {
  for (size_t i = 0; i < history_.events.size();) i = apply(i);
  finish();
  return seen_;
}

/// Returns the index of the next event.
size_t GpuReplay::apply(size_t index) {
  const GpuEvent& event = history_.events[index];
  switch (event.kind) {
    case GpuEventKind::alloc:
      allocate(event);
      break;
    case GpuEventKind::oom:
      fail(event);
      break;
    case GpuEventKind::free_requested:
      break;
    case GpuEventKind::free_completed:
      free(event.address);
      break;
    case GpuEventKind::segment_alloc:
      take_segment(event);
      break;
    case GpuEventKind::segment_free:
      drop_segment(event.address);
      break;
    case GpuEventKind::segment_free_cache:
      return empty_cache(index);
  }
  return index + 1;
}

void GpuReplay::take_segment(const GpuEvent& event) {
  ++seen_.segments;
  segments_[event.address] = {.bytes = event.bytes};
  taken_.push_back(event.address);
  reserved_bytes_ += event.bytes;
  seen_.reserved_bytes = std::max(seen_.reserved_bytes, reserved_bytes_);
}

void GpuReplay::drop_segment(uint64_t address) {
  ++seen_.freed_segments;
  freed_.push_back(address);
  reserved_bytes_ -= segments_.at(address).bytes;
  segments_.erase(address);
}

void GpuReplay::free(uint64_t address) {
  const auto block = live_.extract(address);
  if (!block.empty()) model_.free(block.mapped());
}

void GpuReplay::allocate(const GpuEvent& event) {
  ++seen_.allocations;
  if (!freed_.empty()) ++seen_.retries;
  const planner::AllocationResult result =
      model_.allocate(std::max<int64_t>(event.bytes, 1), event.stream);
  if (const auto* given = std::get_if<Allocation>(&result)) {
    live_[event.address] = given->block;
    compare_segment(*given);
    compare_place(event, *given);
  }
  compare_release();
  if (model_.counters().all.reserved_bytes.current != reserved_bytes_) ++seen_.reserved_unlike;
}

/// Notes whether the GPU and the model took a segment for this request, and that both are one.
void GpuReplay::compare_segment(const Allocation& given) {
  seen_.model_segments += static_cast<int64_t>(model_taken_.size());
  if (taken_.size() == 1 && model_taken_.size() == 1) {
    Segment& segment = segments_.at(taken_[0]);
    if (segment.bytes == model_taken_[0].bytes) ++seen_.segments_alike;
    segment.model = given.segment;
    addresses_[given.segment] = taken_[0];
  }
  taken_.clear();
  model_taken_.clear();
}

void GpuReplay::compare_place(const GpuEvent& event, const Allocation& given) {
  auto segment = segments_.upper_bound(event.address);
  if (segment == segments_.begin()) return;
  --segment;
  const auto offset_bytes = static_cast<int64_t>(event.address - segment->first);
  if (segment->second.model == given.segment && offset_bytes == given.offset_bytes) {
    ++seen_.placed_alike;
  }
}

/// Compares the segments that were given back since the last request, and their order.
void GpuReplay::compare_release() {
  seen_.model_freed_segments += static_cast<int64_t>(model_freed_.size());
  if (!freed_.empty() || !model_freed_.empty()) ++seen_.releases;
  if (!freed_.empty() && freed_ == model_freed_) ++seen_.releases_alike;
  freed_.clear();
  model_freed_.clear();
}

void GpuReplay::fail(const GpuEvent& event) {
  ++seen_.failures;
  const planner::AllocationResult result = model_.allocate(event.bytes, event.stream);
  compare_release();
  const auto* failure = std::get_if<AllocationFailure>(&result);
  if (failure != nullptr && failure->device_free == static_cast<int64_t>(event.address) &&
      failure->reserved == reserved_bytes_) {
    ++seen_.failures_alike;
  }
}

/// Empties the cache as the run of events from `index` on did. Returns the index after the run.
size_t GpuReplay::empty_cache(size_t index) {
  for (; index < history_.events.size(); ++index) {
    const GpuEvent& event = history_.events[index];
    if (event.kind == GpuEventKind::segment_free_cache) {
      drop_segment(event.address);
    } else if (event.kind == GpuEventKind::free_completed) {
      free(event.address);  // what waited for other streams
    } else {
      break;
    }
  }
  model_.empty_cache();
  compare_release();
  return index;
}

void GpuReplay::finish() {
  model_.check_totals();
  seen_.model_retries = model_.counters().alloc_retries - seen_.failures;
  seen_.model_reserved_bytes = model_.counters().all.reserved_bytes.peak;
  std::map<uint64_t, int64_t> last;  // of the model
  for (const auto& [segment, address] : addresses_) {
    const auto known = segments_.find(address);
    if (known != segments_.end()) last[address] = known->second.bytes;
  }
  seen_.ends_alike = last == history_.last_segments &&
                     model_.counters().all.reserved_bytes.current == reserved_bytes_;
}

}  // namespace shardlens::tests
