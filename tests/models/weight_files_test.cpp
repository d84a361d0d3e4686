#include "models/weights/weight_files.h"
#include "models/families.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

using namespace shardlens;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

const models::ModelSpec& small() {
  static const models::ModelSpec spec = models::make_spec(
      "small", models::MlpSizes{.inputs = 3, .width = 2, .layers = 1, .classes = 2});
  return spec;
}

/// One tensor for each parameter, filled with its number.
struct Weights {
  Weights() {
    for (const models::ParameterSpec& parameter : small().parameters) {
      values.emplace_back(parameter.numel(), static_cast<float>(values.size()));
      tensors.push_back(
          {parameter.name, "F32", parameter.shape, std::as_bytes(std::span(values.back()))});
    }
  }

  std::vector<std::vector<float>> values;
  std::vector<models::SafetensorsTensor> tensors;
};

void check_refused(const std::string& path, const std::string& why) {
  CHECK_THROWS_MATCHES(
      models::WeightFiles(small(), path), std::invalid_argument,
      MessageMatches(ContainsSubstring("--init " + path) && ContainsSubstring(why)));
}

}  // namespace

TEST_CASE("weights are found by parameter, whatever the order and number of files") {
  const tests::TemporaryFolder folder;
  Weights weights;
  std::vector<models::SafetensorsTensor> first(weights.tensors.rbegin(),
                                               weights.tensors.rbegin() + 1);
  weights.tensors.pop_back();
  models::write_safetensors(folder.file("model-1.safetensors"), first);
  models::write_safetensors(folder.file("model-2.safetensors"), weights.tensors);
  const models::WeightFiles files(small(), folder.path());
  for (size_t i = 0; i < small().parameters.size(); ++i) {
    const auto data = files.data_of(i);
    const auto expected = std::as_bytes(std::span(weights.values[i]));
    CHECK(std::vector(data.begin(), data.end()) == std::vector(expected.begin(), expected.end()));
  }
}

TEST_CASE("weights that two files of a folder contain are refused") {
  const tests::TemporaryFolder folder;
  const Weights weights;
  models::write_safetensors(folder.file("model-1.safetensors"), weights.tensors);
  models::write_safetensors(folder.file("model-2.safetensors"),
                            std::vector{weights.tensors.front()});
  check_refused(folder.path(), "has the tensor " + weights.tensors.front().name + " in two files");
}
