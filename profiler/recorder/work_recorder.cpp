#include "profiler/recorder/work_recorder.h"

#include <c10/cuda/CUDAStream.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/recorder/clock.h"
#include "profiler/recorder/operator_calls.h"
#include "profiler/recorder/own_time.h"

namespace shardlens::profiler {

namespace {

constexpr uint16_t kNoThread = UINT16_MAX;

// Between two events: a GPU tells no shorter one, and programs divide by it.
constexpr double kShortestTime = 0.5e-6;

thread_local uint16_t own_thread = kNoThread;
thread_local bool nccl_was_called = false;  // within a call of c10d

/// True for work by which PyTorch's fake process groups, and copies around NCCL, fill the outputs
/// of a collective.
bool is_stand_in(WorkKind kind) {
  return kind == WorkKind::kernel || kind == WorkKind::copy || kind == WorkKind::set;
}

/// The ranks in the world of the process groups that Python has told of.
struct KnownGroups {
  std::mutex mutex;
  std::map<std::string, std::vector<int32_t>> ranks;
};

KnownGroups& known_groups() {
  static auto& groups = *new KnownGroups;
  return groups;
}

std::vector<int32_t> ranks_of_group(const std::string& name) {
  const std::scoped_lock lock(known_groups().mutex);
  const auto found = known_groups().ranks.find(name);
  return found == known_groups().ranks.end() ? std::vector<int32_t>{} : found->second;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return text == nullptr ? name : text.get();
}

/// Returns the ranks in the world of those of the process group for which this thread communicates;
/// empty if PyTorch does not say.
std::vector<int32_t> world_ranks(int size) {
  const auto* const info = static_cast<const torch::ParamCommsDebugInfo*>(
      c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PARAM_COMMS_INFO));
  if (info == nullptr) return {};
  const std::vector<int64_t>& ranks = info->getGroupRanks();
  if (static_cast<int>(ranks.size()) != size) return {};
  return {ranks.begin(), ranks.end()};
}

/// Returns the null device's pointer to its observer; null on a real GPU.
std::atomic<WorkObserver*>* observer_of_device() {
  return static_cast<std::atomic<WorkObserver*>*>(
      ::dlsym(RTLD_DEFAULT, "shardlens_null_work_observer"));
}

}  // namespace

bool WorkRecorder::start() {
  std::atomic<WorkObserver*>* const observer = observer_of_device();
  capture_of_ = reinterpret_cast<CaptureOf*>(::dlsym(RTLD_DEFAULT, "shardlens_null_capture_of"));
  if (observer == nullptr || capture_of_ == nullptr) return false;
  observer->store(this, std::memory_order_release);
  OwnTime::is_counted = true;
  return true;
}

void WorkRecorder::step(int64_t step) { note({.work = {.kind = WorkKind::step}, .about = step}); }

void WorkRecorder::leave() {
  if (auto* const observer = observer_of_device()) observer->store(nullptr);
  OwnTime::is_counted = false;
}

void WorkRecorder::finish() {
  leave();
  const std::scoped_lock lock(mutex_);
  if (!has_finished_) hand_over();
  has_finished_ = true;
}

void WorkRecorder::note_communicator(const void* communicator, int ranks, int rank) {
  const OwnTime own;
  const std::scoped_lock lock(mutex_);
  if (communicators_.contains(communicator)) return;
  communicators_[communicator] =
      encoder_.communicator({.size = ranks, .rank = rank, .world_ranks = world_ranks(ranks)});
}

void WorkRecorder::note(const WorkRequest& request) {
  // PyTorch's allocators and NCCL's watchdog ask whether events are done, within operators and on a
  // thread of its own; those are not the program's questions.
  const bool is_query = request.work.kind == WorkKind::event_query;
  if (is_query && (own_thread == kNoThread || thread_operator().depth > 0)) return;
  if (is_in_collective()) {
    nccl_was_called |= request.work.kind == WorkKind::collective;
    if (is_stand_in(request.work.kind)) return;
  }
  const OwnTime own;  // counts in the interval after this item
  const int64_t time_ns = now_ns();
  const std::scoped_lock lock(mutex_);
  if (!has_finished_) add(request, time_ns);
}

void WorkRecorder::add(const WorkRequest& request, int64_t time_ns) {
  Work work = request.work;
  const bool is_current = request.is_in_current_stream;
  const void* const stream =
      is_current ? c10::cuda::getCurrentCUDAStream().stream() : request.stream;
  work.name = name_of(request.name);
  work.call = work.kind == WorkKind::step ? 0 : number_of_call(encoder_);
  if (request.communicator != nullptr) {
    work.collective.communicator = communicators_[request.communicator];
  }
  const int64_t index = encoder_.items();
  encoder_.add({.time_ns = time_ns,
                .own_ns = interval_ns(OwnTime::take_ticks()),
                .about = about_of(request),
                .work = encoder_.work(work),
                .stream = streams_.number_of(stream),
                .thread = number_of_thread(),
                .graph = static_cast<uint32_t>(capture_of_(stream))});
  if (work.kind == WorkKind::event_record) recorded_[request.event] = index;
  if (encoder_.is_full()) hand_over();
}

/// Ends the block of the last items, if there are any.
void WorkRecorder::hand_over() {
  if (encoder_.is_empty()) return;
  WorkBlock block = encoder_.take();
  if (events_ != nullptr && !events_->follow(block.payload, block.count)) events_ = nullptr;
  writer_.append_work(std::move(block));
}

/// Returns the times of the events so far; null if they are not known.
EventTimes* WorkRecorder::event_times() {
  hand_over();
  if (!std::exchange(reads_events_, true) && writer_.settle_work()) events_ = follow_events_();
  return events_;
}

std::optional<double> WorkRecorder::seconds_of(const void* event) {
  const auto item = recorded_.find(event);
  if (item == recorded_.end()) return std::nullopt;
  const double seconds = events_->seconds_of(item->second);
  return seconds < 0 ? std::nullopt : std::optional(seconds);
}

std::optional<double> WorkRecorder::seconds_between(const void* start, const void* end) {
  const OwnTime own;
  const std::scoped_lock lock(mutex_);
  if (has_finished_ || event_times() == nullptr) return std::nullopt;
  const auto from = seconds_of(start), to = seconds_of(end);
  if (!from || !to) return std::nullopt;
  ++predictions_;
  const double seconds = *to - *from;
  return start == end || seconds < 0 ? seconds : std::max(seconds, kShortestTime);
}

int64_t WorkRecorder::now_ns() const { return steady_ns(c10::getApproximateTime()) - start_ns_; }

/// Returns the key of the collective's group, under which communicators_ knows it.
const void* WorkRecorder::key_of(const TracedCollective& collective) {
  const auto [found, is_new] = groups_.insert(collective.group);
  if (is_new) {
    communicators_[&*found] =
        encoder_.communicator({.size = collective.ranks,
                               .rank = collective.rank,
                               .world_ranks = ranks_of_group(collective.group)});
  }
  return &*found;
}

void WorkRecorder::trace_collective(const TracedCollective& collective) {
  if (std::exchange(nccl_was_called, false)) return;
  const OwnTime own;
  const int64_t time_ns = now_ns();
  const std::scoped_lock lock(mutex_);
  if (has_finished_) return;
  const auto* const group = static_cast<const char*>(key_of(collective));
  const void* const own_stream = group;
  const char *const begun = group + 1, *const ended = group + 2;  // two events
  if (collective.is_async) {
    add({.work = {.kind = WorkKind::event_record}, .is_in_current_stream = true, .event = begun},
        time_ns);
    add({.work = {.kind = WorkKind::event_wait}, .stream = own_stream, .event = begun}, time_ns);
  }
  add({.work = {.kind = WorkKind::collective,
                .collective = {.kind = collective.kind,
                               .bytes = collective.bytes,
                               .type = collective.type,
                               .peer = collective.peer}},
       .name = collective.name.data(),
       .stream = own_stream,
       .is_in_current_stream = !collective.is_async,
       .communicator = group},
      time_ns);
  if (!collective.is_async) return;
  add({.work = {.kind = WorkKind::event_record}, .stream = own_stream, .event = ended}, time_ns);
  pending_[own_stream] = ended;
}

void WorkRecorder::await_collectives() {
  const OwnTime own;
  const int64_t time_ns = now_ns();
  const std::scoped_lock lock(mutex_);
  if (has_finished_) return;
  for (const auto& [_, event] : std::exchange(pending_, {})) {
    add({.work = {.kind = WorkKind::event_wait}, .is_in_current_stream = true, .event = event},
        time_ns);
  }
}

uint32_t WorkRecorder::name_of(const char* name) {
  if (name == nullptr) return 0;
  const auto [found, is_new] = names_.try_emplace(name, 0);
  if (is_new) found->second = encoder_.string(demangled(name));
  return found->second;
}

uint16_t WorkRecorder::number_of_thread() {
  if (own_thread == kNoThread && threads_ + 1 < kNoThread) own_thread = threads_++;
  return own_thread;
}

void note_group(const std::string& name, std::vector<int32_t> world_ranks) {
  const std::scoped_lock lock(known_groups().mutex);
  known_groups().ranks[name] = std::move(world_ranks);
}

int64_t WorkRecorder::about_of(const WorkRequest& request) {
  if (request.event == nullptr || request.work.kind == WorkKind::event_record) {
    return request.about;
  }
  const auto found = recorded_.find(request.event);
  return found == recorded_.end() ? -1 : found->second;
}

}  // namespace shardlens::profiler
