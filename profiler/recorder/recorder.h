// Records a rank's memory while it trains: what LibTorch's allocators give and take back, what the
// driver gives to any library in the process, and what the runtime reports about itself.
//
// [Note: categories are declared] An allocation belongs to the innermost Scope of the thread that
// makes it. Scopes travel with LibTorch's thread-local state, and so also to a thread that runs
// backward for another. A block that is taken and given back within one operator call is
// `workspace`, whatever the scope; in backward, everything that autograd does for one node counts
// as one call. The recorder knows this only when the block is given back, and it then holds for the
// block's whole life. So does `recategorise`: the new category holds from the allocation on.
//
// LibTorch keeps allocation hooks for the life of a process, so one recorder can be active at a
// time; the hooks cost little while none is. Any thread may allocate; the functions below are for
// the training thread.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/fault.h"
#include "profiler/recorder/step_window.h"
#include "profiler/recording/event_times.h"
#include "profiler/recording/profile.h"
#include "profiler/recording/work.h"

namespace shardlens::profiler {

struct RecorderOptions {
  std::string path;
  Header header;  // the recorder sets its start
  bool on_cuda = false;
  /// The GPU whose memory is recorded, from 0; nothing: the first that allocates. What the process
  /// allocates on others is left out.
  std::optional<int> gpu = {};
  /// Only events of these steps are recorded; without a range all are.
  std::optional<StepRange> steps = {};
  /// The result of device_used_bytes() before this process had a context.
  std::optional<int64_t> device_before_bytes = {};
  bool of_host = true;    // what LibTorch's CPU allocator gives
  bool of_driver = true;  // what the driver gives; only with on_cuda
  /// True to record what tensors ask of the pinned host allocator; only with on_cuda. On a null
  /// device also what its driver gives as pinned memory, even without the driver's layer.
  bool of_pinned = false;
  /// True to make a trace of work (recording/work.h); only on a null device.
  bool of_work = false;
  /// Returns the times of the recording's events, for a program that reads the time between two;
  /// null: they are not known. Called once the trace of work so far is in the file.
  EventTimes* (*follow_events)() = [] { return static_cast<EventTimes*>(nullptr); };
  /// True if the device in use has a context, so that its memory can be sampled at once. Otherwise
  /// the caller calls sample_start() later.
  bool has_context = true;
  /// Returns the purpose of an allocation, in place of a Scope, for a program that has no scopes.
  /// The allocating thread calls it under the allocator's lock, so it must not throw, allocate
  /// through LibTorch or wait.
  Purpose (*purpose)() = nullptr;
  /// Called when an outermost operator call of a thread has ended; null: nobody wants to know. If
  /// it is set, the recorder also sees what operators copy, and knows the blocks of parameters.
  void (*operator_ended)() = nullptr;
  /// Called before a request for pinned memory, of which `purpose` tells the purpose then.
  void (*prepare_purpose)() = nullptr;
};

struct RecorderSummary {
  int64_t events = 0;
  int64_t lost_events = 0;
  int64_t file_bytes = 0;
  Problem failure;              // why recording stopped early; nothing: it did not
  Problem driver;               // why the driver's layer is missing; nothing: it is there
  int64_t predicted_times = 0;  // between events, that the program has read
};

/// A collective that no NCCL was called for.
struct TracedCollective {
  std::string_view name;
  CollectiveKind kind{};
  int64_t bytes = 0;  // as Collective::bytes
  NumberType type{};
  int32_t peer = -1;
  std::string group;  // PyTorch's name for it
  int32_t ranks = 1;
  int32_t rank = 0;
  bool is_async = false;
};

class Recorder {
 public:
  /// Creates the file and begins to listen. Throws std::runtime_error if the file cannot be
  /// created, std::logic_error if another recorder is active.
  explicit Recorder(const RecorderOptions& options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Returns the recorder that is recording now, or null.
  static Recorder* active();

  void phase(Phase phase);
  void step(int64_t step);
  /// Begins a step of the trace of work.
  void step_of_work(int64_t step);
  bool has_work() const;
  /// Adds a collective to the trace of work: on the current stream, or if it is asynchronous on a
  /// stream of its group that first waits for the current one.
  void trace_collective(const TracedCollective& collective);
  /// Makes the current stream wait for the asynchronous collectives so far.
  void await_collectives();
  void begin_action(int32_t action);
  void end_action(int32_t action);
  void loss(double loss);
  /// Samples the host's memory, in about 2 us (a null device's pinned memory takes more);
  /// sample_device() samples the device's and pinned memory on CUDA, in about 10 us.
  void sample_host();
  void sample_device();
  void sample_pinned();
  /// Samples the memory that the device has in use before LibTorch has allocated any.
  void sample_start();

  /// Changes the category of a live LibTorch block, from its allocation on, and names what it holds
  /// by a label, unless that is 0.
  void recategorise(Space space, const void* address, Category category, uint32_t name = 0);
  /// Recategorises a block of the device that nobody has classed: one that is `other`.
  void classify(const void* address, Category category, uint32_t name);
  /// Returns the name of the parameter that the calling thread's operators copy now, or 0 if it has
  /// none; nothing if they copy no parameter.
  std::optional<uint32_t> copied_parameter() const;
  /// True if the calling thread's operators copy a tensor of the host.
  static bool copies_host();

  /// Ends recording in a process that was forked from a recorded one, without closing the recorder.
  /// The parent goes on recording.
  static void forget_after_fork();

  /// Returns the id of a text for Event::label. Any thread may call.
  uint32_t label(std::string_view text);
  /// Returns the id of a text for Event::label, with the stack whose innermost frame is given.
  uint32_t label(std::string_view text, uint32_t innermost);
  /// Returns the number of a frame; 0 if it cannot be kept now. Any thread may call.
  uint32_t frame(const StackFrame& frame);

  /// Returns the names of the operators that the calling thread is in, the outermost first. They
  /// are valid until one of them ends.
  static std::span<const std::string> running_operators();

  /// Returns the GPU whose memory is recorded; nothing: none has allocated yet.
  std::optional<int> gpu() const;

  /// Returns why the driver's layer is missing; nothing if it is there, or was not asked for.
  Problem driver_fault() const;
  /// Ends the driver's layer, so that another tool can subscribe to CUPTI; the rest of the
  /// recording goes on.
  void leave_driver();

  /// Stops listening and finishes the file. Must be called at most once.
  RecorderSummary close();

 private:
  class Hooks;

  void sample_device(Counter used);

  std::unique_ptr<Hooks> hooks_;
};

/// Returns the bytes of a GPU that all processes use, without making a context for this process: it
/// asks NVML, which is loaded at run time and never linked. Returns nothing if NVML is missing or
/// does not know the GPU.
std::optional<int64_t> device_used_bytes(int device);

/// Returns the report of what held the memory when memory last ran out in the recording at `path`,
/// as `profile report` shows it, in at most 60 lines. Returns an empty text if it never did, or if
/// the file cannot be read.
std::string out_of_memory_screen(const std::string& path);

/// Declares the purpose of the calling thread's allocations while it lives. Does nothing while no
/// recorder is active.
class Scope {
 public:
  explicit Scope(const Purpose& purpose);
  Scope(Category category, std::string_view label);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// Replaces the purpose and returns the old one. A new scope costs three allocations; this costs
  /// none.
  Purpose change(const Purpose& purpose);

 private:
  struct Info;
  friend class Recorder;

  std::shared_ptr<Info> info_;
  std::optional<c10::DebugInfoGuard> guard_;
};

/// Stops LibTorch from announcing operator calls on this thread, and on one that runs backward for
/// it, while this object lives and a recorder is active. Put it around a backward: there LibTorch
/// announces every node by a name that it first writes through a stream, which is more than half of
/// the cost of recording. The recorder sees by itself which node runs. LibTorch's own profiler, if
/// it is in use, sees no operators meanwhile.
class UnobservedBackward {
 public:
  UnobservedBackward();

 private:
  std::optional<at::RecordFunctionGuard> guard_;
};

}  // namespace shardlens::profiler
