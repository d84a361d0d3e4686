// Finds the lines of a program again after an edit: which line in one version of a file is which
// line in the other, by the functions they are in and the memory they allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
/// `diff` aligns texts: pairs must be in the same order in both, and in the same function, or in
/// two functions that each exist on one side only and hold mostly blocks of the same sizes. The
/// best of all such alignments is taken: the one that has the most pairs and the most similar
/// blocks, and whose distance changes least often, since an edit shifts all lines below it by the
/// same number.
///
/// Sizes only break ties between lines, so doubling the batch leaves every line where it was.
///
/// Returns for every line of `a` the index of its line in `b`, or nothing. Time and memory grow
/// with the product of two files' numbers of lines; files for which it exceeds a million are
/// aligned only by equal line numbers.
std::vector<std::optional<size_t>> align_lines(const std::vector<ProgramLine>& a,
                                               const std::vector<ProgramLine>& b);

/// Returns the files whose lines have the same numbers in both: by the best alignment of all lines
/// that two recordings name, the last line that both have has not moved. Such a file is unchanged,
/// or was edited within its lines.
std::set<std::string> files_in_place(const std::vector<ProgramLine>& a,
                                     const std::vector<ProgramLine>& b);

}  // namespace shardlens::profiler
