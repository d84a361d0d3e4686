#include "planner/simulate/timeline.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"

namespace shardlens::planner {

using profiler::Category;
using profiler::Event;
using profiler::EventKind;
using profiler::Space;

namespace {

/// Segments' addresses are far enough apart that no segment reaches the next.
constexpr uint64_t kSegmentDistance = uint64_t{1} << 44;
constexpr uint64_t kAlignmentBytes = 64;

uint64_t address_of(SegmentIndex segment, int64_t offset_bytes) {
  return (segment + uint64_t{1}) * kSegmentDistance + static_cast<uint64_t>(offset_bytes);
}

}  // namespace

uint32_t Timeline::label(std::string_view text) {
  const auto [found, is_new] =
      labels_.try_emplace(std::string(text), static_cast<uint32_t>(strings_.size()));
  if (is_new) strings_.emplace_back(text);
  return found->second;
}

Purpose Timeline::change(const Purpose& purpose) { return std::exchange(purpose_, purpose); }

Event& Timeline::add(EventKind kind, int64_t value) {
  constexpr int64_t kNsAnEvent = 1000;
  Event& event = events_.emplace_back();
  event.time_ns = kNsAnEvent * static_cast<int64_t>(events_.size());
  event.kind = kind;
  event.value = value;
  event.action = purpose_.action;
  return event;
}

void Timeline::phase(profiler::Phase phase) { add(EventKind::phase, static_cast<int64_t>(phase)); }

void Timeline::step(int64_t step) { add(EventKind::step, step); }

void Timeline::begin_action(int32_t action) { add(EventKind::action_begin, 0).action = action; }

void Timeline::end_action(int32_t action) { add(EventKind::action_end, 0).action = action; }

void Timeline::begin_operator() {
  if (operator_depth_++ == 0) operator_begin_ = static_cast<int64_t>(events_.size());
}

Timeline::Block Timeline::take(Space space, uint64_t address, int64_t bytes, StreamIndex stream) {
  Event& event = add(EventKind::alloc, bytes);
  event.stream = static_cast<uint16_t>(stream);
  event.space = space;
  event.address = address;
  event.label = purpose_.label;
  event.category = purpose_.category;
  return static_cast<Block>(events_.size()) - 1;
}

void Timeline::give_back(Block block) {
  Event& taken = events_.at(static_cast<size_t>(block));
  check(taken.kind == EventKind::alloc, "a block that was never taken is given back");
  if (operator_depth_ > 0 && block >= operator_begin_) taken.category = Category::workspace;
  const Event copy = taken;
  Event& event = add(EventKind::free, copy.value);
  event.space = copy.space;
  event.address = copy.address;
}

void Timeline::recategorise(Block block, Category category) {
  Event& taken = events_.at(static_cast<size_t>(block));
  check(taken.kind == EventKind::alloc, "what was never taken gets a category");
  taken.category = category;
}

void Timeline::out_of_memory(int64_t free_bytes, int64_t requested_bytes) {
  Event& event = add(EventKind::out_of_memory, requested_bytes);
  event.space = Space::device;
  event.address = static_cast<uint64_t>(free_bytes);
  event.label = purpose_.label;
  event.category = purpose_.category;
}

void Timeline::segment(bool is_taken, uint64_t address, int64_t bytes) {
  Event& event = add(is_taken ? EventKind::alloc : EventKind::free, bytes);
  event.space = Space::segment;
  event.address = address;
}

CachingGpuMemory::CachingGpuMemory(Timeline& timeline, const AllocatorSettings& settings,
                                   size_t streams)
    : timeline_(timeline), allocator_(settings, default_and_pool_streams(streams)) {
  allocator_.set_listener([this](const AllocatorEvent& event) {
    const uint64_t address = address_of(event.segment, event.offset_bytes);
    switch (event.kind) {
      case AllocatorEventKind::segment_alloc:
      case AllocatorEventKind::segment_map:
        return timeline_.segment(true, address, event.bytes);
      case AllocatorEventKind::segment_free:
      case AllocatorEventKind::segment_unmap:
        return timeline_.segment(false, address, event.bytes);
      default:
        return;
    }
  });
}

int64_t CachingGpuMemory::allocate(int64_t bytes) {
  const AllocationResult result = allocator_.allocate(bytes, current_);
  if (const auto* failure = std::get_if<AllocationFailure>(&result)) {
    timeline_.out_of_memory(failure->device_free, bytes);
    throw DeviceFull(*failure);
  }
  const auto& given = std::get<Allocation>(result);
  const int64_t block =
      timeline_.take(Space::device, address_of(given.segment, given.offset_bytes), bytes, current_);
  blocks_.resize(static_cast<size_t>(block) + 1);
  blocks_.back() = given.block;
  taken_.resize(std::max(taken_.size(), static_cast<size_t>(given.block) + 1), kNone);
  check(taken_[given.block] == kNone, "the allocator gives a block that is held");
  taken_[given.block] = block;
  return block;
}

void CachingGpuMemory::free(int64_t block) {
  const BlockId held = blocks_.at(static_cast<size_t>(block));
  check(taken_[held] == block, "a block of the device is freed twice");
  taken_[held] = kNone;
  allocator_.free(held);
  timeline_.give_back(block);
}

MemoryState CachingGpuMemory::state() const {
  allocator_.check_totals();
  const PoolCounters& all = allocator_.counters().all;
  const auto purpose_of = [this](BlockId id) {
    const Event& event = timeline_.events()[static_cast<size_t>(taken_[id])];
    return static_cast<int64_t>(event.label) * profiler::kCategories +
           static_cast<int64_t>(event.category);
  };
  return {
      .layout = allocator_.state(purpose_of),
      .totals = {all.allocations.current, all.requested_bytes.current, all.reserved_bytes.current}};
}

StreamIndex CachingGpuMemory::change_stream(StreamIndex stream) {
  return std::exchange(current_, stream);
}

int64_t HostMemory::allocate(int64_t bytes) {
  check(bytes >= 0, "host memory of a negative size");
  const uint64_t address = next_address_;
  next_address_ +=
      (static_cast<uint64_t>(bytes) + kAlignmentBytes) / kAlignmentBytes * kAlignmentBytes;
  bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  return timeline_.take(space_, address, bytes);
}

void HostMemory::free(int64_t block) {
  bytes_ -= timeline_.events()[static_cast<size_t>(block)].value;
  check(bytes_ >= 0, "more host memory is freed than was allocated");
  timeline_.give_back(block);
}

}  // namespace shardlens::planner
