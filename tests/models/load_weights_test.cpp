#include <ATen/ATen.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "models/families.h"
#include "models/model.h"
#include "models/weights/safetensors.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

const models::ModelSpec& tiny() {
  static const models::ModelSpec spec = models::make_spec("tiny", models::VitSizes{.image_px = 8,
                                                                                   .patch_px = 4,
                                                                                   .channels = 1,
                                                                                   .layers = 2,
                                                                                   .heads = 2,
                                                                                   .width = 16,
                                                                                   .mlp_width = 24,
                                                                                   .classes = 5});
  return spec;
}

std::map<std::string, at::Tensor> drawn(uint64_t seed) {
  std::map<std::string, at::Tensor> weights;
  models::draw_parameters(tiny(), seed, [&](int parameter, const at::Tensor& value) {
    weights[tiny().parameters[parameter].name] = value.clone();
  });
  return weights;
}

std::string write(const tests::TemporaryFolder& folder,
                  const std::map<std::string, at::Tensor>& weights,
                  const std::string& dtype = "F32") {
  std::vector<models::SafetensorsTensor> tensors;
  for (const auto& [name, value] : weights) {
    tensors.push_back({name,
                       dtype,
                       value.sizes().vec(),
                       {static_cast<const std::byte*>(value.data_ptr()), value.nbytes()}});
  }
  models::write_safetensors(folder.file("w.safetensors"), tensors);
  return folder.file("w.safetensors");
}

void check_refused(const std::string& path, const std::string& why) {
  CHECK_THROWS_MATCHES(models::load_parameters(tiny(), path, [](int, const at::Tensor&) {}),
                       std::invalid_argument,
                       MessageMatches(ContainsSubstring("--init") && ContainsSubstring(why)));
}

}  // namespace

TEST_CASE("every parameter is drawn once, and a seed gives one result") {
  const auto one = drawn(4), same = drawn(4), other = drawn(5);
  CHECK(one.size() == tiny().parameters.size());
  for (const models::ParameterSpec& parameter : tiny().parameters) {
    INFO(parameter.name);
    CHECK(one.at(parameter.name).sizes().vec() == parameter.shape);
    CHECK(at::equal(one.at(parameter.name), same.at(parameter.name)));
  }
  const std::string random = "encoder.layers.encoder_layer_0.mlp.0.weight";
  CHECK_FALSE(at::equal(one.at(random), other.at(random)));
}

TEST_CASE("weights from a file are the file's") {
  const tests::TemporaryFolder folder;
  auto expected = drawn(4);
  models::load_parameters(tiny(), write(folder, expected),
                          [&](int parameter, const at::Tensor& value) {
                            const std::string& name = tiny().parameters[parameter].name;
                            INFO(name);
                            CHECK(at::equal(value, expected.at(name)));
                            expected.erase(name);
                          });
  CHECK(expected.empty());
}

TEST_CASE("a file that does not fit the model is refused by name") {
  const tests::TemporaryFolder folder;
  auto weights = drawn(4);
  weights["heads.head.bias"] = at::zeros({6});
  check_refused(write(folder, weights), "heads.head.bias has shape [6], not [5]");
  weights.erase("heads.head.bias");
  check_refused(write(folder, weights), "has no tensor heads.head.bias");
  weights["heads.head.bias"] = at::zeros({5});
  weights["extra"] = at::zeros({1});
  check_refused(write(folder, weights), "extra that is not a parameter");
  weights.erase("extra");
  check_refused(write(folder, weights, "I32"), "is I32, not F32");
  const std::string whole = tests::read_file(write(folder, drawn(4)));
  tests::write_file(folder.file("cut.safetensors"), whole.substr(0, whole.size() / 2));
  check_refused(folder.file("cut.safetensors"), "cut.safetensors");
}

TEST_CASE("a checkpoint's folder gives the weights of all its files") {
  const tests::TemporaryFolder folder;
  const auto expected = drawn(11);
  std::array<std::map<std::string, at::Tensor>, 2> halves;
  size_t count = 0;
  for (const auto& [name, value] : expected) halves[count++ % 2][name] = value;
  std::filesystem::create_directory(folder.file("c"));
  for (const size_t half : {size_t{0}, size_t{1}}) {
    const std::string file = "c/model-0000" + std::to_string(half + 1) + "-of-00002.safetensors";
    std::filesystem::rename(write(folder, halves[half]), folder.file(file));
  }
  models::write_safetensors(folder.file("c/optimizer-00001-of-00001.safetensors"), {});
  size_t equal = 0;
  models::load_parameters(tiny(), folder.file("c"), [&](int parameter, const at::Tensor& value) {
    if (at::equal(value, expected.at(tiny().parameters[parameter].name))) ++equal;
  });
  CHECK(equal == expected.size());
  std::filesystem::remove(folder.file("c/model-00002-of-00002.safetensors"));
  check_refused(folder.file("c"), "has no tensor");
  check_refused(folder.path(), "a folder without model*.safetensors");
}
