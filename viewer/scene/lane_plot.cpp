// Draws the contents of plots.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "viewer/scene/block_image.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

constexpr double kRoomAbovePeak = 1.08;
constexpr float kLeastRankHeight = 26;  // points

/// Returns the key of an image of a lane: everything that the image depends on.
std::string key_of(const Scene& scene, const ShownRun& one, size_t rank, const LaneStyle& style,
                   int width, std::string_view what) {
  const ViewState& state = scene.state();
  const auto number = [](const auto& mark) {
    return mark ? static_cast<int64_t>(*mark) : int64_t{-1};
  };
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", what,
                     scene.in.generation, one.index, rank, width, style.height, style.top_bytes,
                     style.bottom_bytes, static_cast<int>(style.theme), style.hidden_categories,
                     style.hatch_period, style.edge, static_cast<int>(state.alignment), one.base,
                     scene.view.begin, scene.view.end, number(style.marked_category),
                     number(style.marked_block));
}

/// Marks the selection: a category in all runs, a block where it is.
void mark_pick(const Scene& scene, const ShownRun& one, size_t rank, LaneStyle& style) {
  const auto& pick = scene.state().pick;
  if (!pick) return;
  if (pick->scope == PickScope::category) style.marked_category = pick->category;
  const bool is_here = pick->run == one.index && pick->rank == rank;
  if (is_here && pick->block != kNoBlock) style.marked_block = pick->block;
}

LaneStyle style_of(const Scene& scene, const Box& plot, const YAxis& y_axis) {
  const ViewState& state = scene.state();
  return {.height = static_cast<int>(plot.h),
          .top_bytes = y_axis.top,
          .bottom_bytes = y_axis.bottom,
          .theme = state.theme,
          .hidden_categories = state.hidden_categories,
          .hatch_period = hatch_period(scene),
          .edge = std::max(1, static_cast<int>(std::lround(scene.paint.px(1))))};
}

const Columns& columns(const Scene& scene, const ShownRun& one, size_t rank, const Box& plot) {
  return drawn_columns(scene.in, scene.cache, one.index, rank, static_cast<int>(plot.w)).cells;
}

std::vector<std::optional<int64_t>> reserved_line(const Scene& scene, const ShownRun& one,
                                                  size_t rank, const Box& plot) {
  const Warp& warp = scene.in.warps[one.index][rank];
  std::vector<std::optional<int64_t>> line;
  const int width = static_cast<int>(plot.w);
  const auto x = [&](int i) { return scene.view.begin + scene.view.length() * i / width; };
  for (int i = 0; i < width; ++i) {
    const auto begin = warp.position_at(x(i));
    const auto end = warp.position_at(x(i + 1));
    const bool is_there = begin && end && !warp.is_by_change();
    line.push_back(is_there ? one.run->ranks[rank].lane.reserved_between(*begin, *end)
                            : std::nullopt);
  }
  return line;
}

/// Draws one rank: its bands or blocks, with the line of reserved memory over them.
Image rank_image(const Scene& scene, const ShownRun& one, size_t rank, const Box& plot,
                 const LaneStyle& style) {
  const Lane& lane = one.run->ranks[rank].lane;
  if (scene.state().detail == Detail::addresses) {
    return address_image(lane, scene.in.warps[one.index][rank], scene.view,
                         static_cast<int>(plot.w), style)
        .image;
  }
  const Columns& cells = columns(scene, one, rank, plot);
  Image image = scene.state().detail == Detail::blocks ? block_stack_image(lane, cells, style)
                                                       : stack_image(cells, style);
  if (scene.state().panels.reserved && one.reserved_peak > 0) {
    draw_outline(image, reserved_line(scene, one, rank, plot), style, colors_of(style.theme).muted,
                 std::max(2, 4 * style.edge));
  }
  if (rank == one.rank) outline_plan(scene, one, style, image);
  return image;
}

/// Draws a text in the upper left corner of a plot, on its own background.
void draw_label(Scene& scene, const Box& plot, const std::string& text) {
  if (text.empty()) return;
  Painter& paint = scene.paint;
  const Box label{plot.x + paint.px(4), plot.y + paint.px(3),
                  paint.width(Style::small, text) + paint.px(6), paint.height(Style::small)};
  scene.labels.push_back(label);
  paint.fill(label, paint.colors.plot.with_alpha(215), paint.px(2));
  paint.text_middle(label, text, paint.colors.text, Style::small);
}

/// Draws an image's marks: where ranges begin in the plot, the others beside it.
void draw_image_marks(Scene& scene, const Box& plot, const Image& image) {
  Painter& paint = scene.paint;
  const float height = paint.height(Style::small);
  float last_top = plot.bottom() + height;
  for (const ImageMark& mark : image.marks) {
    const float y = std::round(plot.bottom() - static_cast<float>(mark.row));
    paint.line(plot.x - paint.px(4), y, plot.x, y, paint.colors.muted);
    if (mark.is_begin) {
      const float width = paint.width(Style::small, mark.text) + paint.px(6);
      const auto box =
          free_place(scene, plot, {plot.x + paint.px(4), y - height - 1, width, height});
      if (!box) continue;
      paint.fill(*box, paint.colors.plot.with_alpha(215), paint.px(2));
      paint.text_middle(*box, mark.text, paint.colors.muted, Style::small);
      continue;
    }
    const float top = y - height / 2;
    if (top + height > last_top || top < plot.y) continue;
    last_top = top;
    paint.text_right({plot.x - paint.px(86), top, paint.px(80), height}, mark.text,
                     paint.colors.muted, Style::small);
  }
}

void draw_rank(Scene& scene, const ShownRun& one, size_t rank, const Box& plot,
               const YAxis& y_axis) {
  LaneStyle style = style_of(scene, plot, y_axis);
  mark_pick(scene, one, rank, style);
  const std::string what = fmt::format("rank {} {}", static_cast<int>(scene.state().detail),
                                       scene.state().panels.reserved ? 1 : 0);
  const std::string key = key_of(scene, one, rank, style, static_cast<int>(plot.w), what);
  const Image& image = scene.cache.get(fmt::format("lane {} {}", one.index, rank), key,
                                       [&] { return rank_image(scene, one, rank, plot, style); });
  scene.paint.image(plot, image);
  draw_label(scene, plot, image.caption);
  if (scene.state().ranks != Ranks::each) draw_image_marks(scene, plot, image);
  scene.paint.area({plot, Area::Kind::lane, one.index, rank});
}

/// Returns how many ranks are left out above and below those that are drawn, and the key that shows
/// them; empty for the others.
std::string left_out_words(const Scene& scene, size_t above, size_t below) {
  const bool scrolls_runs = scene.geometry.lane_bar.w > 0;
  const auto words = [&](size_t count, std::string_view key) {
    return count == 0 ? "" : fmt::format(", {} more: {}", count, scrolls_runs ? "Ctrl+G" : key);
  };
  return words(above, "Alt+PageUp") + words(below, "Alt+PageDown");
}

/// Draws the ranks one below the other, as many as fit.
void draw_each_rank(Scene& scene, const ShownRun& one, Box plot, const YAxis& y_axis) {
  const size_t count = one.run->ranks.size();
  const auto room = static_cast<size_t>(plot.h / scene.paint.px(kLeastRankHeight));
  const size_t drawn = std::clamp<size_t>(room, 1, count);
  const size_t first = std::min(scene.state().lanes.first_rank, count - drawn);
  const float height = plot.h / static_cast<float>(drawn);
  for (size_t i = first; i < first + drawn; ++i) {
    Box lane = plot.take_top(height);
    const Box line = lane.take_bottom(scene.paint.px(1));
    draw_rank(scene, one, i, lane, y_axis);
    scene.paint.fill(line, scene.paint.colors.card_edge);
    const size_t above = i == first ? first : 0;
    const size_t below = i + 1 == first + drawn ? count - first - drawn : 0;
    const Lane& shown = one.run->ranks[i].lane;
    draw_label(scene, lane,
               fmt::format("rank {}, peak {}{}", shown.rank(), bytes_text(shown.peak().max_bytes),
                           left_out_words(scene, above, below)));
  }
}

void draw_folded(Scene& scene, const ShownRun& one, const Box& plot, const YAxis& y_axis) {
  const LaneStyle style = style_of(scene, plot, y_axis);
  const std::string key = key_of(scene, one, 0, style, static_cast<int>(plot.w), "folded");
  scene.paint.image(plot, scene.cache.get(fmt::format("lane {} 0", one.index), key, [&] {
    std::vector<Columns> ranks;
    for (size_t i = 0; i < one.run->ranks.size(); ++i) {
      ranks.push_back(columns(scene, one, i, plot));
    }
    return folded_image(ranks, style);
  }));
  draw_label(scene, plot,
             fmt::format("{} ranks: the band is from least to most, the line the median",
                         one.run->ranks.size()));
  scene.paint.area({plot, Area::Kind::lane, one.index, one.rank});
}

/// Returns the largest growth or fall of a column.
double reach_of(const DifferenceColumns& cells, uint32_t hidden) {
  int64_t reach = 1;
  for (const auto& column : cells) {
    int64_t up = 0;
    int64_t down = 0;
    for (size_t c = 0; column && c < kCategories; ++c) {
      if ((hidden >> c & 1U) != 0) continue;
      ((*column)[c] > 0 ? up : down) += (*column)[c];
    }
    reach = std::max({reach, up, -down});
  }
  return static_cast<double>(reach);
}

DifferenceColumns growth_of(const Scene& scene, const ShownRun& one, const Box& plot) {
  const ShownRun& base = scene.base_of(one);
  return difference(columns(scene, base, base.rank, plot), columns(scene, one, one.rank, plot));
}

/// Returns the bytes at the edges of a difference: the largest of the lanes in view that are
/// compared with the same run, or of this one.
double difference_reach(Scene& scene, const ShownRun& one, const Box& plot) {
  const uint32_t hidden = scene.state().hidden_categories;
  if (scene.state().height == Height::own) return reach_of(growth_of(scene, one, plot), hidden);
  const auto [known, is_new] = scene.difference_reach.try_emplace(one.base, 1.0);
  for (const size_t run : scene.cards) {
    const ShownRun& other = scene.shown[run];
    if (!is_new || other.base != one.base || Scene::is_baseline(other)) continue;
    known->second = std::max(known->second, reach_of(growth_of(scene, other, plot), hidden));
  }
  return known->second;
}

void draw_difference_plot(Scene& scene, const ShownRun& one, const CardGeometry& card) {
  const YAxis y_axis{.top = kRoomAbovePeak * difference_reach(scene, one, card.plot) *
                            scene.state().heights.length()};
  const LaneStyle style = style_of(scene, card.plot, y_axis);
  draw_axes(scene, card, y_axis, true);
  const std::string key =
      key_of(scene, one, one.rank, style, static_cast<int>(card.plot.w), "difference");
  scene.paint.image(card.plot, scene.cache.get(fmt::format("lane {} 0", one.index), key, [&] {
    return difference_image(growth_of(scene, one, card.plot), style);
  }));
  const float middle = card.plot.y + card.plot.h / 2;
  scene.paint.line(card.plot.x, middle, card.plot.right(), middle, scene.paint.colors.edge);
  scene.paint.area({card.plot, Area::Kind::lane, one.index, one.rank});
}

/// Draws the runs that are compared with a run as lines over it.
void draw_outlines(Scene& scene, const ShownRun& base, const CardGeometry& card,
                   const YAxis& y_axis) {
  LaneStyle style = style_of(scene, card.plot, y_axis);
  style.edge *= 2;
  for (const size_t run : scene.compared) {
    const ShownRun& one = scene.shown[run];
    if (one.base != base.index || Scene::is_baseline(one)) continue;
    const std::string key =
        key_of(scene, one, one.rank, style, static_cast<int>(card.plot.w), "outline");
    scene.paint.image(card.plot, scene.cache.get(fmt::format("outline {}", one.index), key, [&] {
      Image image;
      image.width = static_cast<int>(card.plot.w);
      image.height = style.height;
      image.pixels.resize(static_cast<size_t>(image.width) * static_cast<size_t>(image.height));
      const auto totals =
          totals_of(columns(scene, one, one.rank, card.plot), style.hidden_categories);
      draw_outline(image, totals, style, line_color(one.index, style.theme),
                   one.index % 2 == 1 ? 0 : 6 * style.edge);
      return image;
    }));
  }
}

}  // namespace

YAxis y_axis_of(const ViewState& state, const std::vector<ShownRun>& shown, const ShownRun& one) {
  const auto own = [&](const ShownRun& run) {
    int64_t top = 1;
    if (state.height == Height::view) return std::max(top, run.drawn_most);
    if (state.hidden_categories != 0) return std::max(top, shown_bytes(state, run.drawn));
    for (const RankLane& rank : run.run->ranks) top = std::max(top, rank.lane.peak().max_bytes);
    if (!state.panels.reserved) return top;
    top = std::max(top, run.reserved_peak);
    if (state.ranks != Ranks::each || run.reserved_peak == 0) return top;
    for (const RankLane& rank : run.run->ranks) top = std::max(top, rank.lane.reserved_peak());
    return top;
  };
  int64_t top = own(one);
  if (state.height == Height::capacity) {
    top = std::max(top, one.run->capacity_bytes());
  } else if (state.height != Height::own) {
    for (const ShownRun& other : shown) {
      if (!other.is_folded && other.run->space() == one.run->space())
        top = std::max(top, own(other));
    }
  }
  const double all = kRoomAbovePeak * static_cast<double>(top);
  return {.bottom = all * state.heights.begin, .top = all * state.heights.end};
}

LaneStyle read_style(const ViewState& state, const std::vector<ShownRun>& shown,
                     const ShownRun& one, const Box& plot) {
  const YAxis y_axis = y_axis_of(state, shown, one);
  return {.height = static_cast<int>(plot.h),
          .top_bytes = y_axis.top,
          .bottom_bytes = y_axis.bottom,
          .hidden_categories = state.hidden_categories};
}

int hatch_period(const Scene& scene) {
  constexpr float kPeriod = 7;  // points
  constexpr int kLeast = 4;
  if (!scene.state().panels.hatches) return 0;
  return std::max(kLeast, static_cast<int>(scene.paint.px(kPeriod)));
}

void draw_plot(Scene& scene, const ShownRun& one, const CardGeometry& card) {
  const bool is_difference = scene.state().layout == LaneLayout::difference;
  scene.paint.fill(card.plot, scene.paint.colors.plot);
  scene.labels.clear();
  if (is_difference && !Scene::is_baseline(one)) {
    draw_difference_plot(scene, one, card);
    draw_marks(scene, one, card, {});
    return;
  }
  const YAxis y_axis = y_axis_of(scene.state(), scene.shown, one);
  if (scene.state().detail != Detail::addresses && scene.state().ranks != Ranks::each) {
    draw_axes(scene, card, y_axis, false);
  } else {
    draw_axes(scene, card, {}, false);
  }
  if (scene.state().ranks == Ranks::each && one.run->ranks.size() > 1) {
    draw_each_rank(scene, one, card.plot, y_axis);
  } else if (scene.state().ranks == Ranks::folded && one.run->ranks.size() > 1) {
    draw_folded(scene, one, card.plot, y_axis);
  } else {
    draw_rank(scene, one, one.rank, card.plot, y_axis);
  }
  if (scene.state().layout == LaneLayout::overlay) draw_outlines(scene, one, card, y_axis);
  draw_marks(scene, one, card, y_axis);
}

}  // namespace shardlens::viewer
