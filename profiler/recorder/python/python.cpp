#include "profiler/recorder/python/python.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <pthread.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/device.h"
#include "profiler/recorder/own_time.h"
#include "profiler/recorder/python/autograd_places.h"
#include "profiler/recorder/python/compiled_code.h"
#include "profiler/recorder/python/event_request.h"
#include "profiler/recorder/python/frames.h"
#include "profiler/recorder/python/module_names.h"
#include "profiler/recorder/python/program_parts.h"
#include "profiler/recorder/python/thread_stacks.h"
#include "profiler/recorder/recorder.h"
#include "profiler/recorder/versions.h"
#include "profiler/recorder/work_recorder.h"
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

/// The purpose of the allocation that this thread is about to make. The allocator asks for it
/// before it takes its lock, when this code may still wait for Python, and reports the allocation
/// with the lock held.
thread_local Purpose next_purpose;
thread_local uint32_t name_of_next = 0;  // what the thread's allocations hold; 0: not known

std::atomic<void (*)()> on_forward = nullptr;  // Python's function
std::atomic<bool> forward_is_awaited = false;  // it is called for the next one

/// Asks Python's main thread to look at the modules, if a forward has been awaited.
void tell_forward() {
  if (!forward_is_awaited.load(std::memory_order_relaxed)) return;
  if (on_forward == nullptr || !forward_is_awaited.exchange(false)) return;
  call_in_main_thread([](void*) {
    if (const auto look = on_forward.load()) look();
    return 0;
  });
}

/// Returns the part of the step that the next allocation is in. A backward ends, and the next
/// microbatch begins, with the first allocation outside the backward. A program that makes no
/// optimizer starts until its first forward.
StepPart part_now(const SeenPlace& seen, bool in_backward) {
  StepPart part = step_part;
  if (in_backward) {
    part = StepPart::backward;
  } else if (seen.rule != nullptr && is_forward(seen.rule->function)) {
    part = StepPart::forward;
  } else if (part == StepPart::backward) {
    part = StepPart::before_forward;
  }
  if (step_part != StepPart::starting || part == StepPart::forward) step_part = part;
  return part;
}

/// Takes what bounds the size of the next allocation, once; null: its size is exact.
const char* take_next_bound() {
  const auto next = bound_of_next.load();
  return next == nullptr ? nullptr : next();
}

/// Returns the text to add to the place of an allocation whose size has an upper bound, or null.
std::string bound_text(const char* bound, std::string_view place) {
  return bound == nullptr ? ""
                          : fmt::format("{}{}{}", place.empty() ? "" : ": ", bound, kUpperBound);
}

/// Returns "train.py:14 forward, backward from train.py:30 main": where forward made the node, or
/// else its name, and what called backward.
std::string text_of_node(const torch::autograd::Node& node, const BackwardCall& call) {
  const std::string* const made = place_of(node).place;
  const std::string first = made == nullptr ? node.name() : *made + ", backward";
  return call.place == nullptr ? first : first + " from " + *call.place;
}

/// Returns the text of the next allocation's place if no function of the program runs.
std::string text_outside_program(const SeenPlace& seen) {
  // Backward goes on after its last node, where FSDP2 reduces what is left.
  if (const BackwardCall call = backward_call(); call.place != nullptr) return *call.place;
  if (seen.of_torch != nullptr) return *seen.of_torch;
  const auto operators = Recorder::running_operators();
  return operators.empty() ? "" : std::string(operators.front());
}

/// Returns the label of the next allocation: the place in the program, or that of the node of
/// autograd if no function of the program runs, with the whole stack down to the operators.
uint32_t label_of_next(Recorder& active, ThreadStacks& stacks, const SeenPlace& seen,
                       uint32_t innermost, const torch::autograd::Node* node) {
  const char* const bound = take_next_bound();
  if (seen.code == nullptr && seen.place != nullptr && bound == nullptr) {
    return stacks.label_of(*seen.place, stacks.frame_of_operators(innermost));
  }
  std::string text = seen.code != nullptr    ? seen.code->label
                     : seen.place != nullptr ? *seen.place
                                             : "";
  if (text.empty() && node != nullptr) text = text_of_node(*node, backward_call());
  if (seen.place == nullptr && node != nullptr) {
    const uint32_t outermost = stacks.frame_of(node->name(), backward_call().frame);
    innermost = outermost == 0 ? 0 : stacks.frame_of_places(outermost);
  }
  if (text.empty()) text = text_outside_program(seen);
  text += bound_text(bound, text);
  if (text.empty()) return 0;
  return active.label(text, stacks.frame_of_operators(innermost));
}

/// True if the calling thread's operator makes data: random numbers, as programs use in place of
/// data, or a copy from the host.
bool makes_data() {
  constexpr std::array kMakers = {std::string_view("aten::rand"), std::string_view("aten::randn"),
                                  std::string_view("aten::randint")};
  const auto operators = Recorder::running_operators();
  if (operators.empty()) return false;
  return std::ranges::find(kMakers, operators.front()) != kMakers.end() || Recorder::copies_host();
}

/// Returns the purpose of an allocation that no rule covers, and that is not backward's.
Category category_outside_rules(StepPart part) {
  return makes_data() ? Category::input : category_of_part(part);
}

/// True if a copy of a parameter that the functions of this rule make is nothing else.
bool is_copy_under(const PythonRule* rule) {
  return rule == nullptr || rule->category == Category::activation ||
         rule->category == Category::input || rule->category == Category::parameter_copy;
}

Category category_of_next(const SeenPlace& seen, StepPart part) {
  const bool in_backward = part == StepPart::backward;
  if (seen.code != nullptr) {
    return seen.code->is_backward ? Category::gradient : Category::activation;
  }
  if (seen.rule != nullptr && !seen.rule->is_of_part) return seen.rule->category;
  return in_backward ? category_of_part(part) : category_outside_rules(part);
}

/// Notes a forward that has begun, or that has ended because the program makes its next batch.
void follow_forward(Recorder& active, const SeenPlace& seen, StepPart part) {
  if (part == StepPart::backward) return;
  const bool runs = seen.rule != nullptr && is_forward(seen.rule->function);
  if (runs) return note_forward(active);
  const bool is_input =
      seen.rule == nullptr ? makes_data() : seen.rule->category == Category::input;
  if (is_input) end_forward(active);
}

/// Returns the module that makes the next allocation: the innermost one that is called, or in
/// backward the one whose forward made the node; null: none.
const ModuleName* module_of_next(const ModuleName* called, const torch::autograd::Node* node) {
  if (called != nullptr || node == nullptr) return called;
  return place_of(*node).module;
}

/// Returns the name of a module, or of the one in it that generated code stands for: that code
/// knows the modules in the one that was compiled. The name is empty if there is none.
std::string text_of_module(const ModuleName* module, const CompiledLine* code) {
  if (code == nullptr || code->module.empty()) return module == nullptr ? "" : module->text();
  const bool is_inside = module != nullptr && !module->path.empty();
  return is_inside ? fmt::format("{}.{}", module->path, code->module) : code->module;
}

/// Returns its number. That of the thread's last one is known without making its name: equal
/// modules and equal lines are the same object.
uint32_t number_of_module(Recorder& active, const ModuleName* module, const CompiledLine* code) {
  thread_local struct {
    Recorder* recorder = nullptr;
    const ModuleName* module = nullptr;
    const CompiledLine* code = nullptr;
    uint32_t number = 0;
  } last;
  if (last.recorder != &active || last.module != module || last.code != code) {
    const std::string text = text_of_module(module, code);
    last = {.recorder = &active,
            .module = module,
            .code = code,
            .number = text.empty() ? 0 : active.label(text)};
  }
  return last.number;
}

Purpose purpose_of_next(Recorder& active) {
  ThreadStacks& stacks = ThreadStacks::stacks_of(active);
  const uint32_t innermost = stacks.find();
  const SeenPlace& seen = stacks.seen_place(innermost);
  const auto node = torch::autograd::get_current_node();
  const StepPart part = part_now(seen, node != nullptr);
  follow_forward(active, seen, part);
  if (has_new_nodes()) place_new_nodes({.place = seen.place, .module = stacks.module()});
  if (part == StepPart::forward) tell_forward();
  Purpose purpose = {
      .category = category_of_next(seen, part),
      .label = label_of_next(active, stacks, seen, innermost, node.get()),
      .name = name_of_next,
      .module = number_of_module(active, module_of_next(stacks.module(), node.get()), seen.code)};
  if (purpose.name == 0 && seen.code != nullptr && !seen.code->module.empty()) {
    purpose.name = active.label(seen.code->module);
  }
  if (purpose.name == 0 && seen.rule != nullptr && !seen.rule->name.empty()) {
    purpose.name = active.label(seen.rule->name);
  }
  const auto copied = is_copy_under(seen.rule) ? active.copied_parameter() : std::nullopt;
  if (!copied) return purpose;
  purpose.category = Category::parameter_copy;
  purpose.name = *copied;
  return purpose;
}

/// Notes the place of what a thread's operator has made for backward, if it has not allocated.
void place_after_operator() {
  Recorder* const active = Recorder::active();
  if (active == nullptr || !has_new_nodes()) return;
  ThreadStacks& stacks = ThreadStacks::stacks_of(*active);
  const uint32_t innermost = stacks.find();
  place_new_nodes({.place = stacks.seen_place(innermost).place, .module = stacks.module()});
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

/// Notes the purpose of the pinned memory that this thread asks for now.
void prepare_purpose() {
  if (Recorder* const active = Recorder::active()) next_purpose = purpose_of_next(*active);
}

/// Makes the context of an allocation. The allocator calls this for the stacks of its own history.
std::shared_ptr<c10::GatheredContext> gather() {
  const OwnTime own;
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

/// Samples the host's memory a few times a second at most: on a null device with much pinned memory
/// it takes tens of milliseconds.
void sample_host_now_and_then(Recorder& active) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause{300};
  static Clock::time_point next;
  if (Clock::now() < next) return;
  active.sample_host();
  next = Clock::now() + kPause;
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

/// Returns "h100" for "null:h100".
std::string gpu_of_device(std::string_view device) {
  if (device.starts_with(kNullDevice)) device.remove_prefix(kNullDevice.size());
  return std::string(device);
}

void begin(const ShardlensRecordStart& start) {
  const bool is_attached = start.is_attached != 0;
  set_keeps_stacks(stacks_are_wanted());
  set_event_request({.library = start.event_times,
                     .recording = start.path,
                     .gpu = gpu_of_device(start.device),
                     .calibration = start.calibration});
  recorder() = std::make_unique<Recorder>(RecorderOptions{
      .path = start.path,
      .header = header_of(start),
      .on_cuda = true,
      .gpu = start.recorded_gpu < 0 ? std::nullopt : std::optional(start.recorded_gpu),
      .device_before_bytes = is_attached ? device_used_bytes(start.gpu) : std::nullopt,
      .of_host = false,
      .of_driver = is_attached,  // a null device's driver tells no more than segments do
      .of_pinned = true,
      .of_work = start.has_work != 0,
      .follow_events = follow_requested_events,
      .has_context = !is_attached,
      .purpose = [] { return next_purpose; },
      .operator_ended = place_after_operator,
      .prepare_purpose = prepare_purpose});
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

const char* shardlens_record_event_fault() {
  return event_fault().empty() ? nullptr : event_fault().c_str();
}

void shardlens_record_leave_driver() {
  if (Recorder* const active = Recorder::active()) active->leave_driver();
}

void shardlens_record_step(int64_t step) {
  if (Recorder* const active = Recorder::active()) {
    active->step_of_work(step);
    const OwnTime own;
    sample_device(*active);
    sample_host_now_and_then(*active);
    end_forward(*active);
  }
  coming_step = step;
  step_part = StepPart::before_forward;
}

void shardlens_record_group(const char* name, const int32_t* ranks, int32_t count) {
  note_group(name, {ranks, ranks + count});
}

void shardlens_record_all_reduce(const char* group, int32_t ranks, int32_t rank, int64_t bytes,
                                 const char* type) {
  Recorder* const active = Recorder::active();
  if (active == nullptr) return;
  active->trace_collective(
      {.name = "c10d::allreduce_",
       .kind = CollectiveKind::all_reduce,
       .bytes = bytes,
       .type = shardlens::choice_named<NumberType>(type).value_or(NumberType::unknown),
       .group = group,
       .ranks = ranks,
       .rank = rank,
       .is_async = true});
}

void shardlens_record_await_collectives() {
  if (Recorder* const active = Recorder::active()) active->await_collectives();
}

uint32_t shardlens_record_name(const char* text) {
  Recorder* const active = Recorder::active();
  return active == nullptr ? 0 : active->label(text);
}

void shardlens_record_name_next(uint32_t name) { name_of_next = name; }

void shardlens_record_recategorise(uint64_t address, int32_t category, uint32_t name) {
  Recorder* const active = Recorder::active();
  if (active == nullptr || category < 0 || category >= kCategories) return;
  active->recategorise(Space::device, reinterpret_cast<const void*>(address),
                       static_cast<Category>(category), name);
}

void shardlens_record_classify(uint64_t address, int32_t category, uint32_t name) {
  Recorder* const active = Recorder::active();
  if (active == nullptr || category < 0 || category >= kCategories) return;
  active->classify(reinterpret_cast<const void*>(address), static_cast<Category>(category), name);
}

void shardlens_record_begin_part(int32_t part) {
  Recorder* const active = Recorder::active();
  if (active == nullptr || part < 0 || part >= kProgramParts) return;
  begin_part(*active, static_cast<ProgramPart>(part));
}

void shardlens_record_end_part(int32_t part) {
  Recorder* const active = Recorder::active();
  if (active == nullptr || part < 0 || part >= kProgramParts) return;
  end_part(*active, static_cast<ProgramPart>(part));
}

void shardlens_record_begin_backward() {
  Recorder* const active = Recorder::active();
  BackwardCall call;
  if (active != nullptr) {
    ThreadStacks& stacks = ThreadStacks::stacks_of(*active);
    call.frame = stacks.find();
    call.place = stacks.seen_place(call.frame).place;
    begin_part(*active, ProgramPart::backward);
  }
  begin_backward(call);
}

void shardlens_record_end_backward() {
  end_backward();
  shardlens_record_end_part(static_cast<int32_t>(ProgramPart::backward));
  shardlens_record_await_collectives();  // as DDP does in its last callback
}

void shardlens_record_await_forward(void (*look)()) {
  on_forward = look;
  forward_is_awaited = look != nullptr;
}

void shardlens_record_name_module(uint64_t module, const char* path, const char* class_name) {
  name_module(reinterpret_cast<const void*>(module), {.path = path, .class_name = class_name});
}

void shardlens_record_forget_module(uint64_t module) {
  forget_module(reinterpret_cast<const void*>(module));
}

void shardlens_record_compiled(const char* graph, const char* node, const char* place,
                               const char* module, int32_t is_backward) {
  tell_compiled_source(graph, node,
                       {.place = place, .module = module, .is_backward = is_backward != 0});
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
  active->sample_host();
  const int gpu = active->gpu().value_or(c10::cuda::current_device());
  const auto stats = allocator::getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
  const RecorderSummary summary = recorder()->close();
  *end = {.events = summary.events,
          .lost_events = summary.lost_events,
          .retries = stats.num_alloc_retries,
          .allocations = stats.allocation[kAll].allocated,
          .allocated_bytes = stats.allocated_bytes[kAll].current,
          .reserved_bytes = stats.reserved_bytes[kAll].current,
          .peak_allocated_bytes = stats.allocated_bytes[kAll].peak,
          .peak_reserved_bytes = stats.reserved_bytes[kAll].peak,
          .gpu = gpu,
          .predicted_times = summary.predicted_times};
  return true;
}
