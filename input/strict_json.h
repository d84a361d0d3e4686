// JSON as it is accepted from a file: time and memory are linear in the text, nesting and values
// have limits, and a key given twice is an error (nlohmann's parser keeps the last one, so that two
// readers of one file may disagree).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "input/limits.h"

namespace shardlens::input {

/// Throws std::runtime_error with one line that says where the text is no JSON, or too deep; it
/// names no file: the caller adds the path.
nlohmann::json parse_strict_json(std::string_view text, const Limits& limits = kRecord);

/// The same, with its keys in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const Limits& limits = kRecord);

/// Nothing where it is no JSON: for who may go on without.
std::optional<nlohmann::json> find_json(std::string_view text, const Limits& limits = kRecord);
std::optional<nlohmann::ordered_json> find_ordered_json(std::string_view text,
                                                        const Limits& limits = kRecord);

/// A document to print, with a newline at its end; what is no UTF-8 is replaced.
template <class Json>
std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// What an error of nlohmann's says of a value that is missing or of another type, in one line.
std::string problem_of(const nlohmann::json::exception& error);

/// Adds a member under a key that is new to an object; its own operator[] looks through all others.
void append_member(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value);

/// What an object has under a key, where it is of that kind; nothing of anything else, be it no
/// object.
std::optional<int64_t> whole_in(const nlohmann::json& object, const char* key);
std::optional<std::string> text_in(const nlohmann::json& object, const char* key);

}  // namespace shardlens::input
