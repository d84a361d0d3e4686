// Gives the outlines of letters, as they stand in the fonts of the window.
#pragma once

#include "viewer/figure/figure_path.h"
#include "viewer/ui/fonts.h"

namespace shardlens::viewer {

/// Returns the function that outlines texts of a picture which was measured with these fonts. The
/// fonts must live longer.
Outliner outliner_of(const FontSet& fonts);

}  // namespace shardlens::viewer
