#include "planner/simulate/simulation.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "planner/config/optimizer_options.h"
#include "planner/schedule/checkpoints.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner {

using profiler::Category;
using profiler::Phase;
using profiler::Space;

meta::AttentionKernels attention_kernels(const Config& config) {
  using enum AttentionChoice;
  return {allows(config.attention, flash), allows(config.attention, efficient),
          allows(config.attention, math)};
}

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
                      : std::make_unique<CachingGpuMemory>(timeline_, options.allocator)),
      host_(timeline_, Space::host),
      pinned_(timeline_, Space::pinned),
      device_{.memory = gpu_memory_ ? static_cast<meta::Memory*>(gpu_memory_.get()) : &host_,
              .gpu = options.gpu,
              .torch = options.torch,
              .threads = static_cast<int>(config.threads),
              .processor = meta::this_processor(),
              .attention = attention_kernels(config)},
      host_context_{
          .memory = &host_, .torch = options.torch, .threads = static_cast<int>(config.threads)},
      memory_{timeline_, device_, host_,
              gpu_memory_ ? static_cast<meta::Memory&>(pinned_) : host_} {
  TrainingData& data = options_.data;
  if (data.kind == DataKind::synthetic) data = {.train_samples = synthetic_samples(config)};
  samples_ = samples_per_rank(data.train_samples, strategy_.world_size);
  steps_per_epoch_ = steps_in_epoch(data.train_samples, config);
  last_step_ = steps_in_run(steps_per_epoch_, config);
}

Simulation::~Simulation() = default;

void Simulation::run() {
  if (gpu_memory_) {
    take_workspaces();
    meet();
  }
  state_.emplace(spec_, train_, moments_of(optimizer_options(config_)), memory_);
  simulator_.emplace(spec_, config_, *state_, memory_);
  const TrainingData& data = options_.data;
  if (data.kind == DataKind::synthetic) make_batch();
  if (data.kind == DataKind::idx) {
    train_images_ = keep_images("training data", data.train_samples);
    test_images_ = keep_images("test data", data.test_samples);
  }
  if (options_.checkpointing.wanted) read_generator();
  draw_weights();
  train();
  raise(whole_);
}

/// Takes workspaces, as take_workspaces in runtime/execute/device.cpp does.
void Simulation::take_workspaces() {
  if (device_.torch->blas_workspaces == models::BlasWorkspaces::by_product) return;
  const TimelineScope scope(timeline_, Category::workspace, "cuBLAS");
  const meta::Tensor matrix = meta::pointwise(device_, {16, 16}, meta::Type::fp32);
  meta::blas_product(matrix, matrix, meta::BlasLibrary::cublas_lt);
  meta::blas_product(matrix, matrix);
}

/// Allocates for the rendezvous: each communicator with peers has a device buffer for sums, and the
/// host has one to read them from.
void Simulation::meet() {
  constexpr int64_t kSumBytes = 512;
  const TimelineScope scope(timeline_, Category::communication, "communicators");
  if (strategy_.communicator != CommunicatorKind::nccl) return;
  for (size_t i = communicator_channels(train_, config_.communicators).size(); i > 0; --i) {
    kept_.push_back(std::make_shared<meta::Storage>(*device_.memory, kSumBytes));
    kept_.push_back(std::make_shared<meta::Storage>(pinned_, kSumBytes));
  }
}

/// Copies a data set's images to the device. On the CPU they already lie in host memory.
MetaStepOps::Batch Simulation::keep_images(std::string_view label, int64_t samples) {
  const auto bytes = [&](const meta::Sizes& sizes) {
    return meta::Tensor::placed(device_, sizes, meta::Type::uint8);
  };
  const TrainingData& data = options_.data;
  const MetaStepOps::Batch images{bytes({samples, 1, data.height, data.width}), bytes({samples})};
  if (!gpu_memory_) return images;
  const TimelineScope scope(timeline_, Category::input, label);
  return {images.input.clone(), images.targets.clone()};
}

/// Draws the weights on the host, one parameter after the other. A part that the device keeps in
/// another dtype is cast on the host before it is copied.
void Simulation::draw_weights() {
  const bool has_cast = gpu_memory_ && strategy_.offload == Offload::optimizer;
  for (const ParameterPlace& place : places_of(train_)) {
    const auto& shape = spec_.parameters[place.entry.parameter].shape;
    const meta::Tensor drawn = meta::pointwise(
        host_context_, meta::Sizes(std::span<const int64_t>(shape)), meta::Type::fp32);
    const StateRange range = range_of(train_, place, options_.rank);
    const DType dtype = train_.groups[place.group].buckets[place.bucket].dtype;
    if (!has_cast || dtype == kMasterDType || range.numel == 0) continue;
    const meta::CallScope call(host_context_);
    const meta::Tensor part = drawn.reshape({-1}).narrow(0, range.begin, range.numel);
    meta::take_and_release(host_context_, part.sizes(), meta::type_of(dtype));
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

/// Makes the order of one epoch on the host: a permutation, of which each rank takes every n-th
/// sample.
void Simulation::order_samples() {
  const TimelineScope scope(timeline_, Category::input, "sample order");
  const auto shuffled = [&](int64_t all) {
    const meta::CallScope call(host_context_);
    meta::Tensor made = meta::pointwise(host_context_, {all}, meta::Type::int64);
    meta::take_and_release(host_context_, {}, meta::Type::int64);
    return made;
  };
  const auto drawn = [&] { return own_part(shuffled(options_.data.train_samples)); };
  order_ = drawn();
  order_ = MetaStepOps::to(index_device(), order_);
}

meta::Tensor Simulation::own_part(const meta::Tensor& order) const {
  return split<MetaStepOps>(order, options_.rank % strategy_.world_size, strategy_.world_size);
}

/// Returns the device on which the source of batches wants its indices.
meta::Context& Simulation::index_device() {
  return options_.data.kind == DataKind::idx ? device_ : host_context_;
}

MetaStepOps::Batch Simulation::load(const MetaStepOps::Batch& images, const meta::Tensor& indices) {
  switch (options_.data.kind) {
    case DataKind::synthetic:
      return batch_;
    case DataKind::idx:
      return gather<MetaStepOps>(images.input, images.targets, indices);
    case DataKind::image_folder:
      return read_images(indices.numel());
    case DataKind::own:
      break;
  }
  unreachable("only the program itself knows its own samples");
}

/// Reads images from files one after the other, as runtime/train/batches.cpp does. Files are not
/// opened here, so the extra memory that a larger image takes before it is resized is unknown.
MetaStepOps::Batch Simulation::read_images(int64_t count) {
  const std::vector<int64_t>& shape = spec_.sample.shape;
  const meta::Sizes sizes{shape[0], shape[1], shape[2]};
  const auto resized = [&] { return meta::pointwise(host_context_, sizes, meta::Type::uint8); };
  const meta::Tensor pixels =
      meta::pointwise(host_context_, {count, shape[0], shape[1], shape[2]}, meta::Type::uint8);
  const meta::Tensor labels = meta::pointwise(host_context_, {count}, meta::Type::int64);
  resized().clone();  // cut out of what was resized
  return move_batch<MetaStepOps>(device_, pixels, labels);
}

/// Returns the steps to simulate: see [Note: what stands for a run].
std::vector<int64_t> Simulation::typical_steps() const {
  std::set<int64_t> steps;
  for (int64_t step = 0; step <= kFirstSteps; ++step) steps.insert(step);
  const bool is_last_short = samples_ % (config_.batch * config_.accumulate) != 0;
  if (is_last_short) steps.insert(steps_per_epoch_ - 1);
  if (options_.data.test_samples > 0) steps.insert(steps_per_epoch_);
  const Checkpointing& checkpointing = options_.checkpointing;
  if (checkpointing.wanted) {
    steps.insert(checkpointing.every_steps > 0 ? checkpointing.every_steps : steps_per_epoch_);
  }
  return {steps.begin(), steps.lower_bound(last_step_)};
}

void Simulation::train() {
  begin_epoch();
  const std::vector<int64_t> steps = typical_steps();
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t next = i + 1 < steps.size() ? steps[i + 1] : last_step_;
    if (steps[i] > 0) arrive(steps[i]);
    if (next > steps[i] + 1) stand_for_later();
    train_step();
  }
  arrive(last_step_);
}

/// Prepares a step that stands for later ones: in those, sums of losses are held beside it.
void Simulation::stand_for_later() {
  if (config_.log_every > 1) logged_loss_.add(simulator_->loss());
  epoch_loss_.add(simulator_->loss());
}

/// Simulates what follows `step` steps: checkpoints, evaluations, the end of an epoch.
void Simulation::arrive(int64_t step) {
  if (step > step_) skip_to(step);
  const bool is_due = is_checkpoint_due(options_.checkpointing, step, ends_epoch());
  const bool is_last = step == last_step_;
  if (is_due && !ends_epoch()) save(is_due);
  if (ends_epoch() || is_last) end_epoch();
  if (is_due && ends_epoch()) save(is_due);
  if (is_last && options_.checkpointing.wanted) save(/*is_due=*/false);
  if (ends_epoch() && !is_last) begin_epoch();
}

void Simulation::begin_epoch() {
  timeline_.phase(Phase::training);
  order_samples();
  raise(whole_);
  reset_peak();
}

void Simulation::train_step() {
  if (step_ == kFirstSteps) {
    raise(whole_);
    reset_peak();
  }
  timeline_.step(step_);
  int64_t first = step_ % steps_per_epoch_ * config_.batch * config_.accumulate;
  rounds_.forget();
  simulator_->run(
      train_,
      [&] {
        const int64_t begin = std::exchange(first, first + config_.batch) % samples_;
        const int64_t count = std::min(config_.batch, samples_ - begin);
        return load(train_images_, order_.narrow(0, begin, count));
      },
      [&](int64_t rounds_left) {
        const int64_t left_out = leave_out(first % samples_, rounds_left);
        first += left_out * train_.repetition.microbatches * config_.batch;
        return left_out;
      });
  logged_loss_.add(simulator_->loss());
  epoch_loss_.add(simulator_->loss());
  ++step_;
  if (is_logged()) read_loss(logged_loss_);
}

/// Returns how many rounds may be left out, from the round that begins with sample `first` on. Only
/// rounds of whole microbatches count: where the samples end, a microbatch has fewer.
int64_t Simulation::leave_out(int64_t first, int64_t rounds_left) {
  const int64_t samples = train_.repetition.microbatches * config_.batch;
  const bool is_endless = options_.data.kind == DataKind::synthetic;
  const int64_t whole = is_endless ? rounds_left : (samples_ - first) / samples;
  if (whole == 0 || options_.every_microbatch) {
    rounds_.forget();
    return 0;
  }
  const int64_t left_out =
      rounds_.arrive(memory_state(), std::min(whole, rounds_left), counted_retries());
  if (left_out > 0) timeline_.leave_out();
  return left_out;
}

MemoryState Simulation::memory_state() const {
  const std::vector<int64_t> host = {host_.bytes(), pinned_.bytes()};
  if (!gpu_memory_) return {host, host};
  MemoryState state = gpu_memory_->state();
  state.layout.insert(state.layout.end(), host.begin(), host.end());
  state.totals.insert(state.totals.end(), host.begin(), host.end());
  return state;
}

/// Changes the state as if the steps up to `step` had been made.
void Simulation::skip_to(int64_t step) {
  step_ = step;
  logged_loss_.add(simulator_->loss());
  epoch_loss_.add(simulator_->loss());
  if (is_logged()) read_loss(logged_loss_);
}

void Simulation::read_loss(RunningLoss<meta::Tensor>& sum) {
  read_scalar(meta::Type::fp32);
  sum = {};
}

/// Reads one number through pinned memory, which LibTorch keeps for the next one of this size.
void Simulation::read_scalar(meta::Type type) {
  if (!gpu_memory_ || !read_types_.insert(type).second) return;
  kept_.push_back(std::make_shared<meta::Storage>(pinned_, meta::bytes_of(type)));
}

/// Copies the random generator's state to the host: a GPU's is short, the CPU's is copied whole.
void Simulation::read_generator() {
  constexpr int64_t kGeneratorBytes = 5056, kGpuGeneratorBytes = 16;
  const int64_t bytes = gpu_memory_ ? kGpuGeneratorBytes : kGeneratorBytes;
  meta::take_and_release(host_context_, {bytes}, meta::Type::uint8);
}

void Simulation::end_epoch() {
  const bool has_more = last_step_ > kFirstSteps;
  if (step_ > kFirstSteps || !has_more) raise(steps_);
  raise(whole_);
  reset_peak();
  read_loss(epoch_loss_);
  if (options_.data.test_samples > 0) evaluate();
}

/// Saves a checkpoint to continue from if it `is_due`, else only the model.
void Simulation::save(bool is_due) {
  timeline_.phase(Phase::checkpointing);
  if (is_due) read_scalar(meta::Type::fp32);
  if (!std::exchange(is_staged_, true)) state_->take_staging(options_.rank);
  if (is_due) read_generator();
  timeline_.phase(Phase::training);
}

void Simulation::evaluate() {
  timeline_.phase(Phase::evaluating);
  const int64_t all = options_.data.test_samples;
  const int64_t samples = samples_per_rank(all, strategy_.world_size);
  const auto sequential_split = [&] {
    return own_part(meta::pointwise(host_context_, {all}, meta::Type::int64));
  };
  const meta::Tensor order = MetaStepOps::to(index_device(), sequential_split());
  const int64_t batches = (samples + config_.batch - 1) / config_.batch;
  for (int64_t i = 0; i < batches; ++i) {
    if (i + 1 >= options_.evaluation_batches && i + 1 < batches) continue;
    const int64_t first = i * config_.batch;
    const int64_t count = std::min(config_.batch, samples - first);
    simulator_->run(evaluate_, [&] { return load(test_images_, order.narrow(0, first, count)); });
    count_correct(simulator_->logits(), simulator_->targets(), count,
                  [&](const meta::Tensor& number) { read_scalar(number.scalar_type()); });
  }
}

int64_t Simulation::counted_retries() const {
  return gpu_memory_ ? gpu_memory_->allocator().counters().alloc_retries : 0;
}

int64_t Simulation::allocation_retries() const {
  return counted_retries() + rounds_.retries_left_out();
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
