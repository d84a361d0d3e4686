#include "base/host_queue.h"

#include <limits>
#include <utility>

#include "base/check.h"

namespace shardlens {

HostQueue::~HostQueue() {
  if (!thread_) return;
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_->join();
}

void HostQueue::post(int action, Work work) {
  if (!has_device_) return work();
  if (!thread_) thread_.emplace([this] { run(); });
  {
    const std::scoped_lock lock(mutex_);
    check(failure_ || posted_.empty() || posted_.back().action < action,
          "work is posted with a falling id");
    posted_.push_back({action, std::move(work)});
  }
  changed_.notify_all();
}

void HostQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || (!posted_.empty() && !failure_); });
    if (ends_) return;
    Work work = std::move(posted_.front().work);
    lock.unlock();
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    work = nullptr;  // frees what it holds before the others hear that it is done
    lock.lock();
    failure_ = failure;
    if (!failure_) posted_.pop_front();
    changed_.notify_all();
  }
}

void HostQueue::wait(int action) {
  std::unique_lock lock(mutex_);
  wait_until_past(lock, action);
}

void HostQueue::join() {
  std::unique_lock lock(mutex_);
  wait_until_past(lock, std::numeric_limits<int>::max());
}

void HostQueue::wait_until_past(std::unique_lock<std::mutex>& lock, int action) {
  changed_.wait(lock,
                [&] { return failure_ || posted_.empty() || posted_.front().action > action; });
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace shardlens
