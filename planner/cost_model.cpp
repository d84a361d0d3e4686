#include "planner/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {

namespace {

using models::ModelSpec;
using models::UnitSpec;

constexpr double kReached = 0.7;  // of a data sheet's rate, in large kernels and messages
constexpr double kUnitOverheadSeconds = 50e-6;
constexpr double kCollectiveLatencySeconds = 20e-6;
constexpr double kAdamBytesAnElement = 28;  // reads weight, moments, gradient; writes the first two
constexpr double kHostStepGbps = 10;        // the host's optimizer steps run on one thread a rank

/// Returns how many rows the unit's matrices multiply, samples or tokens.
double rows_of(const UnitSpec& unit, int64_t batch) {
  return static_cast<double>(batch) * static_cast<double>(unit.rows);
}

double attention_flops(const UnitSpec& unit, int64_t batch) {
  if (unit.attention.heads == 0) return 0;
  const auto tokens = static_cast<double>(unit.attention.tokens);
  const double products = unit.attention.is_causal ? 2.0 : 4.0;
  return products * static_cast<double>(batch) * tokens * tokens *
         static_cast<double>(unit.attention.width);
}

bool is_matrix(const models::ParameterSpec& parameter) {
  return parameter.shape.size() == 2 || parameter.shape.size() == 4;  // of linears, convolutions
}

/// Returns how many elements of activations a unit keeps for its backward: the inputs and outputs
/// of its matrices.
double kept_elements(const ModelSpec& spec, const UnitSpec& unit, int64_t batch) {
  const double rows = rows_of(unit, batch);
  double inputs = 0, outputs = 0;
  for (const int index : unit.parameters) {
    const models::ParameterSpec& parameter = spec.parameters[static_cast<size_t>(index)];
    if (!is_matrix(parameter)) continue;
    outputs += static_cast<double>(parameter.shape[0]);
    inputs += static_cast<double>(parameter.numel() / parameter.shape[0]);
  }
  return unit.looks_up ? rows * inputs : rows * (inputs + outputs);
}

double parameter_bytes(const ModelSpec& spec, const UnitSpec& unit, DType dtype) {
  double bytes = 0;
  for (const int index : unit.parameters) {
    bytes += static_cast<double>(spec.parameters[static_cast<size_t>(index)].numel());
  }
  return bytes * static_cast<double>(bytes_of(dtype));
}

double per_second(double giga_bytes) { return giga_bytes * 1e9 * kReached; }

/// Returns the seconds of one collective, from the bytes that its slowest link carries.
double collective_seconds(const Action& action, const Schedule& schedule, const Rates& rates) {
  const RankSet ranks = schedule.ranks_of(action.channel);
  if (ranks.size < 2) return 0;
  const double n = ranks.size;
  auto bytes = static_cast<double>(action.bytes);
  if (action.kind == ActionKind::all_gather) bytes *= n - 1;
  if (action.kind == ActionKind::reduce_scatter) bytes *= (n - 1) / n;
  if (action.kind == ActionKind::all_reduce) bytes *= 2 * (n - 1) / n;
  const int neighbours = std::max(1, kGpusANode / ranks.stride);  // of the set, in one node
  const bool is_in_node = ranks.size <= neighbours;
  const double gbps =
      is_in_node ? rates.link_gbps : std::min(rates.link_gbps, rates.network_gbps * neighbours);
  return kCollectiveLatencySeconds + bytes / per_second(gbps);
}

class Clock {
 public:
  Clock(const ModelSpec& spec, const Config& config, const Schedule& schedule, const Rates& rates)
      : spec_(spec), config_(config), schedule_(schedule), rates_(rates) {
    for (const Action& action : schedule.actions) {
      if (action.kind == ActionKind::backward) ++segments_[{action.unit, action.microbatch}];
    }
    const DType dtype = strategy_of(config).param_dtype;
    for (const UnitSpec& unit : spec.units) forward_.push_back(forward_seconds(unit, dtype));
  }

  StepCost run() const {
    StepCost cost;
    Streams streams{};
    for (int id = 0; id < schedule_.size(); ++id) {
      if (has_settled(cost, id)) id = pass_over_alike(cost, streams, id);
      if (id < schedule_.size()) time_action(cost, streams, id);
    }
    cost.seconds = *std::ranges::max_element(streams);
    cost.exposed_seconds = std::max(0.0, cost.seconds - cost.compute_seconds);
    return cost;
  }

 private:
  using Streams = std::array<double, kStreams>;  // when each has finished all work so far

  void time_action(StepCost& cost, Streams& streams, int id) const {
    const Action& action = schedule_.action(id);
    double& stream = streams[static_cast<size_t>(action.stream)];
    double begin = stream;
    for (const int wait : schedule_.waits_of(id)) begin = std::max(begin, cost.end_of(wait));
    const double seconds = seconds_of(action);
    stream = begin + seconds;
    cost.begin_seconds.push_back(begin);
    cost.end_seconds.push_back(stream);
    if (is_compute(action.kind)) cost.compute_seconds += seconds;
  }

  /// True if a round begins at `id`, and all actions of the round before it ended by the same time
  /// later than their counterparts one round earlier.
  bool has_settled(const StepCost& cost, int id) const {
    constexpr double kTolerance = 1e-9;
    const Repetition& repetition = schedule_.repetition;
    if (repetition.times == 1 || repetition.index_of(id) != repetition.begin) return false;
    const int length = repetition.length();
    if (repetition.round_of(id) < 2) return false;
    const double seconds = cost.end_of(id - 1) - cost.end_of(id - 1 - length);
    for (int before = id - length; before < id; ++before) {
      const double its = cost.end_of(before) - cost.end_of(before - length);
      if (std::abs(its - seconds) > kTolerance * seconds) return false;
    }
    return true;
  }

  /// Skips the rounds that take as long as the last one. Returns the first id after all rounds.
  int pass_over_alike(StepCost& cost, Streams& streams, int id) const {
    const Repetition& repetition = schedule_.repetition;
    const int length = repetition.length();
    const int rounds = repetition.times - repetition.round_of(id);
    cost.alike = {.begin = id,
                  .end = id + rounds * length,
                  .round = length,
                  .round_seconds = cost.end_of(id - 1) - cost.end_of(id - 1 - length)};
    for (int last = cost.alike.end - length; last < cost.alike.end; ++last) {
      const Action& action = schedule_.action(last);
      streams[static_cast<size_t>(action.stream)] = cost.end_of(last);
      if (is_compute(action.kind)) cost.compute_seconds += rounds * seconds_of(action);
    }
    return cost.alike.end;
  }

  static bool is_compute(ActionKind kind) {
    return kind == ActionKind::forward || kind == ActionKind::backward ||
           kind == ActionKind::recompute;
  }

  double forward_seconds(const UnitSpec& unit, DType dtype) const {
    const bool is_half = dtype == DType::fp16 || (dtype == DType::bf16 && rates_.has_bf16);
    const double tflops = is_half ? rates_.half_tflops : rates_.fp32_tflops;
    const double matrices = forward_flops(spec_, unit, config_.batch) / (tflops * 1e12 * kReached);
    const double memory = per_second(rates_.memory_gbps);
    const double kept = kept_elements(spec_, unit, config_.batch);
    return std::max(matrices, parameter_bytes(spec_, unit, dtype) / memory) +
           2 * kept * static_cast<double>(bytes_of(dtype)) / memory + kUnitOverheadSeconds;
  }

  double optimizer_seconds(const Action& action) const {
    if (action.group < 0 || action.bucket < 0) return 0;
    const auto numel = static_cast<double>(schedule_.shard_numel(schedule_.bucket_of(action)));
    const bool is_on_host = action.stream == Stream::host;
    return numel * kAdamBytesAnElement /
           per_second(is_on_host ? kHostStepGbps : rates_.memory_gbps);
  }

  double seconds_of(const Action& action) const {
    switch (action.kind) {
      case ActionKind::forward:
      case ActionKind::recompute:
        return forward_[static_cast<size_t>(action.unit)];
      case ActionKind::backward:
        return 2 * forward_[static_cast<size_t>(action.unit)] /
               segments_.at({action.unit, action.microbatch});
      case ActionKind::all_gather:
      case ActionKind::reduce_scatter:
      case ActionKind::all_reduce:
        return collective_seconds(action, schedule_, rates_);
      case ActionKind::h2d:
      case ActionKind::d2h:
        return static_cast<double>(action.bytes) / per_second(rates_.copy_gbps);
      case ActionKind::optimizer_step:
        return optimizer_seconds(action);
      case ActionKind::cast_shard:
      case ActionKind::accumulate:
      case ActionKind::load_input:
        return 2 * static_cast<double>(action.bytes) / per_second(rates_.memory_gbps);
      default:
        return 0;
    }
  }

  const ModelSpec& spec_;
  const Config& config_;
  const Schedule& schedule_;
  const Rates& rates_;
  std::map<std::pair<int, int>, int> segments_;  // by unit and microbatch
  std::vector<double> forward_;                  // by unit
};

}  // namespace

double StepCost::at(const std::vector<double>& seconds, int id) const {
  if (id < alike.begin || alike.round == 0) return seconds[static_cast<size_t>(id)];
  if (id >= alike.end) return seconds[static_cast<size_t>(id - (alike.end - alike.begin))];
  const int rounds = (id - alike.begin) / alike.round + 1;
  const int first = alike.begin - alike.round + (id - alike.begin) % alike.round;
  return seconds[static_cast<size_t>(first)] + rounds * alike.round_seconds;
}

double forward_flops(const ModelSpec& spec, const UnitSpec& unit, int64_t batch) {
  if (unit.looks_up) return 0;
  double elements = 0;
  for (const int index : unit.parameters) {
    const models::ParameterSpec& parameter = spec.parameters[static_cast<size_t>(index)];
    if (is_matrix(parameter)) elements += static_cast<double>(parameter.numel());
  }
  return 2 * rows_of(unit, batch) * elements + attention_flops(unit, batch);
}

StepCost step_cost(const ModelSpec& spec, const Config& config, const Schedule& schedule,
                   const Rates& rates) {
  return Clock(spec, config, schedule, rates).run();
}

}  // namespace shardlens::planner
