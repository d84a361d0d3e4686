#include "models/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "models/hugging_face.h"

namespace shardlens::models {
namespace {

std::string read_text(const std::string& path) {
  FileText read = read_file(path, kDescription.bytes);
  if (!read.problem) return std::move(read.text);
  throw std::invalid_argument(fmt::format(
      "{}: cannot be read as a model file ({}); give a preset ({}) or an existing JSON file",
      shown(path), *read.problem, fmt::join(preset_names(), ", ")));
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

template <class FamilySizes>
void set_size(FamilySizes& sizes, int64_t FamilySizes::*field, const nlohmann::json& value,
              const SizeKey<FamilySizes>& key) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(key.most));
  if (!fits) {
    throw std::invalid_argument(fmt::format("\"{}\" must be a whole number from 1 to {}, not {}",
                                            key.name, key.most,
                                            value.is_number() ? value.dump() : value.type_name()));
  }
  sizes.*field = value.get<int64_t>();
}

template <class FamilySizes>
void set_size(FamilySizes& sizes, bool FamilySizes::*field, const nlohmann::json& value,
              const SizeKey<FamilySizes>& key) {
  if (!value.is_boolean()) {
    throw std::invalid_argument(
        fmt::format("\"{}\" must be true or false, not {}", key.name, value.type_name()));
  }
  sizes.*field = value.get<bool>();
}

template <class FamilySizes>
void require_known_keys(const nlohmann::json& object) {
  std::vector<std::string> known = {"family", "name"};
  for (const auto& key : keys_of(FamilySizes{})) known.emplace_back(key.name);
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw std::invalid_argument(
          fmt::format("unknown key \"{}\"; known keys: {}", key, fmt::join(known, ", ")));
    }
  }
}

template <class FamilySizes>
FamilySizes sizes_from(const nlohmann::json& object) {
  require_known_keys<FamilySizes>(object);
  FamilySizes sizes;
  for (const SizeKey<FamilySizes>& key : keys_of(sizes)) {
    if (object.contains(key.name)) {
      std::visit([&](auto field) { set_size(sizes, field, object[key.name], key); }, key.value);
    } else if (key.required) {
      throw std::invalid_argument(fmt::format("the key \"{}\" is missing; add it", key.name));
    }
  }
  return sizes;
}

std::string family_names() {
  std::string names;
  for_each_family([&](const auto& family) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", family.kFamily);
  });
  return names;
}

ModelSizes sizes_from_family(const nlohmann::json& object) {
  if (!object.contains("family")) {
    throw std::invalid_argument("the key \"family\" is missing; add \"family\": \"vit\"");
  }
  std::optional<ModelSizes> sizes;
  for_each_family([&](const auto& family) {
    using FamilySizes = std::decay_t<decltype(family)>;
    if (object["family"] == family.kFamily) sizes = sizes_from<FamilySizes>(object);
  });
  if (!sizes) throw std::invalid_argument("\"family\" must be one of " + family_names());
  return *sizes;
}

}  // namespace

NamedSizes read_model_file(const std::string& path) {
  const std::string text = read_text(path);
  try {
    const nlohmann::json object = parse_strict_json(text, kDescription);
    if (!object.is_object()) {
      throw std::invalid_argument("must be a JSON object with \"family\" and sizes");
    }
    if (is_hugging_face(object)) return read_hugging_face(object, path);
    const ModelSizes sizes = sizes_from_family(object);
    return {object.contains("name") ? name_from(object["name"])
                                    : std::filesystem::path(path).stem().string(),
            sizes};
  } catch (const std::exception& error) {
    throw std::invalid_argument(shown(fmt::format("{}: {}", path, error.what())));
  }
}

}  // namespace shardlens::models
