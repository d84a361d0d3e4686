#include "planner/cost/action_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "planner/time/operators.h"
#include "planner/time/products.h"

namespace shardlens::planner {

namespace {

using models::ModelSpec;
using models::UnitSpec;
using profiler::CollectiveKind;
using profiler::CopyKind;
using profiler::NumberType;

constexpr double kLaunchesAMatrix = 3.5;    // of a forward, and for its norm
constexpr double kSecondsALaunch = 17e-6;   // of the host
constexpr double kAdamBytesAnElement = 28;  // reads weight, moments, gradient; writes the first two
constexpr double kHostStepGbps = 10;        // the host's optimizer steps run on one thread a rank
constexpr double kReachedOnHost = 0.7;      // of the rates assumed for a CPU
constexpr double kUnitOverheadOnHost = 50e-6;  // seconds
constexpr double kLatencyOnHost = 20e-6;       // of a collective
constexpr double kLossPasses = 6;              // over the logits in fp32, backward included

size_t index_of(WorkClass work_class) { return static_cast<size_t>(work_class); }

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

/// A matrix of a unit: a linear's, or a convolution's.
struct Matrix {
  int64_t outputs = 0;
  int64_t inputs = 0;
};

std::vector<Matrix> matrices_of(const ModelSpec& spec, const UnitSpec& unit) {
  std::vector<Matrix> matrices;
  for (const int index : unit.parameters) {
    const models::ParameterSpec& parameter = spec.parameters[static_cast<size_t>(index)];
    if (parameter.shape.size() != 2 && parameter.shape.size() != 4) continue;
    matrices.push_back({parameter.shape[0], parameter.numel() / parameter.shape[0]});
  }
  return matrices;
}

/// Returns how many elements of activations a unit keeps for its backward: the inputs and outputs
/// of its matrices.
double kept_elements(const ModelSpec& spec, const UnitSpec& unit, int64_t batch) {
  const double rows = rows_of(unit, batch);
  double inputs = 0, outputs = 0;
  for (const Matrix& matrix : matrices_of(spec, unit)) {
    outputs += static_cast<double>(matrix.outputs);
    inputs += static_cast<double>(matrix.inputs);
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

NumberType number_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return NumberType::fp32;
    case DType::bf16:
      return NumberType::bf16;
    case DType::fp16:
      return NumberType::fp16;
  }
  unreachable("dtype out of range");
}

double matrix_seconds(const Gpu& gpu, DType dtype, double rows, int64_t columns, int64_t depth) {
  const NumberType type = number_type(dtype);
  return product_seconds_in_step(gpu, {.m = columns,
                                       .n = static_cast<int64_t>(rows),
                                       .k = depth,
                                       .batch = 1,
                                       .a = type,
                                       .b = type,
                                       .c = type,
                                       .compute = NumberType::fp32});
}

double unit_attention_seconds(const Gpu& gpu, DType dtype, const UnitSpec& unit, int64_t batch,
                              bool is_backward) {
  const models::AttentionSpec& sizes = unit.attention;
  if (sizes.heads == 0) return 0;
  const auto tokens = static_cast<double>(sizes.tokens), heads = static_cast<double>(sizes.heads);
  return attention_seconds(gpu, {.batch = static_cast<double>(batch),
                                 .heads = heads,
                                 .queries = tokens,
                                 .keys = tokens,
                                 .width = static_cast<double>(sizes.width) / heads,
                                 .is_causal = sizes.is_causal,
                                 .is_backward = is_backward,
                                 .type = number_type(dtype)});
}

CollectiveKind collective_kind(ActionKind kind) {
  if (kind == ActionKind::all_gather) return CollectiveKind::all_gather;
  if (kind == ActionKind::reduce_scatter) return CollectiveKind::reduce_scatter;
  check(kind == ActionKind::all_reduce, "an action without a collective");
  return CollectiveKind::all_reduce;
}

/// Returns the bytes of the whole buffer of a collective; an action says what its rank gives.
double whole_bytes(const Action& action, int ranks) {
  const auto bytes = static_cast<double>(action.bytes);
  return action.kind == ActionKind::all_gather ? bytes * ranks : bytes;
}

/// Returns the seconds of one collective of CPU ranks, from the bytes that its slowest link
/// carries.
double host_collective_seconds(const Action& action, const RankSet& ranks, const Rates& rates) {
  const double n = ranks.size;
  const double part = action.kind == ActionKind::all_reduce ? 2 * (n - 1) / n : (n - 1) / n;
  const RankLayout layout = layout_of(ranks);
  const double gbps = layout.nodes() == 1
                          ? rates.link_gbps
                          : std::min(rates.link_gbps, rates.network_gbps * layout.a_node);
  return kLatencyOnHost + part * whole_bytes(action, ranks.size) / (gbps * 1e9 * kReachedOnHost);
}

double logits_bytes(const ModelSpec& spec, int64_t batch) {
  double rows = static_cast<double>(batch);
  for (const int64_t size : spec.sample.target_shape) rows *= static_cast<double>(size);
  return 4 * rows * static_cast<double>(spec.sample.classes);
}

double launches_of(const ModelSpec& spec, const UnitSpec& unit) {
  return kLaunchesAMatrix * (1 + static_cast<double>(matrices_of(spec, unit).size()));
}

/// True for units that do the same work, as the layers of a model do.
bool are_alike(const ModelSpec& spec, const UnitSpec& a, const UnitSpec& b) {
  const auto shape_of = [&](int index) -> const auto& {
    return spec.parameters[static_cast<size_t>(index)].shape;
  };
  const auto attends = [](const UnitSpec& unit) {
    const models::AttentionSpec& sizes = unit.attention;
    return std::tuple(sizes.heads, sizes.tokens, sizes.width, sizes.is_causal);
  };
  return a.rows == b.rows && a.looks_up == b.looks_up && attends(a) == attends(b) &&
         std::ranges::equal(a.parameters, b.parameters, {}, shape_of, shape_of);
}

}  // namespace

double ActionTime::seconds() const {
  return std::accumulate(by_class.begin(), by_class.end(), 0.0);
}

double ActionTime::host_seconds() const { return launches * kSecondsALaunch; }

ActionTime ActionTime::part(int parts) const {
  ActionTime part = *this;
  for (double& seconds : part.by_class) seconds /= parts;
  part.launches /= parts;
  part.flops /= parts;
  return part;
}

ActionTimes::ActionTimes(const ModelSpec& spec, const Config& config, const Schedule& schedule,
                         const Gpu* gpu)
    : spec_(spec),
      config_(config),
      schedule_(schedule),
      gpu_(gpu),
      rates_(rates_of(gpu, config.threads)) {
  for (const Action& action : schedule.actions) {
    if (action.kind == ActionKind::backward) ++segments_[{action.unit, action.microbatch}];
  }
  for (size_t i = 0; i < spec.units.size(); ++i) {
    const UnitSpec& unit = spec.units[i];
    const auto alike = std::ranges::find_if(
        spec.units, [&](const UnitSpec& other) { return are_alike(spec, other, unit); });
    const auto first = static_cast<size_t>(alike - spec.units.begin());
    forward_.push_back(first < i ? forward_[first] : forward_of(unit));
    backward_.push_back(first < i ? backward_[first] : backward_of(unit));
  }
}

double ActionTimes::seconds_to_move(double bytes) const {
  return gpu_ != nullptr ? streaming_seconds(*gpu_, bytes)
                         : bytes / (rates_.memory_gbps * 1e9 * kReachedOnHost);
}

ActionTime ActionTimes::forward_of(const UnitSpec& unit) const {
  const DType dtype = strategy_of(config_).param_dtype;
  const double rows = rows_of(unit, config_.batch);
  const double kept = kept_elements(spec_, unit, config_.batch);
  ActionTime time{.flops = forward_flops(spec_, unit, config_.batch)};
  double& products = time.by_class[index_of(WorkClass::products)];
  time.by_class[index_of(WorkClass::kernels)] =
      seconds_to_move(2 * kept * static_cast<double>(bytes_of(dtype)));
  if (gpu_ == nullptr) {
    products = std::max(time.flops / (rates_.fp32_tflops * 1e12 * kReachedOnHost),
                        seconds_to_move(parameter_bytes(spec_, unit, dtype))) +
               kUnitOverheadOnHost;
    return time;
  }
  time.launches = launches_of(spec_, unit);
  if (unit.looks_up) return time;
  for (const Matrix& matrix : matrices_of(spec_, unit)) {
    products += matrix_seconds(*gpu_, dtype, rows, matrix.outputs, matrix.inputs);
  }
  time.by_class[index_of(WorkClass::attention)] =
      unit_attention_seconds(*gpu_, dtype, unit, config_.batch, false);
  return time;
}

ActionTime ActionTimes::backward_of(const UnitSpec& unit) const {
  ActionTime time = forward_of(unit);
  for (double& seconds : time.by_class) seconds *= 2;
  time.launches *= 2;
  time.flops *= 2;
  if (gpu_ == nullptr || unit.looks_up) return time;
  const DType dtype = strategy_of(config_).param_dtype;
  const double rows = rows_of(unit, config_.batch);
  double& products = time.by_class[index_of(WorkClass::products)] = 0;
  for (const Matrix& matrix : matrices_of(spec_, unit)) {
    products += matrix_seconds(*gpu_, dtype, rows, matrix.inputs, matrix.outputs) +
                matrix_seconds(*gpu_, dtype, static_cast<double>(matrix.outputs), matrix.inputs,
                               static_cast<int64_t>(rows));
  }
  time.by_class[index_of(WorkClass::attention)] =
      unit_attention_seconds(*gpu_, dtype, unit, config_.batch, true);
  return time;
}

double ActionTimes::seconds_of_collective(const Action& action) const {
  const RankSet ranks = schedule_.ranks_of(action.channel);
  if (ranks.size < 2) return 0;
  if (gpu_ == nullptr) return host_collective_seconds(action, ranks, rates_);
  const auto bytes = static_cast<int64_t>(whole_bytes(action, ranks.size));
  return collective_seconds(*gpu_, collective_kind(action.kind), bytes, layout_of(ranks));
}

double ActionTimes::seconds_of_copy(const Action& action) const {
  if (gpu_ == nullptr) return seconds_to_move(static_cast<double>(action.bytes));
  const CopyKind kind =
      action.kind == ActionKind::h2d ? CopyKind::host_to_device : CopyKind::device_to_host;
  return copy_seconds(*gpu_, {.bytes = action.bytes, .kind = kind});
}

double ActionTimes::seconds_of_step(const Action& action) const {
  if (action.group < 0 || action.bucket < 0) return 0;
  const auto numel = static_cast<double>(schedule_.shard_numel(schedule_.bucket_of(action)));
  return seconds_to_move(action, numel * kAdamBytesAnElement);
}

double ActionTimes::seconds_to_move(const Action& action, double bytes) const {
  const bool is_beside_gpu = gpu_ != nullptr && action.stream == Stream::host;
  return is_beside_gpu ? bytes / (kHostStepGbps * 1e9) : seconds_to_move(bytes);
}

ActionTime ActionTimes::of(const Action& action) const {
  const bool launches = gpu_ != nullptr && action.stream != Stream::host;
  const auto one = [launches](WorkClass work_class, double seconds, double count = 1) {
    ActionTime time{.launches = launches ? count : 0};
    time.by_class[index_of(work_class)] = seconds;
    return time;
  };
  const auto bytes = static_cast<double>(action.bytes);
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::recompute:
      return forward_[static_cast<size_t>(action.unit)];
    case ActionKind::backward:
      return backward_[static_cast<size_t>(action.unit)].part(
          segments_.at({action.unit, action.microbatch}));
    case ActionKind::loss:
      return one(WorkClass::kernels,
                 seconds_to_move(kLossPasses * logits_bytes(spec_, config_.batch)), kLossPasses);
    case ActionKind::all_gather:
    case ActionKind::reduce_scatter:
    case ActionKind::all_reduce:
      return one(WorkClass::collectives, seconds_of_collective(action));
    case ActionKind::h2d:
    case ActionKind::d2h:
      return one(WorkClass::copies, seconds_of_copy(action));
    case ActionKind::optimizer_step:
      return one(WorkClass::kernels, seconds_of_step(action));
    case ActionKind::cast_shard:
    case ActionKind::accumulate:
    case ActionKind::load_input:
      return one(WorkClass::kernels, seconds_to_move(action, 2 * bytes));
    default:
      return {};
  }
}

RankLayout layout_of(const RankSet& ranks) {
  return {.size = ranks.size, .a_node = std::clamp(kGpusANode / ranks.stride, 1, ranks.size)};
}

double forward_flops(const ModelSpec& spec, const UnitSpec& unit, int64_t batch) {
  if (unit.looks_up) return 0;
  double elements = 0;
  for (const Matrix& matrix : matrices_of(spec, unit)) {
    elements += static_cast<double>(matrix.outputs) * static_cast<double>(matrix.inputs);
  }
  return 2 * rows_of(unit, batch) * elements + attention_flops(unit, batch);
}

}  // namespace shardlens::planner
