// Places in a command that take a value: {batch} in "python train.py --batch {batch}".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardlens::profiler {

using PlacedValue = std::pair<std::string, int64_t>;  // a placeholder's name and its value

/// Returns each combination of the lists' values, with their names. The last list varies fastest.
template <typename Value>
std::vector<std::vector<std::pair<std::string, Value>>> combinations_of(
    const std::vector<std::pair<std::string, std::vector<Value>>>& lists) {
  std::vector<std::vector<std::pair<std::string, Value>>> all(1);
  for (const auto& [name, values] : lists) {
    std::vector<std::vector<std::pair<std::string, Value>>> longer;
    for (const auto& combination : all) {
      for (const Value& value : values) {
        longer.push_back(combination);
        longer.back().emplace_back(name, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// Returns the names of the placeholders, each once, in their order.
std::vector<std::string> placeholders_in(const std::vector<std::string>& command);

/// Returns the command with a text in place of {name}.
std::vector<std::string> with_text(std::vector<std::string> command, const std::string& name,
                                   const std::string& text);

/// Returns the command with values in place of placeholders.
std::vector<std::string> with_values(std::vector<std::string> command,
                                     const std::vector<PlacedValue>& values);

/// Returns "batch=4, seq=512".
std::string values_text(const std::vector<PlacedValue>& values);

}  // namespace shardlens::profiler
