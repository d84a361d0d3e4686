#include "profiler/recording/python_rules.h"

#include <algorithm>
#include <array>

namespace shardlens::profiler {

namespace {

// The paths below are PyTorch's.
constexpr std::array kRules = {
    // These functions are FSDP2's: those for a collective's buffers come first, then those for the
    // memory that it leaves behind.
    PythonRule{"_fully_shard/_fsdp_param.py", "alloc_storage", Category::unsharded_parameter},
    PythonRule{"_fully_shard/_fsdp_param.py", "init_all_gather_outputs",
               Category::unsharded_parameter},
    PythonRule{"_fully_shard/_fsdp_param.py", "init_unsharded_param",
               Category::unsharded_parameter},
    PythonRule{"_fully_shard/_fsdp_param.py", "all_gather_inputs", Category::communication},
    PythonRule{"_fully_shard/_fsdp_param.py", "to_accumulated_grad_if_needed", Category::gradient},
    PythonRule{"_fully_shard/_fsdp_param.py", "accumulate_unsharded_grad_if_needed",
               Category::gradient},
    PythonRule{"_fully_shard/_fsdp_param.py", "", Category::parameter_shard},
    PythonRule{"_fully_shard/_fsdp_collectives.py", "foreach_reduce", Category::reduce_buffer},
    PythonRule{"_fully_shard/_fsdp_collectives.py", "foreach_all_gather", Category::communication},
    PythonRule{"_fully_shard/_fsdp_collectives.py", "foreach_all_gather_copy_out",
               Category::communication},
    PythonRule{"_fully_shard/_fsdp_param_group.py", "post_backward", Category::gradient_shard},
    // These functions are FSDP1's.
    PythonRule{"fsdp/_flat_param.py", "_alloc_padded_unsharded_flat_param",
               Category::unsharded_parameter},
    PythonRule{"fsdp/_flat_param.py", "_use_unsharded_flat_param", Category::unsharded_parameter},
    PythonRule{"fsdp/_flat_param.py", "_all_gather_flat_param", Category::communication},
    PythonRule{"fsdp/_flat_param.py", "_use_low_precision_shard", Category::communication},
    PythonRule{"fsdp/_flat_param.py", "", Category::parameter_shard},
    PythonRule{"fsdp/_common_utils.py", "_alloc_storage", Category::unsharded_parameter},
    PythonRule{"fsdp/_runtime_utils.py", "_reduce_grad", Category::reduce_buffer},
    PythonRule{"fsdp/_runtime_utils.py", "_get_reduce_scatter_tensors", Category::reduce_buffer},
    PythonRule{"fsdp/_runtime_utils.py", "_accumulate_sharded_grad", Category::gradient_shard},
    PythonRule{"fsdp/_init_utils.py", "", Category::parameter_shard},
    // These functions are DDP's and the collectives'.
    PythonRule{"nn/parallel/distributed.py", "_ddp_init_helper", Category::reduce_buffer},
    PythonRule{"nn/parallel/distributed.py", "_pre_forward", Category::reduce_buffer},
    PythonRule{"distributed/utils.py", "_recursive_to", Category::input},
    PythonRule{"distributed/utils.py", "to_map", Category::input},
    PythonRule{"distributed/distributed_c10d.py", "", Category::communication},
    PythonRule{"distributed/utils.py", "_sync_params_and_buffers", Category::communication},
    PythonRule{"distributed/_functional_collectives.py", "", Category::communication},
    // A DTensor that changes its layout holds what the part of the step makes.
    PythonRule{"distributed/tensor/_redistribute.py", "", Category::activation, "", true},
    // These functions keep what they read from a file.
    PythonRule{"torch/serialization.py", "", Category::checkpoint_staging, kLoadedCheckpoint},
    PythonRule{"safetensors/torch.py", "", Category::checkpoint_staging, kLoadedCheckpoint},
    PythonRule{"transformers/cache_utils.py", "", Category::activation, "key-value cache"},
    // These functions work on all parameters: they make, move, fill, step or clip them.
    PythonRule{"torch/nn/modules/module.py", "_apply", Category::parameter_shard},
    PythonRule{"torch/nn/modules/module.py", "convert", Category::parameter_shard},
    PythonRule{"torch/nn/modules/module.py", "<lambda>", Category::parameter_shard},
    PythonRule{"torch/nn/init.py", "", Category::parameter_shard},
    PythonRule{"", "reset_parameters", Category::parameter_shard},
    PythonRule{"torch/nn/modules/", "__init__", Category::parameter_shard},
    PythonRule{"torch/nn/utils/clip_grad.py", "", Category::workspace},
    PythonRule{"torch/amp/grad_scaler.py", "", Category::optimizer_state},
    PythonRule{"torch/optim/swa_utils.py", "__init__", Category::parameter_copy},
    PythonRule{"torch/optim/", "_init_group", Category::optimizer_state},
    PythonRule{"torch/optim/", "", Category::workspace},
    // torch.compile tries all kernels and chooses one of them.
    PythonRule{"torch/_inductor/select_algorithm.py", "", Category::workspace},
    PythonRule{"torch/_inductor/runtime/benchmarking.py", "", Category::workspace},
    PythonRule{"torch/_inductor/runtime/triton_heuristics.py", "", Category::workspace},
    // These functions run the passes of a step.
    PythonRule{"", "forward", Category::activation},
    PythonRule{"torch/nn/functional.py", "", Category::activation},
    PythonRule{"torch/utils/data/", "", Category::input},
};

bool is_of(const PythonRule& rule, std::string_view file) {
  if (rule.file.ends_with('/')) return file.find(rule.file) != std::string_view::npos;
  return file.ends_with(rule.file);
}

}  // namespace

std::span<const PythonRule> python_rules() { return kRules; }

const PythonRule* find_python_rule(std::string_view file, std::string_view function) {
  const bool is_nameless = function.starts_with('<');  // "<listcomp>": its caller tells
  const auto found = std::ranges::find_if(kRules, [&](const PythonRule& rule) {
    const bool is_any = rule.function.empty() && !is_nameless;
    return (is_any || rule.function == function) && is_of(rule, file);
  });
  return found == kRules.end() ? nullptr : &*found;
}

bool is_of_hooks(std::string_view file) {
  return file.find("/shardlens_record/") != std::string_view::npos;
}

bool is_of_program(std::string_view file) {
  const auto has = [file](std::string_view part) {
    return file.find(part) != std::string_view::npos;
  };
  const bool is_of_python = has("/lib/python3") && !has("-packages/");
  return !is_of_python && !has("/torch/") && !is_of_hooks(file) && !file.starts_with('<');
}

Category category_of_part(StepPart part) {
  switch (part) {
    case StepPart::starting:
      return Category::other;
    case StepPart::before_forward:
      return Category::input;
    case StepPart::forward:
      return Category::activation;
    case StepPart::backward:
      return Category::gradient;
  }
  return Category::other;
}

bool is_forward(std::string_view function) { return function == "forward"; }

}  // namespace shardlens::profiler
