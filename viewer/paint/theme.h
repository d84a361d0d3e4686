// Colours of all themes. Categories have the same colours in every theme, chosen so that neighbours
// in a stack, and those that become neighbours if one is empty, can also be told apart with
// protanopia, deuteranopia and tritanopia; tests compute the distances. Nothing is shown by colour
// only.
#pragma once

#include <array>

#include "profiler/exchange/kineto/gpu_trace.h"
#include "profiler/recording/profile.h"
#include "viewer/model/passes.h"
#include "viewer/paint/picture.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

struct Colors {
  Color background;
  Color card;
  Color card_edge;
  Color plot;
  Color grid;
  Color text;
  Color muted;   // less important text, equally readable
  Color accent;  // focus, selection, the baseline's badge
  Color on_accent;
  Color more;  // grew
  Color less;  // shrank
  Color warning;
  Color edge;  // drawn over a band's upper edge
  Color cursor;
  Color plan;  // the outline of a plan
};

const Colors& colors_of(Theme theme);

constexpr int kCategoryCount = profiler::kCategories;

Color color_of(profiler::Category category);

/// Returns black or white, whichever is readable on a background.
Color ink_on(const Color& ground);

/// Returns the categories from the bottom of a stack to its top: lasting ones, then weights, then
/// those that come and go.
const std::array<profiler::Category, kCategoryCount>& stacking_order();

/// Returns a category in words: "optimizer state"; "parameters" if no run has shards.
std::string words_of(profiler::Category category, bool has_shards);

/// True if a category's hatch darkens a pixel; `period` is in pixels.
bool is_hatched(profiler::Category category, int x, int y, int period);

/// Returns the colour of a run's outline, if one plot has several.
Color line_color(size_t run, Theme theme);

/// Returns the colour of what ran on a GPU.
Color color_of(profiler::GpuWork work, Theme theme);

/// Returns the colour of an action on the ribbon.
Color color_of(PassPart part, Theme theme);

}  // namespace shardlens::viewer
