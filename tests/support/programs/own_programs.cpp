// Programs with their own models, chosen by the first argument; the flags follow.
#include <ATen/ATen.h>

#include <string_view>

#include "runtime/runtime.h"

using namespace shardlens;
using Weights = std::span<const at::Tensor>;

namespace {

constexpr int64_t kClasses = 3;

at::Tensor linear(const at::Tensor& x, Weights w) { return at::linear(x, w[0]); }

/// Its unit has a parameter that its code does not use.
models::OwnModel unused_parameter() {
  return models::make_own_model(
      "unused", {models::InputKind::features, {4}, {}, kClasses},
      {{"only", linear, {{"weight", {kClasses, 4}}, {"spare.weight", {kClasses, 4}}}}});
}

/// A model that learns which feature is set, with samples to be tested on.
runtime::OwnTraining classifier() {
  const auto samples = [](const at::Tensor& indices) {
    const at::Tensor classes = indices.remainder(kClasses);
    return models::Batch{.input = at::one_hot(classes, kClasses).to(at::kFloat),
                         .targets = classes};
  };
  models::OwnModel model =
      models::make_own_model("classifier", {models::InputKind::features, {kClasses}, {}, kClasses},
                             {{"only", linear, {{"weight", {kClasses, kClasses}}}}});
  return {.model = std::move(model), .train = {96, samples}, .test = {31, samples}};
}

/// Returns other rows than it is asked for.
runtime::OwnTraining short_of_samples() {
  runtime::OwnTraining own = classifier();
  own.train.at = [](const at::Tensor&) {
    return models::Batch{.input = at::zeros({2, kClasses}), .targets = at::zeros({2}, at::kLong)};
  };
  return own;
}

/// It is tested on samples, but has its own loss.
runtime::OwnTraining tested_without_classes() {
  runtime::OwnTraining own = classifier();
  own.model.loss = [](const at::Tensor& output, const at::Tensor&) { return output.mean(); };
  return own;
}

runtime::OwnTraining program(std::string_view name) {
  if (name == "classifier") return classifier();
  if (name == "short-of-samples") return short_of_samples();
  if (name == "tested-without-classes") return tested_without_classes();
  return {.model = unused_parameter()};
}

}  // namespace

int main(int argc, char** argv) {
  return argc < 2 ? 1 : runtime::train({argv + 2, argv + argc}, program(argv[1]));
}
