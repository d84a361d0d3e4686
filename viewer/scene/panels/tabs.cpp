// Draws the tabs by which a small window shows, in the place of the lanes, the panels that have no
// room around them.
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

void draw_tabs(Scene& scene) {
  Painter& paint = scene.paint;
  Box line = scene.geometry.tab_line;
  for (const FrontPanel panel : scene.geometry.tabs) {
    const std::string_view words = to_string(panel);
    Box tab = line.take_left(paint.width(Style::small, words) + paint.px(14));
    line.take_left(paint.px(3));
    const bool is_front = panel == scene.geometry.front;
    paint.fill(tab, is_front ? paint.colors.accent : paint.colors.card, paint.px(4));
    if (!is_front) paint.outline(tab, paint.colors.card_edge, paint.px(4));
    paint.text_middle(tab, words, is_front ? paint.colors.on_accent : paint.colors.text,
                      Style::small);
    paint.area({tab, Area::Kind::tab, 0, static_cast<size_t>(panel)});
  }
}

}  // namespace shardlens::viewer
