// Parses JSON from a file strictly: time and memory are linear in the text, nesting and values have
// limits, and a key given twice is an error (nlohmann's parser keeps the last one, so that two
// readers of one file may disagree).
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/limits.h"

namespace shardlens {

/// Parses a text. Throws std::runtime_error with one line that says where the text is not JSON, or
/// too deep. The line names no file: the caller adds the path.
nlohmann::json parse_strict_json(std::string_view text, const Limits& limits = kRecord);

/// Parses as parse_strict_json does, but keeps the keys in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const Limits& limits = kRecord);

/// Returns nothing if the text is not JSON, for callers that can go on without it.
std::optional<nlohmann::json> find_json(std::string_view text, const Limits& limits = kRecord);
std::optional<nlohmann::ordered_json> find_ordered_json(std::string_view text,
                                                        const Limits& limits = kRecord);

/// Writes a document to print, with a newline at its end; bytes that are not UTF-8 are replaced.
template <class Json>
std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Returns in one line what nlohmann's error says about a value that is missing or of another type.
std::string problem_of(const nlohmann::json::exception& error);

/// Returns a value as a whole number, or nothing if it is another kind of value or beyond T.
/// nlohmann's own conversion is undefined for 1e300, makes 2^64 - 1 to -1, and cuts 2^40 to the int
/// 0.
template <std::integral T = int64_t, class Json>
std::optional<T> find_whole(const Json& value) {
  const auto in_range = [](auto whole) {
    return std::in_range<T>(whole) ? std::optional(static_cast<T>(whole)) : std::nullopt;
  };
  if (value.is_number_unsigned()) return in_range(value.template get<uint64_t>());
  if (value.is_number_integer()) return in_range(value.template get<int64_t>());
  return std::nullopt;
}

/// Returns a value as a whole number, or throws what nlohmann throws for another type of value.
template <std::integral T = int64_t, class Json>
T whole_of(const Json& value) {
  if (const auto whole = find_whole<T>(value)) return *whole;
  throw nlohmann::json::type_error::create(
      302, std::string("type must be a whole number in its range, but is ") + value.type_name(),
      &value);
}

/// Returns an object's whole number under a key, or `otherwise` if there is no such key.
template <std::integral T, class Json>
T whole_or(const Json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : whole_of<T>(*found);
}

/// Adds a member under a key that is new to an object; the object's own operator[] would look
/// through all others first.
void append_member(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value);

/// Returns an object's value under a key if it is of that kind; else nothing, also if `object` is
/// not an object.
std::optional<int64_t> whole_in(const nlohmann::json& object, const char* key);
std::optional<std::string> text_in(const nlohmann::json& object, const char* key);

}  // namespace shardlens
