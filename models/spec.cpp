#include "models/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <type_traits>

#include "base/nearest.h"
#include "base/shown.h"
#include "models/families.h"
#include "models/model_file.h"

namespace shardlens::models {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<NamedSizes> presets() {
  std::vector<NamedSizes> all;
  for_each_family([&](const auto& family) {
    for (auto& [name, sizes] : presets_of(family)) all.push_back({.name = name, .sizes = sizes});
  });
  return all;
}

/// Keeps only letters and digits, so that "ViT_B_16", torchvision's spelling, is vit-b16 itself.
std::string plain(const std::string& name) {
  std::string letters;
  for (const unsigned char c : name) {
    if (std::isalnum(c)) letters.push_back(static_cast<char>(std::tolower(c)));
  }
  return letters;
}

/// Returns the preset that a mistyped name most likely meant; empty if none is near.
std::string nearest_preset(const std::string& name) {
  constexpr size_t kNear = 2;  // fewer edits than for flags: names are short and alike
  constexpr size_t kLongestName = 64;
  if (name.size() > kLongestName) return "";
  std::string nearest;
  size_t best = kNear + 1;
  for (const NamedSizes& preset : presets()) {
    const size_t distance = edit_distance(plain(name), plain(preset.name));
    if (distance >= best) continue;
    best = distance;
    nearest = preset.name;
  }
  return nearest;
}

NamedSizes find_sizes(const std::string& name_or_file) {
  if (name_or_file.ends_with(".json")) return read_model_file(name_or_file);
  for (NamedSizes& preset : presets()) {
    if (preset.name == name_or_file) return std::move(preset);
  }
  const std::string nearest = nearest_preset(name_or_file);
  throw std::invalid_argument(fmt::format(
      "unknown model '{}'{}; give one of {}, or a model file that ends in .json", name_or_file,
      nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
      fmt::join(preset_names(), ", ")));
}

template <class FamilySizes>
concept TakesTokens = requires(FamilySizes sizes) {
  sizes.seq = 1;
};
template <class FamilySizes>
concept HasLayers = requires(FamilySizes sizes) {
  sizes.layers = 1;
};

/// Returns "llama or transformer".
std::string token_families() {
  std::string names;
  for_each_family([&](const auto& family) {
    if (!TakesTokens<std::decay_t<decltype(family)>>) return;
    names += fmt::format("{}{}", names.empty() ? "" : " or ", family.kFamily);
  });
  return names;
}

template <class FamilySizes>
void set_seq(FamilySizes& sizes, const std::string& model, int64_t seq) {
  if constexpr (TakesTokens<FamilySizes>) {
    sizes.seq = seq;
  } else {
    throw std::invalid_argument(
        fmt::format("--seq {}: the model '{}' takes no tokens; leave --seq out, or give a model "
                    "of the family {}",
                    seq, model, token_families()));
  }
}

}  // namespace

int64_t ParameterSpec::numel() const { return product(shape); }

int64_t ModelSpec::numel() const {
  return std::accumulate(
      parameters.begin(), parameters.end(), int64_t{0},
      [](int64_t sum, const ParameterSpec& parameter) { return sum + parameter.numel(); });
}

int64_t ModelSpec::input_bytes(int64_t batch) const {
  const bool is_ids = sample.input == InputKind::tokens;
  const auto value_bytes = static_cast<int64_t>(is_ids ? sizeof(int64_t) : sizeof(float));
  return batch * product(sample.shape) * value_bytes;
}

int64_t ModelSpec::target_bytes(int64_t batch) const {
  if (loss == LossKind::sum) return 0;
  return batch * product(sample.target_shape) * static_cast<int64_t>(sizeof(int64_t));
}

Problem division_problem(const char* divisor_name, int64_t divisor, const char* name,
                         int64_t value) {
  if (value % divisor == 0) return std::nullopt;
  return fmt::format("\"{}\" {} does not divide \"{}\" {}; change one of them", divisor_name,
                     divisor, name, value);
}

Problem numel_problem(int64_t width, double approximate_numel) {
  constexpr double kMostParameters = 1e15;
  if (approximate_numel <= kMostParameters) return std::nullopt;
  return fmt::format(
      "\"width\" {} and the other sizes give {:.1e} parameters, more than {:.0e}; give smaller "
      "sizes",
      width, approximate_numel, kMostParameters);
}

void refuse_sizes(const std::string& model, const std::string& problem) {
  throw std::invalid_argument(fmt::format("model '{}': {}", model, problem));
}

std::optional<ModelSpec> with_layers(const ModelSpec& spec, int64_t layers) {
  std::optional<ModelSpec> changed;
  visit_sizes(spec, [&](auto sizes) {
    if constexpr (HasLayers<decltype(sizes)>) {
      sizes.layers = layers;
      changed = make_spec(spec.name, sizes);
    }
  });
  return changed;
}

std::vector<std::string> notes_on(const std::string& name_or_file) {
  if (!name_or_file.ends_with(".json")) return {};
  return read_model_file(name_or_file).notes;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const NamedSizes& preset : presets()) names.push_back(preset.name);
  return names;
}

ModelSpec find_spec(const std::string& name_or_file, int64_t seq) {
  NamedSizes found = find_sizes(name_or_file);
  return std::visit(
      [&](auto& sizes) {
        if (seq != 0) set_seq(sizes, found.name, seq);
        if (found.most_seq != 0 && seq > found.most_seq) {
          throw std::invalid_argument(
              shown(fmt::format("--seq {}: {} attends to a sliding window of {}, which is not "
                                "supported; give --seq {} or less",
                                seq, name_or_file, found.most_seq, found.most_seq)));
        }
        try {
          return make_spec(found.name, sizes);
        } catch (const std::invalid_argument& error) {
          // The reader names the file in its own errors; if sizes do not go together, the error has
          // the model's name and the file is added here.
          if (!name_or_file.ends_with(".json")) throw;
          throw std::invalid_argument(shown(fmt::format("{}: {}", name_or_file, error.what())));
        }
      },
      found.sizes);
}

}  // namespace shardlens::models
