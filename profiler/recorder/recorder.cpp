#include "profiler/recorder/recorder.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "profiler/file/writer.h"
#include "profiler/null_device/driver/pinned.h"
#include "profiler/recorder/clock.h"
#include "profiler/recorder/driver.h"
#include "profiler/recorder/known_classes.h"
#include "profiler/recorder/operator_calls.h"
#include "profiler/recorder/own_time.h"
#include "profiler/recorder/pinned_requests.h"
#include "profiler/recorder/resident_bytes.h"
#include "profiler/recorder/stream_numbers.h"
#include "profiler/recorder/versions.h"
#include "profiler/recorder/work_recorder.h"
#include "profiler/report/recording_report.h"

namespace shardlens::profiler {

namespace {

using c10::cuda::CUDACachingAllocator::TraceEntry;

std::atomic<Recorder*> active_recorder = nullptr;

uint64_t number_of(const void* address) { return reinterpret_cast<uint64_t>(address); }

/// Returns the header with the present time as its start, by which reports lay ranks side by side.
Header starting_now(Header header) {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  header.start_realtime_ns = std::chrono::nanoseconds(since_1970).count();
  return header;
}

}  // namespace

/// The purpose of a Scope, read by every thread that the scope has travelled to.
struct Scope::Info : c10::DebugInfoBase {
  explicit Info(const Purpose& purpose) { set(purpose); }

  void set(const Purpose& purpose) {
    category.store(purpose.category, std::memory_order_relaxed);
    label.store(purpose.label, std::memory_order_relaxed);
    action.store(purpose.action, std::memory_order_relaxed);
  }
  Purpose get() const {
    return {category.load(std::memory_order_relaxed), label.load(std::memory_order_relaxed),
            action.load(std::memory_order_relaxed)};
  }

  std::atomic<Category> category;
  std::atomic<uint32_t> label;
  std::atomic<int32_t> action;

  // A kind that none of LibTorch's own libraries use.
  static c10::DebugInfoKind kind() { return c10::DebugInfoKind::PRODUCER_INFO; }
  static Purpose current() {
    const auto* const info = static_cast<const Info*>(c10::ThreadLocalDebugInfo::get(kind()));
    return info == nullptr ? Purpose{} : info->get();
  }
};

Scope::Scope(const Purpose& purpose) {
  if (Recorder::active() == nullptr) return;
  info_ = std::make_shared<Info>(purpose);
  guard_.emplace(Info::kind(), info_);
}

Scope::Scope(Category category, std::string_view label)
    : Scope({category, Recorder::active() == nullptr ? 0 : Recorder::active()->label(label)}) {}

Purpose Scope::change(const Purpose& purpose) {
  if (info_ == nullptr) return {};
  const Purpose before = info_->get();
  info_->set(purpose);
  return before;
}

UnobservedBackward::UnobservedBackward() {
  if (Recorder::active() != nullptr) guard_.emplace(/*is_enabled=*/false);
}

/// Owns the writer and all hooks that feed it with events.
class Recorder::Hooks {
 public:
  /// A block that LibTorch has allocated.
  struct Block {
    Space space{};
    uint64_t address = 0;
    int64_t bytes = 0;  // 0 if unknown
    uint16_t stream = 0;
  };

  explicit Hooks(const RecorderOptions& options)
      : writer_(options.path, starting_now(options.header)),
        start_ns_(steady_ns(c10::getApproximateTime())),
        window_(options.steps ? std::make_unique<StepWindow>(
                                    *options.steps, mapped_label_,
                                    [this](const Event& event) { writer_.append(event); })
                              : nullptr),
        purpose_(options.purpose == nullptr ? Scope::Info::current : options.purpose),
        driver_(
            options.on_cuda && options.of_driver
                ? std::make_unique<DriverWatch>([this](const DriverChange& c) { record_change(c); })
                : nullptr) {
    if (options.gpu) gpu_ = *options.gpu;
  }

  Writer& writer() { return writer_; }
  KnownClasses& classes() { return classes_; }

  void watch_operators() {
    operators_ = at::addGlobalCallback(at::RecordFunctionCallback(begin_operator, end_operator)
                                           .scopes({at::RecordScope::FUNCTION})
                                           .needsInputs(sees_inputs()));
  }
  void leave_operators() { at::removeCallback(operators_); }
  const DriverWatch* driver() const { return driver_.get(); }
  void stop_driver() { driver_.reset(); }
  void watch_work(EventTimes* (*follow_events)()) {
    work_ = new WorkRecorder(writer_, streams_, start_ns_, follow_events);
    if (!work_->start()) delete std::exchange(work_, nullptr);
  }
  WorkRecorder* work() { return work_; }

  void append(const Event& event) { append(event, now_ns()); }

  void append(Event event, int64_t time_ns) {
    event.time_ns = time_ns;
    window_ == nullptr ? writer_.append(event) : window_->take(event);
  }

  void record_allocation(const Block& block, int64_t time_ns) {
    const Purpose purpose = purpose_();
    if (block.space == Space::device) follow_module(purpose, time_ns);
    if (ThreadOperators* const call = current_call()) call->allocated.push_back(block.address);
    append({.address = block.address,
            .value = block.bytes,
            .action = purpose.action,
            .label = purpose.label,
            .stream = block.stream,
            .kind = EventKind::alloc,
            .space = block.space,
            .category = purpose.category},
           time_ns);
    if (sees_inputs()) classes_.keep(block.address, purpose.category, purpose.name);
    if (purpose.name == 0) return;
    append({.address = block.address,
            .label = purpose.name,
            .kind = EventKind::recategorise,
            .space = block.space,
            .category = purpose.category},
           time_ns);
  }

  void record_free(const Block& block, int64_t time_ns) {
    if (sees_inputs()) classes_.forget(block.address);
    if (forget_own(block.address)) {
      append({.address = block.address,
              .kind = EventKind::recategorise,
              .space = block.space,
              .category = Category::workspace},
             time_ns);
    }
    append({.address = block.address,
            .value = block.bytes,
            .stream = block.stream,
            .kind = EventKind::free,
            .space = block.space},
           time_ns);
  }

  int64_t now_ns() const { return ns_at(c10::getApproximateTime()); }

  void record_trace(const TraceEntry& entry);
  std::optional<int> gpu() const {
    const int gpu = gpu_.load(std::memory_order_relaxed);
    return gpu == kNoGpu ? std::nullopt : std::optional(gpu);
  }

  void count(Counter counter, int64_t value) {
    append({.address = static_cast<uint64_t>(counter), .value = value, .kind = EventKind::counter});
  }

  /// Records a `hold` for a free that the allocator has not completed at once, since other streams
  /// still use the block: [Note: held blocks].
  void hold_freed() {
    if (freed_.load(std::memory_order_relaxed) == 0) return;
    const uint64_t address = freed_.exchange(0);
    if (address != 0) append({.address = address, .kind = EventKind::hold});
  }

  static void install(const RecorderOptions& options);
  static void watch_pinned(const RecorderOptions& options);

 private:
  static constexpr int kNoGpu = -1;

  int64_t ns_at(c10::approx_time_t ticks) const { return steady_ns(ticks) - start_ns_; }

  /// Returns true for an event of the GPU that is recorded, which the first allocation chooses:
  /// allocators of GPUs that nobody uses have events, too.
  bool is_recorded(const TraceEntry& entry) {
    int known = gpu_.load(std::memory_order_relaxed);
    if (known != kNoGpu) return known == entry.device_;
    const bool allocates =
        entry.action_ == TraceEntry::ALLOC || entry.action_ == TraceEntry::SEGMENT_ALLOC ||
        entry.action_ == TraceEntry::SEGMENT_MAP || entry.action_ == TraceEntry::OOM;
    if (!allocates) return false;
    return gpu_.compare_exchange_strong(known, entry.device_) || known == entry.device_;
  }

  /// Records a change by the driver. Pinned memory gets the purpose of the calling thread, since it
  /// is allocated where it is needed, by the thread that needs it.
  void record_change(const DriverChange& change) {
    Purpose purpose;
    if (change.is_pinned_host && change.given) {
      purpose = is_in_pinned_request() ? purpose_() : Scope::Info::current();
    }
    append({.address = change.address,
            .value = change.bytes,
            .action = purpose.action,
            .label = purpose.label != 0 ? purpose.label : writer_.intern(change.library),
            .kind = change.given ? EventKind::alloc : EventKind::free,
            .space = change.is_pinned_host ? Space::pinned : Space::driver,
            .category = purpose.category});
  }

  static void record_null_pinned(bool given, uint64_t address, uint64_t bytes) {
    if (Recorder* const recorder = active()) {
      recorder->hooks_->record_change({.given = given,
                                       .is_pinned_host = true,
                                       .address = address,
                                       .bytes = static_cast<int64_t>(bytes),
                                       .library = "before the recording"});
    }
  }

  /// Records the module that the next allocation is made in, if it is another than before. The
  /// caller holds the lock of the recorded GPU's allocator.
  void follow_module(const Purpose& purpose, int64_t time_ns) {
    if (purpose.module == module_) return;
    module_ = purpose.module;
    append({.label = module_, .kind = EventKind::module}, time_ns);
  }

  void record_completion(uint64_t address) {
    uint64_t freed = address;
    if (freed_.compare_exchange_strong(freed, 0)) return;
    hold_freed();
    append({.address = address, .kind = EventKind::release});
  }

  /// Returns the number of the private pool of a segment, in order of first appearance. PyTorch up
  /// to the version that tells the pool has kNoPrivatePool. The caller holds the allocator's lock.
  template <class Entry>
  int32_t number_of_pool(const Entry& entry) {
    if constexpr (requires { entry.mempool_; }) {
      if (entry.mempool_.first == 0 && entry.mempool_.second == 0) return kNoPrivatePool;
      const auto number = std::ranges::find(pools_, entry.mempool_) - pools_.begin();
      if (static_cast<size_t>(number) == pools_.size()) pools_.push_back(entry.mempool_);
      return static_cast<int32_t>(number);
    }
    return kNoPrivatePool;
  }

  Writer writer_;
  int64_t start_ns_;
  at::CallbackHandle operators_{};
  const uint32_t mapped_label_ = writer_.intern("mapped");  // see Space in profile.h
  StreamNumbers streams_;
  // Null if no trace of work is made. Never destroyed, since a thread may be about to call it; it
  // is idle once it has finished.
  WorkRecorder* work_ = nullptr;
  std::vector<std::pair<unsigned long long, unsigned long long>> pools_;  // their ids in LibTorch
  uint32_t module_ = 0;                                                   // of the last allocation
  std::atomic<uint64_t> freed_ = 0;  // free requested, maybe not completed; 0: none
  const std::unique_ptr<StepWindow> window_;
  Purpose (*const purpose_)();
  KnownClasses classes_;
  std::atomic<int> gpu_ = kNoGpu;        // that is recorded
  std::unique_ptr<DriverWatch> driver_;  // last, as it reports changes at once
};

void Recorder::Hooks::record_trace(const TraceEntry& entry) {
  if (!is_recorded(entry)) return;
  const auto bytes = static_cast<int64_t>(entry.size_);
  const OwnTime own;
  const uint16_t stream = streams_.number_of(entry.stream_);
  const int64_t time_ns = ns_at(entry.time_.approx_t_);
  if (entry.action_ == TraceEntry::FREE_COMPLETED) return record_completion(entry.addr_);
  hold_freed();
  switch (entry.action_) {
    case TraceEntry::ALLOC:
      return record_allocation({Space::device, entry.addr_, bytes, stream}, time_ns);
    case TraceEntry::FREE_REQUESTED:  // LibTorch's counter of allocated bytes falls now
      record_free({Space::device, entry.addr_, bytes, stream}, time_ns);
      freed_ = entry.addr_;
      return;
    case TraceEntry::SEGMENT_ALLOC:
    case TraceEntry::SEGMENT_MAP:
    case TraceEntry::SEGMENT_FREE:
    case TraceEntry::SEGMENT_UNMAP: {
      const bool given =
          entry.action_ == TraceEntry::SEGMENT_ALLOC || entry.action_ == TraceEntry::SEGMENT_MAP;
      const bool mapped =
          entry.action_ == TraceEntry::SEGMENT_MAP || entry.action_ == TraceEntry::SEGMENT_UNMAP;
      return append({.address = entry.addr_,
                     .value = bytes,
                     .action = action_of_pool(given ? number_of_pool(entry) : kNoPrivatePool),
                     .label = mapped ? mapped_label_ : 0,
                     .stream = stream,
                     .kind = given ? EventKind::alloc : EventKind::free,
                     .space = Space::segment},
                    time_ns);
    }
    case TraceEntry::OOM: {
      const Purpose purpose = purpose_();
      follow_module(purpose, time_ns);
      return append({.address = entry.addr_,
                     .value = bytes,
                     .action = purpose.action,
                     .label = purpose.label,
                     .stream = stream,
                     .kind = EventKind::out_of_memory,
                     .space = Space::device,
                     .category = purpose.category},
                    time_ns);
    }
    default:
      return;  // nothing moves: a snapshot, or an entry of a newer PyTorch
  }
}

namespace {

/// Wraps LibTorch's CPU allocator to report its blocks. A block keeps LibTorch's context and gets
/// our deleter.
class WatchedCpuAllocator final : public c10::Allocator {
 public:
  using ChangeCallback = void (*)(bool given, const void* address, size_t bytes);

  WatchedCpuAllocator(c10::Allocator& inner, ChangeCallback tell) : inner_(inner) {
    inner_deleter = inner.raw_deleter();
    tell_ = tell;
  }

  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = inner_.allocate(bytes);
    if (block.get() != nullptr && block.compare_exchange_deleter(inner_deleter, &give_back)) {
      tell_(true, block.get(), bytes);
    }
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    inner_.copy_data(target, source, bytes);
  }

 private:
  static void give_back(void* context) {
    if (context != nullptr) tell_(false, context, 0);
    inner_deleter(context);
  }

  static inline c10::DeleterFnPtr inner_deleter = nullptr;
  static inline ChangeCallback tell_ = nullptr;
  c10::Allocator& inner_;
};

}  // namespace

/// Installs the hooks for the life of the process, as LibTorch cannot remove them; they are idle
/// while no recorder is active.
void Recorder::Hooks::install(const RecorderOptions& options) {
  static std::once_flag cpu, cuda, pinned;
  const auto watch_cpu = [] {
    const auto tell = [](bool given, const void* address, size_t bytes) {
      Recorder* recorder = active();
      if (recorder == nullptr) return;
      Hooks& hooks = *recorder->hooks_;
      const Hooks::Block block{Space::host, number_of(address), static_cast<int64_t>(bytes)};
      given ? hooks.record_allocation(block, hooks.now_ns())
            : hooks.record_free(block, hooks.now_ns());
    };
    static WatchedCpuAllocator watched(*c10::GetCPUAllocator(), tell);
    c10::SetCPUAllocator(&watched, /*priority=*/1);
  };
  if (options.of_host) std::call_once(cpu, watch_cpu);
  if (!options.on_cuda) return;
  std::call_once(cuda, [] {
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const TraceEntry& entry) {
      if (Recorder* recorder = active()) recorder->hooks_->record_trace(entry);
    });
  });
  if (options.of_pinned) std::call_once(pinned, watch_pinned, options);
}

void Recorder::Hooks::watch_pinned(const RecorderOptions& options) {
  static const auto prepare = options.prepare_purpose;
  watch_pinned_requests({.begins =
                             [] {
                               if (prepare != nullptr && active() != nullptr) prepare();
                             },
                         .served =
                             [](int64_t asked_bytes) {
                               Recorder* const recorder = active();
                               if (recorder == nullptr) return;
                               recorder->sample_pinned();
                               recorder->hooks_->count(Counter::pinned_asked, asked_bytes);
                             }});
  const auto listen = null_device_call<decltype(shardlens_null_listen_to_pinned)>(
      "shardlens_null_listen_to_pinned");
  if (listen != nullptr && !options.of_driver) listen(record_null_pinned);
}

Recorder::Recorder(const RecorderOptions& options) : hooks_(std::make_unique<Hooks>(options)) {
  Recorder* none = nullptr;
  check(active_recorder.compare_exchange_strong(none, this), "recorder: another one is active");
  Hooks::install(options);
  set_operator_ended(options.operator_ended);
  hooks_->watch_operators();
  if (options.of_work) hooks_->watch_work(options.follow_events);
  if (!options.on_cuda) return;
  if (options.device_before_bytes) {
    hooks_->count(Counter::device_before, *options.device_before_bytes);
  }
  if (options.of_pinned) sample_pinned();
  if (options.has_context) sample_start();
}

void Recorder::sample_start() { sample_device(Counter::device_start); }

std::optional<int> Recorder::gpu() const { return hooks_->gpu(); }

Problem Recorder::driver_fault() const {
  return hooks_->driver() == nullptr ? std::nullopt : hooks_->driver()->unavailable_reason();
}

void Recorder::leave_driver() { hooks_->stop_driver(); }

Recorder::~Recorder() {
  if (active() == this) close();
}

void Recorder::forget_after_fork() {
  WorkRecorder::leave();
  active_recorder.store(nullptr, std::memory_order_release);
}

Recorder* Recorder::active() { return active_recorder.load(std::memory_order_acquire); }

RecorderSummary Recorder::close() {
  RecorderSummary summary;
  summary.driver = driver_fault();
  leave_driver();
  hooks_->leave_operators();
  if (WorkRecorder* const work = hooks_->work(); work != nullptr) {
    work->finish();
    summary.predicted_times = work->predictions();
  }
  set_operator_ended(nullptr);
  active_recorder.store(nullptr, std::memory_order_release);
  Writer& writer = hooks_->writer();
  writer.close();
  const WriterCounts counts = writer.counts();
  summary.events = counts.events;
  summary.lost_events = counts.lost;
  summary.file_bytes = counts.bytes;
  summary.failure = writer.failure();
  return summary;
}

void Recorder::phase(Phase phase) {
  hooks_->append({.value = static_cast<int64_t>(phase), .kind = EventKind::phase});
}

void Recorder::step(int64_t step) { hooks_->append({.value = step, .kind = EventKind::step}); }

void Recorder::step_of_work(int64_t step) {
  if (hooks_->work() == nullptr) return;
  if (step == 0) measure_calls();
  hooks_->work()->step(step);
}

bool Recorder::has_work() const { return hooks_->work() != nullptr; }

void Recorder::trace_collective(const TracedCollective& collective) {
  if (hooks_->work() != nullptr) hooks_->work()->trace_collective(collective);
}

void Recorder::await_collectives() {
  if (hooks_->work() != nullptr) hooks_->work()->await_collectives();
}

void Recorder::begin_action(int32_t action) {
  hooks_->append({.action = action, .kind = EventKind::action_begin});
}

void Recorder::end_action(int32_t action) {
  hooks_->append({.action = action, .kind = EventKind::action_end});
}

void Recorder::loss(double loss) { hooks_->count(Counter::loss, std::bit_cast<int64_t>(loss)); }

void Recorder::sample_host() { hooks_->count(Counter::resident_host, resident_bytes()); }

void Recorder::sample_device() {
  hooks_->hold_freed();
  sample_device(Counter::device_used);
  sample_pinned();
}

void Recorder::sample_pinned() {
  const PinnedBytes pinned = pinned_bytes(at::getHostAllocator(at::kCUDA)->get_stats());
  hooks_->count(Counter::pinned_held, pinned.held);
  hooks_->count(Counter::pinned_used, pinned.used);
}

void Recorder::sample_device(Counter used) {
  size_t free_bytes = 0, total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return;
  hooks_->count(used, static_cast<int64_t>(total_bytes - free_bytes));
  hooks_->count(Counter::device_total, static_cast<int64_t>(total_bytes));
}

void Recorder::recategorise(Space space, const void* address, Category category, uint32_t name) {
  if (sees_inputs()) hooks_->classes().keep(number_of(address), category, name);
  hooks_->append({.address = number_of(address),
                  .label = name,
                  .kind = EventKind::recategorise,
                  .space = space,
                  .category = category});
}

void Recorder::classify(const void* address, Category category, uint32_t name) {
  if (hooks_->classes().class_at(number_of(address)) != Category::other) return;
  recategorise(Space::device, address, category, name);
}

std::optional<uint32_t> Recorder::copied_parameter() const {
  const uint64_t copied = thread_operator().copied;
  return copied == 0 ? std::nullopt : hooks_->classes().parameter_at(copied);
}

bool Recorder::copies_host() {
  return thread_operator().copied != 0 && thread_operator().is_of_host;
}

std::string out_of_memory_screen(const std::string& path) {
  try {
    return out_of_memory_text(report_of(path));
  } catch (const std::exception&) {
    return {};  // the run's failure is reported elsewhere; a missing file adds nothing
  }
}

uint32_t Recorder::label(std::string_view text) { return label(text, 0); }

uint32_t Recorder::label(std::string_view text, uint32_t innermost) {
  return hooks_->writer().intern(text, innermost);
}

uint32_t Recorder::frame(const StackFrame& frame) { return hooks_->writer().frame(frame); }

std::span<const std::string> Recorder::running_operators() {
  return std::span(thread_operator().names).first(thread_operator().depth);
}

}  // namespace shardlens::profiler
