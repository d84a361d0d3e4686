// Reads models as Hugging Face's transformers describe them.
#include "models/hugging_face.h"
#include "models/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <stdexcept>

#include "models/spec.h"
#include "planner/plan_command.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::models;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// A config as transformers writes it, with the published sizes of Llama 3.1 8B.
json llama_8b() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
    "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0", "use_cache": true, "vocab_size": 128256})");
}

json mistral_7b() {
  return json::parse(R"({
    "architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
    "tie_word_embeddings": false, "vocab_size": 32000})");
}

json with_key(json object, const char* key, const json& value) {
  object[key] = value;
  return object;
}

ModelSpec spec_of(const json& object, int64_t seq = 0) {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("config.json"), object.dump());
  return find_spec(folder.file("config.json"), seq);
}

std::string refusal_of(const json& object, int64_t seq = 0) {
  try {
    spec_of(object, seq);
  } catch (const std::invalid_argument& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("Llama 3.1 8B of Hugging Face is our llama-8b", "[hugging_face]") {
  const ModelSpec theirs = spec_of(llama_8b()), ours = find_spec("llama-8b");
  CHECK(theirs.numel() == 8'030'261'248);
  CHECK(theirs.as<models::LlamaSizes>() == ours.as<models::LlamaSizes>());
  REQUIRE(theirs.parameters.size() == ours.parameters.size());
  for (size_t i = 0; i < ours.parameters.size(); ++i) {
    CHECK(theirs.parameters[i].name == ours.parameters[i].name);
    CHECK(theirs.parameters[i].shape == ours.parameters[i].shape);
  }
}

TEST_CASE("the plan of Hugging Face's Llama 3.1 8B is the plan of llama-8b", "[hugging_face]") {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("config.json"), llama_8b().dump());
  const auto plan_of = [&](const std::string& model) {
    const auto outcome = planner::plan_command({"--model", model, "--world", "64", "--batch", "2",
                                                "--gpu", "h100", "--param-dtype", "bf16", "--json"},
                                               "");
    json plan = json::parse(outcome.out);
    plan.erase("config");
    plan.erase("model");
    return plan;
  };
  CHECK(plan_of(folder.file("config.json")) == plan_of("llama-8b"));
}

TEST_CASE("Mistral 7B is a Llama as long as its window holds the sample", "[hugging_face]") {
  CHECK(spec_of(mistral_7b()).numel() == 7'241'732'096);
  CHECK(spec_of(mistral_7b(), 4096).as<models::LlamaSizes>().seq == 4096);
  CHECK_THAT(refusal_of(mistral_7b(), 8192), ContainsSubstring("give --seq 4096 or less"));
  CHECK(spec_of(with_key(mistral_7b(), "sliding_window", nullptr), 8192)
            .as<models::LlamaSizes>()
            .seq == 8192);
  json silent = mistral_7b();
  silent.erase("sliding_window");
  CHECK_THAT(refusal_of(silent, 8192), ContainsSubstring("sliding window of 4096"));
}

TEST_CASE("keys that Hugging Face leaves out have the defaults of transformers", "[hugging_face]") {
  json few = llama_8b();
  for (const char* key : {"num_key_value_heads", "rope_scaling", "rope_theta"}) few.erase(key);
  const ModelSpec spec = spec_of(few);
  CHECK(spec.as<models::LlamaSizes>().kv_heads == 32);
  CHECK(spec.as<models::LlamaSizes>().rope_factor == 1);
  CHECK(spec.as<models::LlamaSizes>().rope_theta == 10000);
  CHECK(
      spec_of(with_key(llama_8b(), "max_position_embeddings", 1024)).as<models::LlamaSizes>().seq ==
      1024);
  const json newer = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  json recent = with_key(few, "rope_parameters", newer);
  CHECK(spec_of(recent).as<models::LlamaSizes>().rope_theta == 1000000);
}

TEST_CASE("settings that differ from our Llama are refused by name", "[hugging_face]") {
  const std::vector<std::pair<const char*, json>> differences = {
      {"architectures", json::array({"MixtralForCausalLM"})},
      {"model_type", "qwen2"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"attention_dropout", 0.1},
      {"hidden_act", "gelu"},
      {"rms_norm_eps", 1e-6},
      {"pretraining_tp", 2},
      {"quantization_config", {{"bits", 4}}},
      {"auto_map", {{"AutoModel", "x.Y"}}},
      {"head_dim", 256},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.5}}},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 2}}},
      {"rope_theta", 1.5},
      {"num_local_experts", 8},
      {"hidden_size", "4096"},
      {"hidden_size", -1},
      {"num_key_value_heads", 0},
      {"tie_word_embeddings", 1},
      {"max_position_embeddings", 0.5},
      {"sliding_window", "x"},
  };
  for (const auto& [key, value] : differences) {
    CAPTURE(key, value.dump());
    CHECK_THAT(refusal_of(with_key(llama_8b(), key, value)),
               ContainsSubstring("\"" + std::string(key) + "\""));
  }
  CHECK_THAT(refusal_of(with_key(llama_8b(), "num_attention_heads", 31)),
             ContainsSubstring("heads"));
}

TEST_CASE("every key of Hugging Face that is read, expected or ignored is known once",
          "[hugging_face]") {
  const std::vector<std::string> keys = hugging_face_keys();
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == keys.size());
  const json object = llama_8b();
  for (const auto& [key, value] : object.items()) {
    CAPTURE(key);
    CHECK(std::find(keys.begin(), keys.end(), key) != keys.end());
  }
  // Keys that are ignored take any value.
  const ModelSpec spec = spec_of(object);
  for (const std::string& key : keys) {
    const bool is_told_to_say_nothing =
        refusal_of(with_key(object, key.c_str(), "nonsense")) == "accepted";
    if (is_told_to_say_nothing) {
      CHECK(spec_of(with_key(object, key.c_str(), "nonsense")).as<models::LlamaSizes>() ==
            spec.as<models::LlamaSizes>());
    }
  }
}

TEST_CASE("how a Hugging Face file was read is reported line by line", "[hugging_face]") {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("config.json"), llama_8b().dump());
  std::string text;
  for (const std::string& line : notes_on(folder.file("config.json"))) text += line + "\n";
  CHECK_THAT(text, ContainsSubstring("hidden_size 4096 -> width\n"));
  CHECK_THAT(text, ContainsSubstring("-> rope_factor 8\n"));
  CHECK_THAT(text, ContainsSubstring("max_position_embeddings 131072 -> seq 2048; --seq gives"));
  CHECK(notes_on("llama-8b").empty());
}

TEST_CASE("damaged files of Hugging Face never crash", "[hugging_face]") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const std::vector<json> values = {
      nullptr, true, -1, 0, 1e300, "x", 1e-05, json::array(), json::object(), {{"type", 3}}};
  const tests::TemporaryFolder folder;
  const std::vector<std::string> keys = hugging_face_keys();
  int refused = 0;
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    json object = engine() % 2 == 0 ? llama_8b() : mistral_7b();
    for (uint64_t edits = 1 + engine() % 3; edits > 0; --edits) {
      object[keys[engine() % keys.size()]] = values[engine() % values.size()];
    }
    std::string text = object.dump();
    if (engine() % 2 == 0) text[engine() % text.size()] = static_cast<char>(engine() % 256);
    tests::write_file(folder.file("config.json"), text);
    try {
      find_spec(folder.file("config.json"));
    } catch (const std::invalid_argument& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
      ++refused;
    }
  }
  fmt::print("seed {}: {} damaged model files, {} refused\n", seed, kTries, refused);
}
