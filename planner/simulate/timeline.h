// Records the changes of a rank's memory while its run is simulated, in the format of a
// recording: each allocation and free, where it is, what it is for, and which step and action it
// belongs to. The rules are those of the recorder (profiler/recorder/recorder.h): a block belongs
// to the purpose in force when it was taken; a block that is freed within the same operator call is
// workspace.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "planner/simulate/allocator/model.h"
#include "planner/simulate/meta/tensor.h"
#include "planner/simulate/settled_rounds.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

using profiler::Purpose;

class Timeline {
 public:
  /// A block until it is freed, named by the index of its event.
  using Block = int64_t;

  uint32_t label(std::string_view text);
  Purpose change(const Purpose& purpose);

  void phase(profiler::Phase phase);
  void step(int64_t step);
  void begin_action(int32_t action);
  void end_action(int32_t action);
  void begin_operator();
  void end_operator() {
    check(operator_depth_ > 0, "an operator ends that did not begin");
    --operator_depth_;
  }

  Block take(profiler::Space space, uint64_t address, int64_t bytes, StreamIndex stream = 0);
  void give_back(Block block);
  /// Gives a block another category, as if it had that category from the start.
  void recategorise(Block block, profiler::Category category);
  void out_of_memory(int64_t free_bytes, int64_t requested_bytes);
  /// Records that a segment is taken from the driver, or given back to it.
  void segment(bool is_taken, uint64_t address, int64_t bytes);

  /// Records that a part of the run is missing here because it repeats an earlier part.
  void leave_out() { leaves_out_ = true; }
  bool leaves_out() const { return leaves_out_; }

  const std::vector<profiler::Event>& events() const { return events_; }
  const std::vector<std::string>& strings() const { return strings_; }
  const Purpose& purpose() const { return purpose_; }

 private:
  profiler::Event& add(profiler::EventKind kind, int64_t value);

  std::vector<profiler::Event> events_;
  std::vector<std::string> strings_ = {""};
  std::unordered_map<std::string, uint32_t> labels_;
  Purpose purpose_;
  bool leaves_out_ = false;
  int operator_depth_ = 0;
  int64_t operator_begin_ = 0;  // the first event of the outermost operator call
};

/// Sets the purpose of allocations for as long as it lives.
class TimelineScope {
 public:
  TimelineScope(Timeline& timeline, const Purpose& purpose)
      : timeline_(timeline), before_(timeline.change(purpose)) {}
  TimelineScope(Timeline& timeline, profiler::Category category, std::string_view text)
      : TimelineScope(timeline, {category, timeline.label(text)}) {}
  ~TimelineScope() { timeline_.change(before_); }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  Timeline& timeline_;
  Purpose before_;
};

/// Thrown if a device has no memory for a request; the timeline shows the circumstances.
struct DeviceFull : std::runtime_error {
  explicit DeviceFull(const AllocationFailure& failure)
      : std::runtime_error("the device is full"), failure(failure) {}
  AllocationFailure failure;
};

/// A GPU's memory under PyTorch's caching allocator: each block comes from the pool of the stream
/// that is current when the block is asked for.
class CachingGpuMemory final : public meta::Memory {
 public:
  CachingGpuMemory(Timeline& timeline, const AllocatorSettings& settings, size_t streams = 1);

  int64_t allocate(int64_t bytes) override;
  void free(int64_t block) override;
  void begin_operator() override { timeline_.begin_operator(); }
  void end_operator() override { timeline_.end_operator(); }

  /// Makes `stream` the current one and returns the one before.
  StreamIndex change_stream(StreamIndex stream);

  /// Returns the allocator's state, with the purpose of each block.
  MemoryState state() const;

  Timeline& timeline() { return timeline_; }
  AllocatorModel& allocator() { return allocator_; }
  const AllocatorModel& allocator() const { return allocator_; }

 private:
  static constexpr int64_t kNone = -1;

  Timeline& timeline_;
  AllocatorModel allocator_;
  StreamIndex current_ = 0;
  std::vector<BlockId> blocks_;  // by the timeline's block
  std::vector<int64_t> taken_;   // by BlockId: the timeline's block there, or kNone
};

/// Makes a stream the current one for as long as it lives.
class StreamScope {
 public:
  StreamScope(CachingGpuMemory& memory, StreamIndex stream)
      : memory_(memory), before_(memory.change_stream(stream)) {}
  ~StreamScope() { memory_.change_stream(before_); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  CachingGpuMemory& memory_;
  StreamIndex before_;
};

/// Host memory, pinned or not; it takes exactly as many bytes as are asked for.
class HostMemory final : public meta::Memory {
 public:
  HostMemory(Timeline& timeline, profiler::Space space) : timeline_(timeline), space_(space) {}

  int64_t allocate(int64_t bytes) override;
  void free(int64_t block) override;
  void begin_operator() override { timeline_.begin_operator(); }
  void end_operator() override { timeline_.end_operator(); }

  int64_t bytes() const { return bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }
  void reset_peak() { peak_bytes_ = bytes_; }

 private:
  Timeline& timeline_;
  profiler::Space space_;
  uint64_t next_address_ = 4096;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace shardlens::planner
