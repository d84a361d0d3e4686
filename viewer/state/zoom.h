// Moves the view and the axes over the runs.
#pragma once

#include "viewer/state/facts.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// Moves the cursor to x. The view moves only if the cursor would be outside.
void show_moment(ViewState& state, double x);

/// Zooms so that `x` stays at its place; `factor` below 1 shows less. The view never becomes
/// narrower than 1e-9 of the extent, and never leaves the extent.
void zoom_at(ViewState& state, const Facts& facts, double x, double factor);
/// Zooms the y axes so that the height at a fraction of them, from below, stays at its place; never
/// beyond the whole axis.
void zoom_heights(ViewState& state, double part, double factor);
/// Moves the y axes by a fraction of what they show, upwards if it is positive.
void pan_heights(ViewState& state, double parts);
void pan_by(ViewState& state, const Facts& facts, double x);

}  // namespace shardlens::viewer
