#include "viewer/model/plan_worker.h"

#include <exception>
#include <utility>

namespace shardlens::viewer {

PlanAnswer answer_of(const PlanRequest& request, std::optional<profiler::Space> space) {
  PlanAnswer answer{.request = request, .run = {}, .refusal = {}};
  try {
    answer.run = planned_run(request, space);
  } catch (const std::exception& error) {
    answer.refusal = error.what();
  }
  return answer;
}

PlanWorker::PlanWorker(std::optional<profiler::Space> space)
    : space_(space), thread_([this](const std::stop_token& stop) { work(stop); }) {}

void PlanWorker::ask(const PlanRequest& request) {
  const std::lock_guard lock(mutex_);
  wanted_ = newest_ = request;
  answer_.reset();
  changed_.notify_all();
}

std::optional<PlanAnswer> PlanWorker::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return answer_.has_value(); });
  return std::exchange(answer_, std::nullopt);
}

void PlanWorker::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return wanted_.has_value(); })) {
    const PlanRequest request = *std::exchange(wanted_, std::nullopt);
    lock.unlock();
    PlanAnswer answer = answer_of(request, space_);
    lock.lock();
    if (newest_ != request) continue;
    answer_ = std::move(answer);
    changed_.notify_all();
  }
}

}  // namespace shardlens::viewer
