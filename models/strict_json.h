// JSON as we accept it from a file: nlohmann's parser, but a key given twice is an error (the
// parser alone keeps the last one, so that two readers of one file may disagree).
//
// Throws std::runtime_error with a text that names no file; the caller adds the path and passes it
// through one_line, since the text may quote what the file says.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace shardlens::models {

/// Errors are one line each, whatever a damaged or hostile file put into its keys.
inline std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  return text;
}

inline nlohmann::json parse_strict_json(std::string_view text) {
  using nlohmann::json;
  std::vector<std::set<std::string>> open_objects;
  const auto refuse_repeated_key = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) {
        throw std::runtime_error("the key \"" + key + "\" is given twice");
      }
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), refuse_repeated_key);
  } catch (const json::exception& error) {
    const std::string what = error.what();
    const auto prefix_end = what.find("] ");  // "[json.exception.parse_error.101] ..."
    throw std::runtime_error("not valid JSON: " + (prefix_end == std::string::npos
                                                       ? what
                                                       : what.substr(prefix_end + 2)));
  }
}

}  // namespace shardlens::models
