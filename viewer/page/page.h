// Writes runs as one page to hand on: an HTML file that needs neither server nor network, with all
// changes of every lane in it, drawn by a script that lies in it too.
#pragma once

#include <ostream>
#include <vector>

#include "viewer/model/run.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// Writes what the state shows: of each run the rank that is shown, or each of its ranks, and a
/// plan that is drawn over a run behind it, in the order and folded as the state has them. If that
/// is more than a browser draws swiftly, the lanes with the highest peaks are written, and the page
/// says so. `runs` must not be empty. Reads the stacks of recordings once more, and throws as
/// Reader does.
void write_page(const std::vector<Run>& runs, const ViewState& state, std::ostream& out);

}  // namespace shardlens::viewer
