// The viewer's data of one rank's recording: every change of its memory in flat arrays, in order of
// time, so that a file of them can be mapped and drawn without being parsed.
//
// A *change* is one allocation or free of the lane's space. It is named by its index; "after
// change c" means with the changes 0..c applied, and kBeforeAll is the empty state before them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::viewer {

using profiler::Category;
using profiler::CategoryBytes;
using profiler::kCategories;

constexpr int64_t kBeforeAll = -1;
constexpr uint32_t kNeverFreed = UINT32_MAX;
constexpr uint32_t kMostChanges = 1U << 31;  // a change's word has 31 bits for the block

/// One allocation: of a tensor or, in a lane of segments, of memory that the allocator took from
/// the driver. `given_bytes` are the bytes that the allocator gave, as `profile report` counts
/// them.
struct Block {
  int64_t given_bytes = 0;
  int64_t asked_bytes = 0;
  uint64_t address = 0;
  uint32_t born = 0;            // the change that allocated it
  uint32_t died = kNeverFreed;  // the change that freed it
  uint32_t label = 0;           // index into Lane::strings
  int32_t action = -1;          // of the schedule of its phase
  int32_t step = -1;            // the last step that had begun
  uint16_t stream = 0;
  Category category{};
  profiler::Phase phase{};

  bool is_alive_after(int64_t change) const { return born <= change && change < died; }
};

/// The highest moment of a range of changes. `at_max` is the memory by category at that moment, so
/// its sum is `max_bytes`: never the sum of each category's own maximum, since no moment ever had
/// that.
struct Extent {
  int64_t max_bytes = 0;
  int64_t min_bytes = 0;
  int64_t max_change = kBeforeAll;  // the first one of that height
  CategoryBytes at_max{};
};

/// A training step, or a stretch of another phase (then `number` is -1).
struct Stretch {
  int64_t number = -1;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t first_change = 0;  // of the changes in it
  int64_t end_change = 0;
  int64_t peak_bytes = 0;  // includes what was alive when it began
  int64_t peak_change = kBeforeAll;
  profiler::Phase phase{};
};

/// One execution of an action of the schedule.
struct Span {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int32_t action = -1;
  int32_t depth = 0;  // number of actions already running
  int64_t stretch = -1;
};

/// A further label of a block: the call that freed it, if another one allocated it (PyTorch's
/// snapshots have these; a recorder keeps no stack of a free), or the name of what it holds.
struct BlockLabel {
  uint32_t block = 0;
  uint32_t label = 0;  // index into Lane::strings
};

/// The module of a program that makes what is allocated from a change on.
struct ModuleChange {
  uint32_t change = 0;
  uint32_t label = 0;  // index into Lane::strings; 0: none, or not known
};

/// The memory that LibTorch had reserved from a given time on.
struct ReservedSample {
  int64_t time_ns = 0;
  int64_t bytes = 0;
};

/// A request for memory that failed.
struct FailedRequest {
  int64_t time_ns = 0;
  int64_t change = 0;  // the first change after it
  int64_t asked_bytes = 0;
  int64_t free_bytes = 0;          // on the device, according to the driver
  int64_t reserved_bytes = 0;      // by PyTorch
  int64_t largest_free_bytes = 0;  // of the blocks that are reserved and free
  uint32_t label = 0;              // of who asked; index into Lane::strings
  Category category{};
};

/// A part of a segment that a tensor had for a time. Only lanes of segments have these, in the
/// order in which they begin.
struct SegmentUse {
  int64_t begin_ns = 0;
  int64_t end_ns = INT64_MAX;  // of a tensor that is never freed
  uint64_t address = 0;
  int64_t bytes = 0;
  uint64_t block = 0;  // the segment
};

constexpr int64_t kLeafChanges = 64;
constexpr int64_t kFanOut = 8;
constexpr int64_t kAliveEvery = 65536;  // changes between two saved lists of live blocks

/// The arrays of a lane that is built in memory; a cached lane's are mapped.
struct LaneData {
  std::vector<int64_t> times_ns;
  std::vector<uint32_t> words;  // block << 1 | is_free
  std::vector<Block> blocks;
  std::vector<Extent> nodes;               // of the pyramid, leaves first
  std::vector<CategoryBytes> checkpoints;  // before each leaf
  std::vector<uint64_t> alive_begins;      // into alive_blocks; one more than there are lists
  std::vector<uint32_t> alive_blocks;
  std::vector<Stretch> stretches;
  std::vector<Span> spans;
  std::vector<ReservedSample> reserved;
  std::vector<BlockLabel> free_labels;
  std::vector<BlockLabel> names;
  std::vector<ModuleChange> modules;
  std::vector<FailedRequest> failures;
  std::vector<SegmentUse> uses;
};

inline uint32_t block_of(uint32_t word) { return word >> 1; }
inline bool is_free(uint32_t word) { return (word & 1) != 0; }

}  // namespace shardlens::viewer
