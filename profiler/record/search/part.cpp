#include "profiler/record/search/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "base/shown.h"

namespace shardlens::profiler {

std::optional<int64_t> count_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && value > 0 ? std::optional(value) : std::nullopt;
}

RunPart parse_part(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const auto number = count_in(text.substr(0, slash));
  const auto count = count_in(text.substr(std::min(slash + 1, text.size())));
  if (number && count && *number <= *count) return {.number = *number, .count = *count};
  throw std::invalid_argument(
      fmt::format("--part {}: give a part from 1 and how many there are, such as 2/8",
                  shown(std::string(text))));
}

}  // namespace shardlens::profiler
