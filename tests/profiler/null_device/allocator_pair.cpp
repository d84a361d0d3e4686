#include "tests/profiler/null_device/allocator_pair.h"

#include <ATen/ATen.h>
#include <c10/core/AllocatorConfig.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

namespace shardlens::tests {

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
using planner::AllocatorEvent;
using planner::AllocatorEventKind;
using planner::AllocatorStat;
using planner::PoolCounters;
using Entry = allocator::TraceEntry;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

/// An entry of LibTorch's trace.
struct RealEvent {
  AllocatorEventKind kind = AllocatorEventKind::alloc;
  planner::StreamIndex stream = 0;
  uint64_t address = 0;
  int64_t bytes = 0;
};

std::optional<AllocatorEventKind> kind_of(Entry::Action action) {
  switch (action) {
    case Entry::ALLOC:
      return AllocatorEventKind::alloc;
    case Entry::FREE_REQUESTED:
      return AllocatorEventKind::free_requested;
    case Entry::FREE_COMPLETED:
      return AllocatorEventKind::free_completed;
    case Entry::SEGMENT_ALLOC:
      return AllocatorEventKind::segment_alloc;
    case Entry::SEGMENT_FREE:
      return AllocatorEventKind::segment_free;
    case Entry::SEGMENT_MAP:
      return AllocatorEventKind::segment_map;
    case Entry::SEGMENT_UNMAP:
      return AllocatorEventKind::segment_unmap;
    default:  // snapshots, failures, and entries of newer versions
      return std::nullopt;
  }
}

/// LibTorch's report when it gives up.
struct RealFailure {
  int64_t rounded = 0;
  int64_t device_free = 0;
  int64_t asked_of_driver = 0;
  int64_t allowed = 0;
};

int64_t device_bytes(bool free) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
    throw std::runtime_error("no device");
  return static_cast<int64_t>(free ? free_bytes : total_bytes);
}

AllocatorStat counter_of(const Stat& stat) {
  return {.current = stat.current,
          .peak = stat.peak,
          .increased = stat.allocated,
          .decreased = stat.freed};
}

PoolCounters counters_of(const allocator::DeviceStats& stats, size_t pool) {
  return {.allocations = counter_of(stats.allocation[pool]),
          .segments = counter_of(stats.segment[pool]),
          .active = counter_of(stats.active[pool]),
          .inactive_split = counter_of(stats.inactive_split[pool]),
          .allocated_bytes = counter_of(stats.allocated_bytes[pool]),
          .reserved_bytes = counter_of(stats.reserved_bytes[pool]),
          .active_bytes = counter_of(stats.active_bytes[pool]),
          .inactive_split_bytes = counter_of(stats.inactive_split_bytes[pool]),
          .requested_bytes = counter_of(stats.requested_bytes[pool])};
}

planner::AllocatorCounters counters_of(const allocator::DeviceStats& stats) {
  constexpr size_t kAll = 0, kSmall = 1, kLarge = 2;  // c10::CachingAllocator::StatType
  return {.all = counters_of(stats, kAll),
          .small = counters_of(stats, kSmall),
          .large = counters_of(stats, kLarge),
          .oversize_allocations = counter_of(stats.oversize_allocations),
          .oversize_segments = counter_of(stats.oversize_segments),
          .alloc_retries = stats.num_alloc_retries,
          .out_of_memory = stats.num_ooms,
          .synchronizations = stats.num_sync_all_streams,
          .driver_allocations = stats.num_device_alloc,
          .driver_frees = stats.num_device_free};
}

/// Every counter by its name.
std::string words_of(const planner::AllocatorCounters& counters) {
  std::ostringstream out;
  const auto add = [&](const char* name, const AllocatorStat& c) {
    out << "  " << name << " " << c.current << " peak " << c.peak << " +" << c.increased << " -"
        << c.decreased << "\n";
  };
  for (const PoolCounters* pool : {&counters.all, &counters.small, &counters.large}) {
    add("allocations", pool->allocations);
    add("segments", pool->segments);
    add("active", pool->active);
    add("inactive_split", pool->inactive_split);
    add("allocated_bytes", pool->allocated_bytes);
    add("reserved_bytes", pool->reserved_bytes);
    add("active_bytes", pool->active_bytes);
    add("inactive_split_bytes", pool->inactive_split_bytes);
    add("requested_bytes", pool->requested_bytes);
  }
  add("oversize_allocations", counters.oversize_allocations);
  add("oversize_segments", counters.oversize_segments);
  out << "  retries " << counters.alloc_retries << " ooms " << counters.out_of_memory << " syncs "
      << counters.synchronizations << " +" << counters.driver_allocations << " -"
      << counters.driver_frees << "\n";
  return out.str();
}

std::string words_of(int64_t number) { return std::to_string(number); }

}  // namespace

struct AllocatorPair::RealEvents {
  std::vector<cudaStream_t> streams;
  std::vector<RealEvent> events;
  std::optional<RealFailure> failure;

  void take(const Entry& entry) {
    if (entry.action_ == Entry::OOM) {
      failure = {.rounded = static_cast<int64_t>(entry.size_),
                 .device_free = static_cast<int64_t>(entry.addr_)};
    }
    const auto kind = kind_of(entry.action_);
    if (!kind) return;
    const auto stream = std::ranges::find(streams, entry.stream_);
    events.push_back({.kind = *kind,
                      .stream = static_cast<planner::StreamIndex>(stream - streams.begin()),
                      .address = entry.addr_,
                      .bytes = static_cast<int64_t>(entry.size_)});
  }
};

AllocatorPair::AllocatorPair(const std::string& settings, uint32_t streams)
    : real_(new RealEvents) {
  c10::CachingAllocator::setAllocatorSettings(settings);  // as the variable is read at the start
  at::globalContext().lazyInitDevice(c10::kCUDA);
  streams_.push_back(c10::cuda::getDefaultCUDAStream(0));
  while (streams_.size() < streams) streams_.push_back(c10::cuda::getStreamFromPool(false, 0));
  for (const c10::cuda::CUDAStream& stream : streams_) real_->streams.push_back(stream.stream());
  allocator::attachAllocatorTraceTracker([real = real_](const Entry& entry) { real->take(entry); });
  allocator::attachOutOfMemoryObserver(
      [real = real_](int64_t, size_t wanted, size_t allowed, size_t) {
        real->failure->asked_of_driver = static_cast<int64_t>(wanted);
        real->failure->allowed = static_cast<int64_t>(allowed);
      });
  planner::AllocatorSettings parsed = planner::parse_allocator_settings(settings);
  parsed.capacity_bytes = device_bytes(false);
  model_ =
      std::make_unique<planner::AllocatorModel>(parsed, planner::default_and_pool_streams(streams));
  model_->set_listener([this](const AllocatorEvent& event) { modelled_.push_back(event); });
}

AllocatorPair::~AllocatorPair() {
  for (const HeldBlock& held : held_) allocator::raw_delete(held.address);
  for (void* address : outside_) cudaFree(address);
}

template <class T>
void AllocatorPair::expect(const char* what, const T& real, const T& modelled) {
  if (real == modelled || !difference_.empty()) return;
  difference_ = std::string(what) + ": LibTorch\n" + words_of(real) + "\nthe model\n" +
                words_of(modelled) + "\n";
}

std::optional<bool> AllocatorPair::apply(const StormOperation& operation) {
  bool succeeded = true;
  if (operation.kind == StormKind::allocate) {
    succeeded = allocate(operation);
  } else if (operation.kind == StormKind::take_outside) {
    succeeded = take_outside(operation);
  } else {
    change(operation);
  }
  compare();
  if (!difference_.empty()) return std::nullopt;
  return succeeded;
}

void* AllocatorPair::allocate_in_libtorch(const StormOperation& operation) {
  real_->failure.reset();
  try {
    return allocator::raw_alloc_with_stream(static_cast<size_t>(operation.bytes),
                                            streams_[operation.stream].stream());
  } catch (const c10::OutOfMemoryError&) {
    return nullptr;
  }
}

bool AllocatorPair::allocate(const StormOperation& operation) {
  if (held_.size() <= operation.slot) held_.resize(operation.slot + 1);
  void* address = allocate_in_libtorch(operation);
  const planner::AllocationResult result = model_->allocate(operation.bytes, operation.stream);
  const auto* given = std::get_if<planner::Allocation>(&result);
  expect<int64_t>("given", address != nullptr, given != nullptr);
  if (given == nullptr) {
    compare_failure(std::get<planner::AllocationFailure>(result));
    return false;
  }
  held_[operation.slot] = {.address = address, .block = given->block};
  expect<int64_t>("segment told", modelled_.back().segment, given->segment);
  expect<int64_t>("offset told", modelled_.back().offset_bytes, given->offset_bytes);
  note(*given);
  return true;
}

/// The events of an allocation.
void AllocatorPair::note(const planner::Allocation& given) {
  using planner::AllocationSource;
  const bool gave_back =
      std::ranges::count(modelled_, AllocatorEventKind::segment_free, &AllocatorEvent::kind) > 0;
  if (given.source == AllocationSource::driver && gave_back) ++coverage_.collections;
  if (given.source == AllocationSource::after_oversize) ++coverage_.oversize_retries;
  if (given.source == AllocationSource::after_retry) ++coverage_.retries;
}

void AllocatorPair::compare_failure(const planner::AllocationFailure& failure) {
  ++coverage_.failures;
  if (!real_->failure) return;
  expect("OOM, rounded", real_->failure->rounded, failure.rounded);
  expect("OOM, asked", real_->failure->asked_of_driver, failure.asked_of_driver);
  expect("OOM, free", real_->failure->device_free, failure.device_free);
  expect("OOM, allowed", real_->failure->allowed, failure.allowed.value_or(device_bytes(false)));
}

void AllocatorPair::record_stream(const StormOperation& operation) {
  const HeldBlock& held = held_[operation.slot];
  c10::DataPtr borrowed(held.address, held.address, allocator::get()->raw_deleter(),
                        c10::Device(c10::kCUDA, 0));
  allocator::recordStream(borrowed, streams_[operation.stream]);
  borrowed.release_context();
  model_->record_stream(held.block, operation.stream);
}

bool AllocatorPair::take_outside(const StormOperation& operation) {
  outside_.resize(std::max(outside_.size(), operation.slot + 1));
  outside_bytes_.resize(outside_.size());
  void*& address = outside_[operation.slot];
  const bool taken = cudaMalloc(&address, static_cast<size_t>(operation.bytes)) == cudaSuccess;
  if (!taken) static_cast<void>(cudaGetLastError());
  outside_bytes_[operation.slot] = operation.bytes;
  expect<int64_t>("taken outside", taken, model_->take_outside(operation.bytes));
  return taken;
}

void AllocatorPair::give_back_outside(const StormOperation& operation) {
  cudaFree(std::exchange(outside_[operation.slot], nullptr));
  model_->give_back_outside(outside_bytes_[operation.slot]);
}

void AllocatorPair::change(const StormOperation& operation) {
  switch (operation.kind) {
    case StormKind::allocate:
    case StormKind::take_outside:
      throw std::logic_error("not a change");
    case StormKind::free: {
      const HeldBlock held = std::exchange(held_[operation.slot], {});
      allocator::raw_delete(held.address);
      model_->free(held.block);
      if (modelled_.back().kind == AllocatorEventKind::free_requested) ++coverage_.kept_for_streams;
      return;
    }
    case StormKind::record_stream:
      return record_stream(operation);
    case StormKind::give_back_outside:
      return give_back_outside(operation);
    case StormKind::empty_cache:
      allocator::emptyCache();
      return model_->empty_cache();
    case StormKind::set_fraction:
      allocator::setMemoryFraction(operation.fraction, 0);
      return model_->set_memory_fraction(operation.fraction);
    case StormKind::reset_peaks:
      allocator::resetPeakStats(0);
      return model_->reset_peaks();
    case StormKind::reset_accumulated:
      allocator::resetAccumulatedStats(0);
      return model_->reset_accumulated();
  }
}

void AllocatorPair::compare() {
  compare_events();
  compare_counters();
  expect("free on the device", device_bytes(true), model_->device_free_bytes());
}

void AllocatorPair::compare_counters() {
  expect("counters", counters_of(allocator::getDeviceStats(0)), model_->counters());
}

void AllocatorPair::compare_events() {
  const std::vector<RealEvent>& real = real_->events;
  for (size_t i = 0; i < std::min(real.size(), modelled_.size()); ++i) {
    const AllocatorEvent& modelled = modelled_[i];
    expect("kind of event", static_cast<int64_t>(real[i].kind),
           static_cast<int64_t>(modelled.kind));
    expect("stream of event", int64_t{real[i].stream}, int64_t{modelled.stream});
    expect("bytes of event", real[i].bytes, modelled.bytes);
    place(modelled, real[i].address);
    if (modelled.kind == AllocatorEventKind::segment_unmap) ++coverage_.unmapped_ranges;
  }
  expect("events", static_cast<int64_t>(real.size()), static_cast<int64_t>(modelled_.size()));
  coverage_.events += static_cast<int64_t>(real.size());
  real_->events.clear();
  modelled_.clear();
}

/// A segment is known by the place of its first piece; no two are in one place.
void AllocatorPair::place(const AllocatorEvent& event, uint64_t address) {
  if (bases_.size() <= event.segment) bases_.resize(event.segment + 1);
  uint64_t& base = bases_[event.segment];
  const uint64_t from = address - static_cast<uint64_t>(event.offset_bytes);
  if (base == 0) {
    base = from;
    ++coverage_.new_segments;
    const bool is_first = event.kind == AllocatorEventKind::segment_alloc ||
                          event.kind == AllocatorEventKind::segment_map;
    expect<int64_t>("a new segment", is_first && known_bases_.insert(base).second, true);
  }
  expect("segment of event", static_cast<int64_t>(base), static_cast<int64_t>(from));
}

}  // namespace shardlens::tests
