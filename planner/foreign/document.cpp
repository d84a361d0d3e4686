#include "planner/foreign/document.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <stdexcept>
#include <string>

#include "models/strict_json.h"

namespace {

[[noreturn]] void refuse_toml() { throw std::invalid_argument("not TOML"); }

}  // namespace

// toml++ 3.3 asserts, or assumes, of "[[[" what is not so: damaged text shall be an error.
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : refuse_toml())
#include <toml++/toml.h>

namespace shardlens::planner {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr int kMostNodes = 10000;  // an alias may stand for many nodes, again and again
constexpr int kMostDepth = 32;

/// A plain scalar as PyYAML reads it: "no" is false.
Json scalar_of(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // in quotes
  if (bool flag = false; YAML::convert<bool>::decode(node, flag)) return flag;
  if (int64_t whole = 0; YAML::convert<int64_t>::decode(node, whole)) return whole;
  if (double number = 0; YAML::convert<double>::decode(node, number)) return number;
  return text;
}

class YamlTree {
 public:
  Json json_of(const YAML::Node& node, int depth = 0) {
    if (++nodes_ > kMostNodes || depth > kMostDepth) {
      throw std::invalid_argument("too many values, or too deep, for a configuration");
    }
    if (node.IsScalar()) return scalar_of(node);
    if (node.IsSequence()) {
      Json list = Json::array();
      for (const YAML::Node& item : node) list.push_back(json_of(item, depth + 1));
      return list;
    }
    if (!node.IsMap()) return nullptr;
    Json object = Json::object();
    for (const auto& entry : node) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (object.contains(key)) {
        throw std::invalid_argument(fmt::format("the key \"{}\" is given twice", key));
      }
      object[key] = json_of(entry.second, depth + 1);
    }
    return object;
  }

 private:
  int nodes_ = 0;
};

Json parse_yaml(const std::string& text) {
  try {
    return YamlTree().json_of(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    throw std::invalid_argument(fmt::format("not YAML: {}", error.what()));
  }
}

Json parse_toml(std::string_view text) {
  try {
    const toml::table table = toml::parse(text);
    std::ostringstream json;
    json << toml::json_formatter(table);
    return Json::parse(json.str());
  } catch (const toml::parse_error& error) {
    throw std::invalid_argument(fmt::format("not TOML: line {}: {}", error.source().begin.line,
                                            std::string(error.description())));
  } catch (const Json::exception& error) {
    throw std::invalid_argument(fmt::format("not TOML: {}", error.what()));
  }
}

Json parse_json(std::string_view text) {
  try {
    return models::parse_strict_json(text);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
}

}  // namespace

Json parse_document(std::string_view text, Notation notation) {
  if (text.size() > kMostBytes) {
    throw std::invalid_argument(fmt::format("more than {} bytes: no configuration", kMostBytes));
  }
  Json json = notation == Notation::yaml   ? parse_yaml(std::string(text))
              : notation == Notation::toml ? parse_toml(text)
                                           : parse_json(text);
  if (!json.is_object()) throw std::invalid_argument("not a table of keys and values");
  return json;
}

}  // namespace shardlens::planner
