// Places in a command that take a value: {batch} in "python train.py --batch {batch}".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardlens::profiler {

using PlacedValue = std::pair<std::string, int64_t>;  // a placeholder's name and its value

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
