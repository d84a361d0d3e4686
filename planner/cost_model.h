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
#include <vector>

#include "base/gpus.h"
#include "models/spec.h"
#include "planner/config/config.h"
#include "planner/schedule/schedule.h"

namespace shardlens::planner {

/// Rates from data sheets, in 10^12 operations and 10^9 bytes a second; links count one direction.
struct Rates {
  double fp32_tflops = 0;
  double half_tflops = 0;  // fp16, and bf16 where it is no slower, dense
  double memory_gbps = 0;
  double link_gbps = 0;     // to the other GPUs of the node
  double network_gbps = 0;  // a GPU's adapter
  double copy_gbps = 0;     // to the host
  bool has_bf16 = true;     // else bf16 is as slow as fp32
};

/// Returns the rates of a GPU, or of `threads` threads of a CPU if `gpu` is null.
Rates rates_of(const Gpu* gpu, int64_t threads);

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
