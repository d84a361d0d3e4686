// The models as their users write them in Python, on tensors without values: torchvision's vision
// transformer, a Llama decoder as torchtitan has it, and the small transformer of "PyTorch FSDP2: A
// Practical Guide". What Python's own names keep alive, and until when, is part of what each takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/spec.h"
#include "planner/meta/autograd.h"
#include "planner/meta/tensor.h"
#include "planner/pytorch_ops.h"

namespace shardlens::planner {

/// How ordinary programs write the same model and its loss otherwise; none of it is what the models
/// above are.
struct PytorchWriting {
  bool fp32_logits = false;    // the model's forward ends with .float()
  bool keeps_logits = false;   // the loop has a name for them, which the next forward's take over
  bool own_loss_type = false;  // cross entropy in the logits' dtype, not in fp32
  bool repeats_kv = false;     // of a Llama, in every dtype: a key head for every query head
  bool norms_by_hand = false;  // of a Llama: RMSNorm in fp32, operator by operator

  /// True where a word is chosen that only the code of a Llama has a place for.
  bool is_of_llama() const { return repeats_kv || norms_by_hand; }
};

/// What modules of a model may be gathered together: a block by its index, or one of these.
enum PytorchUnit : int { kRootUnit = -1, kFirstUnit = -2, kLastUnit = -3 };

struct PytorchParameter {
  std::string name;  // in named_parameters()
  meta::Sizes shape;
  int unit = kRootUnit;
};

/// In the order of model.parameters(). Throws std::invalid_argument for a family that PyTorch's
/// side has no model of: what, why, how to mend.
std::vector<PytorchParameter> pytorch_parameters(const models::ModelSpec& spec);

/// Indices into them in the order in which Module.to_empty() and fully_shard() come by: what is in
/// a module's children first, then its own.
std::vector<int> module_order(const std::vector<PytorchParameter>& parameters);

/// Called where modules that may be a group begin and end.
class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  /// Gives the input that the module takes instead.
  virtual meta::Tensor enter(int unit, const meta::Tensor& input) = 0;
  virtual meta::Tensor leave(int unit, const meta::Tensor& output) = 0;
};

class PytorchModel {
 public:
  virtual ~PytorchModel() = default;
  /// Logits.
  virtual meta::Tensor forward(const meta::Tensor& input) = 0;
  virtual meta::Tensor loss(const meta::Tensor& logits) = 0;
};

/// `weights`: by parameter. Borrows all.
std::unique_ptr<PytorchModel> make_pytorch_model(const models::ModelSpec& spec, PytorchOps& ops,
                                                 const std::vector<meta::Tensor>& weights,
                                                 ModuleHooks& hooks, const PytorchWriting& writing);

}  // namespace shardlens::planner
