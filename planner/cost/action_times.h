// How long one action of a step takes on its stream, and how long the host takes to ask for it.
//
// On a GPU, what has measured times takes those (planner/time): products of matrices by their
// shapes, fused attention, collectives, copies. The other kernels of a unit move the inputs and
// outputs of its matrices once more each way. On a CPU all rates are assumptions that only serve to
// put strategies in an order.
//
// A unit's forward multiplies its rows by each matrix; backward makes two products for each, one
// for the input's gradient and one for the weight's, split evenly over the segments of a unit.
// Recomputation is a forward. An optimizer step reads and writes 28 bytes an element (Adam).
//
// [Note: launches] The host asks for kernels one by one, and a step of small kernels waits for it.
// A unit's forward launches 3.5 kernels for each of its matrices and for its norm, and backward
// twice as many: a block of a ViT launched 63 a step on an H100, one of a Llama about 95
// (tests/fixtures/gpu/h100/6-time.json). The host's time for each is what it was in the two
// smallest models of the same file; that host was shared, and other steps took half as long again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/gpus.h"
#include "models/spec.h"
#include "planner/config/config.h"
#include "planner/schedule/schedule.h"
#include "planner/time/collectives.h"
#include "planner/time/kernels.h"
#include "planner/time/rates.h"

namespace shardlens::planner {

/// Seconds by the class of the work.
using ClassSeconds = std::array<double, kWorkClasses>;

struct ActionTime {
  ClassSeconds by_class{};
  double launches = 0;  // kernels, copies and collectives; 0 on a CPU
  double flops = 0;     // of products and attention

  double seconds() const;
  /// The host's time to ask for it.
  double host_seconds() const;
  /// Returns one of `parts` equal parts.
  ActionTime part(int parts) const;
};

/// The times of the actions of a schedule. Borrows all arguments of its constructor.
class ActionTimes {
 public:
  /// `gpu` is null for a CPU.
  ActionTimes(const models::ModelSpec& spec, const Config& config, const Schedule& schedule,
              const Gpu* gpu);

  ActionTime of(const Action& action) const;

 private:
  ActionTime forward_of(const models::UnitSpec& unit) const;
  ActionTime backward_of(const models::UnitSpec& unit) const;
  double seconds_to_move(double bytes) const;
  double seconds_to_move(const Action& action, double bytes) const;
  double seconds_of_collective(const Action& action) const;
  double seconds_of_copy(const Action& action) const;
  double seconds_of_step(const Action& action) const;

  const models::ModelSpec& spec_;
  const Config& config_;
  const Schedule& schedule_;
  const Gpu* gpu_;
  Rates rates_;
  std::map<std::pair<int, int>, int> segments_;  // of a backward, by unit and microbatch
  std::vector<ActionTime> forward_;              // by unit
  std::vector<ActionTime> backward_;
};

/// Returns how a set of ranks lies over nodes of kGpusANode GPUs.
RankLayout layout_of(const RankSet& ranks);

/// Returns the floating-point operations of one forward of a unit, for `batch` samples.
double forward_flops(const models::ModelSpec& spec, const models::UnitSpec& unit, int64_t batch);

}  // namespace shardlens::planner
