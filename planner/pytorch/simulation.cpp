#include "planner/pytorch/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "models/families.h"
#include "planner/simulate/meta/operators.h"
#include "planner/simulate/simulation.h"
#include "planner/step/step.h"

namespace shardlens::planner {

using meta::Tensor;
using meta::Type;
using profiler::Category;
using profiler::Phase;
using profiler::Space;

namespace {

void refuse(bool is_wanted, std::string_view what, std::string_view instead) {
  if (!is_wanted) return;
  throw std::invalid_argument(
      fmt::format("--engine pytorch-fsdp2 does not model {}; {}", what, instead));
}

void require_plannable(const Config& config, const Strategy& strategy) {
  refuse(!is_sharded(strategy.kind), fmt::format("--strategy {}", to_string(strategy.kind)),
         "use fsdp or hsdp");
  refuse(strategy.param_dtype != DType::fp16 && strategy.reduce_dtype == DType::fp16,
         "--reduce-dtype fp16 for other gradients", "use --param-dtype fp16 too");
  refuse(strategy.param_dtype == DType::fp32 && strategy.reduce_dtype != DType::fp32,
         "a reduction in fewer bits than the gradients have", "use --param-dtype bf16 too");
  const OptimizerKind optimizer = config.optimizer;
  refuse(optimizer == OptimizerKind::sgd, "--optimizer sgd", "use adam or adamw");
  refuse(optimizer == OptimizerKind::adam && config.weight_decay != 0, "Adam's --weight-decay",
         "use --optimizer adamw");
  refuse(strategy.recompute_every != 0, "--recompute", "use --recompute none");
  refuse(strategy.wrap.kind != WrapKind::block, "--wrap", "use --wrap block");
  refuse(!config.freeze.empty() || !config.ignore.empty() || !config.keep_fp32.empty(),
         "--freeze, --ignore and --keep-fp32", "leave them out");
  refuse(strategy.offload != Offload::none && strategy.offload != Offload::all, "a partial offload",
         "use --offload all or none");
}

Fsdp2Options fsdp2_options(const Strategy& strategy, const PytorchOptions& options) {
  return {.shards = strategy.shards(),
          .shard_rank = options.rank % strategy.shards(),
          .replicas = strategy.replicas,
          .regather_shards =
              strategy.reshard_after_forward == Reshard::partly ? strategy.regather_shards : 0,
          .reshard_after_forward = strategy.reshard_after_forward != Reshard::no,
          .own_groups = options.own_groups,
          .cpu_offload = strategy.offload == Offload::all,
          .param_type = meta::type_of(strategy.param_dtype),
          .reduce_type = meta::type_of(strategy.reduce_dtype),
          .forward_prefetch = options.forward_prefetch,
          .backward_prefetch = options.backward_prefetch};
}

}  // namespace

PytorchSimulation::PytorchSimulation(const models::ModelSpec& spec, const Config& config,
                                     const PytorchOptions& options)
    : spec_(spec),
      config_(config),
      options_(options),
      memory_(timeline_, with_rules(options.allocator, *options.torch), kPytorchStreams),
      pinned_(timeline_, Space::pinned),
      host_(timeline_, Space::host),
      context_{.memory = &memory_,
               .gpu = options.gpu,
               .torch = options.torch,
               .attention = attention_kernels(config)},
      ops_(context_) {
  check(options.gpu != nullptr, "FSDP2 without a GPU");
  require_plannable(config, strategy_of(config));
  const bool is_llama = spec.is<models::LlamaSizes>();
  refuse(options.writing.is_of_llama() && !is_llama,
         fmt::format("'{}' with --pytorch attention= or norm=", spec.name), "use them for Llamas");
}

/// Models Module.to_empty(device="cuda") of distributed tensors, where a fake tensor looks for the
/// device twice.
void PytorchSimulation::warm_up_fake_tensors() {
  for (int i = 0; i < 2; ++i) meta::pointwise(context_, {1}, Type::fp32);
}

void PytorchSimulation::start() {
  const Strategy strategy = strategy_of(config_);
  if (strategy.offload == Offload::none && options_.torch->fake_tensors_allocate) {
    warm_up_fake_tensors();
  }
  const std::vector<PytorchParameter> parameters = pytorch_parameters(spec_);
  fsdp_ = std::make_unique<Fsdp2>(parameters, fsdp2_options(strategy, options_), memory_, context_,
                                  pinned_);
  if (spec_.is<models::LlamaSizes>()) {
    const auto& llama = spec_.as<models::LlamaSizes>();
    if (llama.tied) fsdp_->make_again(0);
    const TimelineScope scope(timeline_, Category::other, "rotation");
    const int64_t bytes = llama.seq * llama.head_width() * 4;
    buffers_.push_back(std::make_shared<meta::Storage>(memory_, bytes));
  }
  model_ = make_pytorch_model(spec_, ops_, fsdp_->weights(), *fsdp_, options_.writing);
  const bool is_on_host = strategy.offload == Offload::all;
  meta::Memory& state = is_on_host ? static_cast<meta::Memory&>(host_) : memory_;
  optimizer_ = std::make_unique<PytorchOptimizer>(
      PytorchOptimizer::Options{
          .loop = options_.loop, .shards = strategy.shards(), .torch = options_.torch},
      fsdp_->shards(), state, timeline_);
  if (loss_scale_of(config_).kind != LossScale::Kind::none) {
    scaler_ = std::make_unique<PytorchScaler>(
        context_, PytorchScaler::Options{.is_fused = options_.loop == PytorchLoop::fused,
                                         .gradients_on_device = !is_on_host,
                                         .shards = strategy.shards()});
  }
  make_batch();
}

void PytorchSimulation::make_batch() {
  const TimelineScope scope(timeline_, Category::input, "batch");
  const models::SampleSpec& sample = spec_.sample;
  meta::Sizes sizes(std::span<const int64_t>(sample.shape));
  sizes.insert(0, config_.batch);
  const bool has_tokens = sample.input == models::InputKind::tokens;
  input_ = Tensor::empty(context_, sizes, has_tokens ? Type::int64 : Type::fp32);
  const meta::Sizes targets = has_tokens ? sizes : meta::Sizes{config_.batch};
  targets_ = Tensor::empty(context_, targets, Type::int64);
}

void PytorchSimulation::zero_grad() {
  if (options_.zero_grad == PytorchZeroGrad::keep) return;
  for (ShardedParameter& parameter : fsdp_->shards()) {
    parameter.gradient = nullptr;
    parameter.has_gradient = false;
  }
}

Tensor PytorchSimulation::scaled_loss() {
  if (!scaler_) return loss_;
  const meta::GradMode on(context_, true);
  const TimelineScope scope(timeline_, Category::optimizer_state, "loss scale");
  return scaler_->scale(loss_);
}

void PytorchSimulation::run_microbatch() {
  {
    const meta::GradMode on(context_, true);
    const TimelineScope scope(timeline_, Category::activation, "forward");
    Tensor loss = [&] {
      Tensor logits = model_->forward(input_);
      if (!options_.writing.keeps_logits) return model_->loss(logits);
      logits_ = std::move(logits);
      return model_->loss(logits_);
    }();
    loss_ = std::move(loss);  // only now is the previous one released, as in Python
  }
  const TimelineScope scope(timeline_, Category::gradient, "backward");
  const Tensor scaled = scaled_loss();
  const Tensor one = Tensor::empty(context_, {}, Type::fp32);
  ops_.set_in_backward(true);
  meta::run_backward(context_, scaled.edge(), one);
  fsdp_->finish_backward();
  ops_.set_in_backward(false);
}

void PytorchSimulation::update_parameters() {
  const TimelineScope scope(timeline_, Category::optimizer_state, "loss scale");
  const bool clips = config_.clip_norm > 0;
  if (clips && scaler_) scaler_->unscale();
  if (clips) optimizer_->clip();
  if (!scaler_) return optimizer_->step();
  scaler_->step([&] { optimizer_->step(); });
  scaler_->update();
}

void PytorchSimulation::step(int64_t number) {
  timeline_.step(number);
  if (options_.zero_grad == PytorchZeroGrad::before) zero_grad();
  rounds_.forget();
  const int64_t last = config_.accumulate - 1;
  for (int64_t microbatch = 0; microbatch <= last; ++microbatch) {
    if (microbatch > 0 && !options_.every_microbatch) {
      const int64_t left_out = rounds_.arrive(memory_state(), last - microbatch, counted_retries());
      if (left_out > 0) timeline_.leave_out();
      microbatch += left_out;
    }
    fsdp_->set_requires_gradient_sync(microbatch == last || config_.sync == Sync::every);
    run_microbatch();
  }
  update_parameters();
  if (options_.zero_grad == PytorchZeroGrad::after) zero_grad();
}

void PytorchSimulation::run() {
  start();
  timeline_.phase(Phase::training);
  for (int64_t number = 0; number < options_.steps; ++number) {
    if (number == kFirstSteps) {
      raise(whole_);
      memory_.allocator().reset_peaks();
    }
    step(number);
    // The name that the step's function has for the loss ends with the function.
    loss_ = {};
  }
  raise(steps_);
  raise(whole_);
}

MemoryState PytorchSimulation::memory_state() const {
  MemoryState state = memory_.state();
  for (const int64_t bytes : {host_.bytes(), pinned_.bytes()}) {
    state.layout.push_back(bytes);
    state.totals.push_back(bytes);
  }
  return state;
}

void PytorchSimulation::raise(SimulatedPeak& peak) const {
  const AllocatorCounters& counters = memory_.allocator().counters();
  peak.allocated_bytes = std::max(peak.allocated_bytes, counters.all.allocated_bytes.peak);
  peak.reserved_bytes = std::max(peak.reserved_bytes, counters.all.reserved_bytes.peak);
}

}  // namespace shardlens::planner
