#include "planner/cost/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace shardlens::planner {

namespace {

/// The time that the main stream has spent so far, and the work of all streams.
struct TimeSums {
  ClassSeconds by_class{};
  double waiting_for_host = 0;
  double computing = 0;  // units
  ActionTime work{};

  /// Adds `times` times what was spent since `before`.
  void repeat(const TimeSums& before, double times) {
    const auto add = [times](double& sum, double before) { sum += times * (sum - before); };
    for (size_t i = 0; i < kWorkClasses; ++i) {
      add(by_class[i], before.by_class[i]);
      add(work.by_class[i], before.work.by_class[i]);
    }
    add(waiting_for_host, before.waiting_for_host);
    add(computing, before.computing);
    add(work.launches, before.work.launches);
    add(work.flops, before.work.flops);
  }
};

void add(const ActionTime& one, ActionTime& sum) {
  for (size_t i = 0; i < kWorkClasses; ++i) sum.by_class[i] += one.by_class[i];
  sum.launches += one.launches;
  sum.flops += one.flops;
}

class Clock {
 public:
  Clock(const Schedule& schedule, const ActionTimes& times) : schedule_(schedule), times_(times) {}

  StepCost run() {
    for (int id = 0; id < schedule_.size(); ++id) {
      if (begins_round(id)) {
        if (has_settled(id)) id = pass_over_alike(id);
        before_ = sums_;
      }
      if (id < schedule_.size()) time_action(id);
    }
    const auto last = std::ranges::max_element(streams_);
    const auto slowest = static_cast<Stream>(last - streams_.begin());
    cost_.seconds = std::max(*last, asked_);
    add_wait(cost_.seconds - end_of(Stream::main), asked_ > *last ? Stream::host : slowest);
    cost_.compute_seconds = sums_.computing;
    cost_.exposed_seconds = std::max(0.0, cost_.seconds - cost_.compute_seconds);
    cost_.by_class = sums_.by_class;
    cost_.waiting_for_host = sums_.waiting_for_host;
    cost_.work = sums_.work;
    return std::move(cost_);
  }

 private:
  double& end_of(Stream stream) { return streams_[static_cast<size_t>(stream)]; }

  void time_action(int id) {
    const Action& action = schedule_.action(id);
    const ActionTime time = times_.of(action);
    asked_ += time.host_seconds();
    add(time, sums_.work);
    double begin = std::max(end_of(action.stream), asked_);
    Stream waited = Stream::host;
    for (const int wait : schedule_.waits_of(id)) {
      if (cost_.end_of(wait) <= begin) continue;
      begin = cost_.end_of(wait);
      waited = schedule_.action(wait).stream;
    }
    if (action.stream == Stream::main) {
      add_wait(begin - end_of(Stream::main), waited);
      for (size_t i = 0; i < kWorkClasses; ++i) sums_.by_class[i] += time.by_class[i];
    }
    if (is_compute(action.kind)) sums_.computing += time.seconds();
    end_of(action.stream) = begin + time.seconds();
    cost_.begin_seconds.push_back(begin);
    cost_.end_seconds.push_back(begin + time.seconds());
  }

  /// Counts a wait of the main stream for what another one does, or the host.
  void add_wait(double seconds, Stream stream) {
    const bool is_copy = stream == Stream::h2d || stream == Stream::d2h;
    if (stream == Stream::host) {
      sums_.waiting_for_host += seconds;
    } else {
      const WorkClass waited = is_copy ? WorkClass::copies : WorkClass::collectives;
      sums_.by_class[static_cast<size_t>(waited)] += seconds;
    }
  }

  bool begins_round(int id) const {
    const Repetition& repetition = schedule_.repetition;
    return repetition.times > 1 && repetition.index_of(id) == repetition.begin;
  }

  /// True if all actions of the round before the one that begins at `id` ended by the same time
  /// later than their counterparts one round earlier.
  bool has_settled(int id) const {
    constexpr double kTolerance = 1e-9;
    const Repetition& repetition = schedule_.repetition;
    const int length = repetition.length();
    if (repetition.round_of(id) < 2) return false;
    const double seconds = cost_.end_of(id - 1) - cost_.end_of(id - 1 - length);
    for (int before = id - length; before < id; ++before) {
      const double its = cost_.end_of(before) - cost_.end_of(before - length);
      if (std::abs(its - seconds) > kTolerance * seconds) return false;
    }
    return true;
  }

  /// Skips the rounds that take as long as the last one. Returns the first id after all rounds.
  int pass_over_alike(int id) {
    const Repetition& repetition = schedule_.repetition;
    const int length = repetition.length();
    const int rounds = repetition.times - repetition.round_of(id);
    cost_.alike = {.begin = id,
                   .end = id + rounds * length,
                   .round = length,
                   .round_seconds = cost_.end_of(id - 1) - cost_.end_of(id - 1 - length)};
    sums_.repeat(before_, rounds);
    for (int last = cost_.alike.end - length; last < cost_.alike.end; ++last) {
      const Action& action = schedule_.action(last);
      end_of(action.stream) = cost_.end_of(last);
      asked_ += rounds * times_.of(action).host_seconds();
    }
    return cost_.alike.end;
  }

  static bool is_compute(ActionKind kind) {
    return kind == ActionKind::forward || kind == ActionKind::backward ||
           kind == ActionKind::recompute;
  }

  const Schedule& schedule_;
  const ActionTimes& times_;
  StepCost cost_;
  std::array<double, kStreams> streams_{};  // when each has finished all work so far
  double asked_ = 0;                        // the host's clock
  TimeSums sums_;
  TimeSums before_;  // the round that runs
};

}  // namespace

double StepCost::at(const std::vector<double>& seconds, int id) const {
  if (id < alike.begin || alike.round == 0) return seconds[static_cast<size_t>(id)];
  if (id >= alike.end) return seconds[static_cast<size_t>(id - (alike.end - alike.begin))];
  const int rounds = (id - alike.begin) / alike.round + 1;
  const int first = alike.begin - alike.round + (id - alike.begin) % alike.round;
  return seconds[static_cast<size_t>(first)] + rounds * alike.round_seconds;
}

StepCost step_cost(const models::ModelSpec& spec, const Config& config, const Schedule& schedule,
                   const Gpu* gpu) {
  return Clock(schedule, ActionTimes(spec, config, schedule, gpu)).run();
}

}  // namespace shardlens::planner
