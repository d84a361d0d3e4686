#include "planner/simulation.h"

#include <algorithm>
#include <utility>

#include "planner/meta/operators.h"

namespace shardlens::planner {

using profiler::Category;
using profiler::Phase;
using profiler::Space;

namespace {

int moments_of(const Config& config) {
  if (optimizer_of(config) != OptimizerKind::sgd) return 2;
  return config.momentum != 0 ? 1 : 0;
}

meta::AttentionKernels kernels_of(const Config& config) {
  const auto allows = [&](const char* name) {
    return config.attention == "auto" || config.attention == name;
  };
  return {allows("flash"), allows("efficient"), allows("math")};
}

}  // namespace

std::vector<Channel> communicator_channels(const Schedule& schedule, int64_t wanted) {
  std::vector<Channel> channels = schedule.channels();
  const bool shares = wanted < 2 && std::ranges::count(channels, Channel::gather) > 0;
  std::erase_if(channels, [&](Channel channel) {
    if (channel == Channel::reduce && shares) return true;
    return schedule.ranks_of(channel).size < 2;
  });
  return channels;
}

Simulation::Simulation(const models::ModelSpec& spec, const Config& config, const Schedule& train,
                       const Schedule& evaluate, const SimulationOptions& options)
    : spec_(spec),
      config_(config),
      strategy_(strategy_of(config)),
      train_(train),
      evaluate_(evaluate),
      options_(options),
      gpu_memory_(options.gpu == nullptr
                      ? nullptr
                      : std::make_unique<DeviceMemory>(timeline_, options.allocator)),
      host_(timeline_, Space::host),
      pinned_(timeline_, Space::pinned),
      device_{.memory = gpu_memory_ ? static_cast<meta::Memory*>(gpu_memory_.get()) : &host_,
              .gpu = options.gpu,
              .threads = static_cast<int>(config.threads),
              .processor = meta::this_processor(),
              .attention = kernels_of(config)},
      host_context_{.memory = &host_, .threads = static_cast<int>(config.threads)},
      memory_{timeline_, device_, host_,
              gpu_memory_ ? static_cast<meta::Memory&>(pinned_) : host_} {}

Simulation::~Simulation() = default;

void Simulation::run() {
  if (gpu_memory_) {
    take_workspaces();
    meet();
  }
  state_.emplace(spec_, train_, moments_of(config_), memory_);
  simulator_.emplace(spec_, config_, *state_, memory_);
  if (options_.images) {
    keep_images("training data", options_.images->train_samples);
    if (options_.images->test_samples > 0) keep_images("test data", options_.images->test_samples);
  } else {
    make_batch();
  }
  draw_weights();
  train_epoch();
  if (options_.images && options_.images->test_samples > 0) evaluate();
  raise(whole_);
}

/// cuBLAS keeps a workspace for the rank's thread, cuBLASLt another one.
void Simulation::take_workspaces() {
  constexpr int64_t kLtBytes = int64_t{1} << 20;
  const TimelineScope scope(timeline_, Category::workspace, "cuBLAS");
  const meta::Tensor matrix = meta::pointwise(device_, {16, 16}, meta::Type::fp32);
  {
    const meta::OperatorCall call(device_);
    const meta::Tensor product = meta::pointwise(device_, {16, 16}, meta::Type::fp32);
    kept_.push_back(std::make_shared<meta::Storage>(*device_.memory,
                                                    meta::cublas_workspace_bytes(*options_.gpu)));
    kept_.push_back(std::make_shared<meta::Storage>(*device_.memory, kLtBytes));
  }
  meta::pointwise(device_, {16, 16}, meta::Type::fp32);
}

/// Each communicator with peers has a buffer for sums.
void Simulation::meet() {
  constexpr int64_t kSumBytes = 512;
  const TimelineScope scope(timeline_, Category::communication, "communicators");
  if (strategy_.communicator != CommunicatorKind::nccl) return;
  for (size_t i = communicator_channels(train_, config_.communicators).size(); i > 0; --i) {
    kept_.push_back(std::make_shared<meta::Storage>(*device_.memory, kSumBytes));
  }
}

/// The host's own memory serves the CPU.
void Simulation::keep_images(std::string_view label, int64_t samples) {
  if (!gpu_memory_) return;
  const TimelineScope scope(timeline_, Category::input, label);
  const auto keep = [&](int64_t bytes) {
    kept_.push_back(std::make_shared<meta::Storage>(*device_.memory, bytes));
  };
  keep(samples * options_.images->height * options_.images->width);
  keep(samples);
}

/// On the host, one parameter after the other.
void Simulation::draw_weights() {
  for (const models::ParameterSpec& parameter : spec_.parameters) {
    meta::pointwise(host_context_, meta::Sizes(std::span<const int64_t>(parameter.shape)),
                    meta::Type::fp32);
  }
}

void Simulation::make_batch() {
  const TimelineScope scope(timeline_, Category::input, "training data");
  const models::SampleSpec& sample = spec_.sample;
  meta::Sizes sizes(std::span<const int64_t>(sample.shape));
  sizes.insert(0, config_.batch);
  const bool has_tokens = sample.input == models::InputKind::tokens;
  batch_.input =
      meta::Tensor::empty(device_, sizes, has_tokens ? meta::Type::int64 : meta::Type::fp32);
  meta::Sizes targets(std::span<const int64_t>(sample.target_shape));
  targets.insert(0, config_.batch);
  if (!has_tokens || spec_.target_bytes(1) > 0) {
    batch_.targets = meta::Tensor::empty(device_, targets, meta::Type::int64);
  }
}

/// Of all samples on the host, the indices of those that this rank takes.
meta::Tensor Simulation::split(int64_t samples) {
  const auto make = [&](int64_t count) {
    return meta::pointwise(host_context_, {count}, meta::Type::int64);
  };
  const meta::Tensor positions = make(samples);
  const meta::Tensor wrapped = [&] {
    const meta::OperatorCall call(host_context_);
    const meta::Tensor count = make(1);
    return make(samples);
  }();
  return make(samples);
}

/// Of one epoch, on the host: a permutation, of which a rank takes every so-manieth.
void Simulation::order_samples() {
  constexpr int64_t kStepsAnEpoch = 100;  // of synthetic data
  const TimelineScope scope(timeline_, Category::input, "sample order");
  const int64_t all =
      options_.images ? options_.images->train_samples
                      : kStepsAnEpoch * config_.batch * config_.accumulate * strategy_.world_size;
  samples_ = (all + strategy_.world_size - 1) / strategy_.world_size;
  const meta::Tensor permutation = [&] {
    const meta::OperatorCall call(host_context_);
    meta::Tensor made = meta::pointwise(host_context_, {all}, meta::Type::int64);
    meta::pointwise(host_context_, {}, meta::Type::int64);
    return made;
  }();
  order_ = split(samples_);
  if (options_.images && gpu_memory_) {
    order_ = meta::pointwise(device_, order_.sizes(), meta::Type::int64);
  }
}

/// As runtime/batches.cpp gathers them.
SimulatedBatch Simulation::load_images(int64_t count) {
  const ResidentImages& images = *options_.images;
  const meta::Sizes sizes{count, 1, images.height, images.width};
  SimulatedBatch batch;
  const meta::Tensor pixels = meta::pointwise(device_, sizes, meta::Type::uint8);
  batch.input = meta::pointwise(device_, sizes, meta::Type::fp32);
  for (int number = 0; number < 3; ++number) {
    meta::in_place_with_number(device_, meta::Type::fp32);
  }
  const meta::Tensor labels = meta::pointwise(device_, {count}, meta::Type::uint8);
  batch.targets = meta::pointwise(device_, {count}, meta::Type::int64);
  return batch;
}

void Simulation::train_epoch() {
  constexpr int64_t kFirstSteps = 2;
  timeline_.phase(Phase::training);
  order_samples();
  raise(whole_);
  reset_peak();
  const int64_t batch = config_.batch * config_.accumulate;
  for (int64_t first = 0; first < samples_ && step_ < options_.steps; first += batch) {
    if (step_ == kFirstSteps) {
      raise(whole_);
      reset_peak();
    }
    train_step(step_++, first);
  }
  raise(steps_);
  raise(whole_);
  epoch_loss_ = {};
}

void Simulation::train_step(int64_t step, int64_t first) {
  timeline_.step(step);
  simulator_->run(train_, [&]() -> SimulatedBatch {
    if (!options_.images) return batch_;
    const int64_t begin = std::exchange(first, first + config_.batch) % samples_;
    return load_images(std::min(config_.batch, samples_ - begin));
  });
  const auto add = [&](meta::Tensor& sum) {
    if (!sum.defined()) sum = meta::pointwise(device_, {}, meta::Type::fp32);
  };
  add(logged_loss_);
  add(epoch_loss_);
  ++logged_;
  if (logged_ < config_.log_every && step + 1 < options_.steps) return;
  logged_ = 0;
  logged_loss_ = {};
}

void Simulation::evaluate() {
  timeline_.phase(Phase::evaluating);
  const int64_t all = options_.images->test_samples;
  const int64_t samples = (all + strategy_.world_size - 1) / strategy_.world_size;
  meta::Tensor order = [&] {
    const meta::Tensor list = meta::pointwise(host_context_, {all}, meta::Type::int64);
    return split(samples);
  }();
  if (gpu_memory_) order = meta::pointwise(device_, order.sizes(), meta::Type::int64);
  const int64_t batches = (samples + config_.batch - 1) / config_.batch;
  for (int64_t i = 0; i < batches; ++i) {
    if (i + 1 >= options_.evaluation_batches && i + 1 < batches) continue;
    const int64_t count = std::min(config_.batch, samples - i * config_.batch);
    simulator_->run(evaluate_, [&] { return load_images(count); });
    count_answers(count);
  }
}

/// As the trainer finds them.
void Simulation::count_answers(int64_t count) {
  const meta::Tensor equal = [&] {
    const meta::Tensor answers = meta::pointwise(device_, {count}, meta::Type::int64);
    return meta::pointwise(device_, {count}, meta::Type::boolean);
  }();
  const meta::Tensor correct = [&] {
    const meta::OperatorCall call(device_);
    meta::Tensor total = meta::pointwise(device_, {}, meta::Type::int64);
    meta::pointwise(device_, {count}, meta::Type::int64);
    return total;
  }();
}

int64_t Simulation::allocation_retries() const {
  return gpu_memory_ ? gpu_memory_->allocator().counters().alloc_retries : 0;
}

SimulatedPeak Simulation::current_peak() const {
  if (!gpu_memory_) return {host_.peak_bytes(), host_.peak_bytes()};
  const AllocatorCounters& counters = gpu_memory_->allocator().counters();
  return {counters.all.allocated_bytes.peak, counters.all.reserved_bytes.peak};
}

void Simulation::reset_peak() {
  if (gpu_memory_) gpu_memory_->allocator().reset_peaks();
  if (!gpu_memory_) host_.reset_peak();
}

void Simulation::raise(SimulatedPeak& peak) const {
  const SimulatedPeak now = current_peak();
  peak.allocated_bytes = std::max(peak.allocated_bytes, now.allocated_bytes);
  peak.reserved_bytes = std::max(peak.reserved_bytes, now.reserved_bytes);
}

}  // namespace shardlens::planner
