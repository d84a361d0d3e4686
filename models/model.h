// The LibTorch code of a model, built from its spec unit by unit. The runtime drives the units one
// after the other and owns every parameter's memory; nothing here keeps a tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/spec.h"

namespace at {
class Tensor;
}

namespace shardlens::models {

/// One unit as code. `parameters` in the order of UnitSpec::parameters. Unit 0 takes the images
/// [batch, channels, height, width], fp32, the others the output of the unit before them
/// ([batch, tokens, width]); the last one returns the logits [batch, classes].
using Forward =
    std::function<at::Tensor(const at::Tensor& input, std::span<const at::Tensor> parameters)>;

/// One Forward for each of spec.units.
std::vector<Forward> build_units(const ModelSpec& spec);

/// Mean cross entropy (scalar, fp32) of logits [batch, classes] and labels [batch], int64.
at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels);

/// input [..., in] x weight [out, in] + bias [out] as an autograd node of our own: its bias
/// gradient is a product with ones, since ATen's sum over the batch takes a workspace that can
/// exceed 100 MB on a GPU.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

/// Receives start weights, each parameter once, in any order; `value` is fp32 on the CPU with the
/// parameter's shape and is gone after the call, so a full model never exists at once.
using TakeParameter = std::function<void(int parameter, const at::Tensor& value)>;

/// Draws the start weights that torchvision.models.VisionTransformer draws after
/// torch.manual_seed(seed): the same numbers. With other than 3 channels its conv_proj is replaced
/// afterwards by a Conv2d, as the Ray Train FSDP2 tutorial does.
void draw_parameters(const ModelSpec& spec, uint64_t seed, const TakeParameter& take);

/// Throws std::invalid_argument where a safetensors file does not have exactly the spec's
/// parameters, F32: names the one that is missing, unknown or of another shape.
void check_weights(const ModelSpec& spec, const std::string& path);

/// Start weights from such a file, which is checked first.
void load_parameters(const ModelSpec& spec, const std::string& path, const TakeParameter& take);

}  // namespace shardlens::models
