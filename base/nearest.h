// The edit distance between words, for messages that suggest what a mistyped word meant.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace shardlens {

/// The most edits with which a word counts as mistyped rather than as another word.
inline constexpr size_t kMistypedEdits = 3;

/// Returns the Levenshtein distance between two words.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row.back();
}

/// Returns how far an existing name is from what was written. The distance is 0 if the name begins
/// with it, so such names are nearest of all.
inline size_t name_distance(std::string_view written, std::string_view name) {
  const bool begins = !written.empty() && name.starts_with(written);
  return begins ? 0 : edit_distance(written, name);
}

/// Returns the item whose `name` is nearest. The range must not be empty.
template <class Items>
const auto& nearest_named(const Items& items, std::string_view written) {
  check(!std::ranges::empty(items), "the nearest of no names");
  return *std::ranges::min_element(
      items, {}, [&](const auto& item) { return name_distance(written, item.name); });
}

}  // namespace shardlens
