// Colours. Categories keep theirs in every theme: chosen so that neighbours in a stack, and those
// that become neighbours where one is empty, can be told apart also with protanopia, deuteranopia
// and tritanopia; tests compute the distances. Nothing is said by colour alone.
#pragma once

#include <array>

#include "profiler/profile.h"
#include "viewer/model/passes.h"
#include "viewer/scene/picture.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

struct Colors {
  Color background;
  Color card;
  Color card_edge;
  Color plot;
  Color grid;
  Color text;
  Color muted;   // less important text: as readable
  Color accent;  // focus, selection, the baseline's badge
  Color on_accent;
  Color more;  // grew
  Color less;  // shrank
  Color warning;
  Color edge;  // drawn over a band's upper edge
  Color cursor;
  Color plan;  // the outline of what was planned
};

const Colors& colors_of(Theme theme);

constexpr int kCategoryCount = profiler::kCategories;

Color color_of(profiler::Category category);

/// From the bottom of a stack to its top: what stays, then weights, then what comes and goes.
const std::array<profiler::Category, kCategoryCount>& stacking_order();

/// "optimizer state".
std::string words_of(profiler::Category category);

/// Whether a category's hatch darkens a pixel; `period` in pixels.
bool is_hatched(profiler::Category category, int x, int y, int period);

/// For outlines of strategies on one plot.
Color line_color(size_t run, Theme theme);

/// Of an action on the ribbon.
Color color_of(PassPart part, Theme theme);

}  // namespace shardlens::viewer
