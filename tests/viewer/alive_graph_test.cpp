// Compares trees, flame graphs and lists of blocks with sums over all blocks.

#include "viewer/model/alive_graph.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/recordings/stacked_recording.h"
#include "viewer/model/lane_builder.h"
#include "viewer/scene/flame.h"

namespace shardlens::viewer {
namespace {

using profiler::TreeGrouping;
using profiler::TreeStart;

RankLane opened(const profiler::Profile& profile) {
  RankLane rank;
  rank.lane = lane_of(profile);
  rank.names = ActionNames(rank.lane.info().header);
  return rank;
}

GraphSide at_peak(const RankLane& rank) { return {&rank, rank.lane.peak().max_change}; }

int64_t bytes_of(const Lane& lane, const std::vector<uint32_t>& blocks) {
  int64_t bytes = 0;
  for (const uint32_t block : blocks) bytes += lane.arrays().blocks[block].given_bytes;
  return bytes;
}

std::vector<GraphQuestion> all_questions() {
  std::vector<GraphQuestion> all;
  for (const TreeContent of : {TreeContent::alive, TreeContent::churn, TreeContent::kept}) {
    for (const TreeGrouping by :
         {TreeGrouping::stack, TreeGrouping::module, TreeGrouping::category}) {
      for (const TreeStart from : {TreeStart::top, TreeStart::bottom})
        all.push_back({of, by, from});
    }
  }
  return all;
}

/// The bytes of every row of a flame graph, including what ends above the row.
std::vector<int64_t> levels_of(const AliveGraph& graph, const std::vector<FlameFrame>& frames) {
  std::vector<int64_t> levels(static_cast<size_t>(frames.back().row) + 1);
  for (const FlameFrame& frame : frames) {
    levels[static_cast<size_t>(frame.row)] += frame.bytes;
    const bool is_leaf = frame.smaller > 0;
    const int64_t own = is_leaf ? frame.bytes : graph.tree.own_bytes(frame.node);
    for (auto row = static_cast<size_t>(frame.row) + 1; row < levels.size(); ++row) {
      levels[row] += own;
    }
  }
  return levels;
}

const PlaceRow& row_named(const std::vector<PlaceRow>& rows, const std::string& name) {
  const auto at = std::ranges::find(rows, name, &PlaceRow::name);
  REQUIRE(at != rows.end());
  return *at;
}

}  // namespace

TEST_CASE("every level of a flame graph has all bytes of its tree") {
  const RankLane rank = opened(tests::stacked_recording({.steps = 5}));
  const int64_t changes = rank.lane.changes();
  for (const GraphQuestion& question : all_questions()) {
    for (const int64_t change : {rank.lane.peak().max_change, changes / 3, changes - 1}) {
      const AliveGraph graph = graph_of({&rank, change}, std::nullopt, question);
      const auto blocks = blocks_of(rank.lane, change, question.of);
      const int64_t all = bytes_of(rank.lane, blocks);
      CHECK(graph.total_bytes() == all);
      CHECK(graph.nodes.front().span_bytes == all);
      CHECK(graph.tree.nodes.front().count == std::ssize(blocks));
      for (const double least : {0.0, 0.01, 0.2}) {
        for (const int64_t level : levels_of(graph, flame_frames(graph, 0, least))) {
          CHECK(level == all);
        }
      }
    }
  }
}

TEST_CASE("frames are within their parents, the largest at the left, and do not overlap") {
  const RankLane rank = opened(tests::stacked_recording());
  const AliveGraph graph = graph_of(at_peak(rank), std::nullopt, {});
  const auto frames = flame_frames(graph, 0, 0);
  std::map<int, double> ends;
  for (const FlameFrame& frame : frames) {
    CHECK(frame.begin >= ends[frame.row] - 1e-12);
    CHECK(frame.end <= 1 + 1e-12);
    ends[frame.row] = frame.end;
  }
  for (const profiler::TreeNode& node : graph.tree.nodes) {
    CHECK(std::ranges::is_sorted(node.children, std::greater(),
                                 [&](uint32_t child) { return graph.nodes[child].span_bytes; }));
  }
  // Calls of the script that only call another are merged into one frame.
  REQUIRE(frames.size() > 1);
  CHECK(frames[1].calls == 4);
  CHECK(graph.tree.nodes[frames[1].node].place.name == "Model.forward");
}

TEST_CASE("small frames are merged into one, and none of their bytes is lost") {
  const RankLane rank = opened(tests::stacked_recording());
  const AliveGraph graph = graph_of(at_peak(rank), std::nullopt, {.by = TreeGrouping::category});
  const auto frames = flame_frames(graph, 0, 0.3);
  const auto small = std::ranges::find_if(frames, [](const auto& f) { return f.smaller > 0; });
  REQUIRE(small != frames.end());
  int64_t bytes = 0;
  for (const uint32_t child : graph.tree.nodes[small->node].children) {
    const bool is_small = static_cast<double>(graph.nodes[child].span_bytes) <
                          0.3 * static_cast<double>(graph.nodes[0].span_bytes);
    if (is_small) bytes += graph.tree.nodes[child].bytes;
  }
  CHECK(small->bytes == bytes);
}

TEST_CASE("churn is memory that a step allocates and frees, summed over the events") {
  const profiler::Profile profile = tests::stacked_recording({.steps = 4});
  const RankLane rank = opened(profile);
  for (const Stretch& stretch : rank.lane.arrays().stretches) {
    if (stretch.number < 0 || stretch.first_change == stretch.end_change) continue;
    int64_t step = -1;
    int64_t bytes = 0;
    std::map<uint64_t, int64_t> born;  // in this step
    for (const profiler::Event& event : profile.events) {
      if (event.kind == profiler::EventKind::step) step = event.value;
      if (event.kind == profiler::EventKind::phase) step = -1;
      if (step != stretch.number || !profiler::is_memory(event)) continue;
      if (event.kind == profiler::EventKind::alloc) born[event.address] = event.value;
      if (event.kind == profiler::EventKind::free) bytes += std::exchange(born[event.address], 0);
    }
    const AliveGraph graph =
        graph_of({&rank, stretch.first_change}, std::nullopt, {.of = TreeContent::churn});
    CHECK(bytes > 0);
    CHECK(graph.total_bytes() == bytes);
  }
}

TEST_CASE("memory kept by every step except the first is a leak, and nothing else is") {
  constexpr int64_t kKept = 3 << 20;
  const RankLane rank = opened(tests::leaking_recording(6, kKept, 5 << 20));
  const AliveGraph graph =
      graph_of({&rank, rank.lane.changes() - 1}, std::nullopt, {.of = TreeContent::kept});
  // Steps 0 to 5: the first is left out, and the last one is not over.
  CHECK(graph.total_bytes() == 4 * kKept);
  const auto rows = place_rows(graph, 0, PlaceSort::own, {});
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].name == "history");
  CHECK(rows[0].oldest_steps == 4);
  const RankLane sound = opened(tests::stacked_recording({.steps = 6}));
  const auto last = sound.lane.arrays().stretches.back().first_change - 1;
  CHECK(graph_of({&sound, last}, std::nullopt, {.of = TreeContent::kept}).total_bytes() == 0);
}

TEST_CASE("the list has every place once, and their own bytes add up to the total") {
  const RankLane rank = opened(tests::stacked_recording());
  for (const GraphQuestion& question : all_questions()) {
    const AliveGraph graph = graph_of(at_peak(rank), std::nullopt, question);
    for (size_t sort = 0; sort < kWords<PlaceSort>.size(); ++sort) {
      const auto rows = place_rows(graph, 0, static_cast<PlaceSort>(sort), {});
      int64_t own = 0;
      std::set<std::string> names;
      for (const PlaceRow& row : rows) {
        own += row.own_bytes;
        CHECK(names.insert(row.name).second);
        CHECK(row.total_bytes <= graph.total_bytes());
        CHECK(row.total_bytes >= row.own_bytes);
      }
      CHECK(own == graph.total_bytes());
    }
  }
}

TEST_CASE("a list is sorted by its column and filtered by words and sizes") {
  const RankLane rank = opened(tests::stacked_recording());
  const AliveGraph graph = graph_of(at_peak(rank), std::nullopt, {});
  const auto by_total = place_rows(graph, 0, PlaceSort::total, {});
  CHECK(std::ranges::is_sorted(by_total, std::greater(), &PlaceRow::total_bytes));
  CHECK(std::ranges::is_sorted(place_rows(graph, 0, PlaceSort::own, {}), std::greater(),
                               &PlaceRow::own_bytes));
  CHECK(std::ranges::is_sorted(place_rows(graph, 0, PlaceSort::count, {}), std::greater(),
                               &PlaceRow::own_count));
  const auto found = place_rows(graph, 0, PlaceSort::name, parse_query("model.PY forward"));
  REQUIRE(found.size() == 3);
  CHECK(found[0].name == "Attention.forward  model.py:70");
  const int64_t limit = by_total[1].total_bytes - 1;
  CHECK(place_rows(graph, 0, PlaceSort::own, parse_query(">" + std::to_string(limit))).size() >= 2);
}

TEST_CASE("a search finds a share, each block once") {
  const RankLane rank = opened(tests::stacked_recording());
  const AliveGraph graph = graph_of(at_peak(rank), std::nullopt, {});
  CHECK(found_bytes(graph, found_nodes(graph, parse_query("forward"))) ==
        row_named(place_rows(graph, 0, PlaceSort::own, {}), "Model.forward  model.py:40")
            .total_bytes);
  int64_t mlps = 0;
  const Lane& lane = rank.lane;
  for (const uint32_t index : lane.alive_after(lane.peak().max_change)) {
    const Block& block = lane.arrays().blocks[index];
    if (lane.label(block).starts_with("mlp")) mlps += block.given_bytes;
  }
  CHECK(mlps > 0);
  CHECK(found_bytes(graph, found_nodes(graph, parse_query("mlp.forward"))) == mlps);
  CHECK(found_bytes(graph, found_nodes(graph, parse_query("nosuch"))) == 0);
  CHECK(found_bytes(graph, found_nodes(graph, {})) == 0);
}

TEST_CASE("a block ends where its stack does, below all of the stack's calls") {
  const RankLane rank = opened(tests::stacked_recording());
  const AliveGraph graph = graph_of(at_peak(rank), std::nullopt, {});
  for (const uint32_t index : rank.lane.alive_after(rank.lane.peak().max_change)) {
    const auto end = graph.end_of(rank.lane.arrays().blocks[index]);
    REQUIRE(end);
    CHECK(graph.tree.own_bytes(*end) > 0);
    CHECK(node_at(graph, path_of(graph, *end)) == *end);
    CHECK(graph.is_below(*end, 0));
    const uint32_t parent = graph.tree.nodes[*end].parent;
    CHECK(graph.is_below(*end, parent));
    CHECK_FALSE(graph.is_below(parent, *end));
  }
  CHECK(node_at(graph, {"nosuch", "main  train.py:100"}) == 0);
}

TEST_CASE("two runs are compared place by place, although lines have moved") {
  const RankLane before = opened(tests::stacked_recording({.keep_weights = true}));
  const RankLane same = opened(tests::stacked_recording({.keep_weights = true}, 7));
  const RankLane more =
      opened(tests::stacked_recording({.keep_weights = true, .activation_bytes = 5 << 20}, 7));
  for (const TreeGrouping by :
       {TreeGrouping::stack, TreeGrouping::module, TreeGrouping::category}) {
    const AliveGraph equal = graph_of(at_peak(same), at_peak(before), {.by = by});
    for (size_t i = 0; i < equal.nodes.size(); ++i) {
      const profiler::TreeNode& node = equal.tree.nodes[i];
      CHECK(node.bytes == node.baseline_bytes);
      CHECK(equal.nodes[i].span_bytes == node.bytes);
    }
    const AliveGraph grown = graph_of(at_peak(more), at_peak(before), {.by = by});
    int64_t change = 0;
    for (const PlaceRow& row : place_rows(grown, 0, PlaceSort::change, {})) {
      change += row.change_bytes();
    }
    CHECK(change == more.lane.peak().max_bytes - before.lane.peak().max_bytes);
    CHECK(change > 0);
    // Both directions are equally wide.
    CHECK(graph_of(at_peak(before), at_peak(more), {.by = by}).nodes.front().span_bytes ==
          grown.nodes.front().span_bytes);
  }
}

}  // namespace shardlens::viewer
