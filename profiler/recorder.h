// Records a rank's memory while it trains: what LibTorch's allocators give and take back, what the
// driver gives to anybody, and what the runtime says of itself.
//
// [Note: categories are declared] An allocation belongs to the innermost Scope of the thread that
// makes it. Scopes travel with LibTorch's thread-local state, so also to a thread that runs
// backward for another. A block that is taken and given back within one operator call is
// `workspace`, whatever the scope; in backward all that autograd does for one node is one call.
// That is known when the block is given back, and said of its whole life. So is `recategorise`:
// what a block turns out to be, it was from the start.
//
// LibTorch keeps allocation hooks for the life of a process, so one recorder can be active at a
// time; all others of its calls are cheap while none is. Any thread may allocate; the calls below
// are for the thread that trains.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "profiler/profile.h"
#include "profiler/step_window.h"

namespace shardlens::profiler {

/// What allocations are for.
struct Purpose {
  Category category = Category::other;
  uint32_t label = 0;
  int32_t action = -1;
};

struct RecorderOptions {
  std::string path;
  Header header;  // its start is set by the recorder
  bool on_cuda = false;
  /// The only ones that are recorded; nothing: everything is.
  std::optional<StepRange> steps = {};
  /// What device_used_bytes() said before this process had a context.
  std::optional<int64_t> device_before_bytes = {};
  bool of_host = true;    // what LibTorch's CPU allocator gives
  bool of_driver = true;  // what the driver gives; only with on_cuda
  /// The device in use has a context, so it can be asked. Else sample_start does, later.
  bool has_context = true;
  /// Says what an allocation is for, instead of a Scope: of a program that knows none. Called on
  /// the thread that allocates, in the allocator's lock; must not throw, allocate by LibTorch or
  /// wait.
  Purpose (*purpose)() = nullptr;
};

struct RecorderSummary {
  int64_t events = 0;
  int64_t lost_events = 0;
  int64_t file_bytes = 0;
  std::string failure;  // why recording stopped early; empty: it did not
  std::string driver;   // why the driver's layer is missing; empty: it is there
};

class Recorder {
 public:
  /// Begins the file and listens. Throws std::runtime_error where the file cannot be made,
  /// std::logic_error where another recorder is active.
  explicit Recorder(const RecorderOptions& options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The one that records now, or null.
  static Recorder* active();

  void phase(Phase phase);
  void step(int64_t step);
  void begin_action(int32_t action);
  void end_action(int32_t action);
  void loss(double loss);
  /// Samples host memory, and on CUDA the device's and pinned memory: about 2 us and 10 us.
  void sample_host();
  void sample_device();
  /// What the device has in use before LibTorch has allocated anything.
  void sample_start();

  /// A live block of LibTorch's is something else than its scope says.
  void recategorise(Space space, const void* address, Category category);

  /// For a process that was forked from one that records: nothing of it is recorded, and the
  /// recorder is never closed. The parent goes on.
  static void forget_after_fork();

  /// The id of a text for Event::label. Any thread may call.
  uint32_t label(std::string_view text);

  /// Why the driver's layer is missing; empty: it is there, or nobody asked for it.
  std::string driver_fault() const;
  /// Ends the driver's layer, for another that wants CUPTI; the rest goes on.
  void leave_driver();

  /// Stops listening and finishes the file. Called once.
  RecorderSummary close();

 private:
  class Hooks;

  void sample_device(Counter used);

  std::unique_ptr<Hooks> hooks_;
};

/// Bytes of a GPU that all processes use, without a context of this one: NVML is asked, which is
/// loaded and never linked. Nothing where it is missing or does not know the GPU.
std::optional<int64_t> device_used_bytes(int device);

/// What held the memory when the recording at `path` last ran out of it, as `profile report` shows
/// it: at most 40 lines. Empty where it never did, or cannot be read.
std::string out_of_memory_screen(const std::string& path);

/// What the calling thread's allocations are for while this lives. Does nothing while nobody
/// records.
class Scope {
 public:
  explicit Scope(const Purpose& purpose);
  Scope(Category category, std::string_view label);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// From now on they are for something else; says what they were for. A new scope takes three
  /// allocations, this takes none.
  Purpose change(const Purpose& purpose);

 private:
  struct Info;
  friend class Recorder;

  std::shared_ptr<Info> info_;
  std::optional<c10::DebugInfoGuard> guard_;
};

/// To be put around a backward. While this lives and somebody records, LibTorch announces no
/// operator calls on this thread, nor on one that runs backward for it: there it announces every
/// node by a name that it first writes through a stream, which is more than half of what recording
/// costs. The recorder sees by itself which node runs. LibTorch's own profiler, if somebody uses
/// it, sees no operators meanwhile.
class UnobservedBackward {
 public:
  UnobservedBackward();

 private:
  std::optional<at::RecordFunctionGuard> guard_;
};

}  // namespace shardlens::profiler
