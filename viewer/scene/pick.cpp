#include "viewer/scene/pick.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/shown.h"
#include "base/units.h"
#include "profiler/recording/profile.h"
#include "viewer/scene/block_image.h"

namespace shardlens::viewer {

namespace {

/// Returns the rank of a selection; null if the recordings lack it.
const RankLane* rank_of_pick(const SceneInput& input, const Pick& pick) {
  if (pick.run >= input.runs.size() || pick.rank >= input.runs[pick.run].ranks.size()) {
    return nullptr;
  }
  return &input.runs[pick.run].ranks[pick.rank];
}

bool has_block(const RankLane& rank, uint32_t block) {
  return block < rank.lane.arrays().blocks.size();
}

uint32_t largest_block_of(const Lane& lane, int64_t change, Category category) {
  uint32_t largest = kNoBlock;
  const auto& blocks = lane.arrays().blocks;
  for (const uint32_t index : lane.alive_after(change)) {
    if (blocks[index].category != category) continue;
    const bool is_larger =
        largest == kNoBlock || blocks[index].given_bytes > blocks[largest].given_bytes;
    if (is_larger) largest = index;
  }
  return largest;
}

void sort_by_size(const Lane& lane, std::vector<uint32_t>& blocks) {
  std::ranges::sort(blocks, {}, [&](uint32_t index) {
    return std::pair(-lane.arrays().blocks[index].given_bytes, index);
  });
}

/// Returns the moment that a selection refers to: that of the tables, or the rank's peak if another
/// rank is shown.
int64_t moment_of_pick(const std::vector<ShownRun>& shown, const Pick& pick, const RankLane& rank) {
  const ShownRun& one = shown[pick.run];
  return one.rank == pick.rank ? one.change : rank.lane.peak().max_change;
}

/// Returns the blocks of a selection, the largest first.
std::vector<uint32_t> blocks_of_pick(const SceneInput& input, ImageCache& cache,
                                     const std::vector<ShownRun>& shown, const Pick& pick) {
  const RankLane& rank = *rank_of_pick(input, pick);
  const auto& all = rank.lane.arrays().blocks;
  const bool is_block = has_block(rank, pick.block);
  if (pick.scope == PickScope::block)
    return is_block ? std::vector{pick.block} : std::vector<uint32_t>{};
  const int64_t change = moment_of_pick(shown, pick, rank);
  const bool is_place = pick.scope == PickScope::place;
  std::vector<uint32_t> blocks =
      blocks_of(rank.lane, change, is_place ? input.state.tree.of : TreeContent::alive);
  const AliveGraph* const graph = is_place ? &tree_graph(input, cache, shown) : nullptr;
  const uint32_t node = is_place ? node_at(*graph, pick.path) : 0;
  if (is_place && path_of(*graph, node) != pick.path) return {};  // the place no longer exists
  const std::string_view name = is_block ? rank.lane.label(all[pick.block]) : std::string_view();
  std::erase_if(blocks, [&](uint32_t index) {
    if (pick.scope == PickScope::category) return all[index].category != pick.category;
    if (pick.scope == PickScope::name) {
      return !is_block || rank.lane.label(all[index]) != name ||
             all[index].category != pick.category;
    }
    const auto end = graph->end_of(all[index]);
    return !end || !graph->is_below(*end, node);
  });
  sort_by_size(rank.lane, blocks);
  return blocks;
}

/// Returns what is stacked at a point of a lane: a block, or else a category.
std::optional<StackPoint> point_in_lane(const SceneInput& input, ImageCache& cache,
                                        const std::vector<ShownRun>& shown, const Area& area,
                                        float x, float y) {
  const ViewState& state = input.state;
  const Lane& lane = input.runs[area.run].ranks[area.index].lane;
  const LaneStyle style = read_style(state, shown, shown[area.run], area.box);
  const int width = static_cast<int>(area.box.w);
  const double above = area.box.bottom() - y;
  if (state.detail == Detail::addresses) {
    const auto block =
        block_at_address(lane, input.warps[area.run][area.index],
                         view_of(state, input.facts.extent), width, style, x - area.box.x, above);
    if (!block) return std::nullopt;
    return StackPoint{.block = block, .category = lane.arrays().blocks[*block].category};
  }
  const Columns& columns = drawn_columns(input, cache, area.run, area.index, width).cells;
  const auto at = static_cast<size_t>(std::max(0.F, x - area.box.x));
  if (at >= columns.size() || !columns[at]) return std::nullopt;
  if (state.detail == Detail::blocks) return stack_point(lane, *columns[at], style, above);
  const auto category = category_at(*columns[at], style, above);
  if (!category) return std::nullopt;
  return StackPoint{.block = {}, .category = *category};
}

std::optional<Pick> pick_in_lane(const SceneInput& input, ImageCache& cache,
                                 const std::vector<ShownRun>& shown, const Area& area, float x,
                                 float y) {
  const ViewState& state = input.state;
  const bool has_stack = state.ranks != Ranks::folded || input.runs[area.run].ranks.size() == 1;
  const bool is_difference =
      state.layout == LaneLayout::difference && area.run != shown[area.run].base;
  if (!has_stack || is_difference) return std::nullopt;
  const auto point = point_in_lane(input, cache, shown, area, x, y);
  if (!point) return std::nullopt;
  Pick pick{.run = area.run, .rank = area.index, .category = point->category};
  if (point->block) {
    pick.block = *point->block;
    return pick;
  }
  // The press has set the cursor, so the shown moment is that of the point.
  const Lane& lane = input.runs[area.run].ranks[area.index].lane;
  const int64_t change = moment_of_pick(shown, pick, input.runs[area.run].ranks[area.index]);
  pick.scope = PickScope::category;
  pick.block = largest_block_of(lane, change, point->category);
  return pick;
}

PickScope scope_of_row(Grouping grouping) {
  switch (grouping) {
    case Grouping::category:
      return PickScope::category;
    case Grouping::label:
      return PickScope::name;
    case Grouping::age:
    case Grouping::none:
      break;
  }
  return PickScope::block;
}

std::optional<Pick> pick_in_tree(const SceneInput& input, ImageCache& cache,
                                 const std::vector<ShownRun>& shown, uint32_t node) {
  const AliveGraph& graph = tree_graph(input, cache, shown);
  if (node >= graph.nodes.size()) return std::nullopt;
  const ShownRun& one = shown[std::min(input.state.focus, shown.size() - 1)];
  return Pick{.run = one.index,
              .rank = one.rank,
              .scope = PickScope::place,
              .block = graph.nodes[node].block,
              .category = graph.nodes[node].category,
              .path = path_of(graph, node)};
}

std::string_view scope_words(PickScope scope) {
  switch (scope) {
    case PickScope::name:
      return "with this name";
    case PickScope::category:
      return "in this category";
    case PickScope::place:
      return "at this place";
    case PickScope::block:
      break;
  }
  return "";
}

}  // namespace

const AliveGraph& tree_graph(const SceneInput& input, ImageCache& cache,
                             const std::vector<ShownRun>& shown) {
  const TreeView& tree = input.state.tree;
  const ShownRun& one = shown[std::min(input.state.focus, shown.size() - 1)];
  const ShownRun& base = shown[one.base];
  const bool compares = tree.compares && one.index != base.index;
  std::string key = fmt::format("{} {} {} {} {} {} {}", input.generation, static_cast<int>(tree.of),
                                static_cast<int>(tree.by), static_cast<int>(tree.from), one.index,
                                one.rank, one.change);
  if (compares) key += fmt::format(" {} {} {}", base.index, base.rank, base.change);
  return cache.graph.get(key, [&] {
    return graph_of({one.lane, one.change},
                    compares ? std::optional(GraphSide{base.lane, base.change}) : std::nullopt,
                    {tree.of, tree.by, tree.from});
  });
}

const profiler::Matching& shown_places(const SceneInput& input, ImageCache& cache,
                                       const std::vector<ShownRun>& shown) {
  const ShownRun& one = shown[std::min(input.state.focus, shown.size() - 1)];
  const ShownRun& base = shown[one.base];
  const bool compares = one.index != base.index;
  std::string key = fmt::format("{} {} {} {}", input.generation, one.index, one.rank, one.change);
  if (compares) key += fmt::format(" {} {} {}", base.index, base.rank, base.change);
  const auto moment_of = [](const ShownRun& side) {
    return LaneMoment{&side.lane->lane, &side.lane->names, side.change, &side.lane->notes};
  };
  return cache.matching.get(key, [&] {
    return compares ? match(moment_of(base), moment_of(one)) : places_of(moment_of(one));
  });
}

size_t changed_places(const profiler::Matching& matching) {
  const auto same = std::ranges::find_if(
      matching.rows, [](const profiler::MatchedPlace& row) { return row.changed_bytes() == 0; });
  return static_cast<size_t>(same - matching.rows.begin());
}

Pick pick_of_place(const std::vector<ShownRun>& shown, const ShownRun& one,
                   const profiler::MatchedPlace& place) {
  const bool is_gone = place.b_block == profiler::kNoHeldBlock;
  const ShownRun& side = is_gone ? shown[one.base] : one;
  return {.run = side.index,
          .rank = side.rank,
          .scope = PickScope::name,
          .block = is_gone ? place.a_block : place.b_block,
          .category = place.category};
}

Grouping listed_grouping(const ViewState& state) {
  const bool lists_hits = !state.search.empty() && state.grouping == Grouping::category;
  return lists_hits ? Grouping::label : state.grouping;
}

std::vector<AliveRow> listed_rows(const SceneInput& input, const ShownRun& one) {
  const Lane& lane = one.lane->lane;
  std::vector<uint32_t> blocks = lane.alive_after(one.change);
  if (one.index < input.hits.size()) {
    const std::vector<Hit>& hits = input.hits[one.index].hits;
    std::erase_if(blocks, [&](uint32_t block) {
      return !std::ranges::binary_search(hits, block, {}, &Hit::block);
    });
  }
  return rows_of(lane, one.lane->names, one.change, listed_grouping(input.state), blocks);
}

std::optional<Pick> pick_at(const SceneInput& input, ImageCache& cache, const Area& area, float x,
                            float y) {
  std::vector<ShownRun> shown = shown_of(input);
  if (shown.empty()) return std::nullopt;
  find_drawn(input, cache, shown);
  const ShownRun& one = shown[std::min(input.state.focus, shown.size() - 1)];
  switch (area.kind) {
    case Area::Kind::lane:
      return pick_in_lane(input, cache, shown, area, x, y);
    case Area::Kind::category: {
      const auto category = static_cast<Category>(area.index);
      return Pick{.run = one.index,
                  .rank = one.rank,
                  .scope = PickScope::category,
                  .block = largest_block_of(one.lane->lane, one.change, category),
                  .category = category};
    }
    case Area::Kind::alive_row: {
      const auto rows = listed_rows(input, one);
      if (area.index >= rows.size()) return std::nullopt;
      const AliveRow& row = rows[area.index];
      return Pick{.run = one.index,
                  .rank = one.rank,
                  .scope = scope_of_row(listed_grouping(input.state)),
                  .block = row.block,
                  .category = row.category};
    }
    case Area::Kind::event_row: {
      const auto& arrays = one.lane->lane.arrays();
      if (area.index >= arrays.words.size()) return std::nullopt;
      const uint32_t block = block_of(arrays.words[area.index]);
      return Pick{.run = one.index,
                  .rank = one.rank,
                  .block = block,
                  .category = arrays.blocks[block].category};
    }
    case Area::Kind::matched_row: {
      const auto& rows = shown_places(input, cache, shown).rows;
      if (area.index >= rows.size()) return std::nullopt;
      return pick_of_place(shown, one, rows[area.index]);
    }
    case Area::Kind::frame:
    case Area::Kind::place_row:
      return pick_in_tree(input, cache, shown, static_cast<uint32_t>(area.index));
    default:
      return std::nullopt;
  }
}

namespace {

/// Returns a line for each of the innermost calls of a stack.
std::string hover_stack(const profiler::TreePath& stack) {
  constexpr size_t kMostCalls = 10;
  std::string text;
  for (size_t i = 0; i < std::min(stack.size(), kMostCalls); ++i) {
    text += "\n  " + profiler::place_text(stack[i]);
  }
  if (stack.size() > kMostCalls) {
    text += fmt::format("\n  and {} more: click, then turn the wheel over the stack",
                        stack.size() - kMostCalls);
  }
  return text;
}

}  // namespace

std::string hover_text_of_pick(const SceneInput& input, ImageCache& cache, const Area& area,
                               float x, float y) {
  const auto pick = pick_at(input, cache, area, x, y);
  const RankLane* const rank = pick ? rank_of_pick(input, *pick) : nullptr;
  if (rank == nullptr || !has_block(*rank, pick->block)) return "";
  const Block& block = rank->lane.arrays().blocks[pick->block];
  const std::string_view label = rank->lane.label(block);
  const std::string_view name = rank->lane.name(pick->block);
  std::string text =
      fmt::format("{}{}{}{}{}, block of {} ({} bytes)", name, name.empty() ? "" : "\n", label,
                  label.empty() ? "" : "\n",
                  words_of(block.category, profiler::has_shards(rank->lane.info().header)),
                  bytes_text(block.given_bytes), block.given_bytes);
  const std::string key =
      fmt::format("{} {} {} {}", input.generation, pick->run, pick->rank, pick->block);
  const BlockFacts& facts =
      cache.hover_facts.get(key, [&] { return block_facts(*rank, pick->block); });
  return text + hover_stack(facts.stack);
}

std::string hover_text_of_place(const SceneInput& input, ImageCache& cache, size_t row) {
  const std::vector<ShownRun> shown = shown_of(input);
  if (shown.empty()) return "";
  const auto& rows = shown_places(input, cache, shown).rows;
  if (row >= rows.size()) return "";
  const profiler::MatchedPlace& place = rows[row];
  const ShownRun& one = shown[std::min(input.state.focus, shown.size() - 1)];
  const std::string held = one.index == one.base
                               ? profiler::blocks_text(place.b_count, place.b_bytes)
                               : profiler::holding_text(place);
  return fmt::format("{}\n{}, {}", place.name, words_of(place.category, have_shards(shown)), held);
}

std::vector<PickableBlock> pickable_blocks(const SceneInput& input, ImageCache& cache) {
  const std::vector<ShownRun> shown = shown_of(input);
  if (shown.empty()) return {};
  const ShownRun& one = shown[std::min(input.state.focus, shown.size() - 1)];
  const auto& pick = input.state.pick;
  const bool is_here = pick && pick->run == one.index && pick->rank == one.rank;
  std::vector<uint32_t> blocks;
  if (is_here && pick->scope != PickScope::block) {
    blocks = blocks_of_pick(input, cache, shown, *pick);
  } else {
    const TreeView& tree = input.state.tree;
    blocks = blocks_of(one.lane->lane, one.change, tree.is_open ? tree.of : TreeContent::alive);
    sort_by_size(one.lane->lane, blocks);
  }
  std::vector<PickableBlock> all;
  for (const uint32_t block : blocks) {
    all.push_back({block, one.lane->lane.arrays().blocks[block].category});
  }
  return all;
}

std::optional<PickedBlocks> picked_of(const SceneInput& input, ImageCache& cache,
                                      const std::vector<ShownRun>& shown) {
  const auto& pick = input.state.pick;
  if (!pick || shown.empty()) return std::nullopt;
  const RankLane* const rank = rank_of_pick(input, *pick);
  if (rank == nullptr) return std::nullopt;
  std::string key =
      fmt::format("{} {} {} {} {} {} {}", input.generation, pick->run, pick->rank,
                  static_cast<int>(pick->scope), pick->block, static_cast<int>(pick->category),
                  moment_of_pick(shown, *pick, *rank));
  if (pick->scope == PickScope::place) {
    const TreeView& tree = input.state.tree;
    key += fmt::format(" {} {} {} {} {}", static_cast<int>(tree.of), static_cast<int>(tree.by),
                       static_cast<int>(tree.from), tree.compares, shown[pick->run].base);
    for (const std::string& name : pick->path) key += "\n" + name;
  }
  PickedBlocks picked{.run = &input.runs[pick->run], .rank = rank, .blocks = {}};
  picked.blocks =
      cache.picked_blocks.get(key, [&] { return blocks_of_pick(input, cache, shown, *pick); });
  for (const uint32_t block : picked.blocks) {
    picked.bytes += rank->lane.arrays().blocks[block].given_bytes;
  }
  return picked;
}

std::string scope_text(const Pick& pick, const PickedBlocks& picked) {
  if (pick.scope == PickScope::block) return "one block";
  const auto at = std::ranges::find(picked.blocks, pick.block);
  const std::string which = at == picked.blocks.end() || picked.blocks.size() == 1
                                ? ""
                                : fmt::format("{} of ", at - picked.blocks.begin() + 1);
  return fmt::format("{}{} block{} {}, {} in all", which, picked.blocks.size(),
                     picked.blocks.size() == 1 ? "" : "s", scope_words(pick.scope),
                     bytes_text(picked.bytes));
}

namespace {

/// Returns the time of a run's shown moment, in ns. Until the next change the lane stays as it was,
/// so without a cursor this is the last ns before that change.
int64_t time_shown(const ViewState& state, const ShownRun& one) {
  const Lane& lane = one.lane->lane;
  const bool has_cursor =
      state.at == TableMoment::cursor && state.cursor && !one.warp->is_by_change();
  if (has_cursor) {
    const auto position = one.warp->position_at(*state.cursor);
    if (position) return static_cast<int64_t>(*position);
  }
  const int64_t next = one.change + 1;
  return next < lane.changes() ? lane.time_of(next) - 1 : lane.info().end_ns;
}

}  // namespace

std::string use_text(const SceneInput& input, const std::vector<ShownRun>& shown) {
  const auto& pick = input.state.pick;
  const RankLane* const rank = pick ? rank_of_pick(input, *pick) : nullptr;
  if (rank == nullptr || !has_block(*rank, pick->block)) return "";
  const ShownRun& one = shown[pick->run];
  const bool is_segment = rank->lane.info().space == profiler::Space::segment;
  if (!is_segment || one.rank != pick->rank) return "";
  const int64_t time_ns = time_shown(input.state, one);
  const int64_t bytes = rank->lane.arrays().blocks[pick->block].given_bytes;
  const int64_t used = rank->lane.used_bytes(pick->block, time_ns);
  return fmt::format("{} used, {} free, at {:.3f} s", bytes_text(used), bytes_text(bytes - used),
                     static_cast<double>(time_ns) / 1e9);
}

const BlockFacts* facts_of_pick(const SceneInput& input, ImageCache& cache) {
  const auto& pick = input.state.pick;
  const RankLane* const rank = pick ? rank_of_pick(input, *pick) : nullptr;
  if (rank == nullptr || !has_block(*rank, pick->block)) return nullptr;
  const std::string key =
      fmt::format("{} {} {} {}", input.generation, pick->run, pick->rank, pick->block);
  return &cache.facts.get(key, [&] { return block_facts(*rank, pick->block); });
}

size_t details_rows(const SceneInput& input, ImageCache& cache) {
  const BlockFacts* const facts = facts_of_pick(input, cache);
  if (facts == nullptr) return 0;
  const size_t scopes = 3;  // the run, the selection, and the use of a segment
  return scopes + facts->facts.size() + std::max<size_t>(1, facts->stack.size());
}

std::string text_of_pick(const SceneInput& input, ImageCache& cache) {
  const auto& pick = input.state.pick;
  const std::vector<ShownRun> shown = shown_of(input);
  const auto picked = picked_of(input, cache, shown);
  if (!picked) return "";
  std::string text;
  for (const std::string& place : pick->path) text += (text.empty() ? "" : " > ") + place;
  if (!text.empty()) text += "\n";
  if (pick->scope != PickScope::block) text += scope_text(*pick, *picked) + "\n";
  if (const BlockFacts* const facts = facts_of_pick(input, cache)) text += facts_text(*facts);
  const std::string use = use_text(input, shown);
  if (!use.empty()) text += fmt::format("segment   {}\n", use);
  text += fmt::format("in        {}, rank {}\n", picked->run->name, picked->rank->lane.rank());
  return shown_lines(text);
}

std::optional<profiler::TreePlace> call_of_pick(const SceneInput& input) {
  const auto& pick = input.state.pick;
  const RankLane* const rank = pick ? rank_of_pick(input, *pick) : nullptr;
  if (rank == nullptr || !has_block(*rank, pick->block)) return std::nullopt;
  const BlockFacts facts = block_facts(*rank, pick->block);
  const size_t call = pick->call.value_or(main_call(facts));
  if (call >= facts.stack.size() || facts.stack[call].file.empty()) return std::nullopt;
  return facts.stack[call];
}

}  // namespace shardlens::viewer
