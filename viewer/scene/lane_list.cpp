// Draws what many lanes need besides their cards: buttons, the lines of folded ones, and the scroll
// bar.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "viewer/model/compare.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

constexpr float kButton = 15;  // points

Box take_button(Painter& paint, Box& line) {
  const Box place = line.take_right(paint.px(kButton));
  return {place.x, place.y + (place.h - paint.px(kButton)) / 2, place.w, paint.px(kButton)};
}

void draw_folded_lane(Scene& scene, const ShownRun& one, const Box& box) {
  Painter& paint = scene.paint;
  const bool is_focus = one.index == scene.focus().index;
  paint.fill(box, paint.colors.card, paint.px(3));
  paint.outline(box, is_focus ? paint.colors.accent : paint.colors.card_edge, paint.px(3));
  paint.area({box, Area::Kind::folded_lane, one.index, 0});
  Box line = box.inset(paint.px(2));
  const Box sign = line.take_left(paint.px(16));
  paint.line(sign.x + paint.px(4), sign.y + sign.h / 2, sign.x + paint.px(12), sign.y + sign.h / 2,
             paint.colors.muted, 1.5F);
  paint.line(sign.x + paint.px(8), sign.y + sign.h / 2 - paint.px(4), sign.x + paint.px(8),
             sign.y + sign.h / 2 + paint.px(4), paint.colors.muted, 1.5F);
  const std::string total = bytes_text(shown_bytes(scene.state(), one.bytes));
  paint.text_right(line.take_right(paint.width(Style::small, total) + paint.px(6)), total,
                   paint.colors.text, Style::small);
  const bool has_failed = !one.lane->lane.arrays().failures.empty();
  if (has_failed) draw_badge(paint, line, "out of memory");
  paint.text(line, one.run->name, paint.colors.text, Style::small);
}

}  // namespace

void draw_lane_buttons(Scene& scene, const ShownRun& one, Box& line) {
  if (scene.shown.size() < 2) return;
  Painter& paint = scene.paint;
  const Box close = take_button(paint, line);
  paint.text_middle(close, "\u00d7", paint.colors.muted, Style::body);
  paint.area({close, Area::Kind::lane_close, one.index, 0});
  const Box fold = take_button(paint, line);
  const float middle = fold.y + fold.h / 2;
  paint.line(fold.x + paint.px(4), middle, fold.right() - paint.px(4), middle, paint.colors.muted,
             1.5F);
  paint.area({fold, Area::Kind::lane_fold, one.index, 0});
  line.take_right(paint.px(2));
}

void draw_folded_lanes(Scene& scene) {
  const std::vector<size_t> folded = lane_lists(scene.in).folded;
  const std::vector<Box>& boxes = scene.geometry.folded;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const size_t left = folded.size() - i;
    if (i + 1 < boxes.size() || left == 1) {
      draw_folded_lane(scene, scene.shown[folded[i]], boxes[i]);
    } else {
      scene.paint.text(boxes[i], fmt::format("{} more are folded: Ctrl+U", left),
                       scene.paint.colors.muted, Style::small);
    }
  }
}

void draw_lane_bar(Scene& scene) {
  const Geometry& geometry = scene.geometry;
  const Box& bar = geometry.lane_bar;
  if (bar.w <= 0) return;
  Painter& paint = scene.paint;
  paint.fill(bar, paint.colors.card, paint.px(4));
  const auto lines = static_cast<float>(geometry.all_lines);
  const auto first = static_cast<float>(geometry.first_lane / geometry.lane_columns);
  const auto shown = static_cast<float>(geometry.lane_lines);
  paint.fill({bar.x + paint.px(1), bar.y + bar.h * first / lines, bar.w - paint.px(2),
              bar.h * shown / lines},
             paint.colors.muted, paint.px(4));
  paint.area({bar, Area::Kind::lane_bar, 0, geometry.all_lines});
}

}  // namespace shardlens::viewer
