#include "models/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "models/presets.h"
#include "models/strict_json.h"

namespace shardlens::models {
namespace {

struct SizeKey {
  const char* name;
  int64_t VitSizes::*value;
  int64_t most;  // far above any real model, low enough that products of two stay in 64 bits
};

constexpr std::array<SizeKey, 8> kSizeKeys = {{
    {"image_px", &VitSizes::image_px, int64_t{1} << 16},
    {"patch_px", &VitSizes::patch_px, int64_t{1} << 16},
    {"channels", &VitSizes::channels, int64_t{1} << 16},
    {"layers", &VitSizes::layers, 10000},
    {"heads", &VitSizes::heads, int64_t{1} << 20},
    {"width", &VitSizes::width, int64_t{1} << 20},
    {"mlp_width", &VitSizes::mlp_width, int64_t{1} << 22},
    {"classes", &VitSizes::classes, int64_t{1} << 24},
}};

// The closed formula in floating point, so that it can be compared with a limit before any
// product has overflowed.
double approximate_numel(const VitSizes& s) {
  const auto width = static_cast<double>(s.width);
  const auto mlp_width = static_cast<double>(s.mlp_width);
  const auto patch = static_cast<double>(s.patch_px) * static_cast<double>(s.patch_px);
  const double block = 4 * width * width + 2 * width * mlp_width + 9 * width + mlp_width;
  const double embed =
      width * (static_cast<double>(s.channels) * patch + static_cast<double>(s.tokens()) + 2);
  return embed + static_cast<double>(s.layers) * block +
         static_cast<double>(s.classes) * (width + 1) + 2 * width;
}

std::optional<std::string> problem_with(const VitSizes& sizes) {
  for (const SizeKey& key : kSizeKeys) {
    const int64_t value = sizes.*key.value;
    if (value < 1 || value > key.most) {
      return fmt::format("\"{}\" is {}; give a number from 1 to {}", key.name, value, key.most);
    }
  }
  if (sizes.image_px % sizes.patch_px != 0) {
    return fmt::format("\"patch_px\" {} does not divide \"image_px\" {}; change one of them",
                       sizes.patch_px, sizes.image_px);
  }
  if (sizes.width % sizes.heads != 0) {
    return fmt::format("\"heads\" {} does not divide \"width\" {}; change one of them", sizes.heads,
                       sizes.width);
  }
  constexpr double kMostParameters = 1e15;
  if (approximate_numel(sizes) > kMostParameters) {
    return fmt::format(
        "\"width\" {} and the other sizes give {:.1e} parameters, more than {:.0e}; give smaller "
        "sizes",
        sizes.width, approximate_numel(sizes), kMostParameters);
  }
  return std::nullopt;
}

// Parameters are declared in state-dict order and units in forward order; the two differ only in
// the embedding, where torchvision lists the class token before the convolution that runs first.
class VitBuilder {
 public:
  VitBuilder(std::string name, const VitSizes& sizes) : s_(sizes) {
    spec_.name = std::move(name);
    spec_.family = Family::vit;
    spec_.vit = sizes;
  }

  ModelSpec build() {
    add_embed();
    for (int64_t layer = 0; layer < s_.layers; ++layer) add_block(layer);
    const int norm_weight = add("encoder.ln.weight", {s_.width}, "head");
    const int norm_bias = add("encoder.ln.bias", {s_.width}, "head");
    const int weight = add("heads.head.weight", {s_.classes, s_.width}, "head");
    const int bias = add("heads.head.bias", {s_.classes}, "head");
    add_unit("head", UnitKind::vit_head, {norm_weight, norm_bias, weight, bias});
    return std::move(spec_);
  }

 private:
  int add(std::string name, std::vector<int64_t> shape, const std::string& group) {
    spec_.parameters.push_back({std::move(name), std::move(shape), group});
    return static_cast<int>(spec_.parameters.size()) - 1;
  }

  void add_unit(std::string name, UnitKind kind, std::vector<int> parameters) {
    spec_.units.push_back({std::move(name), kind, std::move(parameters), true});
  }

  void add_embed() {
    const int token = add("class_token", {1, 1, s_.width}, "embed");
    const int weight =
        add("conv_proj.weight", {s_.width, s_.channels, s_.patch_px, s_.patch_px}, "embed");
    const int bias = add("conv_proj.bias", {s_.width}, "embed");
    const int position = add("encoder.pos_embedding", {1, s_.tokens(), s_.width}, "embed");
    add_unit("embed", UnitKind::vit_embed, {weight, bias, token, position});
    // Images need no gradient, so the convolution's weight is not read again.
    spec_.units.back().backward_reads_parameters = false;
  }

  void add_block(int64_t layer) {
    const std::string group = fmt::format("block{}", layer);
    const std::string prefix = fmt::format("encoder.layers.encoder_layer_{}.", layer);
    const int64_t width = s_.width;
    const auto declare = [&](const char* name, std::vector<int64_t> shape) {
      return add(prefix + name, std::move(shape), group);
    };
    const int attention = declare("ln_1.weight", {width});
    declare("ln_1.bias", {width});
    declare("self_attention.in_proj_weight", {3 * width, width});
    declare("self_attention.in_proj_bias", {3 * width});
    declare("self_attention.out_proj.weight", {width, width});
    declare("self_attention.out_proj.bias", {width});
    const int mlp = declare("ln_2.weight", {width});
    declare("ln_2.bias", {width});
    declare("mlp.0.weight", {s_.mlp_width, width});
    declare("mlp.0.bias", {s_.mlp_width});
    declare("mlp.3.weight", {width, s_.mlp_width});
    declare("mlp.3.bias", {width});
    add_unit(fmt::format("attention{}", layer), UnitKind::vit_attention, six_from(attention));
    add_unit(fmt::format("mlp{}", layer), UnitKind::vit_mlp, six_from(mlp));
  }

  static std::vector<int> six_from(int first) {
    std::vector<int> indices(6);
    std::iota(indices.begin(), indices.end(), first);
    return indices;
  }

  VitSizes s_;
  ModelSpec spec_;
};

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    throw std::invalid_argument(fmt::format(
        "{}: cannot be read as a model file; give a preset ({}) or an existing JSON file", path,
        fmt::join(preset_names(), ", ")));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string name_from(const nlohmann::json& value) {
  constexpr size_t kLongest = 64;
  const std::string name = value.is_string() ? value.get<std::string>() : "";
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  // It becomes part of a run's folder name.
  if (name.empty() || name.size() > kLongest || !std::all_of(name.begin(), name.end(), allowed)) {
    throw std::invalid_argument(
        fmt::format("\"name\" must be a text of 1 to {} letters, digits, '-' or '_'", kLongest));
  }
  return name;
}

int64_t size_from(const nlohmann::json& value, const SizeKey& key) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(key.most));
  if (!fits) {
    throw std::invalid_argument(fmt::format("\"{}\" must be a whole number from 1 to {}, not {}",
                                            key.name, key.most,
                                            value.is_number() ? value.dump() : value.type_name()));
  }
  return value.get<int64_t>();
}

void require_known_keys(const nlohmann::json& object) {
  std::vector<std::string> known = {"family", "name"};
  for (const SizeKey& key : kSizeKeys) known.emplace_back(key.name);
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw std::invalid_argument(
          fmt::format("unknown key \"{}\"; known are {}", key, fmt::join(known, ", ")));
    }
  }
}

ModelSpec spec_from(const nlohmann::json& object, const std::string& default_name) {
  if (!object.is_object()) {
    throw std::invalid_argument("must be a JSON object with \"family\" and sizes");
  }
  require_known_keys(object);
  if (!object.contains("family")) {
    throw std::invalid_argument("the key \"family\" is missing; add \"family\": \"vit\"");
  }
  if (object["family"] != "vit") {
    throw std::invalid_argument("\"family\" must be \"vit\", the only family known");
  }
  VitSizes sizes;
  for (const SizeKey& key : kSizeKeys) {
    if (!object.contains(key.name)) {
      throw std::invalid_argument(fmt::format("the key \"{}\" is missing; add it", key.name));
    }
    sizes.*key.value = size_from(object[key.name], key);
  }
  if (const auto problem = problem_with(sizes)) throw std::invalid_argument(*problem);
  const std::string name = object.contains("name") ? name_from(object["name"]) : default_name;
  return VitBuilder(name, sizes).build();
}

ModelSpec read_model_file(const std::string& path) {
  const std::string text = read_text(path);
  try {
    return spec_from(parse_strict_json(text), std::filesystem::path(path).stem().string());
  } catch (const std::exception& error) {
    throw std::invalid_argument(one_line(fmt::format("{}: {}", path, error.what())));
  }
}

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t ParameterSpec::numel() const { return product(shape); }

int64_t ModelSpec::numel() const {
  return std::accumulate(
      parameters.begin(), parameters.end(), int64_t{0},
      [](int64_t sum, const ParameterSpec& parameter) { return sum + parameter.numel(); });
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return names;
}

ModelSpec find_spec(const std::string& name_or_file) {
  if (name_or_file.ends_with(".json")) return read_model_file(name_or_file);
  for (const Preset& preset : presets()) {
    if (preset.name == name_or_file) return make_vit(preset.name, preset.sizes);
  }
  const std::string nearest = nearest_preset(name_or_file);
  throw std::invalid_argument(fmt::format(
      "unknown model '{}'{}; give one of {}, or a model file that ends in .json", name_or_file,
      nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
      fmt::join(preset_names(), ", ")));
}

ModelSpec make_vit(std::string name, const VitSizes& sizes) {
  if (const auto problem = problem_with(sizes)) {
    throw std::invalid_argument(fmt::format("model '{}': {}", name, *problem));
  }
  return VitBuilder(std::move(name), sizes).build();
}

}  // namespace shardlens::models
