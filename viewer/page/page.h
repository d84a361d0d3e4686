// Writes runs as one page to share: an HTML file that needs neither server nor network. It holds
// all changes of every lane, and the script that draws them.
#pragma once

#include <ostream>
#include <vector>

#include "viewer/model/run.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// Writes what the state shows: the shown rank of each run or all its ranks, each followed by a
/// plan that is drawn over the run, in the state's order and folded as in the state. If that is
/// more than a browser draws fast, only the lanes with the highest peaks are written, and the page
/// says so. `runs` must not be empty. Reads the stacks of recordings again, and throws as Reader
/// does.
void write_page(const std::vector<Run>& runs, const ViewState& state, std::ostream& out);

}  // namespace shardlens::viewer
