#include "tests/evidence/gpu_replay.h"

#include <algorithm>
#include <iterator>
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
/// An expandable segment has at least these addresses: an eighth more than the smallest GPU of
/// which there is a history.
constexpr uint64_t kRangeBytes = uint64_t{88} << 30;

}  // namespace

GpuReplay::GpuReplay(const GpuHistory& history, bool gives_addresses)
    : history_(history),
      model_(history.settings, planner::default_and_pool_streams(history.streams)) {
  if (gives_addresses) {
    model_.give_addresses(
        [this](SegmentIndex) { return taken_.empty() ? kNowhere : taken_.back().segment; });
  }
  for (const planner::StreamIndex stream : history.private_streams) model_.keep_cache(stream, true);
  std::vector<BlockId> blocks;
  if (!history.start.empty()) blocks = model_.lay_out(history.start);
  for (size_t i = 0; i < blocks.size(); ++i) live_[history.held[i]] = blocks[i];
  for (SegmentIndex i = 0; i < history.start.size(); ++i) {
    Segment segment{.model = i};
    for (const planner::BlockLayout& block : history.start[i].blocks) segment.bytes += block.bytes;
    segments_[history.start[i].address] = segment;
    addresses_[i] = history.start[i].address;
  }
  reserved_bytes_ = seen_.reserved_bytes = model_.counters().all.reserved_bytes.current;
  model_.set_listener([this](const AllocatorEvent& event) {
    switch (event.kind) {
      case AllocatorEventKind::segment_alloc:
      case AllocatorEventKind::segment_map:
        model_taken_.push_back(event);
        return;
      case AllocatorEventKind::segment_free:
      case AllocatorEventKind::segment_unmap: {
        const auto known = addresses_.find(event.segment);
        const bool is_known = known != addresses_.end();
        model_freed_.push_back(is_known ? known->second + static_cast<uint64_t>(event.offset_bytes)
                                        : kNowhere);
        if (event.kind == AllocatorEventKind::segment_free && is_known) addresses_.erase(known);
        return;
      }
      default:
        return;
    }
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
    case GpuEventKind::segment_map:
      take(event);
      break;
    case GpuEventKind::segment_free:
    case GpuEventKind::segment_unmap:
      give_back(event);
      break;
    case GpuEventKind::segment_free_cache:
    case GpuEventKind::segment_unmap_cache:
      return empty_cache(index);
  }
  return index + 1;
}

void GpuReplay::take(const GpuEvent& event) {
  ++seen_.segments;
  const bool is_page = event.kind == GpuEventKind::segment_map;
  const uint64_t segment = is_page ? range_of(event.address) : event.address;
  segments_[segment].bytes += event.bytes;
  taken_.push_back({segment, event.address - segment, event.bytes});
  reserved_bytes_ += event.bytes;
  seen_.reserved_bytes = std::max(seen_.reserved_bytes, reserved_bytes_);
}

void GpuReplay::give_back(const GpuEvent& event) {
  ++seen_.freed_segments;
  freed_.push_back(event.address);
  const auto segment = std::prev(segments_.upper_bound(event.address));
  segment->second.bytes -= event.bytes;
  reserved_bytes_ -= event.bytes;
  if (segment->second.bytes == 0 && !history_.settings.expandable_segments) {
    segments_.erase(segment);
  }
}

/// Returns where the expandable segment with this page begins. The first page of one is its first.
uint64_t GpuReplay::range_of(uint64_t address) {
  const auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return address;
  const uint64_t start = std::prev(after)->first;
  return address - start < kRangeBytes ? start : address;
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
    compare_taken();
    compare_place(event, *given);
  }
  compare_release();
  if (model_.counters().all.reserved_bytes.current != reserved_bytes_) ++seen_.reserved_unlike;
}

/// Compares what the GPU and the model took for this request, and notes which segments are one.
void GpuReplay::compare_taken() {
  seen_.model_segments += static_cast<int64_t>(model_taken_.size());
  for (size_t i = 0; i < std::min(taken_.size(), model_taken_.size()); ++i) {
    const Pages& taken = taken_[i];
    const AllocatorEvent& model = model_taken_[i];
    segments_.at(taken.segment).model = model.segment;
    addresses_[model.segment] = taken.segment;
    const bool is_alike =
        taken.bytes == model.bytes && taken.offset == static_cast<uint64_t>(model.offset_bytes);
    seen_.segments_alike += is_alike ? 1 : 0;
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
  compare_taken();
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
    if (is_emptied_cache(event.kind)) {
      give_back(event);
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
  if (history_.alloc_retries) seen_.retries = *history_.alloc_retries - seen_.failures;
  seen_.model_retries = model_.counters().alloc_retries - seen_.failures;
  seen_.model_reserved_bytes = model_.counters().all.reserved_bytes.peak;
  std::map<uint64_t, int64_t> last;  // of the model
  for (const auto& [segment, address] : addresses_) {
    const auto known = segments_.find(address);
    if (known != segments_.end() && known->second.bytes > 0) last[address] = known->second.bytes;
  }
  seen_.ends_alike =
      last == last_segments() && model_.counters().all.reserved_bytes.current == reserved_bytes_;
}

/// Returns the GPU's bytes by segment at the end. A snapshot lists what is mapped of an expandable
/// segment piece by piece.
std::map<uint64_t, int64_t> GpuReplay::last_segments() {
  if (!history_.settings.expandable_segments) return history_.last_segments;
  std::map<uint64_t, int64_t> last;
  for (const auto& [address, bytes] : history_.last_segments) last[range_of(address)] += bytes;
  return last;
}

}  // namespace shardlens::tests
