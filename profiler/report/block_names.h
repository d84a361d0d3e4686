// Shortens lists of names of what blocks hold: "layers.0-7.up.weight" stands for eight names.
#pragma once

#include <string>
#include <vector>

namespace shardlens::profiler {

/// Returns texts that stand for exactly these names, each once: names that differ in one number
/// are joined, number by number from the left. A number is a run of digits between dots, blanks,
/// commas and the ends of a name. The texts are in the order of the first names in them.
std::vector<std::string> joined_names(const std::vector<std::string>& names);

/// Returns the joined names as one text, "0-7.up.weight, 0-7.down.weight and 3 more"; empty if
/// there are none.
std::string names_text(const std::vector<std::string>& names);

}  // namespace shardlens::profiler
