// torchtitan's TOML, as its releases 0.1 and 0.2 read it (torchtitan/config/job_config.py).
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "planner/config/foreign/formats.h"
#include "planner/config/foreign/shared_keys.h"

namespace shardlens::planner {

namespace {

using enum ForeignEffect;

void read_flavor(ForeignReader& r) {
  const ForeignReader::Json* const name = r.find("model.name");
  const bool is_llama = name == nullptr || *name == "llama3";
  const std::string flavor = r.word();
  if (is_llama && flavor == "8B") return r.set("model", "llama-8b");
  if (is_llama && flavor == "70B") return r.set("model", "llama-70b");
  r.refuse(
      "only 8B and 70B of llama3 are presets here; give --model the model's config.json from "
      "Hugging Face");
}

void read_seq(ForeignReader& r) { r.set("seq", std::to_string(r.count())); }
void read_steps(ForeignReader& r) { r.set("steps", std::to_string(r.count())); }
void read_seed(ForeignReader& r) { r.set("seed", r.word()); }
void read_log(ForeignReader& r) { r.set("log-every", r.word()); }
void read_offload(ForeignReader& r) { r.set("offload", r.flag() ? "all" : "none"); }

std::string dtype_word(ForeignReader& r) {
  const std::string word = r.word();
  if (word == "bfloat16") return "bf16";
  if (word == "float16") return "fp16";
  if (word != "float32") r.refuse("give \"float32\" or \"bfloat16\"");
  return "fp32";
}

void read_param_dtype(ForeignReader& r) { r.set("param-dtype", dtype_word(r)); }
void read_reduce_dtype(ForeignReader& r) { r.set("reduce-dtype", dtype_word(r)); }

void read_optimizer(ForeignReader& r) {
  const std::string name = r.word();
  if (name != "Adam" && name != "AdamW") r.refuse("not supported; give \"Adam\" or \"AdamW\"");
  r.set("optimizer", name == "Adam" ? "adam" : "adamw");
}

/// Returns the number of shards; -1 in the file stands for as many ranks as are left.
int64_t shard_degree(const ForeignReader& r, int64_t replicas) {
  const int64_t given = r.count_of("parallelism.data_parallel_shard_degree", -1);
  return given > 0 ? given : std::max<int64_t>(1, r.world() / replicas);
}

void read_replicate(ForeignReader& r) {
  const int64_t replicas = std::max<int64_t>(1, r.count());
  const bool is_open = r.count_of("parallelism.data_parallel_shard_degree", -1) < 1;
  const int64_t shards = shard_degree(r, replicas);
  if (!is_open && !r.has_world()) {
    r.set("workers", std::to_string(replicas * shards));
  } else if (replicas * shards != r.world()) {
    r.refuse(fmt::format("copies of {} shards do not make {} ranks; give --workers or --world",
                         shards, r.world()));
  }
  if (replicas == 1) return r.set("strategy", shards == 1 && !is_open ? "single" : "fsdp");
  r.set("strategy", shards == 1 ? "ddp" : "hsdp");
  if (shards > 1) r.set("replicas", std::to_string(replicas));
}

void read_reshard(ForeignReader& r) {
  const std::string policy = r.word();
  if (policy != "default" && policy != "always" && policy != "never") {
    r.refuse("give \"default\", \"always\" or \"never\"");
  }
  r.set("reshard-after-forward", policy == "default"  ? "auto"
                                 : policy == "always" ? "true"
                                                      : "false");
}

/// Reads the global batch. A value of -1 leaves it open: only local batches count.
void read_global_batch(ForeignReader& r) {
  if (r.value() == -1) return r.ignore("it leaves the number open");
  const int64_t at_once = r.option_count(&Config::batch) * r.world();
  if (r.count() < at_once || r.count() % at_once != 0) {
    r.refuse(
        fmt::format("not a multiple of {} samples that {} rank{} take at once; give --workers "
                    "or --world, or another batch",
                    at_once, r.world(), r.world() == 1 ? "" : "s"));
  }
  r.set("accumulate", std::to_string(r.count() / at_once));
}

void read_recompute(ForeignReader& r) {
  const std::string mode = r.word();
  if (mode == "none" || mode == "full") return r.set("recompute", mode);
  if (mode != "selective") {
    r.refuse("not supported; give \"none\" or \"full\", or --recompute");
  }
  const ForeignReader::Json* const option = r.find("activation_checkpoint.selective_ac_option");
  const ForeignReader::Json chosen = option == nullptr ? ForeignReader::Json("2") : *option;
  const std::string every = chosen.is_string() ? chosen.get<std::string>() : chosen.dump();
  if (every == "op") {
    r.refuse(
        "the option \"op\" recomputes some operators of each block, and here only whole blocks can "
        "be; give --recompute none (more memory), full (less) or every:K");
  }
  r.set("recompute", "every:" + every);
}

constexpr std::string_view kData = "--data sets it";
constexpr std::string_view kPipeline =
    "pipeline parallelism is not supported yet; give 1, or leave it out";
constexpr std::string_view kTensor =
    "tensor and context parallelism are not supported yet; give 1, or leave it out";
constexpr std::string_view kExperts = "mixtures of experts are not supported; give 1";
constexpr std::string_view kCheckpoint = "--checkpoint-every, --keep and --init do that";
constexpr std::string_view kOfConverters =
    "only applies to converters, which model.converters asks for";

constexpr ForeignKey kKeys[] = {
    {"model.flavor", mapped, "--model", "", read_flavor},
    {"training.seq_len", mapped, "--seq", "2048", read_seq},
    {"training.local_batch_size", mapped, "--batch", "8", read_batch},
    {"training.batch_size", mapped, "--batch", "", read_batch},
    {"training.max_norm", mapped, "--clip-norm", "1.0", read_clipping},
    {"training.steps", mapped, "--steps", "10000", read_steps},
    {"training.seed", mapped, "--seed", "", read_seed},
    {"debug.seed", mapped, "--seed", "", read_seed},
    {"training.enable_cpu_offload", mapped, "--offload", "false", read_offload},
    {"training.mixed_precision_param", mapped, "--param-dtype", "\"bfloat16\"", read_param_dtype},
    {"training.mixed_precision_reduce", mapped, "--reduce-dtype", "\"float32\"", read_reduce_dtype},
    {"optimizer.name", mapped, "--optimizer", "\"AdamW\"", read_optimizer},
    {"optimizer.lr", mapped, "--lr", "8e-4", read_lr},
    {"optimizer.weight_decay", mapped, "--weight-decay", "0.1", read_decay},
    {"parallelism.data_parallel_replicate_degree", mapped, "--strategy --replicas --workers", "1",
     read_replicate},
    {"parallelism.fsdp_reshard_after_forward", mapped, "--reshard-after-forward", "\"default\"",
     read_reshard},
    {"training.global_batch_size", mapped, "--accumulate", "", read_global_batch},
    {"activation_checkpoint.mode", mapped, "--recompute", "\"selective\"", read_recompute},
    {"metrics.log_freq", mapped, "--log-every", "", read_log},

    {"model.converters", only_off, "FP8 and other converters are not supported yet; leave it out",
     "[]"},
    {"training.dtype", only_off, "masters are fp32 here; give \"float32\"", "\"float32\""},
    {"parallelism.tensor_parallel_degree", only_off, kTensor, "1"},
    {"parallelism.context_parallel_degree", only_off, kTensor, "1"},
    {"parallelism.pipeline_parallel_degree", only_off, kPipeline, "1"},
    {"parallelism.expert_parallel_degree", only_off, kExperts, "1"},
    {"parallelism.expert_tensor_parallel_degree", only_off, kExperts, "1"},
    {"optimizer.early_step_in_backward", ignored,
     "steps are taken in backward wherever clipping and accumulation allow it"},
    {"fault_tolerance.*", only_off, "--max-failures sets when ranks start again; leave it out"},
    {"memory_estimation.*", only_off, "shardlens plan does that; leave it out"},

    {"model.name", ignored, "read with the flavor"},
    {"model.tokenizer_path", ignored, kData},
    {"model.hf_assets_path", ignored, kData},
    {"model.print_after_conversion", ignored, kPrints},
    {"optimizer.beta1", ignored, kFixed},
    {"optimizer.beta2", ignored, kFixed},
    {"optimizer.eps", ignored, kFixed},
    {"optimizer.implementation", ignored, "the step is always fused"},
    {"lr_scheduler.*", ignored, kRate},
    {"training.dataset", ignored, kData},
    {"training.dataset_path", ignored, kData},
    {"training.dataloader.*", ignored, kData},
    {"training.gc_freq", ignored, "there is no Python to collect"},
    {"training.gc_debug", ignored, "there is no Python to collect"},
    {"training.deterministic", ignored, "sums are always in the same order on CPU ranks"},
    {"training.compile", ignored, "nothing is compiled here"},
    {"training.debug_moe_force_load_balance", ignored, "only applies to mixtures of experts"},
    {"parallelism.data_parallel_shard_degree", ignored, "read with the replicate degree"},
    {"parallelism.enable_compiled_autograd", ignored, "nothing is compiled here"},
    {"parallelism.disable_loss_parallel", ignored, kOfOthers},
    {"parallelism.enable_async_tensor_parallel", ignored, kOfOthers},
    {"parallelism.context_parallel_rotate_method", ignored, kOfOthers},
    {"parallelism.context_parallel_load_balancer", ignored, kOfOthers},
    {"parallelism.expert_parallel_comm_backend", ignored, kOfOthers},
    {"parallelism.module_fqns_per_model_part", ignored, kOfOthers},
    {"parallelism.pipeline_parallel_split_points", ignored, kOfOthers},
    {"parallelism.pipeline_parallel_layers_per_stage", ignored, kOfOthers},
    {"parallelism.pipeline_parallel_first_stage_less_layers", ignored, kOfOthers},
    {"parallelism.pipeline_parallel_last_stage_less_layers", ignored, kOfOthers},
    {"parallelism.pipeline_parallel_schedule", ignored, kOfOthers},
    {"parallelism.pipeline_parallel_schedule_csv", ignored, kOfOthers},
    {"parallelism.pipeline_parallel_microbatch_size", ignored, kOfOthers},
    {"parallelism.pipeline_parallel_expert_parallel_overlap", ignored, kOfOthers},
    {"activation_checkpoint.selective_ac_option", ignored, "read with the mode"},
    {"activation_checkpoint.*", ignored, "whole blocks are recomputed here"},
    {"checkpoint.*", ignored, kCheckpoint},
    {"validation.*", ignored, "the test samples of --data are always counted"},
    {"compile.*", ignored, "nothing is compiled here"},
    {"quantize.*", ignored, kOfConverters},
    {"float8.*", ignored, kOfConverters},
    {"mx.*", ignored, kOfConverters},
    {"comm.*", ignored, "--timeout sets how long a rank waits"},
    {"experimental.*", ignored, "no Python is imported here"},
    {"debug.deterministic", ignored, "sums are always in the same order on CPU ranks"},
    {"debug.deterministic_warn_only", ignored, kPrints},
    {"debug.moe_force_load_balance", ignored, "only applies to mixtures of experts"},
    {"job.*", ignored, kFiles},
    {"profiling.*", ignored, "--profile records a run"},
    {"metrics.*", ignored, kPrints},
};

}  // namespace

std::span<const ForeignKey> torchtitan_keys() { return kKeys; }

}  // namespace shardlens::planner
