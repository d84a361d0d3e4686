// The facts about recordings that commands need. They are numbers, so that commands are functions
// of values and can be tested without any recording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/run.h"
#include "viewer/model/warp.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// A block that can be selected.
struct PickableBlock {
  uint32_t block = kNoBlock;
  Category category{};
};

struct Facts {
  Range extent{0, 1};                             // of all runs
  std::vector<double> peak_x;                     // of each run
  std::vector<std::vector<double>> peaks_x;       // of each run, one per step or phase, in order
  std::vector<std::vector<double>> failures_x{};  // of each run, where requests for memory failed
  std::vector<std::vector<double>> steps_x;       // where steps begin, in order
  std::vector<double> hits_x;                     // of the search, in the focused run
  PlanRequest focus_request{};                    // the focused run's
  std::string focus_recording{};                  // of its rank with the highest peak
  std::vector<std::string> levers{};              // the what-if panel's rows
  std::vector<PickableBlock> pickable;            // in the focused run, the largest first
  size_t focus_rank = 0;                          // their rank, as an index in the run
  size_t tree_rows = 0;                           // in the tree's panel
  size_t details_rows = 0;                        // of the selection
  std::vector<std::string> tree_above{};          // the place that zooming out leads to
  std::optional<double> next_change_x{};          // in the focused run, after the cursor or peak
  std::optional<double> previous_change_x{};      // and before it
  size_t alive_rows = 0;                          // in the list of live allocations
  size_t place_rows = 0;                          // in the list of places
  size_t table_rows = 0;                          // in the table of categories
  std::vector<std::string> keys{};                // of the runs
  std::vector<size_t> order{};                    // of the runs' lanes, as sorted
  std::vector<size_t> bases{};                    // of each run, the run it is compared with
  size_t lane_columns = 1;                        // lanes per line
  size_t lane_lines = 1;                          // lines that fit
  size_t all_lane_lines = 1;                      // of all lanes
  size_t rank_lanes = 1;                          // ranks of the focused run that were drawn
  size_t overview_rows = 0;                       // of the list in their place,
  size_t overview_lines = 1;                      // and how many of these were drawn
  std::vector<FrontPanel> tabs{};                 // of panels in the lanes' place, or none
  size_t most_ranks = 1;
  double column_x = 0.001;  // one pixel's width

  size_t runs() const { return peak_x.size(); }
};

/// The warps of every rank of every run.
using Warps = std::vector<std::vector<Warp>>;
Warps warps_of(const std::vector<Run>& runs, Alignment alignment, size_t baseline);

Range extent_of(const Warps& warps);

/// Returns the runs' indices in the order of their lanes.
std::vector<size_t> lane_order(const std::vector<Run>& runs, const ViewState& state);

/// Returns the memory that recordings are opened with, as open_runs takes it.
std::optional<profiler::Space> space_of(ShownMemory memory);

/// Returns the index of a run's shown rank.
size_t shown_rank(const Run& run, const ViewState& state);

/// Returns all facts except the hits, which a search finds, and what depends on a picture: what can
/// be selected, the rows of lists, tree and table, the lanes that fit, and the width of a column.
Facts facts_of(const std::vector<Run>& runs, const Warps& warps, const ViewState& state);

/// Returns the range of x that is shown: the state's view, or the whole extent.
Range view_of(const ViewState& state, const Range& extent);

}  // namespace shardlens::viewer
