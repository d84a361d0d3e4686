// Trains a model of your own, sharded. You keep the modules' code, the loss and the samples of your
// training script and drop its loop, optimizer and collectives. Takes the flags of `shardlens
// train`:
//
//     build/bin/own_model --workers 2 --epochs 3 --param-dtype bf16
#include <ATen/ATen.h>

#include "runtime/runtime.h"

using namespace shardlens;
using Weights = std::span<const at::Tensor>;

namespace {

constexpr int64_t kFeatures = 32, kWidth = 64, kBlocks = 4;

at::Tensor linear(const at::Tensor& x, Weights w) { return at::linear(x, w[0], w[1]); }

at::Tensor block(const at::Tensor& x, Weights w) {
  const at::Tensor hidden = at::linear(at::layer_norm(x, {kWidth}, w[0], w[1]), w[2], w[3]);
  return x + at::linear(at::gelu(hidden), w[4], w[5]);
}

/// Units in the order of the script's forward, with parameters named as in its state dict. Each
/// unit is gathered, computed and freed by itself.
models::OwnModel model() {
  std::vector<models::OwnUnit> units;
  units.push_back(
      {"stem", linear, {{"stem.weight", {kWidth, kFeatures}}, {"stem.bias", {kWidth}}}});
  for (int i = 0; i < kBlocks; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    units.push_back({name,
                     block,
                     {{name + ".norm.weight", {kWidth}},
                      {name + ".norm.bias", {kWidth}},
                      {name + ".up.weight", {2 * kWidth, kWidth}},
                      {name + ".up.bias", {2 * kWidth}},
                      {name + ".down.weight", {kWidth, 2 * kWidth}},
                      {name + ".down.bias", {kWidth}}}});
  }
  units.push_back({"head", linear, {{"head.weight", {1, kWidth}}, {"head.bias", {1}}}});
  models::SampleSpec sample{models::InputKind::features, {kFeatures}, {1}, /*classes=*/0};
  models::OwnModel own = models::make_own_model("own", sample, std::move(units));
  own.loss = [](const at::Tensor& output, const at::Tensor& targets) {
    return at::mse_loss(output.to(at::kFloat), targets);
  };
  return own;
}

/// The script's data set: returns any rows that are asked for.
models::Batch samples(const at::Tensor& indices) {
  const at::Tensor x = at::sin(indices.to(at::kFloat).unsqueeze(1) * at::arange(1, kFeatures + 1));
  return {.input = x, .targets = at::tanh(x.slice(1, 0, 4).sum(1, /*keepdim=*/true))};
}

}  // namespace

int main(int argc, char** argv) {
  return runtime::train({argv + 1, argv + argc},
                        {.model = model(), .train = {.samples = 4096, .at = samples}});
}
