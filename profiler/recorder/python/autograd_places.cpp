#include "profiler/recorder/python/autograd_places.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace shardlens::profiler {

namespace {

constexpr size_t kMostPlaces = size_t{1} << 18;

/// The nodes that a thread made at one place: those from the last place's end to `end`.
struct MadeNodes {
  uint64_t end = 0;
  NodePlace place;
};

/// The nodes of one thread. Threads that run backward read it while its own thread waits for them.
class ThreadNodes {
 public:
  void add(const MadeNodes& nodes) {
    const std::lock_guard lock(mutex_);
    if (!nodes_.empty() && nodes_.back().place == nodes.place) {
      nodes_.back().end = nodes.end;
      return;
    }
    nodes_.push_back(nodes);
    if (nodes_.size() <= kMostPlaces) return;
    first_ = nodes_.front().end;
    nodes_.pop_front();
  }

  NodePlace find(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    if (number < first_) return {};
    const auto found = std::ranges::upper_bound(nodes_, number, {}, &MadeNodes::end);
    return found == nodes_.end() ? NodePlace{} : found->place;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<MadeNodes> nodes_;  // `end` grows
  uint64_t first_ = 0;           // nodes before this are forgotten
};

/// The nodes of all threads, by PyTorch's number of the thread. They are never destroyed, since a
/// thread may end before the backward of what it made.
class AllNodes {
 public:
  static AllNodes& all() {
    static auto& nodes = *new AllNodes();
    return nodes;
  }

  ThreadNodes& of_thread(uint64_t thread) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<ThreadNodes>& nodes = threads_[thread];
    if (nodes == nullptr) nodes = std::make_unique<ThreadNodes>();
    return *nodes;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<ThreadNodes>> threads_;
};

thread_local uint64_t placed_nodes = 0;  // all nodes of this thread before this number have a place

/// Travels with PyTorch's thread-local state to the threads that run a backward, as a Scope does
/// (recorder.cpp), which a program without scopes does not use.
struct CallInfo : c10::DebugInfoBase {
  explicit CallInfo(const BackwardCall& backward) : call(backward) {}

  static c10::DebugInfoKind kind() { return c10::DebugInfoKind::PRODUCER_INFO; }

  const BackwardCall call;
};

}  // namespace

bool has_new_nodes() { return at::sequence_number::peek() != placed_nodes; }

void place_new_nodes(const NodePlace& place) {
  thread_local ThreadNodes& nodes =
      AllNodes::all().of_thread(at::RecordFunction::currentThreadId());
  placed_nodes = at::sequence_number::peek();
  nodes.add({.end = placed_nodes, .place = place});
}

NodePlace place_of(const torch::autograd::Node& node) {
  return AllNodes::all().of_thread(node.thread_id()).find(node.sequence_nr());
}

void begin_backward(const BackwardCall& call) {
  c10::ThreadLocalDebugInfo::_push(CallInfo::kind(), std::make_shared<CallInfo>(call));
}

void end_backward() {
  if (c10::ThreadLocalDebugInfo::get(CallInfo::kind()) == nullptr) return;
  c10::ThreadLocalDebugInfo::_pop(CallInfo::kind());
}

BackwardCall backward_call() {
  const auto* const info =
      static_cast<const CallInfo*>(c10::ThreadLocalDebugInfo::get(CallInfo::kind()));
  return info == nullptr ? BackwardCall{} : info->call;
}

}  // namespace shardlens::profiler
