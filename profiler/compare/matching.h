// Matches what is alive in one run with what is alive in another, so that a comparison shows only
// what changed. `profile diff`, the gate and the viewer all compare by these rules. B is compared
// with A, so a growth is positive.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "profiler/program/program_lines.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Stands for a block that does not exist, or that the caller has not numbered.
constexpr uint32_t kNoHeldBlock = UINT32_MAX;

/// Live blocks of one category that have the same label and action.
struct Holding {
  Category category{};
  std::string label;
  std::string action{};  // as short_action returns it; empty outside a pass
  std::vector<int64_t> sizes;
  uint32_t largest = kNoHeldBlock;  // the largest block, by the caller's own number
};

/// The blocks of one place and category in two runs. A block that both have counts as in both with
/// the smaller of its two sizes; the rest of the larger one counts for its own side only.
struct MatchedPlace {
  std::string name;  // "train.py:41 forward", or "block0-23 master" for repeated layers
  Category category{};
  int64_t a_bytes = 0;
  int64_t b_bytes = 0;
  int64_t in_both_bytes = 0;
  int64_t a_count = 0;  // of blocks
  int64_t b_count = 0;
  int64_t layers = 1;               // places that the row stands for
  uint32_t a_block = kNoHeldBlock;  // a large block of the place, in its first layer,
  uint32_t b_block = kNoHeldBlock;  // numbered as in `Holding::largest`

  int64_t only_a_bytes() const { return a_bytes - in_both_bytes; }
  int64_t only_b_bytes() const { return b_bytes - in_both_bytes; }
  int64_t changed_bytes() const { return only_a_bytes() + only_b_bytes(); }
  int64_t growth_bytes() const { return b_bytes - a_bytes; }
};

/// Returns "2 blocks, 6.00 MiB".
std::string blocks_text(int64_t count, int64_t bytes);

/// Returns what a place holds in both: "2 blocks, 6.00 MiB -> 3 blocks, 9.00 MiB", "new, 1 block,
/// 3.00 MiB", or "gone, 1 block, 3.00 MiB".
std::string holding_text(const MatchedPlace& place);

struct Matching {
  std::vector<MatchedPlace> rows;  // the greatest difference first
  int64_t in_both_bytes = 0;
  int64_t only_a_bytes = 0;
  int64_t only_b_bytes = 0;
};

/// [Note: matching]
/// A place is a line of a program, or a module with the kind of an action. Lines are found again by
/// align_lines after the program was edited. Blocks of one category are paired:
/// 1. in a place that both sides have, those of equal size; then the rest, the largest with the
///    largest: twice the batch gives the same blocks, only larger;
/// 2. in places that only one side has, those of the same function and size, since lines move, and
///    those of the same module and size, since its work may be done in another action; then the
///    rest of a module, the largest with the largest. Workspaces of the same size are paired in any
///    place.
/// In a file that has not changed, a line is only ever paired with itself. A file has not changed
/// if `record` took the same fingerprint for both runs, or else if its lines are in place
/// (files_in_place).
///
/// Blocks without a partner are in one run only. Pairing sorts the sizes of a place, so n blocks
/// cost n log n.
///
/// A snapshot of PyTorch knows no categories. Its blocks are paired with those of any category, and
/// a row has the category of the side that knows it.
///
/// The sums of a_bytes and of b_bytes over all rows are the totals of the two runs.
Matching match(const std::vector<Holding>& a, const std::vector<Holding>& b,
               const ProgramLines& program_a = {}, const ProgramLines& program_b = {});

/// Returns the files that have not changed from A to B, by the same rules.
std::set<std::string> unchanged_files(const ProgramLines& a, const ProgramLines& b);

}  // namespace shardlens::profiler
