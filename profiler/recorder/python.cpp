#include "profiler/recorder/python.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <pthread.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/recorder/python_frames.h"
#include "profiler/recorder/recorder.h"
#include "profiler/recorder/versions.h"
#include "profiler/recorder/workspaces.h"
#include "profiler/recording/python_rules.h"

namespace shardlens::profiler {

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
using allocator::RecordContext;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

/// The stacks that the user's own memory history records for an allocation.
enum class OwnHistory { none, python, with_cpp };

std::atomic<OwnHistory> own_history = OwnHistory::none;
std::atomic<bool> has_own_history = false;  // or had one
std::atomic<StepPart> step_part = StepPart::starting;
std::atomic<bool> start_is_due = false;  // the device's use has not been sampled yet
bool samples_device = false;             // if so, at each end of a step and at the end
std::atomic<int64_t> coming_step = -1;   // begins with the next allocation; -1: none
std::atomic<const char* (*)()> bound_of_next = nullptr;
bool keeps_stacks = true;  // else each allocation has only its label

/// The purpose of the allocation that this thread is about to make. The allocator asks for it
/// before it takes its lock, when this code may still wait for Python, and reports the allocation
/// with the lock held.
thread_local Purpose next_purpose;

/// The facts about a Python function that never change.
struct KnownFunction {
  const PythonRule* rule = nullptr;
  bool is_of_program = false;
};

const KnownFunction& known_function(const PythonFunction& function) {
  static auto& guard = *new std::mutex();
  static auto& table = *new std::unordered_map<const PythonFunction*, KnownFunction>();
  const std::lock_guard lock(guard);
  const auto [entry, added] = table.try_emplace(&function);
  if (added) {
    entry->second = {find_python_rule(function.file, function.name), is_of_program(function.file)};
  }
  return entry->second;
}

std::string text_of(const PythonPlace& place) {
  const PythonFunction& function = *place.function;
  const size_t folder = function.file.rfind('/');
  const size_t name = folder == std::string::npos ? 0 : folder + 1;
  return fmt::format("{}:{} {}", std::string_view(function.file).substr(name), line_of(place),
                     function.name);
}

struct SeenPlace {
  const PythonRule* rule = nullptr;  // the rule of the innermost function that has one
  std::string place;                 // the innermost function of the program
};

/// Adds to `seen` what the next place says, from the innermost on. Returns false if nothing more
/// can be seen.
bool look_at(const PythonPlace& place, SeenPlace& seen) {
  const KnownFunction& what = known_function(*place.function);
  if (seen.rule == nullptr) seen.rule = what.rule;
  if (seen.place.empty() && what.is_of_program) seen.place = text_of(place);
  return seen.rule == nullptr || seen.place.empty();
}

SeenPlace look_at(const std::vector<PythonPlace>& places) {
  SeenPlace seen;
  for (const PythonPlace& place : places) {
    if (!look_at(place, seen)) break;
  }
  return seen;
}

/// Looks at the functions that the thread is in only until no more can be learned.
SeenPlace look_without_stack() {
  SeenPlace seen;
  visit_python_places([&seen](const PythonPlace& place) { return look_at(place, seen); });
  return seen;
}

/// The stacks that a thread has been in, so that seeing one again costs only a look at each of its
/// frames. The number 0, which stands for a frame that the recording could not keep, is never
/// remembered.
class ThreadStacks {
 public:
  /// Returns the stacks of the calling thread in this recording. They are never destroyed, since
  /// threads allocate while they end.
  static ThreadStacks& stacks_of(Recorder& active) {
    thread_local auto& stacks = *new ThreadStacks();
    if (stacks.recorder_ != &active) stacks = ThreadStacks();
    stacks.recorder_ = &active;
    return stacks;
  }

  /// Finds the Python functions that the thread is in. Returns the innermost frame, or 0 where no
  /// stacks are kept.
  uint32_t find() {
    if (!keeps_stacks) return 0;
    find_python_places(places);
    return frame_of(places, 0);
  }

  /// Returns the innermost frame of the Python functions that the thread is in, called by `caller`.
  uint32_t frame_of(const std::vector<PythonPlace>& places, uint32_t caller) {
    for (auto place = places.rbegin(); place != places.rend(); ++place) {
      uint32_t& frame = frames_[{caller, *place}];
      if (frame == 0) frame = new_frame(*place, caller);
      if (frame == 0) return 0;
      caller = frame;
    }
    return caller;
  }

  /// Returns the frame of an operator or a node of autograd, which has only a name.
  uint32_t frame_of(const std::string& name, uint32_t caller) {
    const uint32_t function = keeps_stacks ? recorder_->label(name) : 0;
    return function == 0 ? 0 : recorder_->frame({.caller = caller, .function = function});
  }

  /// Returns the innermost frame of the operators that the thread is in, called by `caller`.
  uint32_t frame_of_operators(uint32_t caller) {
    for (const std::string& name : Recorder::running_operators()) {
      if (caller != 0) caller = frame_of(name, caller);
    }
    return caller;
  }

  /// Returns what the functions say that find() has found; `frame` is their innermost frame.
  const SeenPlace& seen_place(uint32_t frame) {
    if (!keeps_stacks) return unkept_ = look_without_stack();
    if (frame == 0) return unkept_ = look_at(places);
    const auto [found, added] = seen_.try_emplace(frame);
    if (added) found->second = look_at(places);
    return found->second;
  }

  std::vector<PythonPlace> places;  // keeps its memory

 private:
  struct Call {
    uint32_t caller = 0;
    PythonPlace place;

    bool operator==(const Call&) const = default;
  };
  struct CallHash {
    size_t operator()(const Call& call) const {
      const auto function = reinterpret_cast<uint64_t>(call.place.function);
      const uint64_t at =
          uint64_t{call.caller} << 32 | static_cast<uint32_t>(call.place.instruction);
      return (at * 0x9E37'79B9'7F4A'7C15U ^ function) * 0xD6E8'FEB8'6659'FD93U >> 7;
    }
  };

  uint32_t new_frame(const PythonPlace& place, uint32_t caller) {
    const uint32_t file = recorder_->label(place.function->file);
    const uint32_t function = recorder_->label(place.function->qualified_name);
    if (file == 0 || function == 0) return 0;
    const auto line = static_cast<uint32_t>(std::max(0, line_of(place)));
    return recorder_->frame({.caller = caller, .file = file, .function = function, .line = line});
  }

  Recorder* recorder_ = nullptr;
  std::unordered_map<Call, uint32_t, CallHash> frames_;
  std::unordered_map<uint32_t, SeenPlace> seen_;  // by the innermost frame
  SeenPlace unkept_;
};

/// Returns the part of the step that the next allocation is in. A backward ends, and the next
/// microbatch begins, with the first allocation outside the backward.
StepPart part_now(const SeenPlace& seen, bool in_backward) {
  StepPart part = step_part;
  if (in_backward) {
    part = StepPart::backward;
  } else if (seen.rule != nullptr && is_forward(seen.rule->function)) {
    part = StepPart::forward;
  } else if (part == StepPart::backward) {
    part = StepPart::before_forward;
  }
  if (step_part != StepPart::starting) step_part = part;
  return part;
}

/// Returns the text to add to the place of the next allocation if its size is an upper bound.
std::string bound_text(std::string_view place) {
  const auto next = bound_of_next.load();
  const char* const bound = next == nullptr ? nullptr : next();
  return bound == nullptr ? ""
                          : fmt::format("{}{}{}", place.empty() ? "" : ": ", bound, kUpperBound);
}

/// Returns the label of the next allocation: the place in the program, or the node of autograd if
/// no function of the program runs, with the whole stack down to the operators.
uint32_t label_of_next(Recorder& active, ThreadStacks& stacks, const SeenPlace& seen,
                       uint32_t innermost, const torch::autograd::Node* node) {
  std::string text = seen.place;
  if (text.empty() && node != nullptr) {
    text = node->name();
    const uint32_t outermost = stacks.frame_of(text, 0);
    innermost = outermost == 0 ? 0 : stacks.frame_of(stacks.places, outermost);
  }
  text += bound_text(text);
  if (text.empty()) return 0;
  if (innermost == 0) return active.label(text);
  return active.label(text, stacks.frame_of_operators(innermost));
}

Purpose purpose_of_next(Recorder& active) {
  ThreadStacks& stacks = ThreadStacks::stacks_of(active);
  const uint32_t innermost = stacks.find();
  const SeenPlace& seen = stacks.seen_place(innermost);
  const auto node = torch::autograd::get_current_node();
  const StepPart part = part_now(seen, node != nullptr);
  return {.category = seen.rule != nullptr ? seen.rule->category : category_of_part(part),
          .label = label_of_next(active, stacks, seen, innermost, node.get())};
}

/// Begins the announced step at its first allocation, so that the code after the last step, which
/// allocates nothing, does not become a step.
void begin_coming_step(Recorder& active) {
  if (coming_step < 0) return;
  const int64_t step = coming_step.exchange(-1);
  if (step < 0) return;
  if (step == 0) active.phase(Phase::training);
  active.step(step);
}

/// Makes the context of an allocation. The allocator calls this for the stacks of its own history.
std::shared_ptr<c10::GatheredContext> gather() {
  if (Recorder* const active = Recorder::active()) {
    // If there is no context yet, this allocation makes it, on the device that is in use now.
    if (start_is_due.exchange(false)) active->sample_start();
    begin_coming_step(*active);
    next_purpose = purpose_of_next(*active);
  }
  const OwnHistory wanted = own_history;
  if (wanted == OwnHistory::none) return nullptr;
  return torch::CapturedTraceback::gather(true, true, wanted == OwnHistory::with_cpp);
}

void listen(RecordContext when, size_t entries, bool clears) {
  call_with_default(allocator::recordHistory, true, allocator::CreateContextFn(gather), entries,
                    std::max(when, RecordContext::ALLOC), clears);
}

Header header_of(const ShardlensRecordStart& start) {
  Header header;
  header.rank = start.rank;
  header.world_size = start.world_size;
  header.device = start.device;
  header.notice = start.notice;
  header.config = start.config;
  header.libraries = start.libraries;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, start.gpu) != cudaSuccess) return header;
  header.gpu = properties.name;
  header.capacity_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return header;
}

/// Samples the device's memory if it has a context, which the first allocation makes.
void sample_device(Recorder& active) {
  if (samples_device && !start_is_due) active.sample_device();
}

/// Returns the recorder of this process, which is kept until the program ends, since allocations go
/// on while it ends.
std::unique_ptr<Recorder>& recorder() {
  static auto& only = *new std::unique_ptr<Recorder>();
  return only;
}

bool stacks_are_wanted() {
  const char* const value = std::getenv(kRecordStacksVariable);
  return value == nullptr || std::string_view(value) != "0";
}

void begin(const ShardlensRecordStart& start) {
  const bool is_attached = start.is_attached != 0;
  keeps_stacks = stacks_are_wanted();
  recorder() = std::make_unique<Recorder>(RecorderOptions{
      .path = start.path,
      .header = header_of(start),
      .on_cuda = true,
      .device_before_bytes = is_attached ? device_used_bytes(start.gpu) : std::nullopt,
      .of_host = false,
      .of_driver = is_attached,  // a null device's driver tells no more than segments do
      .has_context = !is_attached,
      .purpose = [] { return next_purpose; }});
  start_is_due = samples_device = is_attached;
  listen(RecordContext::ALLOC, 1, false);
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, Recorder::forget_after_fork); });
}

}  // namespace

}  // namespace shardlens::profiler

using namespace shardlens::profiler;

const char* shardlens_record_begin(const ShardlensRecordStart* start) {
  static auto& failure = *new std::string();
  try {
    begin(*start);
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}

const char* shardlens_record_driver_fault() {
  static auto& fault = *new shardlens::Problem();
  if (Recorder* const active = Recorder::active()) fault = active->driver_fault();
  return fault ? fault->c_str() : nullptr;
}

void shardlens_record_leave_driver() {
  if (Recorder* const active = Recorder::active()) active->leave_driver();
}

void shardlens_record_step(int64_t step) {
  if (Recorder* const active = Recorder::active()) sample_device(*active);
  coming_step = step;
  step_part = StepPart::before_forward;
}

void shardlens_record_recategorise(uint64_t address, int32_t category) {
  Recorder* const active = Recorder::active();
  if (active == nullptr || category < 0 || category >= kCategories) return;
  active->recategorise(Space::device, reinterpret_cast<const void*>(address),
                       static_cast<Category>(category));
}

void shardlens_record_workspaces() {
  Recorder* const active = Recorder::active();
  if (active == nullptr) return;
  visit_workspaces([active](const void* block) {
    active->recategorise(Space::device, block, Category::workspace);
  });
}

void shardlens_record_name_bounds(const char* (*next)()) { bound_of_next = next; }

void shardlens_record_share_history(int32_t context, int64_t entries, int32_t with_cpp) {
  if (Recorder::active() == nullptr) return;
  const auto when = static_cast<RecordContext>(context);
  own_history = when == RecordContext::NEVER ? OwnHistory::none
                : with_cpp != 0              ? OwnHistory::with_cpp
                                             : OwnHistory::python;
  // The allocator kept its last event for us, which is not the program's.
  const bool begins = own_history != OwnHistory::none && !has_own_history.exchange(true);
  listen(when, static_cast<size_t>(entries), begins);
}

bool shardlens_record_end(ShardlensRecordEnd* end) {
  Recorder* const active = Recorder::active();
  if (active == nullptr) return false;
  sample_device(*active);
  const auto stats = allocator::getDeviceStats(c10::cuda::current_device());
  const RecorderSummary summary = recorder()->close();
  *end = {.events = summary.events,
          .lost_events = summary.lost_events,
          .retries = stats.num_alloc_retries,
          .allocations = stats.allocation[kAll].allocated,
          .allocated_bytes = stats.allocated_bytes[kAll].current,
          .reserved_bytes = stats.reserved_bytes[kAll].current,
          .peak_allocated_bytes = stats.allocated_bytes[kAll].peak,
          .peak_reserved_bytes = stats.reserved_bytes[kAll].peak};
  return true;
}
