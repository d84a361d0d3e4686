#include "viewer/model/pyramid.h"

#include <algorithm>
#include <numeric>

namespace shardlens::viewer {

namespace {

void apply(uint32_t word, std::span<const Block> blocks, CategoryBytes& bytes, int64_t& total) {
  const Block& block = blocks[block_of(word)];
  const int64_t change = is_free(word) ? -block.given_bytes : block.given_bytes;
  bytes[static_cast<size_t>(block.category)] += change;
  total += change;
}

Extent leaf_of(std::span<const uint32_t> words, int64_t first, std::span<const Block> blocks,
               CategoryBytes& bytes, int64_t& total) {
  Extent leaf{.max_bytes = -1, .min_bytes = INT64_MAX};
  for (size_t i = 0; i < words.size(); ++i) {
    apply(words[i], blocks, bytes, total);
    leaf.min_bytes = std::min(leaf.min_bytes, total);
    if (total <= leaf.max_bytes) continue;
    leaf.max_bytes = total;
    leaf.max_change = first + static_cast<int64_t>(i);
    leaf.at_max = bytes;
  }
  return leaf;
}

Extent merged(std::span<const Extent> children) {
  Extent node = children[0];
  int64_t lowest = node.min_bytes;
  for (const Extent& child : children.subspan(1)) {
    lowest = std::min(lowest, child.min_bytes);
    if (child.max_bytes > node.max_bytes) node = child;
  }
  node.min_bytes = lowest;
  return node;
}

void build_leaves(LaneData& data) {
  CategoryBytes bytes{};
  int64_t total = 0;
  const std::span<const uint32_t> words = data.words;
  for (size_t begin = 0; begin < words.size(); begin += kLeafChanges) {
    data.checkpoints.push_back(bytes);
    const size_t count = std::min<size_t>(kLeafChanges, words.size() - begin);
    data.nodes.push_back(leaf_of(words.subspan(begin, count), static_cast<int64_t>(begin),
                                 data.blocks, bytes, total));
  }
}

}  // namespace

int64_t sum_of(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::vector<int64_t> pyramid_levels(int64_t changes) {
  std::vector<int64_t> counts;
  int64_t count = (changes + kLeafChanges - 1) / kLeafChanges;
  while (count > 0) {
    counts.push_back(count);
    if (count == 1) break;
    count = (count + kFanOut - 1) / kFanOut;
  }
  return counts;
}

void build_pyramid(LaneData& data) {
  data.nodes.clear();
  data.checkpoints.clear();
  const auto levels = pyramid_levels(static_cast<int64_t>(data.words.size()));
  data.nodes.reserve(
      static_cast<size_t>(std::accumulate(levels.begin(), levels.end(), int64_t{0})));
  data.checkpoints.reserve(levels.empty() ? 0 : static_cast<size_t>(levels.front()));
  build_leaves(data);
  size_t below = 0;
  for (size_t level = 1; level < levels.size(); ++level) {
    const auto end = below + static_cast<size_t>(levels[level - 1]);
    for (size_t first = below; first < end; first += kFanOut) {
      const size_t count = std::min<size_t>(kFanOut, end - first);
      data.nodes.push_back(merged(std::span(data.nodes).subspan(first, count)));
    }
    below = end;
  }
}

/// Keeps the best of the moments so far; the compositions of nodes are copied only at the end.
class Pyramid::BestMoment {
 public:
  void take(const Extent& extent) {
    min_bytes_ = std::min(min_bytes_, extent.min_bytes);
    if (!beats(extent.max_bytes, extent.max_change)) return;
    max_bytes_ = extent.max_bytes;
    max_change_ = extent.max_change;
    node_ = &extent;
  }
  void take(int64_t total, int64_t change, const CategoryBytes& bytes) {
    min_bytes_ = std::min(min_bytes_, total);
    if (!beats(total, change)) return;
    max_bytes_ = total;
    max_change_ = change;
    node_ = nullptr;
    own_ = bytes;
  }
  Extent extent() const {
    if (max_bytes_ < 0) return {};  // no moment was added
    return {.max_bytes = max_bytes_,
            .min_bytes = min_bytes_,
            .max_change = max_change_,
            .at_max = node_ != nullptr ? node_->at_max : own_};
  }

 private:
  bool beats(int64_t total, int64_t change) const {
    return total > max_bytes_ || (total == max_bytes_ && change < max_change_);
  }

  int64_t max_bytes_ = -1;
  int64_t min_bytes_ = INT64_MAX;
  int64_t max_change_ = kBeforeAll;
  const Extent* node_ = nullptr;
  CategoryBytes own_{};
};

Pyramid::Pyramid(std::span<const uint32_t> words, std::span<const Block> blocks,
                 std::span<const Extent> nodes, std::span<const CategoryBytes> checkpoints)
    : words_(words), blocks_(blocks), nodes_(nodes), checkpoints_(checkpoints) {
  int64_t begin = 0;
  for (const int64_t count : pyramid_levels(changes())) {
    level_begins_.push_back(begin);
    begin += count;
  }
}

/// Looks at each change of a range within one leaf, by replaying from the leaf's checkpoint.
void Pyramid::scan(int64_t begin, int64_t end, BestMoment& best) const {
  if (begin >= end) return;
  const int64_t leaf = begin / kLeafChanges;
  CategoryBytes bytes = checkpoints_[static_cast<size_t>(leaf)];
  int64_t total = sum_of(bytes);
  for (int64_t i = leaf * kLeafChanges; i < end; ++i) {
    apply(words_[static_cast<size_t>(i)], blocks_, bytes, total);
    if (i >= begin) best.take(total, i, bytes);
  }
}

void Pyramid::climb(int64_t first_leaf, int64_t end_leaf, BestMoment& best) const {
  int64_t first = first_leaf;
  int64_t end = end_leaf;
  for (const int64_t begin : level_begins_) {
    const auto node = [&](int64_t i) -> const Extent& {
      return nodes_[static_cast<size_t>(begin + i)];
    };
    while (first < end && first % kFanOut != 0) best.take(node(first++));
    while (first < end && end % kFanOut != 0) best.take(node(--end));
    if (first >= end) return;
    first /= kFanOut;
    end /= kFanOut;
  }
}

Extent Pyramid::query(int64_t begin, int64_t end) const {
  end = std::min(end, changes());
  BestMoment best;
  if (begin <= kBeforeAll) best.take(0, kBeforeAll, {});
  begin = std::max<int64_t>(begin, 0);
  if (begin >= end) return best.extent();
  const int64_t first_leaf = (begin + kLeafChanges - 1) / kLeafChanges;
  const int64_t end_leaf = end / kLeafChanges;
  if (first_leaf >= end_leaf) {
    // The range lies within two neighbouring leaves.
    const int64_t border = std::min(end, first_leaf * kLeafChanges);
    scan(begin, border, best);
    scan(border, end, best);
    return best.extent();
  }
  scan(begin, first_leaf * kLeafChanges, best);
  climb(first_leaf, end_leaf, best);
  scan(end_leaf * kLeafChanges, end, best);
  return best.extent();
}

CategoryBytes Pyramid::bytes_after(int64_t change) const {
  if (change < 0 || words_.empty()) return {};
  change = std::min(change, changes() - 1);
  const int64_t leaf = change / kLeafChanges;
  CategoryBytes bytes = checkpoints_[static_cast<size_t>(leaf)];
  int64_t total = 0;
  for (int64_t i = leaf * kLeafChanges; i <= change; ++i) {
    apply(words_[static_cast<size_t>(i)], blocks_, bytes, total);
  }
  return bytes;
}

}  // namespace shardlens::viewer
