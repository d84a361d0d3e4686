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

/// Returns the tree of the focused run at its moment.
const AliveGraph& tree_graph(const SceneInput& input, ImageCache& cache,
                             const std::vector<ShownRun>& shown);

/// Returns what is alive in the focused run by place, matched with its baseline; for a run that is
/// not compared, the largest place first.
const profiler::Matching& shown_places(const SceneInput& input, ImageCache& cache,
                                       const std::vector<ShownRun>& shown);

/// Returns how many of the rows have changed; they come first.
size_t changed_places(const profiler::Matching& matching);

/// Returns the selection of a place of the focused run: its largest block, with all blocks of the
/// same name; in the baseline if the place is gone.
Pick pick_of_place(const std::vector<ShownRun>& shown, const ShownRun& one,
                   const profiler::MatchedPlace& place);

/// Returns how the list of what is alive is grouped: hits of a search are listed by name instead of
/// by category.
Grouping listed_grouping(const ViewState& state);

/// Returns the rows of the list of what is alive in a run: of all, or of what the search found.
std::vector<AliveRow> listed_rows(const SceneInput& input, const ShownRun& one);

/// Returns what a press at a point of an area selects; nothing if there is nothing to select.
std::optional<Pick> pick_at(const SceneInput& input, ImageCache& cache, const Area& area, float x,
                            float y);

/// Returns the name and the size of what a press at a point would select.
std::string hover_text_of_pick(const SceneInput& input, ImageCache& cache, const Area& area,
                               float x, float y);

/// Returns a place's whole name, its category, and what it holds in one or both runs.
std::string hover_text_of_place(const SceneInput& input, ImageCache& cache, size_t row);

/// Returns the blocks that can be selected one after the other, the largest first: those of the
/// selection, or all in the tree.
std::vector<PickableBlock> pickable_blocks(const SceneInput& input, ImageCache& cache);

/// The blocks of a selection at the moment of its run, the largest first.
struct PickedBlocks {
  const Run* run = nullptr;
  const RankLane* rank = nullptr;
  std::vector<uint32_t> blocks;
  int64_t bytes = 0;  // of these blocks
};

/// Returns the selected blocks; nothing if nothing is selected, or if the recordings lack it.
std::optional<PickedBlocks> picked_of(const SceneInput& input, ImageCache& cache,
                                      const std::vector<ShownRun>& shown);

/// Says in a line what is selected: "2 of 64 blocks with this name, 2.00 GiB in all".
std::string scope_text(const Pick& pick, const PickedBlocks& picked);

/// Returns the facts of the selected block, computed again if another block is selected; nothing if
/// no block is.
const BlockFacts* facts_of_pick(const SceneInput& input, ImageCache& cache);

/// Returns how many rows the panel of the selection has.
size_t details_rows(const SceneInput& input, ImageCache& cache);

/// Says how much of a selected segment tensors used at the shown moment: at the cursor, or else
/// just before the next change of segments. It is empty for other memory.
std::string use_text(const SceneInput& input, const std::vector<ShownRun>& shown);

/// Returns the selection as text: all facts, and the stack. It is empty if nothing is selected.
std::string text_of_pick(const SceneInput& input, ImageCache& cache);

/// Returns the marked call of the selected block, or the one in its name; nothing if no block is
/// selected, or if its stack has no files.
std::optional<profiler::TreePlace> call_of_pick(const SceneInput& input);

}  // namespace shardlens::viewer
