// The LibTorch code of a model, built from its spec unit by unit, or brought along by a program
// (make_own_model). The runtime drives the units one after the other and owns every parameter's
// memory; nothing here keeps a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/spec.h"

namespace at {
struct Generator;
}

namespace shardlens::models {

/// One unit as code. `parameters` are in the order of UnitSpec::parameters. Unit 0 takes the input
/// batch that SampleSpec describes, each other unit the output of the one before it ([batch,
/// tokens, width], in an MLP [batch, width]). The last unit returns the logits: [batch, classes],
/// or [batch * seq, vocab] for tokens.
using Forward =
    std::function<at::Tensor(const at::Tensor& input, std::span<const at::Tensor> parameters)>;

/// Returns one Forward for each of spec.units; the model must belong to a family. The functions of
/// one call share tables that the first forward makes, so they are for one thread and device.
std::vector<Forward> build_units(const ModelSpec& spec);

/// Returns the model's loss (scalar, fp32, differentiable): the mean cross entropy of the logits
/// and `targets` (int64, one per row of the logits), or the logits' sum.
at::Tensor loss(const ModelSpec& spec, const at::Tensor& logits, const at::Tensor& targets);

struct LossAndGradient {
  at::Tensor loss;      // scalar, fp32
  at::Tensor gradient;  // as the logits
};

/// Tells a linear's backward where it may write its weight's gradient at once. Autograd wants each
/// gradient as a tensor of its own, which is then copied to where gradients are kept: a large
/// matrix takes twice the memory that way. The caller of backward gives the place.
class GradientPlaces {
 public:
  /// Finds the place for a weight's gradient: a tensor of its shape and dtype that nobody else
  /// uses; undefined: nowhere in particular. It is asked before each gradient is computed.
  using Finder = std::function<at::Tensor(const at::Tensor& weight)>;

  /// Applies to backward on this thread for as long as the object lives.
  explicit GradientPlaces(Finder find);
  ~GradientPlaces();
  GradientPlaces(const GradientPlaces&) = delete;
  GradientPlaces& operator=(const GradientPlaces&) = delete;

  static at::Tensor place_of(const at::Tensor& weight);

 private:
  Finder find_;
  GradientPlaces* outer_;
};

/// Returns the same loss and its gradient, which is that of the loss times the fp32 scalar
/// `weight`; undefined: 1. Logits of tokens are a step's largest tensor, so their values are lost:
/// the gradient is written over them.
LossAndGradient loss_and_gradient(const ModelSpec& spec, at::Tensor logits,
                                  const at::Tensor& targets, const at::Tensor& weight = {});

/// The loss of a program's own model: returns a differentiable scalar from the last unit's output
/// and a batch's targets.
using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>;

/// Overload for a program's own loss, whose gradient autograd computes. Throws
/// std::invalid_argument if the loss is not a scalar.
LossAndGradient loss_and_gradient(const Loss& own, const at::Tensor& output,
                                  const at::Tensor& targets, const at::Tensor& weight);

/// Computes input [..., in] x weight [out, in] + bias [out] as an autograd node of our own: its
/// bias gradient is a product with ones, since ATen's sum over the batch takes a workspace that can
/// exceed 100 MB on a GPU.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  InputUse use = InputUse::kept);
/// Computes the same without a bias.
at::Tensor project(const at::Tensor& input, const at::Tensor& weight,
                   InputUse use = InputUse::kept);

/// Receives start weights, each parameter once, in any order. `value` is fp32 on the CPU with the
/// parameter's shape and is gone after the call, so a full model never exists at once.
using ParameterReceiver = std::function<void(int parameter, const at::Tensor& value)>;

/// Draws the start weights that the PyTorch model draws after torch.manual_seed(seed), with the
/// same numbers: torchvision.models.VisionTransformer (if the channels are not 3, its conv_proj is
/// replaced afterwards by a Conv2d, as the Ray Train FSDP2 tutorial does), or modules of nn.Linear,
/// nn.Embedding and nn.LayerNorm. In Llamas every matrix is normal with deviation 0.02, in the
/// order of the parameters, and norms are 1, as Hugging Face's model is initialised. In a program's
/// own model matrices and the bias right behind one are drawn as in nn.Linear, a matrix whose name
/// ends in "embeddings.weight" as in nn.Embedding; all other biases are 0 and weights 1.
void draw_parameters(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take);

struct OwnParameter {
  std::string name;  // if an earlier unit has it: that unit's parameter, as in a tied head
  std::vector<int64_t> shape;
};

/// A unit of a program's own model: a module of its script, or a few that belong together. Its
/// input comes in the dtype of its parameters, unless --cast-inputs is false. Under --recompute its
/// forward runs twice in a step and must return the same, so it may hold no dropout.
struct OwnUnit {
  std::string name;
  Forward forward;
  std::vector<OwnParameter> parameters;  // all that forward uses, in its order
  std::string group{};  // units of one group are gathered together; empty: this one alone
};

/// Draws one start weight, fp32 on the CPU with the parameter's shape. Parameters are drawn in
/// their order from one generator, which --seed seeds.
using ParameterSampler =
    std::function<at::Tensor(const ParameterSpec& parameter, at::Generator& generator)>;

/// A model that a program brings along; it is trained as the families are.
struct OwnModel {
  ModelSpec spec;
  std::vector<Forward> units;  // one for each of spec.units
  Loss loss{};                 // empty: spec.loss
  ParameterSampler draw{};     // empty: draw_parameters
};

/// Makes a model of `units` in the order in which they run: the first takes the batch, each other
/// one the output of the one before it. Throws std::invalid_argument: which unit, why, how to fix
/// it.
OwnModel make_own_model(std::string name, SampleSpec sample, std::vector<OwnUnit> units);

void draw_parameters(const OwnModel& model, uint64_t seed, const ParameterReceiver& take);

/// Throws std::invalid_argument unless a safetensors file has exactly the spec's parameters in F32.
/// The message names the one that is missing, unknown or of another shape.
void check_weights(const ModelSpec& spec, const std::string& path);

/// Loads start weights from such a file, which is checked first.
void load_parameters(const ModelSpec& spec, const std::string& path, const ParameterReceiver& take);

}  // namespace shardlens::models
