#include "models/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace shardlens::models {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSeq = 2048;  // --seq asks for a longer one
constexpr int64_t kRopeFirstSeq = 8192;

/// Looks up the keys of a file, and notes how they were read.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  bool has(const char* key) const { return object_.contains(key); }

  /// Returns nullptr if the key is missing or null.
  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    const auto found = object_.find(key);
    const std::string value = found == object_.end() ? "is missing" : text_of(*found);
    throw std::invalid_argument(fmt::format("\"{}\" {}: {}", key, value, why));
  }

  static std::string text_of(const Json& value) {
    constexpr size_t kLongest = 60;
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
  }

  void note(const std::string& key, std::string_view as) {
    notes.push_back(fmt::format("{} {} -> {}", key, text_of(object_[key]), as));
  }

  /// Returns a whole number of at least 1; nothing for any other value. Some writers put whole
  /// numbers as floats.
  std::optional<int64_t> positive_number(const Json& value) const {
    constexpr double kMost = 1e15;
    if (!value.is_number()) return std::nullopt;
    const double number = value.get<double>();
    if (!(number >= 1 && number <= kMost) || number != std::floor(number)) return std::nullopt;
    return static_cast<int64_t>(number);
  }

  std::vector<std::string> notes;

 private:
  const Json& object_;
};

struct LlamaKey {
  const char* key;
  const char* name;  // ours
  int64_t LlamaSizes::*field;
};

constexpr std::array kSizes = {
    LlamaKey{"num_hidden_layers", "layers", &LlamaSizes::layers},
    LlamaKey{"hidden_size", "width", &LlamaSizes::width},
    LlamaKey{"num_attention_heads", "heads", &LlamaSizes::heads},
    LlamaKey{"intermediate_size", "mlp_width", &LlamaSizes::mlp_width},
    LlamaKey{"vocab_size", "vocab", &LlamaSizes::vocab},
};

/// A key whose value must be as in our Llama. If the key is missing, its value is `otherwise`.
struct ExpectedValue {
  const char* key;
  const char* value;      // as JSON
  const char* otherwise;  // what transformers takes
  const char* why;
};

constexpr std::array kExpected = {
    ExpectedValue{"hidden_act", "\"silu\"", "\"silu\"", "only SwiGLU is supported; give \"silu\""},
    ExpectedValue{"attention_bias", "false", "false",
                  "attention projections have no bias here; give a model without one"},
    ExpectedValue{"mlp_bias", "false", "false",
                  "linear layers have no bias here; give a model without one"},
    ExpectedValue{"attention_dropout", "0.0", "0.0", "there is no dropout here; give 0.0"},
    ExpectedValue{"rms_norm_eps", "1e-05", "1e-06",
                  "norms add 1e-05 here; give that to plan, memory is the same"},
    ExpectedValue{"pretraining_tp", "1", "1", "layers are not computed in slices here; give 1"},
    ExpectedValue{"quantization_config", "null", "null",
                  "weights are not quantized here; leave it out"},
    ExpectedValue{"auto_map", "null", "null",
                  "the model's own Python code is not run; leave it out"},
};

constexpr std::array kIgnored = {
    "_name_or_path",     "bos_token_id",    "dtype",        "eos_token_id", "id2label",
    "initializer_range", "label2id",        "pad_token_id", "torch_dtype",  "transformers_version",
    "unsloth_fixed",     "unsloth_version", "use_cache"};

constexpr std::array kRead = {"architectures",
                              "head_dim",
                              "max_position_embeddings",
                              "model_type",
                              "num_key_value_heads",
                              "rope_parameters",
                              "rope_scaling",
                              "rope_theta",
                              "sliding_window",
                              "tie_word_embeddings"};

bool is_mistral(const Reader& reader) {
  const Json* const type = reader.find("model_type");
  return type != nullptr && *type == "mistral";
}

void expect_family(const Reader& reader) {
  const Json* const type = reader.find("model_type");
  if (type == nullptr || (*type != "llama" && *type != "mistral")) {
    reader.refuse("model_type", "give the config.json of a \"llama\" or a \"mistral\"");
  }
  const Json* const architectures = reader.find("architectures");
  if (architectures == nullptr) return;
  const char* const expected = is_mistral(reader) ? "MistralForCausalLM" : "LlamaForCausalLM";
  if (*architectures != Json::array({expected})) {
    reader.refuse("architectures",
                  fmt::format("only {} is supported; give such a model", expected));
  }
}

void read_sizes(Reader& reader, LlamaSizes& sizes) {
  for (const LlamaKey& size : kSizes) {
    const Json* const value = reader.find(size.key);
    const auto number = value == nullptr ? std::nullopt : reader.positive_number(*value);
    if (!number) reader.refuse(size.key, "give a whole number from 1");
    sizes.*size.field = *number;
    reader.note(size.key, size.name);
  }
  sizes.kv_heads = is_mistral(reader) ? 8 : sizes.heads;
  if (const Json* const heads = reader.find("num_key_value_heads")) {
    const auto number = reader.positive_number(*heads);
    if (!number) reader.refuse("num_key_value_heads", "give a whole number from 1");
    sizes.kv_heads = *number;
    reader.note("num_key_value_heads", "kv_heads");
  }
  if (const Json* const tied = reader.find("tie_word_embeddings")) {
    if (!tied->is_boolean()) reader.refuse("tie_word_embeddings", "give true or false");
    sizes.tied = *tied;
    reader.note("tie_word_embeddings", "tied");
  }
}

/// Reads how rotary positions are stretched. Ours can only be stretched as Llama 3.1's are, by its
/// numbers.
void read_scaling(Reader& reader, const char* key, const Json& scaling, LlamaSizes& sizes) {
  if (!scaling.is_object()) reader.refuse(key, "give an object or null");
  const char* const type_key = scaling.contains("rope_type") ? "rope_type" : "type";
  const Json given = scaling.value(type_key, Json("default"));
  const std::string type = given.is_string() ? given.get<std::string>() : Reader::text_of(given);
  if (type == "default") return;
  if (type != "llama3") {
    reader.refuse(key,
                  fmt::format("rope_type \"{}\" is not supported; give \"llama3\" or null", type));
  }
  const bool is_known =
      scaling.value("low_freq_factor", Json(1.0)) == 1.0 &&
      scaling.value("high_freq_factor", Json(4.0)) == 4.0 &&
      scaling.value("original_max_position_embeddings", Json(kRopeFirstSeq)) == kRopeFirstSeq;
  const auto factor = reader.positive_number(scaling.value("factor", Json()));
  if (!is_known || !factor) {
    reader.refuse(key,
                  "give a whole \"factor\", \"low_freq_factor\" 1, \"high_freq_factor\" 4 and "
                  "\"original_max_position_embeddings\" 8192, as Llama 3.1 has them");
  }
  sizes.rope_factor = *factor;
  reader.note(key, fmt::format("rope_factor {}", *factor));
}

void read_theta(Reader& reader, const char* key, const Json& value, LlamaSizes& sizes) {
  const auto theta = reader.positive_number(value);
  if (!theta) reader.refuse(key, "give a whole base of rotary positions");
  sizes.rope_theta = *theta;
  reader.note(key, fmt::format("rope_theta {}", *theta));
}

/// Reads the rotary positions. Newer files hold all settings in rope_parameters.
void read_positions(Reader& reader, LlamaSizes& sizes) {
  sizes.rope_theta = 10000;
  if (const Json* const theta = reader.find("rope_theta")) {
    read_theta(reader, "rope_theta", *theta, sizes);
  }
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    const Json* const scaling = reader.find(key);
    if (scaling == nullptr) continue;
    read_scaling(reader, key, *scaling, sizes);
    if (scaling->contains("rope_theta")) read_theta(reader, key, (*scaling)["rope_theta"], sizes);
  }
  if (const Json* const most = reader.find("max_position_embeddings")) {
    const auto number = reader.positive_number(*most);
    if (!number) reader.refuse("max_position_embeddings", "give a whole number from 1");
    sizes.seq = std::min(kSeq, *number);
    reader.note("max_position_embeddings", fmt::format("seq {}; --seq gives another", sizes.seq));
  }
}

/// Reads the attention's window and returns its tokens, 0 for none. A window shorter than a sample
/// would hide some of its tokens from others, so samples are cut to the window.
int64_t read_window(Reader& reader, LlamaSizes& sizes) {
  constexpr int64_t kOfMistral = 4096;
  if (is_mistral(reader) && !reader.has("sliding_window")) return kOfMistral;
  const Json* const window = reader.find("sliding_window");
  if (window == nullptr) return 0;
  const auto number = reader.positive_number(*window);
  if (!number) reader.refuse("sliding_window", "give null, or a whole number from 1");
  sizes.seq = std::min(sizes.seq, *number);
  reader.note("sliding_window", fmt::format("--seq {} at most", *number));
  return *number;
}

void expect_the_rest(const Reader& reader, const Json& object, const LlamaSizes& sizes) {
  for (const ExpectedValue& expected : kExpected) {
    const Json* const value = reader.find(expected.key);
    const Json taken = value == nullptr ? Json::parse(expected.otherwise) : *value;
    if (taken != Json::parse(expected.value)) reader.refuse(expected.key, expected.why);
  }
  if (const Json* const width = reader.find("head_dim");
      width != nullptr && (sizes.heads < 1 || *width != sizes.width / sizes.heads)) {
    reader.refuse("head_dim", fmt::format("heads are hidden_size / num_attention_heads = {} wide "
                                          "here; give a model where that holds",
                                          sizes.width / std::max<int64_t>(1, sizes.heads)));
  }
  const std::vector<std::string> known = hugging_face_keys();
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      reader.refuse(key, "not a key of a Llama; leave it out, or give a model that is a Llama");
    }
  }
}

std::string name_of(const Reader& reader, const std::string& path) {
  const Json* const given = reader.find("_name_or_path");
  std::filesystem::path from = std::filesystem::absolute(path);
  if (given != nullptr && given->is_string() && !given->get<std::string>().empty()) {
    from = given->get<std::string>() + ".json";
  } else if (from.stem() == "config") {
    from = from.parent_path().filename().string() + ".json";
  }
  std::string name = from.stem().string();
  constexpr size_t kLongest = 64;
  name.resize(std::min(name.size(), kLongest));
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '_'; }, '-');
  return name.empty() ? "llama" : name;
}

}  // namespace

bool is_hugging_face(const Json& object) {
  return !object.contains("family") &&
         (object.contains("model_type") || object.contains("architectures"));
}

NamedSizes read_hugging_face(const Json& object, const std::string& path) {
  Reader reader(object);
  expect_family(reader);
  LlamaSizes sizes;
  read_sizes(reader, sizes);
  read_positions(reader, sizes);
  const int64_t most_seq = read_window(reader, sizes);
  expect_the_rest(reader, object, sizes);
  NamedSizes result{.name = name_of(reader, path), .sizes = sizes, .most_seq = most_seq};
  result.notes = {fmt::format("{}, Hugging Face configuration of a {}:", path,
                              is_mistral(reader) ? "Mistral" : "Llama")};
  std::ranges::move(reader.notes, std::back_inserter(result.notes));
  std::vector<const char*> ignored;
  std::ranges::copy_if(kIgnored, std::back_inserter(ignored),
                       [&](const char* key) { return reader.has(key); });
  result.notes.push_back(
      fmt::format("ignored, no effect on sizes and layers: {}", fmt::join(ignored, ", ")));
  return result;
}

std::vector<std::string> hugging_face_keys() {
  std::vector<std::string> keys(kIgnored.begin(), kIgnored.end());
  keys.insert(keys.end(), kRead.begin(), kRead.end());
  for (const LlamaKey& size : kSizes) keys.emplace_back(size.key);
  for (const ExpectedValue& expected : kExpected) keys.emplace_back(expected.key);
  return keys;
}

}  // namespace shardlens::models
