// The YAML that `accelerate config` writes, with fsdp_config of versions 1 and 2:
// https://huggingface.co/docs/accelerate/usage_guides/fsdp.
#include <fmt/format.h>

#include <array>
#include <string>

#include "planner/config/foreign/formats.h"
#include "planner/config/foreign/shared_keys.h"

namespace shardlens::planner {

namespace {

using enum ForeignEffect;

std::string type_of(const ForeignReader& r) {
  const ForeignReader::Json* const type = r.find("distributed_type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : "";
}

bool is_fsdp(ForeignReader& r) {
  if (type_of(r) == "FSDP") return true;
  r.ignore("only applies to distributed_type FSDP");
  return false;
}

bool is_deepspeed(ForeignReader& r) {
  if (type_of(r) == "DEEPSPEED") return true;
  r.ignore("only applies to distributed_type DEEPSPEED");
  return false;
}

void read_processes(ForeignReader& r) {
  if (r.is_launched()) return r.ignore("the launcher has started the ranks");
  if (r.value() == -1) return r.ignore("it leaves the number open");
  if (r.has_flag("world")) return r.ignore("--world sets it");
  r.set("workers", r.word());
}

void read_type(ForeignReader& r) {
  const std::string type = r.word();
  if (type == "FSDP") return r.set("strategy", "fsdp");
  if (type == "DEEPSPEED") return r.ignore("deepspeed_config sets the strategy");
  if (type == "MULTI_GPU" || type == "MULTI_CPU") {
    r.set("strategy", "ddp");
    if (type == "MULTI_CPU") r.set("device", "cpu");
    return;
  }
  if (type == "NO") return r.set("strategy", "single");
  r.refuse("not supported; give FSDP, DEEPSPEED, MULTI_GPU, MULTI_CPU or NO");
}

void read_cpu(ForeignReader& r) {
  if (!r.flag()) return r.ignore("off");
  r.set("device", "cpu");
}

/// Reads the precision. FSDP and DeepSpeed reduce in the dtype that they compute with, DDP under
/// autocast in fp32.
void read_precision(ForeignReader& r) {
  const std::string word = r.word();
  if (word == "no" || word == "false") return r.ignore("off");
  if (word == "fp8") r.refuse("FP8 is not supported yet; give bf16, fp16 or no");
  r.set("param-dtype", word);
  if (type_of(r) == "FSDP" || type_of(r) == "DEEPSPEED") r.set("reduce-dtype", word);
}

/// Reads FSDP1's names of strategies, or the numbers from 1 that older files have.
void set_fsdp1_strategy(ForeignReader& r) {
  constexpr std::array kNames = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                 "HYBRID_SHARD_ZERO2"};
  std::string name = r.word();
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == std::to_string(i + 1)) name = kNames[i];
  }
  const bool is_hybrid = name.starts_with("HYBRID");
  const bool keeps_whole = name == "SHARD_GRAD_OP" || name == "HYBRID_SHARD_ZERO2";
  if (name == "NO_SHARD") return r.set("strategy", "ddp");
  if (!is_hybrid && !keeps_whole && name != "FULL_SHARD") {
    r.refuse("give FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
  }
  r.set("strategy", is_hybrid ? "hsdp" : "fsdp");
  if (is_hybrid) r.set("replicas", std::to_string(r.count_of("num_machines", 1)));
  r.set("reshard-after-forward", keeps_whole ? "false" : "true");
}

void read_sharding(ForeignReader& r) {
  if (!is_fsdp(r)) return;
  if (r.count_of("fsdp_config.fsdp_version", 1) == 2) {
    return r.ignore("only applies to version 1; in version 2 fsdp_reshard_after_forward sets it");
  }
  set_fsdp1_strategy(r);
}

/// Reads the reshard mode. For version 1 accelerate's own questionnaire writes the strategy's name
/// here, too.
void read_reshard(ForeignReader& r) {
  if (!is_fsdp(r)) return;
  const bool is_first = r.count_of("fsdp_config.fsdp_version", 1) == 1;
  if (is_first && r.find("fsdp_config.fsdp_sharding_strategy") != nullptr) {
    return r.ignore("fsdp_sharding_strategy sets it");
  }
  if (r.value().is_boolean()) return r.set("reshard-after-forward", r.word());
  if (!is_first) r.refuse("give true or false");
  set_fsdp1_strategy(r);
}

void read_offload(ForeignReader& r) {
  if (is_fsdp(r)) r.set("offload", r.flag() ? "all" : "none");
}

void read_wrap(ForeignReader& r) {
  if (!is_fsdp(r)) return;
  const std::string policy = r.word();
  if (policy == "TRANSFORMER_BASED_WRAP") return r.set("wrap", "block");
  if (policy == "NO_WRAP") return r.set("wrap", "root");
  if (policy != "SIZE_BASED_WRAP") {
    r.refuse("give TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP");
  }
  constexpr int64_t kDefault = 100'000'000;
  const int64_t numel = r.count_of("fsdp_config.fsdp_min_num_params", kDefault);
  r.set("wrap", fmt::format("size:{}", numel));
}

void read_backward_prefetch(ForeignReader& r) {
  if (!is_fsdp(r)) return;
  const std::string word = r.word();
  if (word == "BACKWARD_PRE") return r.set("backward-prefetch", "1");
  if (word != "BACKWARD_POST" && word != "NO_PREFETCH") {
    r.refuse("give BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH");
  }
  r.set("backward-prefetch", "0");
}

void read_forward_prefetch(ForeignReader& r) {
  if (is_fsdp(r)) r.set("forward-prefetch", r.flag() ? "1" : "0");
}

void read_checkpointing(ForeignReader& r) {
  if (is_fsdp(r)) r.set("recompute", r.flag() ? "full" : "none");
}

void read_ignored_modules(ForeignReader& r) {
  if (is_fsdp(r)) r.set("ignore", "module:" + r.word());
}

void read_replicas(ForeignReader& r) {
  if (r.count() <= 1) return r.ignore("off");
  const bool shards = r.count_of("parallelism_config.parallelism_config_dp_shard_size", 1) > 1;
  r.set("strategy", shards ? "hsdp" : "ddp");
  if (shards) r.set("replicas", r.word());
}

void read_zero_stage(ForeignReader& r) {
  if (is_deepspeed(r)) read_stage(r);
}

bool is_on_host(ForeignReader& r) {
  const std::string device = r.word();
  if (device == "nvme") r.refuse("offloading to disks is not supported; give cpu");
  return device == "cpu";
}

void read_optimizer_offload(ForeignReader& r) {
  if (is_deepspeed(r)) r.set("offload", is_on_host(r) ? "optimizer" : "none");
}

void read_parameter_offload(ForeignReader& r) {
  if (!is_deepspeed(r)) return;
  if (!is_on_host(r)) return r.ignore("off");
  offload_parameters(r, "deepspeed_config.offload_optimizer_device");
}

constexpr std::string_view kLaunch =
    "it configures the launcher; use --workers, torchrun or srun instead";
constexpr std::string_view kTpu = "only applies to TPUs";
constexpr std::string_view kSequence =
    "tensor, context and sequence parallelism are not supported yet; give 1, or leave it out";

constexpr ForeignKey kKeys[] = {
    {"num_processes", mapped, "--workers", "", read_processes},
    {"distributed_type", mapped, "--strategy", "", read_type},
    {"use_cpu", mapped, "--device", "", read_cpu},
    {"mixed_precision", mapped, "--param-dtype --reduce-dtype", "", read_precision},
    {"fsdp_config.fsdp_sharding_strategy", mapped, "--strategy --replicas --reshard-after-forward",
     "", read_sharding},
    {"fsdp_config.fsdp_reshard_after_forward", mapped, "--reshard-after-forward", "true",
     read_reshard},
    {"fsdp_config.fsdp_offload_params", mapped, "--offload", "", read_offload},
    {"fsdp_config.fsdp_auto_wrap_policy", mapped, "--wrap", "\"NO_WRAP\"", read_wrap},
    {"fsdp_config.fsdp_backward_prefetch", mapped, "--backward-prefetch", "",
     read_backward_prefetch},
    {"fsdp_config.fsdp_backward_prefetch_policy", mapped, "--backward-prefetch", "",
     read_backward_prefetch},
    {"fsdp_config.fsdp_forward_prefetch", mapped, "--forward-prefetch", "", read_forward_prefetch},
    {"fsdp_config.fsdp_activation_checkpointing", mapped, "--recompute", "", read_checkpointing},
    {"fsdp_config.fsdp_ignored_modules", mapped, "--ignore", "", read_ignored_modules},
    {"parallelism_config.parallelism_config_dp_replicate_size", mapped, "--strategy --replicas", "",
     read_replicas},
    {"deepspeed_config.zero_stage", mapped, "--strategy --reshard-after-forward", "",
     read_zero_stage},
    {"deepspeed_config.offload_optimizer_device", mapped, "--offload", "", read_optimizer_offload},
    {"deepspeed_config.offload_param_device", mapped, "--offload", "", read_parameter_offload},
    {"deepspeed_config.gradient_accumulation_steps", mapped, "--accumulate", "", read_accumulation},
    {"deepspeed_config.gradient_clipping", mapped, "--clip-norm", "", read_clipping},

    {"compute_environment", only_off, "give LOCAL_MACHINE", "\"LOCAL_MACHINE\""},
    {"fsdp_config.fsdp_version", ignored, "read with the other keys"},
    {"fsdp_config.fsdp_min_num_params", ignored, "read with the wrap policy"},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", ignored,
     "--wrap block takes the model's blocks; --wrap module: takes others"},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", ignored, kFiles},
    {"fsdp_config.fsdp_sync_module_states", ignored, "ranks always begin with the same weights"},
    {"fsdp_config.fsdp_use_orig_params", ignored, "parameters always keep their names"},
    {"fsdp_config.fsdp_state_dict_type", ignored, kFiles},
    {"parallelism_config.parallelism_config_dp_shard_size", ignored, "read with dp_replicate_size"},
    {"parallelism_config.parallelism_config_tp_size", only_off, kSequence, "1"},
    {"parallelism_config.parallelism_config_cp_size", only_off, kSequence, "1"},
    {"parallelism_config.parallelism_config_sp_size", only_off, kSequence, "1"},
    {"parallelism_config.parallelism_config_cp_backend", ignored, kOfOthers},
    {"parallelism_config.parallelism_config_cp_comm_strategy", ignored, kOfOthers},
    {"parallelism_config.parallelism_config_sp_backend", ignored, kOfOthers},
    {"parallelism_config.parallelism_config_sp_seq_length", ignored, kOfOthers},
    {"parallelism_config.parallelism_config_sp_seq_length_is_variable", ignored, kOfOthers},
    {"parallelism_config.parallelism_config_sp_attn_implementation", ignored, kOfOthers},
    {"deepspeed_config.deepspeed_config_file", only_off,
     "give that file itself as --config, and num_processes as --workers", "\"none\""},
    {"deepspeed_config.deepspeed_moe_layer_cls_names", only_off,
     "mixtures of experts are not supported; leave it out", "\"\""},
    {"deepspeed_config.zero3_init_flag", ignored, kFiles},
    {"deepspeed_config.zero3_save_16bit_model", ignored, kFiles},
    {"deepspeed_config.offload_optimizer_nvme_path", ignored,
     "only applies to disks, which are not used here"},
    {"deepspeed_config.offload_param_nvme_path", ignored,
     "only applies to disks, which are not used here"},
    {"deepspeed_config.deepspeed_multinode_launcher", ignored, kLaunch},
    {"deepspeed_config.deepspeed_hostfile", ignored, kLaunch},
    {"deepspeed_config.deepspeed_exclusion_filter", ignored, kLaunch},
    {"deepspeed_config.deepspeed_inclusion_filter", ignored, kLaunch},
    {"megatron_lm_config.*", only_off, "Megatron-LM is not supported; give fsdp_config"},
    {"tp_config.*", only_off, "tensor parallelism is not supported yet; leave it out"},
    {"fp8_config.*", only_off, "FP8 is not supported yet; leave it out"},
    {"ipex_config.*", ignored, "only applies to Intel's extension"},
    {"mpirun_config.*", ignored, kLaunch},
    {"dynamo_config.*", ignored, "nothing is compiled here"},
    {"dynamo_backend", ignored, "nothing is compiled here"},
    {"debug", ignored, "it only prints or logs"},
    {"num_machines", ignored, "under torchrun or srun every host starts its ranks"},
    {"machine_rank", ignored, kLaunch},
    {"main_process_ip", ignored, kLaunch},
    {"main_process_port", ignored, kLaunch},
    {"main_training_function", ignored, kLaunch},
    {"rdzv_backend", ignored, kLaunch},
    {"same_network", ignored, kLaunch},
    {"gpu_ids", ignored, "rank r takes the r-th GPU that CUDA_VISIBLE_DEVICES leaves"},
    {"enable_cpu_affinity", ignored, kLaunch},
    {"command_file", ignored, kLaunch},
    {"commands", ignored, kLaunch},
    {"downcast_bf16", ignored, kTpu},
    {"tpu_name", ignored, kTpu},
    {"tpu_zone", ignored, kTpu},
    {"tpu_vm", ignored, kTpu},
    {"tpu_env", ignored, kTpu},
    {"tpu_use_cluster", ignored, kTpu},
    {"tpu_use_sudo", ignored, kTpu},
};

}  // namespace

std::span<const ForeignKey> accelerate_keys() { return kKeys; }

}  // namespace shardlens::planner
