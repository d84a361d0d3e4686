// Draws start weights of each family; draw_parameters in model.cpp chooses. Private to models/.
//
// All numbers are drawn from one generator of the CPU in the order in which the PyTorch model
// draws, so that a seed gives its numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace shardlens::models {

void draw_vit(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take);
void draw_normal(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take);
/// Draws weights for models of only nn.Embedding, nn.Linear and nn.LayerNorm, which are told apart
/// by name and shape.
void draw_modules(const ModelSpec& spec, uint64_t seed, const ParameterReceiver& take);

at::Tensor draw_uniform(const std::vector<int64_t>& shape, double bound, at::Generator& generator);

/// Draws as nn.Linear and nn.Conv2d draw their weights: kaiming_uniform_ with a = sqrt(5).
at::Tensor draw_kaiming(const std::vector<int64_t>& shape, int64_t fan_in,
                        at::Generator& generator);

/// Draws as nn.Linear and nn.Conv2d draw their biases.
at::Tensor draw_bias(int64_t out, int64_t fan_in, at::Generator& generator);

}  // namespace shardlens::models
