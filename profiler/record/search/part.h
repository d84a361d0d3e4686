// The share of many runs that one job of an array takes: --part I/N.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace shardlens::profiler {

struct RunPart {
  int64_t number = 1;  // from 1
  int64_t count = 1;   // of the parts
};

/// Parses "2/8" as the second of eight parts. Throws std::invalid_argument.
RunPart parse_part(std::string_view text);

/// Returns a whole number from 1; nothing if the text is not one.
std::optional<int64_t> count_in(std::string_view text);

/// Returns every `count`-th one, from `number` on.
template <typename Run>
std::vector<Run> runs_in(const RunPart& part, std::vector<Run> all) {
  std::vector<Run> some;
  for (size_t i = static_cast<size_t>(part.number - 1); i < all.size();
       i += static_cast<size_t>(part.count)) {
    some.push_back(std::move(all[i]));
  }
  return some;
}

}  // namespace shardlens::profiler
