// DeepSpeed's JSON: https://www.deepspeed.ai/docs/config-json/.
#include <fmt/format.h>

#include <string>

#include "planner/config/foreign/formats.h"
#include "planner/config/foreign/shared_keys.h"

namespace shardlens::planner {

namespace {

using enum ForeignEffect;

/// Reads the global batch; batch or accumulation, if missing, follows from it.
void read_global_batch(ForeignReader& r) {
  if (r.has_flag("batch") || r.has_flag("accumulate")) {
    return r.ignore("--batch and --accumulate set it");
  }
  const bool has_batch = r.find("train_micro_batch_size_per_gpu") != nullptr;
  const bool has_accumulation = r.find("gradient_accumulation_steps") != nullptr;
  const int64_t batch = has_batch ? r.option_count(&Config::batch) : 1;
  const int64_t accumulated = has_accumulation ? r.option_count(&Config::accumulate) : 1;
  int64_t rest = r.count();
  bool is_multiple = rest > 0;
  for (const int64_t divisor : {r.world(), batch, accumulated}) {
    is_multiple = is_multiple && rest % divisor == 0;
    rest /= divisor;
  }
  if (!is_multiple || (has_batch && has_accumulation && rest != 1)) {
    r.refuse(fmt::format("not{} {} ranks x batch {} x {} microbatches; give --workers or --world",
                         has_batch && has_accumulation ? "" : " a multiple of", r.world(), batch,
                         accumulated));
  }
  if (!has_batch) {
    r.set("batch", std::to_string(rest));
  } else if (!has_accumulation) {
    r.set("accumulate", std::to_string(rest));
  } else {
    r.ignore("it follows from the other batch sizes");
  }
}

/// Reads hpZ, ZeRO++'s second partition: a copy that neighbours keep between them. (MiCS' shards
/// below are copies of the whole state.)
void read_hpz(ForeignReader& r) {
  if (r.count() <= 1) return r.ignore("off");
  if (r.count_of("zero_optimization.stage", 0) != 3) {
    r.refuse("only applies to ZeRO stage 3; remove it");
  }
  r.set("reshard-after-forward", r.word());
}

void read_mics(ForeignReader& r) {
  if (r.value() == -1) return r.ignore("off");
  const int64_t shards = r.count(), world = r.world();
  if (shards < 1 || world % shards != 0) {
    r.refuse(fmt::format("not a divisor of {} ranks; give --workers or --world", world));
  }
  r.set("strategy", "hsdp");
  r.set("replicas", std::to_string(world / shards));
}

bool is_on_host(ForeignReader& r) {
  const std::string device = r.word();
  if (device == "nvme") r.refuse("offloading to disks is not supported; give \"cpu\"");
  if (device != "none" && device != "cpu") r.refuse("give \"none\" or \"cpu\"");
  return device == "cpu";
}

void read_optimizer_offload(ForeignReader& r) {
  r.set("offload", is_on_host(r) ? "optimizer" : "none");
}

/// Reads the parameters' offload after the optimizer's, since it adds to that.
void read_parameter_offload(ForeignReader& r) {
  if (!is_on_host(r)) return r.ignore("off");
  offload_parameters(r, "zero_optimization.offload_optimizer.device");
}

void read_old_offload(ForeignReader& r) { r.set("offload", r.flag() ? "optimizer" : "none"); }
void read_old_parameter_offload(ForeignReader& r) {
  if (!r.flag()) return r.ignore("off");
  r.set("offload", r.is_true("zero_optimization.cpu_offload") ? "all" : "params");
}

/// Reads bf16. DeepSpeed reduces gradients in the dtype that it computes with.
void read_bf16(ForeignReader& r) {
  if (!r.flag()) return r.ignore("off");
  r.set("param-dtype", "bf16");
  r.set("reduce-dtype", "bf16");
}

void read_fp16(ForeignReader& r) {
  if (!r.flag()) return r.ignore("off");
  if (r.is_true("bf16.enabled") || r.is_true("bfloat16.enabled")) {
    r.refuse("bf16 is enabled, too; enable only one of them");
  }
  r.set("param-dtype", "fp16");
  r.set("reduce-dtype", "fp16");
}

void read_loss_scale(ForeignReader& r) {
  if (!r.is_true("fp16.enabled")) return r.ignore("only applies to fp16, which is off");
  r.set("loss-scale", r.number() == 0 ? "auto" : r.word());
}

void read_communication(ForeignReader& r) { r.set("reduce-dtype", r.word()); }

/// Reads the optimizer. DeepSpeed's Adam decays weights as AdamW does unless it is told not to.
void read_optimizer(ForeignReader& r) {
  const std::string type = r.word();
  if (type == "SGD" || type == "sgd") return r.set("optimizer", "sgd");
  if (type == "AdamW" || type == "adamw") return r.set("optimizer", "adamw");
  if (type != "Adam" && type != "adam") r.refuse("not supported; give Adam, AdamW or SGD");
  const ForeignReader::Json* const mode = r.find("optimizer.params.adam_w_mode");
  r.set("optimizer", mode != nullptr && *mode == false ? "adam" : "adamw");
}

void read_momentum(ForeignReader& r) { r.set("momentum", fmt::format("{}", r.number())); }

constexpr std::string_view kBuckets =
    "units are gathered and reduced as --wrap says, not by a number of elements";
constexpr std::string_view kPrefetch =
    "--forward-prefetch and --backward-prefetch count units, not elements";
constexpr std::string_view kHow = "only changes how DeepSpeed computes; there is one way here";
constexpr std::string_view kTuned = "DeepSpeed's own search; use shardlens plan --search instead";
constexpr std::string_view kNoDisk = "only applies to disks, which are not used here";
constexpr std::string_view kScale = "the scale begins at 65536 and doubles after 2000 good steps";

constexpr ForeignKey kKeys[] = {
    {"train_micro_batch_size_per_gpu", mapped, "--batch", "", read_batch},
    {"gradient_accumulation_steps", mapped, "--accumulate", "", read_accumulation},
    {"train_batch_size", mapped, "--batch --accumulate", "", read_global_batch},
    {"zero_optimization.stage", mapped, "--strategy --reshard-after-forward", "0", read_stage},
    {"zero_optimization.zero_hpz_partition_size", mapped, "--reshard-after-forward", "", read_hpz},
    {"zero_optimization.mics_shard_size", mapped, "--strategy --replicas", "", read_mics},
    {"zero_optimization.cpu_offload", mapped, "--offload", "", read_old_offload},
    {"zero_optimization.cpu_offload_params", mapped, "--offload", "", read_old_parameter_offload},
    {"zero_optimization.cpu_offload_param", mapped, "--offload", "", read_old_parameter_offload},
    {"zero_optimization.offload_optimizer.device", mapped, "--offload", "", read_optimizer_offload},
    {"zero_optimization.offload_param.device", mapped, "--offload", "", read_parameter_offload},
    {"bf16.enabled", mapped, "--param-dtype --reduce-dtype", "", read_bf16},
    {"bfloat16.enabled", mapped, "--param-dtype --reduce-dtype", "", read_bf16},
    {"fp16.enabled", mapped, "--param-dtype --reduce-dtype", "", read_fp16},
    {"fp16.loss_scale", mapped, "--loss-scale", "", read_loss_scale},
    {"communication_data_type", mapped, "--reduce-dtype", "", read_communication},
    {"gradient_clipping", mapped, "--clip-norm", "", read_clipping},
    {"optimizer.type", mapped, "--optimizer", "", read_optimizer},
    {"optimizer.params.lr", mapped, "--lr", "", read_lr},
    {"optimizer.params.weight_decay", mapped, "--weight-decay", "", read_decay},
    {"optimizer.params.momentum", mapped, "--momentum", "", read_momentum},
    {"optimizer.params.max_grad_norm", mapped, "--clip-norm", "", read_clipping},

    {"zero_optimization.offload_optimizer.ratio", only_off,
     "all of the optimizer's state goes to the host here; give 1, or leave it out", "1"},
    {"zero_optimization.offload_optimizer.super_offload", only_off,
     "not supported; give false, or leave it out", "false"},
    {"zero_optimization.zenflow.*", only_off, "ZenFlow is not supported; leave it out"},
    {"zero_optimization.zero_quantized_weights", only_off,
     "weights are gathered unquantized here; give false", "false"},
    {"zero_optimization.zero_quantized_nontrainable_weights", only_off,
     "weights are kept unquantized here; give false", "false"},
    {"zero_optimization.zero_quantized_gradients", only_off,
     "gradients are reduced unquantized here; give false", "false"},
    {"zero_optimization.zeropp_loco_param.*", only_off,
     "gradients are reduced unquantized here; leave it out"},
    {"zero_optimization.elastic_checkpoint", only_off,
     "checkpoints fit any number of ranks here; give false", "false"},
    {"bf16.bf16_master_weights_and_grads", only_off, "masters are fp32 here; give false", "false"},
    {"bf16.bf16_optimizer_states", only_off, "moments are fp32 here; give false", "false"},
    {"bf16.immediate_grad_update", ignored, kHow},
    {"bf16.check_grad_overflow", ignored, "only a scaled loss is checked for overflow here"},
    {"bfloat16.check_grad_overflow", ignored, "only a scaled loss is checked for overflow here"},
    {"bfloat16.immediate_grad_update", ignored, kHow},
    {"fp16.fp16_master_weights_and_grads", only_off, "masters are fp32 here; give false", "false"},
    {"fp16.auto_cast", ignored, "inputs are cast as --cast-inputs says"},
    {"fp16.initial_scale_power", ignored, kScale},
    {"fp16.loss_scale_window", ignored, kScale},
    {"fp16.hysteresis", ignored, kScale},
    {"fp16.consecutive_hysteresis", ignored, kScale},
    {"fp16.min_loss_scale", ignored, kScale},
    {"fp16.fused_mode", ignored, kHow},
    {"amp.*", only_off, "Apex is not supported; give bf16 or fp16"},
    {"torch_autocast.*", only_off, "autocast is not supported; give bf16 or fp16"},
    {"data_types.grad_accum_dtype", only_off,
     "gradients add up in the dtype of --reduce-dtype; leave it out, or give "
     "communication_data_type",
     "null"},
    {"data_types.param_dtype", ignored, "--param-dtype sets it"},
    {"data_types.buffer_dtype", ignored, "the models here have no buffers"},
    {"sparse_gradients", only_off, "gradients are dense here; give false", "false"},
    {"gradient_allreduce_op", only_off, "gradients are averaged here; give \"mean\"", "\"mean\""},
    {"sparse_attention.*", only_off, "attention is dense here; leave it out"},
    {"progressive_layer_drop.*", only_off, "every layer is run here; leave it out"},
    {"compression_training.*", only_off, "nothing is compressed here; leave it out"},
    {"weight_quantization.*", only_off, "weights are not quantized here; leave it out"},
    {"quantize_training.*", only_off, "weights are not quantized here; leave it out"},
    {"expert_parallel.*", only_off, "mixtures of experts are not supported; leave it out"},
    {"tensor_parallel.autotp_size", only_off,
     "tensor parallelism is not supported yet; give 1, or leave it out", "1"},
    {"tensor_parallel.tp_size", only_off,
     "tensor parallelism is not supported yet; give 1, or leave it out", "1"},
    {"sequence_parallel_size", only_off,
     "sequence parallelism is not supported yet; give 1, or leave it out", "1"},
    {"pipeline.*", ignored, "pipeline parallelism, which the program has to ask for, is not used"},
    {"activation_checkpointing.partition_activations", only_off,
     "activations are not shared between ranks here; give false", "false"},
    {"activation_checkpointing.cpu_checkpointing", only_off,
     "activations stay on the device here; give false, and use --recompute", "false"},
    {"activation_checkpointing.*", ignored, "--recompute sets what is recomputed"},

    {"optimizer.params.adam_w_mode", ignored, "read with the type"},
    {"optimizer.params.torch_adam", ignored, kHow},
    {"optimizer.params.fused", ignored, kHow},
    {"optimizer.params.betas", ignored, kFixed},
    {"optimizer.params.eps", ignored, kFixed},
    {"optimizer.params.bias_correction", ignored, kFixed},
    {"optimizer.params.amsgrad", only_off, "AMSGrad is not supported; give false", "false"},
    {"optimizer.params.nesterov", only_off, "not supported; give false", "false"},
    {"optimizer.params.dampening", only_off, "not supported; give 0", "0"},
    {"optimizer.legacy_fusion", ignored, kHow},
    {"scheduler.*", ignored, kRate},
    {"prescale_gradients", ignored, kHow},
    {"gradient_predivide_factor", ignored, kHow},
    {"disable_allgather", ignored, kHow},
    {"managed_gradient_accumulation", ignored, kHow},
    {"check_overflow", ignored, "only a scaled loss is checked for overflow here"},
    {"seq_parallel_communication_data_type", ignored,
     "only applies to sequence parallelism, which is not used"},
    {"zero_allow_untested_optimizer", ignored, kHow},
    {"zero_force_ds_cpu_optimizer", ignored, kHow},

    {"zero_optimization.allgather_partitions", ignored, kHow},
    {"zero_optimization.allgather_bucket_size", ignored, kBuckets},
    {"zero_optimization.reduce_bucket_size", ignored, kBuckets},
    {"zero_optimization.use_multi_rank_bucket_allreduce", ignored, kHow},
    {"zero_optimization.reduce_scatter", ignored, kHow},
    {"zero_optimization.overlap_comm", ignored, "communication always overlaps"},
    {"zero_optimization.contiguous_gradients", ignored, "gradients always lie together"},
    {"zero_optimization.round_robin_gradients", ignored, kHow},
    {"zero_optimization.load_from_fp32_weights", ignored, kFiles},
    {"zero_optimization.grad_hooks", ignored, kHow},
    {"zero_optimization.legacy_stage1", ignored, kHow},
    {"zero_optimization.ignore_unused_parameters", ignored, "every parameter is used here"},
    {"zero_optimization.sub_group_size", ignored, kBuckets},
    {"zero_optimization.prefetch_bucket_size", ignored, kPrefetch},
    {"zero_optimization.stage3_prefetch_bucket_size", ignored, kPrefetch},
    {"zero_optimization.max_live_parameters", ignored, kPrefetch},
    {"zero_optimization.stage3_max_live_parameters", ignored, kPrefetch},
    {"zero_optimization.max_reuse_distance", ignored, kPrefetch},
    {"zero_optimization.stage3_max_reuse_distance", ignored, kPrefetch},
    {"zero_optimization.param_persistence_threshold", ignored, "--ignore names what stays whole"},
    {"zero_optimization.stage3_param_persistence_threshold", ignored,
     "--ignore names what stays whole"},
    {"zero_optimization.model_persistence_threshold", ignored, "--ignore names what stays whole"},
    {"zero_optimization.stage3_model_persistence_threshold", ignored,
     "--ignore names what stays whole"},
    {"zero_optimization.gather_16bit_weights_on_model_save", ignored, kFiles},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", ignored, kFiles},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", ignored, kFiles},
    {"zero_optimization.module_granularity_threshold", ignored, kBuckets},
    {"zero_optimization.stage3_module_granularity_threshold", ignored, kBuckets},
    {"zero_optimization.use_all_reduce_for_fetch_params", ignored, kHow},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", ignored, kHow},
    {"zero_optimization.allgather_sequential", ignored, kHow},
    {"zero_optimization.stage3_allgather_sequential", ignored, kHow},
    {"zero_optimization.stage3_partition_stream_chunk_size", ignored, kFiles},
    {"zero_optimization.partition_stream_chunk_size", ignored, kFiles},
    {"zero_optimization.mics_hierarchical_params_gather", ignored, kHow},
    {"zero_optimization.memory_efficient_linear", ignored, "linear layers always are"},
    {"zero_optimization.pipeline_loading_checkpoint", ignored, kFiles},
    {"zero_optimization.override_module_apply", ignored, kHow},
    {"zero_optimization.log_trace_cache_warnings", ignored, kPrints},
    {"zero_optimization.enable_sanity_checks", ignored, kPrints},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", ignored, kNoDisk},
    {"zero_optimization.leaf_module.*", ignored, kBuckets},
    {"zero_optimization.cpu_offload_use_pin_memory", ignored, "host memory is always pinned"},
    {"zero_optimization.offload_param.pin_memory", ignored, "host memory is always pinned"},
    {"zero_optimization.offload_param.nvme_path", ignored, kNoDisk},
    {"zero_optimization.offload_param.buffer_count", ignored, kNoDisk},
    {"zero_optimization.offload_param.buffer_size", ignored, kNoDisk},
    {"zero_optimization.offload_param.max_in_cpu", ignored, kNoDisk},
    {"zero_optimization.offload_optimizer.pin_memory", ignored, "host memory is always pinned"},
    {"zero_optimization.offload_optimizer.nvme_path", ignored, kNoDisk},
    {"zero_optimization.offload_optimizer.buffer_count", ignored, kNoDisk},
    {"zero_optimization.offload_optimizer.pipeline", ignored, kNoDisk},
    {"zero_optimization.offload_optimizer.pipeline_read", ignored, kNoDisk},
    {"zero_optimization.offload_optimizer.pipeline_write", ignored, kNoDisk},
    {"zero_optimization.offload_optimizer.fast_init", ignored, kNoDisk},
    {"zero_optimization.offload_optimizer.convert_grad_on_cpu", ignored, kHow},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", ignored, "--threads sets it"},

    {"steps_per_print", ignored, kPrints},
    {"wall_clock_breakdown", ignored, kPrints},
    {"memory_breakdown", ignored, kPrints},
    {"dump_state", ignored, kPrints},
    {"log_level", ignored, kPrints},
    {"flops_profiler.*", ignored, kPrints},
    {"tensorboard.*", ignored, kPrints},
    {"wandb.*", ignored, kPrints},
    {"comet.*", ignored, kPrints},
    {"csv_monitor.*", ignored, kPrints},
    {"comms_logger.*", ignored, kPrints},
    {"monitor_config.*", ignored, kPrints},
    {"timers.*", ignored, kPrints},
    {"eigenvalue.*", ignored, kPrints},
    {"autotuning.*", ignored, kTuned},
    {"elasticity.*", only_off, "--max-failures sets when ranks start again; leave it out"},
    {"checkpoint.*", ignored, kFiles},
    {"datastates_ckpt.*", ignored, kFiles},
    {"nebula.*", ignored, kFiles},
    {"data_efficiency.*", only_off, "samples are taken as they come here; leave it out"},
    {"curriculum_learning.*", only_off, "samples are taken as they come here; leave it out"},
    {"dataloader_drop_last", ignored, kFiles},
    {"aio.*", ignored, kNoDisk},
    {"hybrid_engine.*", only_off, "nothing is generated during training here; leave it out"},
    {"compile.*", ignored, "nothing is compiled here"},
    {"graph_harvesting", ignored, "nothing is captured in graphs here"},
    {"use_data_before_expert_parallelism", ignored, "only applies to mixtures of experts"},
    {"vocabulary_size", ignored, "the model sets it"},
};

}  // namespace

std::span<const ForeignKey> deepspeed_keys() { return kKeys; }

}  // namespace shardlens::planner
