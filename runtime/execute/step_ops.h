// LibTorch's part of the code that planner/step shares between backends, and what a checkpoint
// keeps of a loss scale.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <optional>

#include "models/own_data.h"
#include "planner/step/gradient_scale.h"
#include "profiler/recorder/recorder.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/scalar_type.h"

namespace shardlens::runtime {

struct AtenStepOps {
  using Tensor = at::Tensor;
  using Batch = models::Batch;
  using Edge = torch::autograd::Edge;
  using Device = c10::Device;

  static constexpr at::ScalarType kInt64 = at::kLong;
  static at::ScalarType type_of(DType dtype) { return scalar_type(dtype); }
  static Edge edge(const at::Tensor& output);
  static const at::Tensor& gradient(const at::Tensor& input) { return input.grad(); }

  static at::Tensor range(const at::Tensor& like, int64_t begin, int64_t end, int64_t step);
  static at::Tensor to(const Device& device, const at::Tensor& tensor) { return tensor.to(device); }

  static profiler::Scope state_scope(const Device&, std::string_view label) {
    return {profiler::Category::optimizer_state, label};
  }
  static at::Tensor full(const Device& device, double value);
  static at::Tensor zero_count(const Device& device);
  static at::Tensor vector_norm(const at::Tensor& gradient);
  static void update_scale(at::Tensor& scale, at::Tensor& steps_without_overflow,
                           const at::Tensor& overflowed, double growth, double backoff,
                           int64_t growth_steps);
};

using GradientScale = planner::GradientScale<AtenStepOps>;

/// Returns the state of a scale that adapts itself, or nothing. Waits for the device.
std::optional<LossScaleState> state_of(const GradientScale& scale);
/// Sets the state of a scale that adapts itself. Does nothing with any other scale.
void restore(const LossScaleState& state, const GradientScale& scale);

}  // namespace shardlens::runtime
