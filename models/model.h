// The LibTorch code of a model, built from its spec unit by unit, or a program's own
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

/// One unit as code. `parameters` in the order of UnitSpec::parameters. Unit 0 takes the input
/// batch as SampleSpec says, the others the output of the unit before them ([batch, tokens, width],
/// of an MLP [batch, width]); the last one returns the logits, [batch, classes] or, of tokens,
/// [batch * seq, vocab].
using Forward =
    std::function<at::Tensor(const at::Tensor& input, std::span<const at::Tensor> parameters)>;

/// One Forward for each of spec.units, which must be of a family. They share tables that the first
/// call makes, so those of one call of this function are for one thread and device.
std::vector<Forward> build_units(const ModelSpec& spec);

/// The model's loss (scalar, fp32): the mean cross entropy of the logits and `targets` (int64, one
/// a row of the logits), or their sum. Differentiable.
at::Tensor loss(const ModelSpec& spec, const at::Tensor& logits, const at::Tensor& targets);

struct LossAndGradient {
  at::Tensor loss;      // scalar, fp32
  at::Tensor gradient;  // as the logits
};

/// Where a linear's backward may write its weight's gradient at once. Autograd wants each gradient
/// as a tensor of its own, which is then copied to where gradients are kept: for a large matrix
/// that is twice the memory. Whoever runs backward says where the place is.
class GradientPlaces {
 public:
  /// For a weight: where its gradient goes, of its shape and dtype, a tensor known to nobody else;
  /// undefined: nowhere in particular. Asked before each gradient is computed.
  using Find = std::function<at::Tensor(const at::Tensor& weight)>;

  /// For backward on this thread, while this lives.
  explicit GradientPlaces(Find find);
  ~GradientPlaces();
  GradientPlaces(const GradientPlaces&) = delete;
  GradientPlaces& operator=(const GradientPlaces&) = delete;

  static at::Tensor place_of(const at::Tensor& weight);

 private:
  Find find_;
  GradientPlaces* outer_;
};

/// The same loss and its gradient. Of tokens the logits are a step's largest tensor: they are given
/// up, and the gradient is written over them.
/// `weight`: the gradient is that of the loss times this fp32 scalar; undefined: 1.
LossAndGradient loss_and_gradient(const ModelSpec& spec, at::Tensor logits,
                                  const at::Tensor& targets, const at::Tensor& weight = {});

/// Of a program's own: a differentiable scalar from the last unit's output and a batch's targets.
using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>;

/// The same with such a loss, whose gradient autograd makes. Throws std::invalid_argument where it
/// gives no scalar.
LossAndGradient loss_and_gradient(const Loss& own, const at::Tensor& output,
                                  const at::Tensor& targets, const at::Tensor& weight);

/// input [..., in] x weight [out, in] + bias [out] as an autograd node of our own: its bias
/// gradient is a product with ones, since ATen's sum over the batch takes a workspace that can
/// exceed 100 MB on a GPU.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);
/// The same without a bias.
at::Tensor project(const at::Tensor& input, const at::Tensor& weight);
/// The same, of an input that is *spent*: backward writes the input's gradient over the input, once
/// the weight's is computed, so that a product never holds both. No other node of the graph may
/// have saved the input: a GELU's output is fit for it, a ReLU's or an attention's is not.
at::Tensor linear_spending(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias);
at::Tensor project_spending(const at::Tensor& input, const at::Tensor& weight);

/// Receives start weights, each parameter once, in any order; `value` is fp32 on the CPU with the
/// parameter's shape and is gone after the call, so a full model never exists at once.
using TakeParameter = std::function<void(int parameter, const at::Tensor& value)>;

/// Draws the start weights that the PyTorch model draws after torch.manual_seed(seed), the same
/// numbers: torchvision.models.VisionTransformer (with other than 3 channels its conv_proj is
/// replaced afterwards by a Conv2d, as the Ray Train FSDP2 tutorial does), or modules of nn.Linear,
/// nn.Embedding and nn.LayerNorm. Llamas: every matrix normal with deviation 0.02 in the order of
/// the parameters, norms 1, as Hugging Face's model is initialised. A program's own model: what
/// nn.Linear draws for matrices and for the bias behind one, nn.Embedding for a matrix whose name
/// ends in "embeddings.weight"; of all else a bias is 0 and a weight 1.
void draw_parameters(const ModelSpec& spec, uint64_t seed, const TakeParameter& take);

struct OwnParameter {
  std::string name;  // one that an earlier unit has: that unit's parameter, as in a tied head
  std::vector<int64_t> shape;
};

/// A unit of a program's own model: a module of its script, or a few that belong together. Its
/// input comes in the dtype of its parameters, unless --cast-inputs is false. Under --recompute
/// its forward runs twice a step and must give the same, so it may hold no dropout.
struct OwnUnit {
  std::string name;
  Forward forward;
  std::vector<OwnParameter> parameters;  // all that forward uses, in the order in which it has them
  std::string group{};  // units of one group are gathered together; empty: this one alone
};

/// One start weight, fp32 on the CPU with the parameter's shape. Parameters are drawn in their
/// order from one generator, which --seed seeds.
using DrawParameter =
    std::function<at::Tensor(const ParameterSpec& parameter, at::Generator& generator)>;

/// A model that a program brings along, to be trained as the families are.
struct OwnModel {
  ModelSpec spec;
  std::vector<Forward> units;  // one for each of spec.units
  Loss loss{};                 // empty: spec.loss
  DrawParameter draw{};        // empty: draw_parameters
};

/// `units` in the order in which they run: the first takes the batch, each other one what the one
/// before it gave. Throws std::invalid_argument: which unit, why, how to mend.
OwnModel make_own_model(std::string name, SampleSpec sample, std::vector<OwnUnit> units);

void draw_parameters(const OwnModel& model, uint64_t seed, const TakeParameter& take);

/// Throws std::invalid_argument where a safetensors file does not have exactly the spec's
/// parameters, F32: names the one that is missing, unknown or of another shape.
void check_weights(const ModelSpec& spec, const std::string& path);

/// Start weights from such a file, which is checked first.
void load_parameters(const ModelSpec& spec, const std::string& path, const TakeParameter& take);

}  // namespace shardlens::models
