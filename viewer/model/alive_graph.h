// The blocks of a moment as a tree, drawn as a flame graph or listed as a table: what is alive,
// what a step allocates and frees, or what stays from earlier steps. The tree itself is
// profiler/report/alive_tree.h, which `profile alive` prints, too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/choice.h"
#include "profiler/report/alive_tree.h"
#include "viewer/model/lane.h"
#include "viewer/model/run.h"
#include "viewer/model/search.h"

namespace shardlens::viewer {

/// The blocks in a tree: those alive at the moment; those that the step around it allocates and
/// frees again; or those alive at the moment that an earlier step allocated, except the first step,
/// which allocates what stays for good: a list of leak candidates.
enum class TreeContent : uint8_t { alive, churn, kept };
constexpr auto choice_words(TreeContent) { return words("alive", "churn", "kept"); }

/// Returns the blocks in order of birth.
std::vector<uint32_t> blocks_of(const Lane& lane, int64_t change, TreeContent of);

/// The facts about a node that the tree itself lacks.
struct GraphNode {
  CategoryBytes bytes{};        // of the blocks below it
  Category category{};          // which has most of these bytes
  int64_t span_bytes = 0;       // its width: the larger of the two runs', place by place
  int64_t oldest_steps = 0;     // steps that began since the oldest was allocated
  uint32_t block = UINT32_MAX;  // the largest; none if only the baseline has any
};

/// The fields of a block by which a tree tells blocks apart.
using GraphKey = std::tuple<uint32_t, int32_t, profiler::Phase, Category>;

struct AliveGraph {
  profiler::AliveTree tree;
  std::vector<GraphNode> nodes;       // one for each of the tree's
  std::map<GraphKey, uint32_t> ends;  // the node at which a block's path ends
  profiler::TreeGrouping by{};
  bool compares = false;

  /// Returns the node at which a block's path ends; nothing if the block is not in the tree.
  std::optional<uint32_t> end_of(const Block& block) const;
  bool is_below(uint32_t node, uint32_t ancestor) const;
  int64_t total_bytes() const { return tree.nodes.front().bytes; }
};

/// A rank at the moment of the tree.
struct GraphSide {
  const RankLane* rank = nullptr;
  int64_t change = kBeforeAll;
};

struct GraphQuestion {
  TreeContent of{};
  profiler::TreeGrouping by{};
  profiler::TreeStart from{};
};

/// Builds the tree of a rank, compared with the baseline's if there is one.
AliveGraph graph_of(const GraphSide& one, const std::optional<GraphSide>& baseline,
                    const GraphQuestion& question);

/// Returns the names of the places from below the root to a node. node_at returns the node of such
/// a path, or the last existing node if only a part of the path exists.
std::vector<std::string> path_of(const AliveGraph& graph, uint32_t node);
uint32_t node_at(const AliveGraph& graph, const std::vector<std::string>& path);

/// Marks the nodes that a search finds: the place has all its words and the size is within its
/// limits. A search's other conditions are about blocks, and do not count here.
std::vector<bool> found_nodes(const AliveGraph& graph, const Query& query);
/// Returns the bytes below the nodes that were found, counting each block once.
int64_t found_bytes(const AliveGraph& graph, const std::vector<bool>& found);

enum class PlaceSort : uint8_t { own, total, count, age, change, name };
constexpr auto choice_words(PlaceSort) {
  return words("own", "total", "count", "oldest", "change", "name");
}

/// A place, wherever it occurs in a tree. Its own bytes are those of blocks whose path ends there,
/// so own bytes add up to the whole tree; a block counts once in the total of every place on its
/// path.
struct PlaceRow {
  std::string name;
  uint32_t node = 0;  // the one with the most bytes
  Category category{};
  int64_t own_bytes = 0;
  int64_t total_bytes = 0;
  int64_t own_count = 0;
  int64_t oldest_steps = 0;
  int64_t baseline_own_bytes = 0;

  int64_t change_bytes() const { return own_bytes - baseline_own_bytes; }
};

/// Returns the places that a search finds (all, if it is empty) below a node, and the node itself
/// unless it is the root, in the order of `sort`: largest, oldest or most changed first, or by
/// name.
std::vector<PlaceRow> place_rows(const AliveGraph& graph, uint32_t below, PlaceSort sort,
                                 const Query& query);

}  // namespace shardlens::viewer
