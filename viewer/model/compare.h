// Compares runs: category by category, column by column, and place by place. B is compared with A,
// the baseline, so that growth is positive.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "profiler/compare/matching.h"
#include "profiler/report/recording_report.h"
#include "viewer/model/lane.h"
#include "viewer/model/passes.h"

namespace shardlens::viewer {

/// Returns the name of a category as it is shown: "optimizer state" for "optimizer_state".
std::string in_words(std::string_view name);

/// Returns b - a for each category.
CategoryBytes difference(const CategoryBytes& a, const CategoryBytes& b);

/// Returns the difference of each column, at the highest moments of both. If either run has nothing
/// in a column, the column has no difference.
std::vector<std::optional<CategoryBytes>> difference(const std::vector<std::optional<Extent>>& a,
                                                     const std::vector<std::optional<Extent>>& b);

/// Returns "12.5 MiB more" or "3.00 MiB less" for a growth other than 0.
std::string growth_in_words(int64_t growth_bytes);

/// Returns "12.5 MiB more (+25.0 %)", "3.00 MiB less (-1.0 %)" or "the same". If `noise_bytes` is
/// above 0, "about the same" is a change up to `noise_bytes` or 1 % of `a_bytes`, whichever is
/// larger.
std::string change_in_words(int64_t a_bytes, int64_t b_bytes, int64_t noise_bytes = 0);

enum class Grouping : uint8_t { none, category, label, age };
constexpr int kGroupings = 4;
constexpr auto choice_words(Grouping) { return words("block", "category", "parameter", "age"); }
static_assert(kWords<Grouping>.size() == kGroupings);
/// Returns the word for people; the others are those of session files.
constexpr std::string_view grouping_words(Grouping grouping) {
  return grouping == Grouping::label ? "name" : to_string(grouping);
}

/// Blocks that are alive at one moment and share a name.
struct AliveRow {
  std::string name;
  Category category{};  // of the largest block
  int64_t bytes = 0;
  int64_t count = 0;
  int64_t oldest_steps = 0;             // steps that began since the oldest was allocated
  uint32_t block = UINT32_MAX;          // the largest block
  std::vector<std::string> names = {};  // of what the blocks hold, as far as known
};

/// Returns every block that is alive after a change, exactly once: the rows' bytes add up to the
/// total of that moment. The largest row comes first; rows of equal size are sorted by name.
std::vector<AliveRow> alive_rows(const Lane& lane, const ActionNames& names, int64_t change,
                                 Grouping grouping);
/// Returns the same for some of the blocks that are alive then.
std::vector<AliveRow> rows_of(const Lane& lane, const ActionNames& names, int64_t change,
                              Grouping grouping, const std::vector<uint32_t>& alive);

/// Returns the last step that had begun at a change; -1 if there is none.
int64_t step_of_change(const Lane& lane, int64_t change);

/// Returns how many steps have begun since a block was allocated, up to `step`.
int64_t age_in_steps(const Block& block, int64_t step);

struct LaneMoment {
  const Lane* lane = nullptr;
  const ActionNames* names = nullptr;
  int64_t change = kBeforeAll;
  const profiler::RecordingNotes* notes = nullptr;  // null: none
};

/// Matches what is alive at two moments, by the rules of `profile diff`. The rows' blocks are
/// indices into the lanes.
profiler::Matching match(const LaneMoment& a, const LaneMoment& b);

/// Returns the files, without folders, whose lines are the same in both recordings.
std::set<std::string> unchanged_files(const LaneMoment& a, const LaneMoment& b);

/// Matches what is alive at a moment against nothing, so that each place is a row that grew: the
/// largest place first, repeated layers folded.
profiler::Matching places_of(const LaneMoment& moment);

}  // namespace shardlens::viewer
