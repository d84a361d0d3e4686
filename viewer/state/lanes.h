// The user's actions on whole lanes: folding, closing and scrolling them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/state/facts.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

bool is_folded(const Lanes& lanes, const std::string& key);

/// Returns the runs whose lanes are not folded, in the order of lanes.
std::vector<size_t> unfolded_runs(const ViewState& state, const Facts& facts);

/// Folds a lane, or unfolds it.
void toggle_fold(ViewState& state, const Facts& facts, size_t run);
void fold_others(ViewState& state, const Facts& facts);

/// Closes a run: one from a file or folder, a kept plan, or the what-if panel's.
void close_run(ViewState& state, const Facts& facts, size_t run);

/// Makes the focused run the baseline of all runs that show the same memory.
void choose_baseline_of_memory(ViewState& state, const Facts& facts);

/// Focuses the next or the previous run in the order of lanes, and shows its lane.
void move_focus(ViewState& state, const Facts& facts, int64_t forward);

/// Closes the overview, and chooses the lane of a run; without a rank, that of its highest peak.
void open_from_overview(ViewState& state, const Facts& facts, size_t run,
                        std::optional<size_t> rank);
/// Scrolls the lanes by lines, never past the last; while the overview is open, scrolls that.
void scroll_lanes(ViewState& state, const Facts& facts, int64_t lines);
/// Scrolls the lanes just as far as needed to show the focused run's.
void show_focus(ViewState& state, const Facts& facts);

}  // namespace shardlens::viewer
