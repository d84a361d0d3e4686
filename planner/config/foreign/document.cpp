#include "planner/config/foreign/document.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/limits.h"
#include "base/strict_json.h"

namespace {

[[noreturn]] void refuse_toml() { throw std::invalid_argument("not TOML"); }

}  // namespace

// toml++ 3.3 asserts or assumes things about "[[[" that damaged text breaks; such text must be an
// error.
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : refuse_toml())
#include <toml++/toml.h>

namespace shardlens::planner {

namespace {

using Json = nlohmann::json;

constexpr Limits kLimits = kWritten;

[[noreturn]] void refuse_size() {
  throw std::invalid_argument(
      fmt::format("too many values, or too deep, for a configuration: at most {}, {} deep",
                  kLimits.values, kLimits.depth));
}

/// Reads a plain scalar as PyYAML does: "no" is false.
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
  /// Returns a node as JSON. An alias may stand for many nodes, again and again, so all
  /// nodes that are built are counted.
  Json json_of(const YAML::Node& node, size_t depth = 0) {
    if (++nodes_ > kLimits.values || depth > kLimits.depth) refuse_size();
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
  uint64_t nodes_ = 0;
};

Json parse_yaml(const std::string& text) {
  try {
    return YamlTree().json_of(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    throw std::invalid_argument(fmt::format("not YAML: {}", error.what()));
  }
}

/// Checks the depth from brackets and dots alone, before toml++ reads the text: it recurses for
/// every level and takes memory that grows with the square of their number. Dots of numbers count
/// as those of keys: neither has many.
class TomlDepth {
 public:
  /// Throws std::invalid_argument if tables, lists or dotted keys are deeper than in any
  /// configuration.
  static void check(std::string_view text) {
    TomlDepth depth;
    for (size_t at = 0; at < text.size();) at = depth.step(text, at);
  }

 private:
  /// Reads one token and returns where to go on.
  size_t step(std::string_view text, size_t at) {
    switch (text[at]) {
      case '"':
      case '\'':
        return end_of_string(text, at);
      case '#':
        return std::min(text.find('\n', at), text.size());
      case '[':
      case '{':
        ++open_;
        dots_ = 0;
        break;
      case ']':
      case '}':
        if (open_ > 0) --open_;
        break;
      case '.':
        ++dots_;
        break;
      case '=':
      case ',':
      case '\n':
        dots_ = 0;
        break;
      default:
        return at + 1;
    }
    if (open_ > kLimits.depth || dots_ > kLimits.depth) refuse_size();
    return at + 1;
  }

  static size_t end_of_string(std::string_view text, size_t at) {
    const char quote = text[at];
    const std::string many(3, quote);
    const bool is_long = text.substr(at, 3) == many;
    const std::string_view end = is_long ? std::string_view(many) : text.substr(at, 1);
    for (at += end.size(); at < text.size(); ++at) {
      if (text[at] == '\\' && quote == '"') {
        ++at;
      } else if (text.substr(at, end.size()) == end) {
        return at + end.size();
      } else if (text[at] == '\n' && !is_long) {
        return at;  // toml++ will refuse it
      }
    }
    return text.size();
  }

  size_t open_ = 0;
  size_t dots_ = 0;
};

Json parse_toml(std::string_view text) {
  TomlDepth::check(text);
  try {
    const toml::table table = toml::parse(text);
    std::ostringstream json;
    json << toml::json_formatter(table);
    return parse_strict_json(json.str(), kLimits);
  } catch (const toml::parse_error& error) {
    throw std::invalid_argument(fmt::format("not TOML: line {}: {}", error.source().begin.line,
                                            std::string(error.description())));
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(fmt::format("not TOML: {}", error.what()));
  }
}

Json parse_json(std::string_view text) {
  try {
    return parse_strict_json(text, kLimits);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
}

}  // namespace

Notation notation_of(const std::string& file) {
  if (file.ends_with(".toml")) return Notation::toml;
  return file.ends_with(".yaml") || file.ends_with(".yml") ? Notation::yaml : Notation::json;
}

Json parse_document(std::string_view text, Notation notation) {
  if (text.size() > kLimits.bytes) {
    throw std::invalid_argument(fmt::format("over {} bytes: not a configuration", kLimits.bytes));
  }
  Json json = notation == Notation::yaml   ? parse_yaml(std::string(text))
              : notation == Notation::toml ? parse_toml(text)
                                           : parse_json(text);
  if (!json.is_object()) throw std::invalid_argument("not a table of keys and values");
  return json;
}

}  // namespace shardlens::planner
