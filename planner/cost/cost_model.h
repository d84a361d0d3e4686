// Predicts how long a step takes, action by action: to order strategies that fit, to say how long
// one takes, and to give a predicted timeline its axis. Memory never depends on it.
//
// An action begins when the one before it on its stream and all that it waits for have ended, and
// the host has asked for it; so actions that overlap in the schedule overlap here.
//
// Rounds of a repetition are timed one by one until a round takes as long as the one before it,
// action by action; all later rounds then take as long too.
#pragma once

#include <vector>

#include "models/spec.h"
#include "planner/config/config.h"
#include "planner/cost/action_times.h"
#include "planner/schedule/schedule.h"

namespace shardlens::planner {

struct StepCost {
  double seconds = 0;
  double compute_seconds = 0;  // of units
  double exposed_seconds = 0;  // what the units wait for others

  /// The seconds of the main stream by the class of its work, and those in which it waits for the
  /// host. Collectives and copies count only where it waits for them. The sum is `seconds`.
  ClassSeconds by_class{};
  double waiting_for_host = 0;
  /// The same without overlap: the time of all actions, and what they compute.
  ActionTime work{};

  /// Seconds from the step's beginning, by action; actions within `alike` have no entry.
  std::vector<double> begin_seconds;
  std::vector<double> end_seconds;

  /// A range of actions whose times repeat: each begins and ends `round_seconds` later than the
  /// action one round before it.
  struct RepeatedRange {
    int begin = 0;  // ids
    int end = 0;
    int round = 0;  // actions
    double round_seconds = 0;
  };
  RepeatedRange alike{};

  double begin_of(int id) const { return at(begin_seconds, id); }
  double end_of(int id) const { return at(end_seconds, id); }

 private:
  double at(const std::vector<double>& seconds, int id) const;
};

/// `gpu` is null for a CPU, whose times are only ratios.
StepCost step_cost(const models::ModelSpec& spec, const Config& config, const Schedule& schedule,
                   const Gpu* gpu);

}  // namespace shardlens::planner
