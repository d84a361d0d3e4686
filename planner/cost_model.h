// Estimates roughly how long a step takes, to order strategies that fit and to give a predicted
// timeline its axis. Memory never depends on this estimate.
//
// A unit's forward:  max(flops / matrix rate, parameter bytes / memory rate)
//                    + 2 x (bytes kept for backward) / memory rate + kUnitOverhead
//   flops = 2 x rows x elements of its matrices, + 4 x B x H x T^2 x head width for attention (half
//   that where causal); rows: tokens, or samples. Kept for backward: rows x inputs and outputs
//   of its matrices, for a ViT's attention 6 x width, for its MLP 2 x (width + mlp width).
// Backward: twice a forward, split evenly over the segments of a unit; recomputation: a forward.
// A collective over n ranks: latency + bytes on the busiest link / link rate:
//   all-gather (n - 1) x part, reduce-scatter (n - 1) / n x whole, all-reduce twice that. Ranks of
//   one node meet over the GPU's link, others over the network, where neighbours share the node's
//   adapters, one a GPU.
// Copies: bytes / rate. An optimizer step reads and writes 28 bytes an element (Adam).
//
// An action begins when the one before it on its stream and all that it waits for have ended, so
// actions that overlap in the schedule overlap here. Rates are those of data sheets times kReached;
// sizes of real kernels, host time, stragglers and clocks are left out. Use ratios, not
// milliseconds.
//
// Rounds of a repetition are timed one by one until a round takes as long as the one before it,
// action by action; all later rounds then take as long too.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/spec.h"
#include "planner/config/config.h"
#include "planner/schedule/schedule.h"
#include "planner/time/rates.h"

namespace shardlens::planner {

/// A clause for every output that has such times.
constexpr std::string_view kRoughTimes =
    "step times are ratios by data sheets; shardlens record --time predicts those of a program";

struct StepCost {
  double seconds = 0;
  double compute_seconds = 0;  // of units
  double exposed_seconds = 0;  // what the units wait for others

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

/// Returns the floating-point operations of one forward of a unit, for `batch` samples.
double forward_flops(const models::ModelSpec& spec, const models::UnitSpec& unit, int64_t batch);

StepCost step_cost(const models::ModelSpec& spec, const Config& config, const Schedule& schedule,
                   const Rates& rates);

}  // namespace shardlens::planner
