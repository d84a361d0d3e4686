// Watches which blocks outlive the step that made them, from event to event, and says at the end
// which labels grow.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/program/steady_rise.h"
#include "profiler/recording/profile.h"
#include "profiler/report/peak_set.h"

namespace shardlens::profiler {

/// The count of a label's allocations, and which of all allocations its first and last are.
struct LabelSpan {
  uint32_t label = 0;
  int64_t count = 0;
  uint64_t first = 0;
  uint64_t last = 0;
};

/// The first and the last of some allocations, by their numbers. Without any, all numbers are
/// before the first and after the last.
struct AllocationRange {
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;

  void take(uint64_t number) {
    first = std::min(first, number);
    last = std::max(last, number);
  }
};

struct GrowingLabel {
  uint32_t label = 0;
  Category category{};
  bool are_numbers = false;  // its blocks are the smallest that there are
  bool is_replaced = false;  // its blocks are replaced by larger ones, none is kept
  SteadyRise rise;           // its moments are marks
};

/// [Note: growth]
/// A mark is the beginning of a step, or of a round of a program without steps. A block is *kept*
/// from the second mark after its allocation on: it has outlived a whole step, so it is not merely
/// a variable that the next step overwrites. A label grows if its kept bytes rise steadily
/// (steady_rise.h). A label also grows if it holds more at each mark although its blocks are
/// replaced, as of `all = torch.cat([all, one])`, unless most labels of the program allocate more
/// from step to step, as with longer and longer sequences. Bytes are those asked for, since what
/// the allocator gives for the same request differs a little from step to step.
class GrowthWatch {
 public:
  /// `set` has the allocations that were told of and not freed, `live` among them.
  void allocated(const LiveAllocation& live, const PeakSet& set);
  void freed(const LiveAllocation& live);
  /// Begins a step or round.
  void mark(const PeakSet& set);

  int64_t marks() const { return marks_; }
  /// Returns the number of steps or rounds in which something was freed that they had made.
  int64_t marks_with_frees() const { return marks_with_frees_; }
  uint64_t allocations() const { return last_version_; }
  std::vector<LabelSpan> spans() const;
  std::vector<GrowingLabel> growing() const;

 private:
  struct Block {
    uint64_t address = 0;
    uint64_t version = 0;
  };
  /// Marks in a row at which a label held more than at the one before.
  struct Streak {
    int64_t first = 0;
    int64_t last = -1;
    int64_t first_bytes = 0;
    int64_t last_bytes = 0;
  };
  struct Log {
    LabelSpan span;
    Category category{};
    int64_t largest_bytes = 0;
    int64_t held_bytes = 0;
    int64_t kept_bytes = 0;
    int64_t made_bytes = 0;         // in this step
    int64_t made_before_bytes = 0;  // in the last step with any
    bool is_touched = false;        // since the last mark
    Streak streak = {};
    std::vector<HeldBytes> kept = {};
  };

  Log& log_of(uint32_t label);
  void touch(Log& log);
  void keep(const LiveAllocation& live);
  void note(Log& log);
  std::vector<Block> alive(const std::vector<Block>& blocks, const PeakSet& set) const;
  bool is_replaced_by_more(const Log& log) const;
  bool most_others_grew(int64_t first_mark) const;

  static constexpr size_t kLeastNew = 4096;

  int64_t marks_ = 0;
  int64_t marks_with_frees_ = 0;
  bool has_freed_ = false;                // since the last mark, a block that is younger
  uint64_t last_version_ = 0;             // of the allocations
  uint64_t kept_version_ = 0;             // blocks up to this one are kept
  uint64_t mark_version_ = 0;             // blocks up to this one are older than the last mark
  std::vector<Block> new_blocks_;         // since the last mark
  std::vector<Block> young_;              // that were new at the last mark
  size_t most_new_ = kLeastNew;           // then the freed ones are dropped
  std::vector<uint32_t> index_of_label_;  // of logs_, plus 1
  std::vector<Log> logs_;
  std::vector<uint32_t> touched_;  // of logs_
  std::vector<double> made_;       // by mark: the labels that allocated,
  std::vector<double> grown_;      // and those of them that made more than before
};

}  // namespace shardlens::profiler
