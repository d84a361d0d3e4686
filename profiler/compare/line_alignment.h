// Finds the lines of a program again after it was edited: which line of one version of a file is
// which of the other, by the functions that they are in and the memory that they allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// A line that allocates memory. `sizes` are those of its live blocks by category, each list in
/// descending order.
struct ProgramLine {
  std::string file;
  int64_t line = 0;
  std::string function;
  std::map<Category, std::vector<int64_t>> sizes;

  int64_t bytes() const;
};

/// [Note: lines found again]
/// A file is found again by its name, else by the functions in it whose memory is most alike: half
/// of the smaller file's bytes must be in functions that both have. Its lines are then aligned as
/// `diff` aligns texts: pairs must be in the same order in both, and in one function, or in two
/// functions that only one side has and that hold mostly blocks of the same sizes. Of all such
/// alignments the best is taken: that with the most pairs, whose blocks are most alike, and whose
/// distance changes least often, since an edit shifts all lines below it by the same number.
///
/// Sizes only break ties between lines, so that twice the batch leaves every line where it was.
///
/// Returns for every line of `a` the index of its line in `b`, or nothing. Time and memory grow
/// with the product of two files' numbers of lines; files where that is beyond a million are
/// aligned by equal numbers alone.
std::vector<std::optional<size_t>> align_lines(const std::vector<ProgramLine>& a,
                                               const std::vector<ProgramLine>& b);

}  // namespace shardlens::profiler
