// What differs between strategies: category by category, column by column, and which allocations
// only one of them holds. B is compared with A, the baseline, so that a growth is positive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/lane.h"
#include "viewer/model/passes.h"

namespace shardlens::viewer {

/// b - a.
CategoryBytes difference(const CategoryBytes& a, const CategoryBytes& b);

/// A column where one of them has nothing has no difference.
std::vector<std::optional<CategoryBytes>> difference(const std::vector<std::optional<Extent>>& a,
                                                     const std::vector<std::optional<Extent>>& b);

/// "12.5 MiB more (+25.0 %)", "3.00 MiB less (-1.0 %)", "the same"; below the threshold of noise,
/// the larger of 1 % of `a_bytes` and `noise_bytes`, "about the same".
std::string change_in_words(int64_t a_bytes, int64_t b_bytes, int64_t noise_bytes = 0);

enum class Grouping : uint8_t { none, category, label, age };
constexpr int kGroupings = 4;
constexpr std::array<std::string_view, kGroupings> kGroupingNames = {"block", "category",
                                                                     "parameter", "age"};

/// Blocks that are alive in one moment and share a name.
struct AliveRow {
  std::string name;
  Category category{};  // of the largest of them
  int64_t bytes = 0;
  int64_t count = 0;
  int64_t oldest_steps = 0;     // steps that began since the oldest was allocated
  uint32_t block = UINT32_MAX;  // the largest of them
};

/// Every block alive after a change, once: the rows' bytes add up to the total then. The largest
/// row first; of equal ones by name.
std::vector<AliveRow> alive_rows(const Lane& lane, const ActionNames& names, int64_t change,
                                 Grouping grouping);

/// What two moments have in common, by category and label.
struct SharedRow {
  std::string name;
  Category category{};
  int64_t a_bytes = 0;
  int64_t b_bytes = 0;

  int64_t only_a_bytes() const { return std::max<int64_t>(0, a_bytes - b_bytes); }
  int64_t only_b_bytes() const { return std::max<int64_t>(0, b_bytes - a_bytes); }
  int64_t both_bytes() const { return std::min(a_bytes, b_bytes); }
};

struct Moment {
  const Lane* lane = nullptr;
  int64_t change = kBeforeAll;
};

/// Sums over the rows: a_bytes and b_bytes are the totals of the two moments. The row that
/// differs most first.
std::vector<SharedRow> shared_rows(const Moment& a, const Moment& b);

}  // namespace shardlens::viewer
