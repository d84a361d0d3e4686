// Finds what the pointer selects, and what a selection holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/scene/panels/block_facts.h"
#include "viewer/scene/parts.h"
#include "viewer/scene/scene.h"

namespace shardlens::viewer {

/// Returns the tree of the focused strategy at its moment.
const AliveGraph& tree_graph(const SceneInput& input, ImageCache& cache,
                             const std::vector<ShownRun>& shown);

/// Returns what is alive in the focused strategy by place, matched with its baseline; of a strategy
/// that is compared with none, the largest place first.
const profiler::Matching& shown_places(const SceneInput& input, ImageCache& cache,
                                       const std::vector<ShownRun>& shown);

/// Returns how many of the rows have changed; they come first.
size_t changed_places(const profiler::Matching& matching);

/// Returns the selection of a place of the focused strategy: its largest block, with all of its
/// name, in the baseline if the place is gone.
Pick pick_of_place(const std::vector<ShownRun>& shown, const ShownRun& one,
                   const profiler::MatchedPlace& place);

/// Returns what a press at a point of an area selects; nothing if there is nothing to select.
std::optional<Pick> pick_at(const SceneInput& input, ImageCache& cache, const Area& area, float x,
                            float y);

/// Returns the name and the size of what a press at a point would select.
std::string hover_text_of_pick(const SceneInput& input, ImageCache& cache, const Area& area,
                               float x, float y);

/// Returns a place's whole name, its category, and what it holds in both runs, or in the one.
std::string hover_text_of_place(const SceneInput& input, ImageCache& cache, size_t row);

/// Returns the blocks that can be selected one after the other, the largest first: those of the
/// selection, or all of the tree's kind.
std::vector<PickableBlock> pickable_blocks(const SceneInput& input, ImageCache& cache);

/// The blocks of a selection at the moment of its strategy, the largest first.
struct PickedBlocks {
  const Run* run = nullptr;
  const RankLane* rank = nullptr;
  std::vector<uint32_t> blocks;
  int64_t bytes = 0;  // of these blocks
};

/// Returns nothing if nothing is selected, or if the recordings do not have it.
std::optional<PickedBlocks> picked_of(const SceneInput& input, ImageCache& cache,
                                      const std::vector<ShownRun>& shown);

/// Says in a line what is selected: "block 2 of 64, 2.00 GiB in all".
std::string scope_text(const Pick& pick, const PickedBlocks& picked);

/// Returns the facts of the block that is selected, made anew where that is another one; nothing if
/// no block is.
const BlockFacts* facts_of_pick(const SceneInput& input, ImageCache& cache);

/// Returns how many rows the panel of what is selected has.
size_t details_rows(const SceneInput& input, ImageCache& cache);

/// Says of a selected segment how much of it tensors used at the moment that is shown: at the
/// cursor, or else just before the next change of segments. It is empty for other memory.
std::string use_text(const SceneInput& input, const std::vector<ShownRun>& shown);

/// Returns what is selected as text: all facts, and the stack. It is empty if nothing is.
std::string text_of_pick(const SceneInput& input, ImageCache& cache);

/// Returns the call of the selected block that is marked, or the one that its name says; nothing if
/// no block is selected, or if its stack has no files.
std::optional<profiler::TreePlace> call_of_pick(const SceneInput& input);

}  // namespace shardlens::viewer
