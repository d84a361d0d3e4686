// The models as their users write them in Python, on tensors without values: torchvision's vision
// transformer, a Llama decoder as torchtitan has it, and the small transformer of "PyTorch FSDP2: A
// Practical Guide". Python's own names keep some tensors alive for a while, and the memory that
// this takes is counted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/spec.h"
#include "planner/pytorch/ops.h"
#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner {

/// Other ways in which ordinary programs write the same model and its loss. The models above are
/// written in none of them.
struct PytorchVariant {
  bool fp32_logits = false;    // the model's forward ends with .float()
  bool keeps_logits = false;   // the loop names them until the next forward replaces them
  bool own_loss_type = false;  // cross entropy in the logits' dtype, not in fp32
  bool repeats_kv = false;     // only a Llama, in every dtype: a key head for every query head
  bool norms_by_hand = false;  // only a Llama: RMSNorm in fp32, operator by operator

  /// True if a word is chosen that only applies to a Llama.
  bool is_of_llama() const { return repeats_kv || norms_by_hand; }
};

/// A part of a model that may be gathered together: a block by its index, or one of these.
enum PytorchUnit : int { kRootUnit = -1, kFirstUnit = -2, kLastUnit = -3 };

struct PytorchParameter {
  std::string name;  // in named_parameters()
  meta::Sizes shape;
  int unit = kRootUnit;
};

/// Lists the model's parameters in the order of model.parameters(). Throws std::invalid_argument
/// for a family whose Python code is not modelled here: what, why, how to fix it.
std::vector<PytorchParameter> pytorch_parameters(const models::ModelSpec& spec);

/// Returns indices into `parameters` in the order in which Module.to_empty() and fully_shard()
/// visit them: first those of a module's children, then its own.
std::vector<int> module_order(const std::vector<PytorchParameter>& parameters);

/// Hooks that a model calls where modules that may be a group begin and end.
class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  /// Runs before a module; returns the input that the module takes instead.
  virtual meta::Tensor enter(int unit, const meta::Tensor& input) = 0;
  virtual meta::Tensor leave(int unit, const meta::Tensor& output) = 0;
};

class PytorchModel {
 public:
  virtual ~PytorchModel() = default;
  /// Runs the model on a batch and returns the logits.
  virtual meta::Tensor forward(const meta::Tensor& input) = 0;
  virtual meta::Tensor loss(const meta::Tensor& logits) = 0;
};

/// Makes the model that `spec` describes. `weights` are ordered as its parameters. Borrows all
/// arguments.
std::unique_ptr<PytorchModel> make_pytorch_model(const models::ModelSpec& spec, PytorchOps& ops,
                                                 const std::vector<meta::Tensor>& weights,
                                                 ModuleHooks& hooks, const PytorchVariant& writing);

}  // namespace shardlens::planner
