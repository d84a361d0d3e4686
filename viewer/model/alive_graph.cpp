#include "viewer/model/alive_graph.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "profiler/compare/origin.h"
#include "viewer/model/compare.h"

namespace shardlens::viewer {

using profiler::AliveGroup;
using profiler::TreeNode;

namespace {

/// The blocks that end at one node.
struct GraphGroup {
  AliveGroup group;
  int64_t oldest_steps = 0;
  uint32_t block = UINT32_MAX;  // the largest
  int64_t block_bytes = 0;
};

GraphKey key_of_block(const Block& block) {
  return {block.label, block.action, block.phase, block.category};
}

std::map<GraphKey, GraphGroup> groups_of(const GraphSide& side, TreeContent of) {
  const Lane& lane = side.rank->lane;
  const int64_t step = step_of_change(lane, side.change);
  std::map<GraphKey, GraphGroup> groups;
  for (const uint32_t index : blocks_of(lane, side.change, of)) {
    const Block& block = lane.arrays().blocks[index];
    GraphGroup& all = groups[key_of_block(block)];
    all.group = {.label = block.label,
                 .action = block.action,
                 .phase = block.phase,
                 .category = block.category,
                 .bytes = all.group.bytes + block.given_bytes,
                 .count = all.group.count + 1};
    all.oldest_steps = std::max(all.oldest_steps, age_in_steps(block, step));
    if (all.block == UINT32_MAX || block.given_bytes > all.block_bytes) {
      all.block = index;
      all.block_bytes = block.given_bytes;
    }
  }
  return groups;
}

/// Adds the facts of a group to all nodes from the end of its path up to the root.
void add_facts(AliveGraph& graph, uint32_t end, const GraphGroup& group,
               std::vector<int64_t>& largest) {
  for (uint32_t at = end;; at = graph.tree.nodes[at].parent) {
    GraphNode& node = graph.nodes[at];
    node.bytes[static_cast<size_t>(group.group.category)] += group.group.bytes;
    node.oldest_steps = std::max(node.oldest_steps, group.oldest_steps);
    if (node.block == UINT32_MAX || group.block_bytes > largest[at]) {
      node.block = group.block;
      largest[at] = group.block_bytes;
    }
    if (at == 0) return;
  }
}

int64_t own_baseline_bytes(const profiler::AliveTree& tree, uint32_t index) {
  int64_t bytes = tree.nodes[index].baseline_bytes;
  for (const uint32_t child : tree.nodes[index].children) bytes -= tree.nodes[child].baseline_bytes;
  return bytes;
}

int64_t own_count(const profiler::AliveTree& tree, uint32_t index) {
  int64_t count = tree.nodes[index].count;
  for (const uint32_t child : tree.nodes[index].children) count -= tree.nodes[child].count;
  return count;
}

/// Fills the widths from the leaves up: a child comes after its parent.
void fill_spans(AliveGraph& graph) {
  for (auto i = static_cast<uint32_t>(graph.nodes.size()); i-- > 0;) {
    GraphNode& node = graph.nodes[i];
    node.span_bytes += std::max(graph.tree.own_bytes(i), own_baseline_bytes(graph.tree, i));
    if (i > 0) graph.nodes[graph.tree.nodes[i].parent].span_bytes += node.span_bytes;
  }
}

void order_by_span(AliveGraph& graph) {
  for (TreeNode& node : graph.tree.nodes) {
    std::ranges::stable_sort(node.children, std::greater(),
                             [&](uint32_t child) { return graph.nodes[child].span_bytes; });
  }
}

std::set<std::string> unchanged_between(const GraphSide& baseline, const GraphSide& one) {
  const auto moment = [](const GraphSide& side) {
    return LaneMoment{&side.rank->lane, &side.rank->names, side.change, &side.rank->notes};
  };
  return unchanged_files(moment(baseline), moment(one));
}

Category most_of(const CategoryBytes& bytes) {
  return static_cast<Category>(std::ranges::max_element(bytes) - bytes.begin());
}

bool fits_sizes(int64_t bytes, const Query& query) {
  return (!query.more_than_bytes || bytes > *query.more_than_bytes) &&
         (!query.less_than_bytes || bytes < *query.less_than_bytes);
}

bool has_words(std::string_view name, const Query& query) {
  const std::string text = in_lower_case(name);
  return std::ranges::all_of(
      query.words, [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

/// Returns the first step of a recording that allocates nothing meant to stay.
int64_t first_settled_step(const Lane& lane) {
  const bool saw_the_first = lane.info().steps_before == 0;
  for (const Stretch& stretch : lane.arrays().stretches) {
    if (stretch.number >= 0) return stretch.number + (saw_the_first ? 1 : 0);
  }
  return 0;
}

std::vector<uint32_t> churned_blocks(const Lane& lane, int64_t change) {
  std::vector<uint32_t> blocks;
  const Stretch* const stretch = lane.stretch_of_change(change);
  if (stretch == nullptr) return blocks;
  for (int64_t i = stretch->first_change; i < stretch->end_change; ++i) {
    const uint32_t word = lane.arrays().words[static_cast<size_t>(i)];
    if (is_free(word)) continue;
    const Block& block = lane.arrays().blocks[block_of(word)];
    if (static_cast<int64_t>(block.died) < stretch->end_change) blocks.push_back(block_of(word));
  }
  return blocks;
}

}  // namespace

std::vector<uint32_t> blocks_of(const Lane& lane, int64_t change, TreeContent of) {
  if (of == TreeContent::churn) return churned_blocks(lane, change);
  std::vector<uint32_t> blocks = lane.alive_after(change);
  if (of == TreeContent::alive) return blocks;
  const int64_t first = first_settled_step(lane);
  const int64_t now = step_of_change(lane, change);
  std::erase_if(blocks, [&](uint32_t index) {
    const int64_t step = lane.arrays().blocks[index].step;
    return step < first || step >= now;
  });
  return blocks;
}

std::optional<uint32_t> AliveGraph::end_of(const Block& block) const {
  const auto end = ends.find(key_of_block(block));
  return end == ends.end() ? std::nullopt : std::optional(end->second);
}

bool AliveGraph::is_below(uint32_t node, uint32_t ancestor) const {
  while (node > ancestor) node = tree.nodes[node].parent;  // a child comes after its parent
  return node == ancestor;
}

AliveGraph graph_of(const GraphSide& one, const std::optional<GraphSide>& baseline,
                    const GraphQuestion& question) {
  AliveGraph graph;
  graph.compares = baseline.has_value();
  graph.by = question.by;
  profiler::TreeBuilder builder(
      graph.compares, baseline ? unchanged_between(*baseline, one) : std::set<std::string>());
  const auto groups = groups_of(one, question.of);
  const auto paths_of = [](const GraphSide& side) {
    const LaneInfo& info = side.rank->lane.info();
    return profiler::TreePaths(info.header, info.strings, info.stacks);
  };
  const profiler::TreePaths paths = paths_of(one);
  for (const auto& [key, all] : groups) {
    graph.ends[key] = builder.add(paths.path(all.group, question.by, question.from), all.group);
  }
  std::vector<std::pair<uint32_t, GraphGroup>> gone;
  if (baseline) {
    const profiler::TreePaths others = paths_of(*baseline);
    for (const auto& [key, all] : groups_of(*baseline, question.of)) {
      const auto path = others.path(all.group, question.by, question.from);
      gone.emplace_back(builder.add(path, all.group, /*is_baseline=*/true), all);
    }
  }
  graph.tree = builder.finish();
  graph.nodes.resize(graph.tree.nodes.size());
  std::vector<int64_t> largest(graph.nodes.size());
  for (const auto& [key, end] : graph.ends) add_facts(graph, end, groups.at(key), largest);
  for (GraphNode& node : graph.nodes) node.category = most_of(node.bytes);
  for (const auto& [end, all] : gone) {
    // A node that only the baseline has gets the baseline's category.
    if (graph.tree.nodes[end].bytes == 0) graph.nodes[end].category = all.group.category;
  }
  fill_spans(graph);
  order_by_span(graph);
  return graph;
}

std::vector<std::string> path_of(const AliveGraph& graph, uint32_t node) {
  std::vector<std::string> path;
  for (; node != 0; node = graph.tree.nodes[node].parent) {
    path.push_back(profiler::place_text(graph.tree.nodes[node].place));
  }
  std::ranges::reverse(path);
  return path;
}

uint32_t node_at(const AliveGraph& graph, const std::vector<std::string>& path) {
  uint32_t at = 0;
  for (const std::string& name : path) {
    const auto& children = graph.tree.nodes[at].children;
    const auto next = std::ranges::find(children, name, [&](uint32_t child) {
      return profiler::place_text(graph.tree.nodes[child].place);
    });
    if (next == children.end()) return at;
    at = *next;
  }
  return at;
}

std::vector<bool> found_nodes(const AliveGraph& graph, const Query& query) {
  std::vector<bool> found(graph.nodes.size());
  const bool asks = !query.words.empty() || query.more_than_bytes || query.less_than_bytes;
  for (size_t i = 1; asks && i < found.size(); ++i) {
    const TreeNode& node = graph.tree.nodes[i];
    found[i] = fits_sizes(node.bytes, query) && has_words(profiler::place_text(node.place), query);
  }
  return found;
}

int64_t found_bytes(const AliveGraph& graph, const std::vector<bool>& found) {
  std::vector<bool> is_inside(found.size());  // inside a node that was found
  int64_t bytes = 0;
  for (size_t i = 1; i < found.size(); ++i) {
    const TreeNode& node = graph.tree.nodes[i];
    if (found[i] && !is_inside[node.parent]) bytes += node.bytes;
    is_inside[i] = found[i] || is_inside[node.parent];
  }
  return bytes;
}

namespace {

bool is_before(const PlaceRow& a, const PlaceRow& b, PlaceSort sort) {
  const auto sort_value = [sort](const PlaceRow& row) -> int64_t {
    switch (sort) {
      case PlaceSort::own:
        return row.own_bytes;
      case PlaceSort::total:
        return row.total_bytes;
      case PlaceSort::count:
        return row.own_count;
      case PlaceSort::age:
        return row.oldest_steps;
      case PlaceSort::change:
        return row.change_bytes() < 0 ? -row.change_bytes() : row.change_bytes();
      case PlaceSort::name:
        break;
    }
    return 0;
  };
  if (sort_value(a) != sort_value(b)) return sort_value(a) > sort_value(b);
  if (sort != PlaceSort::name && a.total_bytes != b.total_bytes) {
    return a.total_bytes > b.total_bytes;
  }
  return profiler::is_naturally_less(a.name, b.name);
}

/// Adds the nodes below one to the rows of their places.
class PlaceRows {
 public:
  PlaceRows(const AliveGraph& graph, uint32_t below)
      : graph_(graph), below_(below), row_of_(graph.nodes.size(), kNone) {}

  std::vector<PlaceRow> rows() {
    for (uint32_t i = below_; i < graph_.nodes.size(); ++i) {
      const bool is_inside = i == below_ || row_of_[graph_.tree.nodes[i].parent] != kNone;
      if (is_inside) add(i);
    }
    // The root is not a place.
    if (below_ == 0) rows_.erase(rows_.begin());
    return std::move(rows_);
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  void add(uint32_t index) {
    const TreeNode& node = graph_.tree.nodes[index];
    const std::string name = index == 0 ? "" : profiler::place_text(node.place);
    const auto [known, is_new] = by_name_.try_emplace({index == 0, name}, rows_.size());
    const size_t at = known->second;
    row_of_[index] = at;
    if (is_new) rows_.push_back({.name = name, .node = index});
    PlaceRow& row = rows_[at];
    if (is_new || node.bytes > graph_.tree.nodes[row.node].bytes) row.node = index;
    row.category = graph_.nodes[row.node].category;
    row.own_bytes += graph_.tree.own_bytes(index);
    row.own_count += own_count(graph_.tree, index);
    row.baseline_own_bytes += own_baseline_bytes(graph_.tree, index);
    row.oldest_steps = std::max(row.oldest_steps, graph_.nodes[index].oldest_steps);
    if (!is_inside_itself(index, at)) row.total_bytes += node.bytes;
  }

  /// True if the same place occurs above the node: it calls itself.
  bool is_inside_itself(uint32_t index, size_t row) const {
    while (index != below_) {
      index = graph_.tree.nodes[index].parent;
      if (row_of_[index] == row) return true;
    }
    return false;
  }

  const AliveGraph& graph_;
  uint32_t below_;
  std::vector<size_t> row_of_;  // of each node
  std::map<std::pair<bool, std::string>, size_t> by_name_;
  std::vector<PlaceRow> rows_;
};

}  // namespace

std::vector<PlaceRow> place_rows(const AliveGraph& graph, uint32_t below, PlaceSort sort,
                                 const Query& query) {
  std::vector<PlaceRow> rows = PlaceRows(graph, below).rows();
  std::erase_if(rows, [&](const PlaceRow& row) {
    return !fits_sizes(row.total_bytes, query) || !has_words(row.name, query);
  });
  std::ranges::stable_sort(
      rows, [sort](const PlaceRow& a, const PlaceRow& b) { return is_before(a, b, sort); });
  return rows;
}

}  // namespace shardlens::viewer
