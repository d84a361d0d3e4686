// The peak-preserving pyramid: it finds the highest moment of any range of changes, with the memory
// by category at it, in logarithmic time. Leaves hold kLeafChanges changes, each node above kFanOut
// nodes below.
//
// Merging keeps the child with the higher maximum together with its composition, and the earlier of
// two equal ones. That is associative, so a picture does not depend on how the user zoomed to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "viewer/model/lane_data.h"

namespace shardlens::viewer {

/// Fills nodes and checkpoints from words and blocks, whose categories must be final.
void build_pyramid(LaneData& data);

/// A view of arrays that their owner keeps. Any number of threads may ask at the same time.
class Pyramid {
 public:
  Pyramid() = default;
  Pyramid(std::span<const uint32_t> words, std::span<const Block> blocks,
          std::span<const Extent> nodes, std::span<const CategoryBytes> checkpoints);

  int64_t changes() const { return static_cast<int64_t>(words_.size()); }
  /// Returns the highest of the states after the changes begin..end-1, where kBeforeAll may be the
  /// first. The range is clipped to the changes that exist; an empty one gives the empty state.
  Extent query(int64_t begin, int64_t end) const;
  CategoryBytes bytes_after(int64_t change) const;

 private:
  class BestMoment;
  void scan(int64_t begin, int64_t end, BestMoment& best) const;
  void climb(int64_t first_leaf, int64_t end_leaf, BestMoment& best) const;

  std::span<const uint32_t> words_;
  std::span<const Block> blocks_;
  std::span<const Extent> nodes_;
  std::span<const CategoryBytes> checkpoints_;
  std::vector<int64_t> level_begins_;  // into nodes_
};

int64_t sum_of(const CategoryBytes& bytes);

/// Returns the number of nodes in each level above `changes` changes, leaves first.
std::vector<int64_t> pyramid_levels(int64_t changes);

}  // namespace shardlens::viewer
