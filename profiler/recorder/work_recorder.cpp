#include "profiler/recorder/work_recorder.h"

#include <c10/cuda/CUDAStream.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "profiler/recorder/clock.h"
#include "profiler/recorder/operator_calls.h"
#include "profiler/recorder/own_time.h"

namespace shardlens::profiler {

namespace {

constexpr uint16_t kNoThread = UINT16_MAX;
thread_local uint16_t own_thread = kNoThread;

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
  if (encoder_.items() > 0 && !has_finished_) {
    if (WorkBlock last = encoder_.take(); last.count > 0) writer_.append_work(std::move(last));
  }
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
  const OwnTime own;  // counts in the interval after this item
  const int64_t time_ns = steady_ns(c10::getApproximateTime()) - start_ns_;
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
  if (encoder_.is_full()) writer_.append_work(encoder_.take());
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

int64_t WorkRecorder::about_of(const WorkRequest& request) {
  if (request.event == nullptr || request.work.kind == WorkKind::event_record) {
    return request.about;
  }
  const auto found = recorded_.find(request.event);
  return found == recorded_.end() ? -1 : found->second;
}

}  // namespace shardlens::profiler
