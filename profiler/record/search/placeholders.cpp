#include "profiler/record/search/placeholders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace shardlens::profiler {

namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

}  // namespace

std::vector<std::string> placeholders_in(const std::vector<std::string>& command) {
  std::vector<std::string> names;
  for (const std::string& word : command) {
    for (size_t at = word.find('{'); at != std::string::npos; at = word.find('{', at + 1)) {
      const size_t end = word.find('}', at);
      if (end == std::string::npos) break;
      const std::string name = word.substr(at + 1, end - at - 1);
      const bool is_new = std::ranges::find(names, name) == names.end();
      if (is_name(name) && is_new) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> with_text(std::vector<std::string> command, const std::string& name,
                                   const std::string& text) {
  const std::string place = "{" + name + "}";
  for (std::string& word : command) {
    for (size_t at = word.find(place); at != std::string::npos; at = word.find(place, at)) {
      word.replace(at, place.size(), text);
      at += text.size();
    }
  }
  return command;
}

std::vector<std::string> with_values(std::vector<std::string> command,
                                     const std::vector<PlacedValue>& values) {
  for (const auto& [name, value] : values) {
    command = with_text(std::move(command), name, std::to_string(value));
  }
  return command;
}

std::string values_text(const std::vector<PlacedValue>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

}  // namespace shardlens::profiler
