#include "models/spec.h"
#include "models/families.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include "tests/support/temporary_folder.h"

namespace shardlens::models {
namespace {

using Catch::Matchers::ContainsSubstring;

const VitSizes kTiny = {.image_px = 28,
                        .patch_px = 7,
                        .channels = 1,
                        .layers = 1,
                        .heads = 2,
                        .width = 32,
                        .mlp_width = 64,
                        .classes = 10};

std::string refusal_of(const std::string& name_or_file) {
  try {
    find_spec(name_or_file);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  FAIL("accepted: " << name_or_file);
  return "";
}

int64_t closed_formula(const VitSizes& s) {
  const int64_t block =
      4 * s.width * s.width + 2 * s.width * s.mlp_width + 9 * s.width + s.mlp_width;
  const int64_t embed = s.width * (s.channels * s.patch_px * s.patch_px + s.tokens() + 2);
  const int64_t head = 2 * s.width + s.classes * (s.width + 1);
  return embed + s.layers * block + head;
}

std::string model_text(const std::string& replaced = "", const std::string& by = "") {
  std::string text =
      R"({"family": "vit", "image_px": 28, "patch_px": 7, "channels": 1, "layers": 2, )"
      R"("heads": 2, "width": 32, "mlp_width": 64, "classes": 10})";
  if (!replaced.empty()) text.replace(text.find(replaced), replaced.size(), by);
  return text;
}

// torch 2.11, torchvision 0.26: VisionTransformer(28, 7, 1, 2, 32, 64, num_classes=10) with
// conv_proj replaced by Conv2d(1, 32, 7, 7), its state_dict() in order.
const std::vector<std::pair<std::string, std::vector<int64_t>>> kTorchvisionTiny = {
    {"class_token", {1, 1, 32}},
    {"conv_proj.weight", {32, 1, 7, 7}},
    {"conv_proj.bias", {32}},
    {"encoder.pos_embedding", {1, 17, 32}},
    {"encoder.layers.encoder_layer_0.ln_1.weight", {32}},
    {"encoder.layers.encoder_layer_0.ln_1.bias", {32}},
    {"encoder.layers.encoder_layer_0.self_attention.in_proj_weight", {96, 32}},
    {"encoder.layers.encoder_layer_0.self_attention.in_proj_bias", {96}},
    {"encoder.layers.encoder_layer_0.self_attention.out_proj.weight", {32, 32}},
    {"encoder.layers.encoder_layer_0.self_attention.out_proj.bias", {32}},
    {"encoder.layers.encoder_layer_0.ln_2.weight", {32}},
    {"encoder.layers.encoder_layer_0.ln_2.bias", {32}},
    {"encoder.layers.encoder_layer_0.mlp.0.weight", {64, 32}},
    {"encoder.layers.encoder_layer_0.mlp.0.bias", {64}},
    {"encoder.layers.encoder_layer_0.mlp.3.weight", {32, 64}},
    {"encoder.layers.encoder_layer_0.mlp.3.bias", {32}},
    {"encoder.ln.weight", {32}},
    {"encoder.ln.bias", {32}},
    {"heads.head.weight", {10, 32}},
    {"heads.head.bias", {10}},
};

TEST_CASE("presets have torchvision's parameter counts") {
  const auto [name, numel, tensors] =
      GENERATE(table<std::string, int64_t, size_t>({{"vit-tutorial", 1'006'090, 128},
                                                    {"vit-b16", 86'567'656, 152},
                                                    {"vit-l16", 304'326'632, 296},
                                                    {"vit-h14", 632'045'800, 392},
                                                    {"vit-22b", 21'758'467'048, 584}}));
  const ModelSpec spec = find_spec(name);
  CHECK(spec.name == name);
  CHECK(spec.numel() == numel);
  CHECK(spec.parameters.size() == tensors);
  CHECK(spec.numel() == closed_formula(spec.as<models::VitSizes>()));
}

TEST_CASE("every preset name can be found") {
  const auto names = preset_names();
  CHECK(names.size() == 10);
  for (const std::string& name : names) CHECK(find_spec(name).name == name);
}

TEST_CASE("names and shapes are torchvision's, in its order") {
  const ModelSpec spec = make_spec("tiny", kTiny);
  REQUIRE(spec.parameters.size() == kTorchvisionTiny.size());
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    CHECK(spec.parameters[i].name == kTorchvisionTiny[i].first);
    CHECK(spec.parameters[i].shape == kTorchvisionTiny[i].second);
  }
}

TEST_CASE("units list their parameters in order of first use") {
  const ModelSpec spec = make_spec("tiny", kTiny);
  const auto names_of = [&](size_t unit) {
    std::string joined;
    for (const int index : spec.units.at(unit).parameters) {
      joined += spec.parameters.at(static_cast<size_t>(index)).name + " ";
    }
    return joined;
  };
  const std::string layer = "encoder.layers.encoder_layer_0.";
  REQUIRE(spec.units.size() == 4);
  CHECK(names_of(0) == "conv_proj.weight conv_proj.bias class_token encoder.pos_embedding ");
  CHECK_FALSE(spec.units[0].backward_reads_parameters);
  CHECK(names_of(1) ==
        layer + "ln_1.weight " + layer + "ln_1.bias " + layer + "self_attention.in_proj_weight " +
            layer + "self_attention.in_proj_bias " + layer + "self_attention.out_proj.weight " +
            layer + "self_attention.out_proj.bias ");
  CHECK(names_of(2) == layer + "ln_2.weight " + layer + "ln_2.bias " + layer + "mlp.0.weight " +
                           layer + "mlp.0.bias " + layer + "mlp.3.weight " + layer + "mlp.3.bias ");
  CHECK(names_of(3) == "encoder.ln.weight encoder.ln.bias heads.head.weight heads.head.bias ");
}

VitSizes random_sizes(std::mt19937_64& random) {
  const auto pick = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  VitSizes sizes;
  sizes.patch_px = pick(16);
  sizes.image_px = sizes.patch_px * pick(16);
  sizes.channels = pick(4);
  sizes.layers = pick(12);
  sizes.heads = pick(8);
  sizes.width = sizes.heads * pick(64);
  sizes.mlp_width = pick(512);
  sizes.classes = pick(1000);
  return sizes;
}

void check_units_partition_parameters(const ModelSpec& spec) {
  std::vector<int> used;
  for (const UnitSpec& unit : spec.units) {
    used.insert(used.end(), unit.parameters.begin(), unit.parameters.end());
    const bool is_embed = unit.kind == static_cast<int>(VitUnit::embed);
    CHECK(unit.backward_reads_parameters == !is_embed);
    std::set<std::string> groups;
    for (const int index : unit.parameters) {
      groups.insert(spec.parameters.at(static_cast<size_t>(index)).group);
    }
    CHECK(groups.size() == 1);
  }
  std::sort(used.begin(), used.end());
  std::vector<int> every(spec.parameters.size());
  std::iota(every.begin(), every.end(), 0);
  CHECK(used == every);
}

TEST_CASE("random sizes: counts, names, groups and units agree") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const VitSizes sizes = random_sizes(random);
    CAPTURE(round, sizes.layers, sizes.width, sizes.image_px, sizes.patch_px);
    const ModelSpec spec = make_spec("random", sizes);
    const auto layers = static_cast<size_t>(sizes.layers);
    CHECK(spec.as<models::VitSizes>() == sizes);
    CHECK(spec.numel() == closed_formula(sizes));
    REQUIRE(spec.units.size() == 2 + 2 * layers);
    CHECK(spec.units.front().name == "embed");
    CHECK(spec.units[2 * layers].name == "mlp" + std::to_string(layers - 1));
    CHECK(spec.units.back().name == "head");
    CHECK(spec.parameters.at(4 + 12 * (layers - 1)).group == "block" + std::to_string(layers - 1));
    std::set<std::string> names;
    for (const ParameterSpec& parameter : spec.parameters) names.insert(parameter.name);
    CHECK(names.size() == spec.parameters.size());
    check_units_partition_parameters(spec);
  }
}

TEST_CASE("a JSON file gives a model of its sizes") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("small.json");
  VitSizes sizes = kTiny;
  sizes.layers = 2;
  tests::write_file(path, model_text());
  CHECK(find_spec(path).as<models::VitSizes>() == sizes);
  CHECK(find_spec(path).name == "small");
  tests::write_file(path, model_text(R"("family")", R"("name": "my-vit_2", "family")"));
  CHECK(find_spec(path).name == "my-vit_2");
}

struct BadModel {
  std::string replaced;
  std::string by;
  std::string named;  // what the error has to name
};

TEST_CASE("a wrong JSON file is refused in one line with the key and the file") {
  const auto bad = GENERATE(values<BadModel>({
      {R"("layers": 2)", R"("layers": 0)", "\"layers\""},
      {R"("layers": 2)", R"("layers": -3)", "-3"},
      {R"("layers": 2)", R"("layers": 2.5)", "2.5"},
      {R"("layers": 2)", R"("layers": "2")", "string"},
      {R"("layers": 2)", R"("layers": null)", "\"layers\""},
      {R"("layers": 2)", R"("layers": [2])", "\"layers\""},
      {R"("layers": 2)", R"("layers": 2000000000)", "\"layers\""},
      {R"("width": 32)", R"("width": 9223372036854775807)", "\"width\""},
      {R"("width": 32)", R"("width": 18446744073709551615)", "\"width\""},
      {R"("width": 32)", R"("width": 1e400)", "JSON"},
      {R"("width": 32)", R"("width": 33)", "\"width\""},
      {R"("heads": 2)", R"("heads": 5)", "\"heads\""},
      {R"("patch_px": 7)", R"("patch_px": 8)", "\"patch_px\""},
      {R"("classes": 10)", R"("classes": 10, "depth": 3)", "\"depth\""},
      {R"("classes": 10)", R"("classes": 10, "a\nb": 3)", "unknown key"},
      {R"("classes": 10)", R"("classes": 10, "classes": 11)", "\"classes\""},
      {R"("classes": 10)", R"("classes": 10, "name": "../up")", "\"name\""},
      {R"("classes": 10)", R"("classes": 10, "name": 7)", "\"name\""},
      {R"(, "classes": 10)", "", "\"classes\""},
      {R"("family": "vit", )", "", "\"family\""},
      {R"("vit")", R"("cnn")", "\"family\""},
      {R"("vit")", "1", "\"family\""},
      {"}", "", "JSON"},
      {model_text(), "[]", "object"},
      {model_text(), "", "JSON"},
      {R"("vit")", "\"v\xff\"", "JSON"},
  }));
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("bad.json");
  tests::write_file(path, model_text(bad.replaced, bad.by));
  const std::string text = refusal_of(path);
  CHECK_THAT(text, ContainsSubstring(bad.named));
  CHECK_THAT(text, ContainsSubstring(path));
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("sizes that are each allowed but overflow together are refused") {
  VitSizes huge = kTiny;
  huge.image_px = huge.patch_px = huge.channels = 1 << 16;
  huge.width = 1 << 20;
  CHECK_THROWS_WITH(make_spec("huge", huge), ContainsSubstring("width"));
}

TEST_CASE("a missing model file or a folder is refused") {
  const tests::TemporaryFolder folder;
  CHECK_THAT(refusal_of(folder.file("none.json")), ContainsSubstring("none.json"));
  std::filesystem::create_directory(folder.file("folder.json"));
  CHECK_THAT(refusal_of(folder.file("folder.json")), ContainsSubstring("folder.json"));
}

TEST_CASE("an unknown model name lists the presets and suggests a near one") {
  for (const std::string& preset : preset_names()) {
    CHECK_THAT(refusal_of("gpt-9"), ContainsSubstring(preset));
  }
  CHECK_THAT(refusal_of("gpt-9"), !ContainsSubstring("did you mean"));
  CHECK_THAT(refusal_of("vit_l_16"), ContainsSubstring("did you mean 'vit-l16'"));
  CHECK_THAT(refusal_of("vit-tutorail"), ContainsSubstring("did you mean 'vit-tutorial'"));
  CHECK_THAT(refusal_of(""), !ContainsSubstring("did you mean"));
}

}  // namespace
}  // namespace shardlens::models
