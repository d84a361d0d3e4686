// Tests the families other than vision transformers: the names of their parameters, counts against
// published ones, and what their JSON files may say.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>
#include <stdexcept>

#include "models/families.h"
#include "models/spec.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::models;
using Catch::Matchers::ContainsSubstring;

namespace {

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

constexpr const char* kLlama =
    R"({"family": "llama", "layers": 1, "width": 32, "heads": 4, "kv_heads": 2, "mlp_width": 48, )"
    R"("vocab": 100})";

std::string with_replaced(const std::string& text, const std::string& replaced,
                          const std::string& by) {
  std::string changed = text;
  return changed.replace(changed.find(replaced), replaced.size(), by);
}

ModelSpec spec_of(const std::string& text, int64_t seq = 0) {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("small.json"), text);
  return find_spec(folder.file("small.json"), seq);
}

std::string refusal_of(const std::string& text, int64_t seq = 0) {
  try {
    spec_of(text, seq);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  FAIL("accepted: " << text);
  return "";
}

Shapes shapes_of(const ModelSpec& spec) {
  Shapes shapes;
  for (const ParameterSpec& parameter : spec.parameters) {
    shapes.emplace_back(parameter.name, parameter.shape);
  }
  return shapes;
}

/// Names of a unit's parameters and of their groups.
std::string unit_text(const ModelSpec& spec, size_t unit) {
  std::string text = spec.units.at(unit).name + ":";
  for (const int index : spec.units[unit].parameters) {
    const ParameterSpec& parameter = spec.parameters.at(static_cast<size_t>(index));
    text += " " + parameter.name + "@" + parameter.group;
  }
  return text;
}

}  // namespace

TEST_CASE("presets have the parameter counts that are published") {
  const auto [name, numel, tensors] =
      GENERATE(table<std::string, int64_t, size_t>({{"llama-1b", 1'235'814'400, 146},
                                                    {"llama-8b", 8'030'261'248, 291},
                                                    {"llama-70b", 70'553'706'496, 723},
                                                    {"simple-model", 1'059'850, 4},
                                                    {"transformer", 17'343'248, 33}}));
  const ModelSpec spec = find_spec(name);
  CHECK(spec.numel() == numel);
  CHECK(spec.parameters.size() == tensors);
}

TEST_CASE("a llama has Hugging Face's names and shapes in its order") {
  const std::string layer = "model.layers.0.";
  const ModelSpec spec = spec_of(kLlama);
  CHECK(shapes_of(spec) == Shapes{{"model.embed_tokens.weight", {100, 32}},
                                  {layer + "self_attn.q_proj.weight", {32, 32}},
                                  {layer + "self_attn.k_proj.weight", {16, 32}},
                                  {layer + "self_attn.v_proj.weight", {16, 32}},
                                  {layer + "self_attn.o_proj.weight", {32, 32}},
                                  {layer + "mlp.gate_proj.weight", {48, 32}},
                                  {layer + "mlp.up_proj.weight", {48, 32}},
                                  {layer + "mlp.down_proj.weight", {32, 48}},
                                  {layer + "input_layernorm.weight", {32}},
                                  {layer + "post_attention_layernorm.weight", {32}},
                                  {"model.norm.weight", {32}},
                                  {"lm_head.weight", {100, 32}}});
  CHECK(unit_text(spec, 0) == "embed: model.embed_tokens.weight@embed");
  CHECK_FALSE(spec.units[0].backward_reads_parameters);
  CHECK(unit_text(spec, 3) == "head: model.norm.weight@head lm_head.weight@head");
}

TEST_CASE("a tied head uses the embedding's matrix and belongs to its group") {
  const ModelSpec spec = spec_of(with_replaced(kLlama, "100}", "100, \"tied\": true}"));
  CHECK(spec.parameters.size() == 11);
  CHECK(unit_text(spec, 3) == "head: model.norm.weight@embed model.embed_tokens.weight@embed");
  CHECK(spec.units[3].backward_reads_parameters);
}

TEST_CASE("the transformer and the MLP have PyTorch's names and shapes") {
  const ModelSpec transformer =
      spec_of(R"({"family": "transformer", "layers": 1, "width": 8, "vocab": 20})");
  CHECK(shapes_of(transformer) == Shapes{{"tok_embeddings.weight", {20, 8}},
                                         {"layers.0.attention.weight", {8, 8}},
                                         {"layers.0.attention.bias", {8}},
                                         {"layers.0.mlp.0.weight", {32, 8}},
                                         {"layers.0.mlp.0.bias", {32}},
                                         {"layers.0.mlp.2.weight", {8, 32}},
                                         {"layers.0.mlp.2.bias", {8}},
                                         {"layers.0.norm1.weight", {8}},
                                         {"layers.0.norm1.bias", {8}},
                                         {"layers.0.norm2.weight", {8}},
                                         {"layers.0.norm2.bias", {8}},
                                         {"output.weight", {20, 8}},
                                         {"output.bias", {20}}});
  CHECK(transformer.loss == LossKind::sum);
  const ModelSpec mlp =
      spec_of(R"({"family": "mlp", "inputs": 6, "width": 4, "layers": 2, "classes": 3})");
  CHECK(shapes_of(mlp) == Shapes{{"layer1.weight", {4, 6}},
                                 {"layer1.bias", {4}},
                                 {"layer2.weight", {4, 4}},
                                 {"layer2.bias", {4}},
                                 {"layer3.weight", {3, 4}},
                                 {"layer3.bias", {3}}});
  CHECK_FALSE(mlp.units.front().backward_reads_parameters);
  CHECK(mlp.units.back().kind == static_cast<int>(MlpUnit::output));
}

TEST_CASE("each unit keeps to one group, and every parameter is used") {
  for (const std::string& name : preset_names()) {
    CAPTURE(name);
    const ModelSpec spec = find_spec(name);
    std::set<int> used;
    for (const UnitSpec& unit : spec.units) {
      std::set<std::string> groups;
      for (const int index : unit.parameters) {
        groups.insert(spec.parameters.at(static_cast<size_t>(index)).group);
        used.insert(index);
      }
      CHECK(groups.size() == 1);
    }
    CHECK(used.size() == spec.parameters.size());
  }
}

TEST_CASE("a spec knows what a batch weighs") {
  CHECK(find_spec("vit-tutorial").input_bytes(3) == 3 * 28 * 28 * 4);
  CHECK(find_spec("vit-tutorial").target_bytes(3) == 3 * 8);
  CHECK(find_spec("llama-8b").input_bytes(3) == 3 * 2048 * 8);
  CHECK(find_spec("llama-8b").target_bytes(3) == 3 * 2048 * 8);
  CHECK(find_spec("llama-8b", 16).input_bytes(3) == 3 * 16 * 8);
  CHECK(find_spec("simple-model").input_bytes(3) == 3 * 1024 * 4);
  CHECK(find_spec("simple-model").target_bytes(3) == 3 * 8);
  CHECK(find_spec("transformer").input_bytes(3) == 3 * 512 * 8);
  CHECK(find_spec("transformer").target_bytes(3) == 0);
}

TEST_CASE("the length of a sequence is the model's own unless it is given") {
  CHECK(spec_of(kLlama).as<models::LlamaSizes>().seq == 2048);
  CHECK(spec_of(with_replaced(kLlama, "100}", "100, \"seq\": 64}")).as<models::LlamaSizes>().seq ==
        64);
  CHECK(spec_of(kLlama, 16).as<models::LlamaSizes>().seq == 16);
  CHECK(find_spec("transformer", 9).as<TransformerSizes>().seq == 9);
  CHECK_THROWS_WITH(find_spec("vit-tutorial", 16),
                    ContainsSubstring("--seq 16: the model 'vit-tutorial' takes no tokens"));
  CHECK_THROWS_WITH(find_spec("simple-model", 16), ContainsSubstring("takes no tokens"));
  CHECK_THAT(refusal_of(kLlama, -1), ContainsSubstring("\"seq\" is -1"));
}

TEST_CASE("wrong sizes are refused in one line with the key and the file") {
  struct BadSpec {
    std::string replaced, by, named;
  };
  const auto bad = GENERATE(values<BadSpec>({
      {R"("heads": 4)", R"("heads": 5)", "\"heads\" 5 does not divide \"width\" 32"},
      {R"("kv_heads": 2)", R"("kv_heads": 3)", "\"kv_heads\" 3 does not divide \"heads\" 4"},
      {R"("heads": 4)", R"("heads": 32)", "rotary positions need an even number"},
      {R"("layers": 1, )", "", "\"layers\" is missing"},
      {R"("layers": 1)", R"("layers": 0)", "\"layers\""},
      {R"("vocab": 100)", R"("vocab": 1e3)", "\"vocab\" must be a whole number"},
      {R"("vocab": 100)", R"("vocab": 100, "tied": 1)", "\"tied\" must be true or false"},
      {R"("vocab": 100)", R"("vocab": 100, "seq": 99999999)", "\"seq\""},
      {R"("vocab": 100)", R"("vocab": 100, "classes": 3)", "unknown key \"classes\""},
      {R"("llama")", R"("gpt")", R"("family" must be one of "vit", "llama", "mlp")"},
      {R"("width": 32)", R"("width": 1048576)", "\"width\" 1048576 and the other sizes give"},
  }));
  std::string text = with_replaced(kLlama, bad.replaced, bad.by);
  if (bad.by == R"("width": 1048576)") {
    text = with_replaced(with_replaced(text, R"("layers": 1)", R"("layers": 10000)"),
                         R"("mlp_width": 48)", R"("mlp_width": 4194304)");
  }
  const std::string why = refusal_of(text);
  CHECK_THAT(why, ContainsSubstring(bad.named));
  CHECK_THAT(why, ContainsSubstring("small.json"));
  CHECK(why.find('\n') == std::string::npos);
}
