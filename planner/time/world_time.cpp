#include "planner/time/world_time.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace shardlens::planner {

namespace {

using profiler::Collective;
using profiler::CollectiveKind;
using profiler::WorkCommunicator;
using profiler::WorkKind;
using profiler::WorkTrace;

/// Names a sequence of collectives that ranks take part in: the communicator's ranks; the sender
/// and the receiver, or -1 for what all ranks do.
using SequenceKey = std::tuple<std::vector<int32_t>, int32_t, int32_t>;

/// The tasks of each rank in a sequence, in order.
using Sequence = std::map<size_t, std::vector<size_t>>;

bool is_pair(const Collective& collective) {
  return collective.kind == CollectiveKind::send || collective.kind == CollectiveKind::receive;
}

std::optional<SequenceKey> sequence_of(const Collective& collective,
                                       const WorkCommunicator& communicator) {
  const std::vector<int32_t>& ranks = communicator.world_ranks;
  const auto known = static_cast<int32_t>(ranks.size());
  if (known < 2 || communicator.rank < 0 || communicator.rank >= known) return std::nullopt;
  if (!is_pair(collective)) return SequenceKey{ranks, -1, -1};
  if (collective.peer < 0 || collective.peer >= known) return std::nullopt;
  const int32_t own = ranks[static_cast<size_t>(communicator.rank)];
  const int32_t peer = ranks[static_cast<size_t>(collective.peer)];
  return collective.kind == CollectiveKind::send ? SequenceKey{ranks, own, peer}
                                                 : SequenceKey{ranks, peer, own};
}

/// Returns how many ranks take part in a collective of a sequence.
size_t members_of(const SequenceKey& key) {
  return std::get<1>(key) < 0 ? std::get<0>(key).size() : 2;
}

/// Finds the collectives in which ranks meet.
class Meetings {
 public:
  void add(size_t rank, const WorkTrace& trace, const StepTasks& step) {
    size_t head = 0;                   // of a group of collectives, which begin together
    const Collective* last = nullptr;  // the last work, if that was of a pair
    for (size_t i = 0; i < step.tasks.size(); ++i) {
      if (step.tasks[i].task.kind != TaskKind::run) continue;
      const profiler::Work& work = trace.work_of(trace.items[step.tasks[i].item]);
      if (work.kind != WorkKind::collective) {
        last = nullptr;
        continue;
      }
      // PyTorch sends and receives in batches, which a trace does not tell from single ones.
      const bool is_batched = last != nullptr && is_pair(work.collective) &&
                              last->communicator == work.collective.communicator;
      if (!work.collective.joins_previous && !is_batched) head = i;
      last = is_pair(work.collective) ? &work.collective : nullptr;
      const auto key =
          sequence_of(work.collective, trace.communicators[work.collective.communicator]);
      if (key) sequences_[*key][rank].push_back(head);
    }
  }

  /// Returns those of which two or more ranks are known. Ranks that do not agree how many there are
  /// do not meet.
  std::vector<Meeting> found() {
    std::vector<Meeting> meetings;
    for (const auto& [key, by_rank] : sequences_) {
      if (by_rank.size() < members_of(key)) ++incomplete_;
      if (by_rank.size() < 2) continue;
      const size_t count = by_rank.begin()->second.size();
      const bool agree = std::ranges::all_of(
          by_rank, [count](const auto& one) { return one.second.size() == count; });
      if (!agree) {
        ++unlike_;
        continue;
      }
      for (size_t i = 0; i < count; ++i) {
        Meeting& meeting = meetings.emplace_back();
        for (const auto& [rank, tasks] : by_rank) meeting.push_back({rank, tasks[i]});
      }
    }
    return meetings;
  }

  std::vector<std::string> doubts() const {
    std::vector<std::string> doubts;
    if (incomplete_ > 0) {
      doubts.emplace_back(
          "not all ranks of each collective were run: those that were not are taken to come at "
          "once");
    }
    if (unlike_ > 0) {
      doubts.emplace_back(
          "the steps of some ranks have unlike numbers of collectives, where they do not wait");
    }
    return doubts;
  }

 private:
  std::map<SequenceKey, Sequence> sequences_;
  size_t incomplete_ = 0, unlike_ = 0;
};

}  // namespace

WorldTime world_time(std::span<const WorkTrace> traces, const Gpu& gpu,
                     const StepTimeOptions& options) {
  WorldTime world;
  std::vector<StepTasks> steps;
  std::vector<std::vector<Task>> tasks;
  Meetings meetings;
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    steps.push_back(step_tasks(traces[rank], gpu, options));
    tasks.push_back(simulated_tasks(steps.back()));
    meetings.add(rank, traces[rank], steps.back());
  }
  const std::vector<Meeting> found = meetings.found();
  auto times = simulate_together(tasks, found);
  world.doubts = meetings.doubts();
  if (times) {
    world.meetings = std::ssize(found);
  } else {
    world.doubts.emplace_back(
        "the ranks wait for each other in a circle in this order of collectives: each is simulated "
        "alone");
    times = simulate_together(tasks, {});
  }
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    StepTime time;
    if (!steps[rank].tasks.empty()) {
      time = time_of_tasks(traces[rank], gpu, options, steps[rank], (*times)[rank]);
    }
    world.ranks.push_back(std::move(time));
  }
  const auto slowest = std::ranges::max_element(world.ranks, {}, &StepTime::seconds);
  world.slowest = static_cast<size_t>(slowest - world.ranks.begin());
  return world;
}

}  // namespace shardlens::planner
