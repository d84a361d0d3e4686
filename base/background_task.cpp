#include "base/background_task.h"

#include <utility>

namespace shardlens {

BackgroundTask::~BackgroundTask() {
  is_stopped_ = true;
  if (thread_) thread_->join();
}

void BackgroundTask::start(Work work) {
  wait();
  has_ended_ = false;
  thread_.emplace([this, work = std::move(work)] { run(work); });
}

void BackgroundTask::run(const Work& work) {
  try {
    work(is_stopped_);
  } catch (...) {
    failure_ = std::current_exception();
  }
  has_ended_ = true;
}

void BackgroundTask::check() {
  if (thread_ && has_ended_) wait();
}

void BackgroundTask::wait() {
  if (!thread_) return;
  thread_->join();
  thread_.reset();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace shardlens
