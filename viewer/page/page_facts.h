// Says in JSON what a page knows about its lanes besides their changes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"
#include "viewer/model/run.h"
#include "viewer/page/page_columns.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// A rank that a page shows.
struct PageLane {
  std::string name;
  const Run* run = nullptr;
  const RankLane* rank = nullptr;
  bool is_folded = false;     // only name and peak are shown at first
  bool is_plan = false;       // of the run; else one of its ranks
  profiler::Stacks stacks{};  // of its labels
};

/// Returns the title of the page: "Memory of 2 runs", or the name of the only one.
std::string page_title(const std::vector<PageLane>& lanes);

/// Returns in one line how far the numbers of a lane can be trusted; empty if its recording is
/// whole.
std::string doubt_of_lane(const PageLane& lane);

/// Returns the facts in every page, readable for tools: title, categories, lanes with their peaks
/// and judgements, and the comparison of each lane with the lane of index `baseline`, by the rules
/// of matching.h.
std::string page_facts(const std::vector<PageLane>& lanes, size_t baseline, const ViewState& state);

/// Returns what the changes of a lane refer to: names, stacks and modules of its groups, as
/// alive_tree.h takes them, and its steps.
std::string lane_names(const PageLane& lane, const LaneKinds& kinds);

}  // namespace shardlens::viewer
