#include "base/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/shown.h"

namespace shardlens {

namespace {

constexpr size_t kMostQuoted = 40;  // bytes of a file that a message repeats

std::string excerpt_of(std::string_view text) {
  return text.size() <= kMostQuoted ? shown(text) : shown(text.substr(0, kMostQuoted)) + "...";
}

using Members = nlohmann::ordered_json::object_t;

Members::Container& members_of(nlohmann::ordered_json& object) {
  return object.get_ref<Members&>();
}

/// Builds the tree. nlohmann's own parser callback would look at all siblings of every value.
template <class Json>
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  using Sax = nlohmann::json_sax<Json>;

  TreeBuilder(std::string_view text, const Limits& limits) : text_(text), limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(typename Sax::number_integer_t value) override { return put(value); }
  bool number_unsigned(typename Sax::number_unsigned_t value) override { return put(value); }
  bool number_float(typename Sax::number_float_t value, const std::string&) override {
    return put(value);
  }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(typename Sax::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!is_new(*open_.back().json, name)) {
      throw std::runtime_error(fmt::format("the key \"{}\" is given twice", excerpt_of(name)));
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) {
      throw std::runtime_error(
          fmt::format("not valid JSON: {} is too large for a number", excerpt_of(token)));
    }
    const std::string_view before = text_.substr(0, position > 0 ? position - 1 : 0);
    const size_t line_start = before.rfind('\n') + 1;  // 0 where there is none
    throw std::runtime_error(
        fmt::format("not valid JSON: line {}, column {}: {}", 1 + std::ranges::count(before, '\n'),
                    before.size() - line_start + 1,
                    position > text_.size() ? std::string("it ends too early")
                                            : fmt::format("unexpected \"{}\"", excerpt_of(token))));
  }

 private:
  struct Container {
    Json* json;
    std::set<std::string> keys;  // of an object that has no index of its own
  };

  bool is_new(const nlohmann::json& object, const std::string& name) {
    return !object.contains(name);
  }
  bool is_new(const nlohmann::ordered_json&, const std::string& name) {
    return open_.back().keys.insert(name).second;
  }

  Json* add(Json value) {
    if (++values_ > limits_.values) {
      throw std::runtime_error(fmt::format("has more than {} values", limits_.values));
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back().json;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return add_member(parent, std::move(value));
  }

  Json* add_member(nlohmann::json& parent, Json value) {
    return &*parent.emplace(std::move(key_), std::move(value)).first;
  }
  Json* add_member(nlohmann::ordered_json& parent, Json value) {
    append_member(parent, std::move(key_), std::move(value));
    return &members_of(parent).back().second;
  }

  bool put(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (open_.size() == limits_.depth) {
      throw std::runtime_error(fmt::format("nests more than {} deep", limits_.depth));
    }
    Json* const added = add(std::move(container));
    open_.push_back({added, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const Limits& limits_;
  Json root_;
  std::vector<Container> open_;
  std::string key_;
  uint64_t values_ = 0;
};

template <class Json>
Json parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.bytes) {
    throw std::runtime_error(
        fmt::format("has {} bytes; at most {} are read", text.size(), limits.bytes));
  }
  TreeBuilder<Json> builder(text, limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

template <class Json>
std::optional<Json> find(std::string_view text, const Limits& limits) {
  try {
    return parse<Json>(text, limits);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, const Limits& limits) {
  return parse<nlohmann::json>(text, limits);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const Limits& limits) {
  return parse<nlohmann::ordered_json>(text, limits);
}

std::string problem_of(const nlohmann::json::exception& error) {
  const std::string text = error.what();  // "[json.exception.type_error.302] type must be ..."
  const size_t prefix_end = text.find("] ");
  return shown(prefix_end == std::string::npos ? text : text.substr(prefix_end + 2));
}

void append_member(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value) {
  members_of(object).emplace_back(std::move(key), std::move(value));
}

std::optional<int64_t> whole_in(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : find_whole(*found);
}

std::optional<std::string> text_in(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

std::optional<nlohmann::json> find_json(std::string_view text, const Limits& limits) {
  return find<nlohmann::json>(text, limits);
}

std::optional<nlohmann::ordered_json> find_ordered_json(std::string_view text,
                                                        const Limits& limits) {
  return find<nlohmann::ordered_json>(text, limits);
}

}  // namespace shardlens
