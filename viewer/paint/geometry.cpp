#include "viewer/paint/geometry.h"

#include <algorithm>

namespace shardlens::viewer {

namespace {

// The lengths below are in points.
constexpr float kMargin = 10;
constexpr float kGap = 8;
constexpr float kHeader = 30;
constexpr float kLegend = 24;
constexpr float kMessage = 18;
constexpr float kMinimap = 34;
constexpr float kColumn = 308;         // at the right, at least
constexpr float kMostColumn = 460;     // and at most
constexpr float kColumnPart = 0.215F;  // of the window's width, between these
constexpr float kTableRow = 19;
constexpr float kCardTitle = 84;
constexpr float kRowTitle = 250;    // beside the plot, if lanes are in rows
constexpr float kFigureTitle = 19;  // above a plot of a figure with several
constexpr float kLeastFigure = 96;  // a plot of a figure, with its axis
constexpr float kYAxis = 60;
constexpr float kResidual = 40;
constexpr float kWhatIf = 424;
constexpr float kLevers = 560;         // of the same panel, with the levers of a program
constexpr float kDetailsPart = 0.52F;  // of the column at the right, at most
constexpr float kDetailsHead = 60;     // with the panel's edges
constexpr float kDetailsRow = 16;
constexpr float kLeastDetails = 150;   // below it the details take the whole column
constexpr float kLeastSplit = 600;     // of a window that has room for the column beside lanes
constexpr float kTreePart = 0.36F;     // of the window's height,
constexpr float kMostTreePart = 0.5F;  // at most of the height beside that column
constexpr float kLeastTree = 120;
constexpr float kTabs = 22;
constexpr float kBars = 22;
constexpr float kRibbon = 26;
constexpr float kXAxis = 34;
constexpr float kLeastWidth = 1000;     // of a window with the panel of what is alive
constexpr float kLeastLanes = 260;      // that the table leaves to the lanes
constexpr size_t kMostColumns = 6;      // of lanes side by side,
constexpr float kLeastCardWidth = 190;  // which are at least as wide,
constexpr float kLeastCard = 184;       // and as high;
constexpr float kLeastRow = 92;         // in rows
constexpr float kLaneBar = 10;
constexpr float kFoldedWidth = 250;  // at least
constexpr float kFoldedLine = 20;
constexpr float kFoldedGap = 3;
constexpr float kFoldedPart = 0.35F;  // of the lanes' height, at most
constexpr float kWorkRow = 13;        // of a stream of the GPU
constexpr float kLeastPlot = 60;      // that bars and ribbon leave to the plot

bool is_in_rows(const ViewState& state) { return state.layout == LaneLayout::rows; }

/// Takes the title's place: beside the plot in rows, above it in columns. In a card that is too low
/// for that it is beside the plot, too, or only as high as its first line.
Box take_title(Box& inside, const ViewState& state, float scale) {
  const auto px = [scale](float points) { return points * scale; };
  const bool is_low = inside.h < px(kCardTitle + kXAxis + kLeastPlot);
  const bool is_wide = inside.w >= px(kRowTitle + kYAxis + kLeastPlot * 2);
  if (is_in_rows(state) || (is_low && is_wide)) return inside.take_left(px(kRowTitle));
  return inside.take_top(is_low ? px(kFigureTitle) : px(kCardTitle));
}

/// Places the parts of a card.
CardGeometry card_of(Box box, const ViewState& state, const GeometryInput& input) {
  const auto scale = static_cast<float>(input.scale);
  const bool has_ribbon = state.panels.ribbon && input.has_actions;
  const auto px = [scale](float points) { return points * scale; };
  CardGeometry card{.card = box,
                    .title = {},
                    .y_axis = {},
                    .plot = {},
                    .residual = {},
                    .bars = {},
                    .ribbon = {},
                    .work = {},
                    .x_axis = {}};
  Box inside = box.inset(px(kGap));
  if (input.is_figure) {
    inside = box;
    if (input.lanes > 1) card.title = inside.take_top(px(kFigureTitle));
  } else {
    card.title = take_title(inside, state, scale);
  }
  inside.take_right(px(6));
  Box axis = inside.take_left(px(kYAxis));
  Box below = inside.take_bottom(px(kXAxis));
  const float wanted = px((state.panels.steps ? kBars : 0) + (has_ribbon ? kRibbon : 0));
  const float rows = px(kWorkRow * static_cast<float>(input.work_rows));
  const float least = px(kLeastPlot);
  if (state.panels.ribbon && rows > 0 && inside.h - wanted - rows >= least) {
    card.work = inside.take_bottom(rows);
  }
  if (inside.h - wanted >= least) {
    if (has_ribbon) card.ribbon = inside.take_bottom(px(kRibbon));
    if (state.panels.steps) card.bars = inside.take_bottom(px(kBars));
  }
  if (input.has_plans && inside.h >= px(2 * kResidual))
    card.residual = inside.take_bottom(px(kResidual));
  card.plot = inside;
  card.x_axis = below;
  card.y_axis = {axis.x, inside.y, axis.w, inside.h};
  return card;
}

/// Returns how many pieces of at least this length fit side by side.
size_t pieces_in(float length, float least, float gap) {
  return static_cast<size_t>(std::max(1.F, (length + gap) / (least + gap)));
}

/// Cuts the box into equal parts, line by line.
std::vector<Box> parts_of(Box box, size_t lines, size_t columns, float gap) {
  const auto share = [gap](float length, size_t parts) {
    const auto n = static_cast<float>(parts);
    return (length - gap * (n - 1)) / n;
  };
  const float width = share(box.w, columns);
  const float height = share(box.h, lines);
  std::vector<Box> parts;
  for (size_t i = 0; i < lines * columns; ++i) {
    const auto x = static_cast<float>(i % columns) * (width + gap);
    const auto y = static_cast<float>(i / columns) * (height + gap);
    parts.push_back({box.x + x, box.y + y, width, height});
  }
  return parts;
}

/// Places the folded lanes as lines below the cards. If not all fit, the last line holds the number
/// of the others.
void place_folded(Geometry& geometry, Box& rest, const GeometryInput& input) {
  if (input.folded == 0) return;
  const auto px = [&](float points) { return points * static_cast<float>(input.scale); };
  const size_t columns = pieces_in(rest.w, px(kFoldedWidth), px(kGap));
  const size_t lines = (input.folded + columns - 1) / columns;
  const float part = input.lanes > 0 ? kFoldedPart : 1.F;
  const size_t room = pieces_in(part * rest.h, px(kFoldedLine), px(kFoldedGap));
  const auto drawn = std::min(lines, room);
  const float height =
      px(kFoldedLine) * static_cast<float>(drawn) + px(kFoldedGap) * static_cast<float>(drawn - 1);
  geometry.folded = parts_of(input.lanes > 0 ? rest.take_bottom(height) : rest.take_top(height),
                             drawn, columns, px(kFoldedGap));
  geometry.folded.resize(std::min(geometry.folded.size(), input.folded));
  rest.take_bottom(px(kGap));
}

/// Places the cards: below each other, or side by side in as many lines as are needed. If they
/// would become too small, only some lines are shown and the rest are scrolled to.
void place_cards(Geometry& geometry, Box rest, const GeometryInput& input, const ViewState& state) {
  if (input.lanes == 0) return;
  const auto px = [&](float points) { return points * static_cast<float>(input.scale); };
  const bool in_rows = is_in_rows(state);
  const size_t most =
      in_rows ? 1 : std::min(kMostColumns, pieces_in(rest.w, px(kLeastCardWidth), px(kGap)));
  geometry.all_lines = (input.lanes + most - 1) / most;
  geometry.lane_columns = (input.lanes + geometry.all_lines - 1) / geometry.all_lines;
  const float least = px(input.is_figure ? kLeastFigure : in_rows ? kLeastRow : kLeastCard);
  geometry.lane_lines = std::min(geometry.all_lines, pieces_in(rest.h, least, px(kGap)));
  const size_t last = geometry.all_lines - geometry.lane_lines;
  geometry.first_lane = std::min(state.lanes.first, last) * geometry.lane_columns;
  if (last > 0) {
    geometry.lane_bar = rest.take_right(px(kLaneBar));
    rest.take_right(px(kGap / 2));
  }
  for (const Box& box : parts_of(rest, geometry.lane_lines, geometry.lane_columns, px(kGap))) {
    if (geometry.first_lane + geometry.cards.size() == input.lanes) break;
    geometry.cards.push_back(card_of(box, state, input));
  }
}

/// Places the panels of the column at the right: what-if, what is alive, and what is selected. In a
/// narrow window the column only holds what was asked for: what is alive gives way.
void place_column(Geometry& geometry, Box& rest, const GeometryInput& input,
                  const ViewState& state) {
  const auto px = [&](float points) { return points * static_cast<float>(input.scale); };
  if (rest.w < px(kLeastSplit)) return;
  const bool is_wide = rest.w >= px(kLeastWidth);
  const bool shows_alive = state.panels.alive && (is_wide || state.panels.events);
  const bool has_details = state.pick.has_value();
  if (!shows_alive && !has_details && !state.what_if) return;
  Box right = rest.take_right(std::clamp(rest.w * kColumnPart, px(kColumn), px(kMostColumn)));
  rest.take_right(px(kGap));
  if (state.what_if) {
    const bool is_alone = !shows_alive && !has_details;
    const bool has_levers = what_if_kind_of(*state.what_if) == WhatIfKind::recording;
    const float wanted = has_levers ? kLevers : kWhatIf;
    const bool fills = is_alone || right.h < px(wanted + kGap + kLeastDetails);
    geometry.what_if = fills ? right : right.take_top(px(wanted));
    if (fills) return;
    right.take_top(px(kGap));
  }
  if (!has_details) {
    geometry.alive = right;
    return;
  }
  geometry.details = right;
  const float most = right.h * kDetailsPart;
  if (!shows_alive || right.h - most < px(kLeastDetails)) return;
  const float wanted = px(kDetailsHead) + px(kDetailsRow) * static_cast<float>(input.details_rows);
  geometry.details = right.take_bottom(std::clamp(wanted, std::min(px(kLeastDetails), most), most));
  right.take_bottom(px(kGap));
  geometry.alive = right;
}

}  // namespace

namespace {

/// Places the plots of a figure below its legend.
Geometry figure_of(const GeometryInput& input, const ViewState& state, Box rest) {
  const auto px = [&](float points) { return points * static_cast<float>(input.scale); };
  Geometry geometry;
  geometry.legend = rest.take_top(px(kLegend) * static_cast<float>(input.legend_lines));
  geometry.legend_lines = input.legend_lines;
  rest.take_top(px(kGap));
  place_cards(geometry, rest, input, state);
  return geometry;
}

}  // namespace

namespace {

/// Places the lanes, and the panels around them that have room.
void place_around_lanes(Geometry& geometry, Box rest, const GeometryInput& input,
                        const ViewState& state) {
  const auto px = [&](float points) { return points * static_cast<float>(input.scale); };
  place_column(geometry, rest, input, state);
  if (state.overview.is_open && input.runs > 0) {
    geometry.overview = rest;
    return;
  }
  // The height depends neither on what the tree holds nor on what is above, so that it stays.
  const float tree =
      std::min(kMostTreePart * rest.h, kTreePart * static_cast<float>(input.height - input.top));
  if (state.tree.is_open && input.runs > 0 && tree >= px(kLeastTree)) {
    geometry.tree = rest.take_bottom(tree);
    rest.take_bottom(px(kGap));
  } else if (state.panels.table && input.runs > 0) {
    const float wanted = px(kTableRow) * static_cast<float>(input.table_rows + 1) + px(2 * kGap);
    const float height = std::min(wanted, rest.h - px(kLeastLanes));
    if (height >= px(3 * kTableRow)) {
      geometry.table = rest.take_bottom(height);
      rest.take_bottom(px(kGap));
    }
  }
  place_folded(geometry, rest, input);
  place_cards(geometry, rest, input, state);
}

/// Returns the panels that are switched on, but have no room around the lanes.
std::vector<FrontPanel> panels_without_room(const Geometry& geometry, const GeometryInput& input,
                                            const ViewState& state) {
  std::vector<FrontPanel> hidden;
  if (input.runs == 0) return hidden;
  const bool has_below = !state.overview.is_open;
  const bool wants_table = has_below && state.panels.table && !state.tree.is_open;
  if (wants_table && geometry.table.h <= 0) hidden.push_back(FrontPanel::table);
  if (state.panels.alive && geometry.alive.w <= 0) hidden.push_back(FrontPanel::alive);
  if (state.pick && geometry.details.w <= 0) hidden.push_back(FrontPanel::selection);
  if (has_below && state.tree.is_open && geometry.tree.h <= 0) hidden.push_back(FrontPanel::tree);
  if (state.what_if && geometry.what_if.w <= 0) hidden.push_back(FrontPanel::what_if);
  return hidden;
}

Box& box_of(Geometry& geometry, FrontPanel panel) {
  switch (panel) {
    case FrontPanel::table:
      return geometry.table;
    case FrontPanel::alive:
      return geometry.alive;
    case FrontPanel::selection:
      return geometry.details;
    case FrontPanel::tree:
      return geometry.tree;
    case FrontPanel::what_if:
    case FrontPanel::lanes:
      break;
  }
  return geometry.what_if;
}

/// Places all parts below the minimap. Panels without room get tabs, by which each can be shown in
/// the place of the lanes.
void place_below(Geometry& geometry, Box rest, const GeometryInput& input, const ViewState& state) {
  const auto px = [&](float points) { return points * static_cast<float>(input.scale); };
  const Geometry above = geometry;
  place_around_lanes(geometry, rest, input, state);
  if (panels_without_room(geometry, input, state).empty()) return;
  geometry = above;
  geometry.tab_line = rest.take_bottom(px(kTabs));
  rest.take_bottom(px(kGap / 2));
  place_around_lanes(geometry, rest, input, state);
  geometry.tabs = panels_without_room(geometry, input, state);
  geometry.tabs.insert(geometry.tabs.begin(), FrontPanel::lanes);
  const bool is_there = std::ranges::find(geometry.tabs, state.front) != geometry.tabs.end();
  if (!is_there || state.front == FrontPanel::lanes) return;
  Geometry front = above;
  front.tab_line = geometry.tab_line;
  front.tabs = geometry.tabs;
  front.front = state.front;
  box_of(front, state.front) = rest;
  geometry = front;
}

}  // namespace

Geometry geometry_of(const GeometryInput& input, const ViewState& state) {
  const auto scale = static_cast<float>(input.scale);
  const auto px = [scale](float points) { return points * scale; };
  Geometry geometry;
  Box rest{0, static_cast<float>(input.top), static_cast<float>(input.width),
           static_cast<float>(input.height - input.top)};
  const bool is_short = rest.h < px(kShortWindow);
  rest = rest.inset(is_short ? px(kMargin / 2) : px(kMargin));
  if (input.is_figure) return figure_of(input, state, rest);
  geometry.header = rest.take_top(px(kHeader));
  geometry.legend = rest.take_top(px(kLegend) * static_cast<float>(input.legend_lines));
  geometry.legend_lines = input.legend_lines;
  if (input.messages > 0) {
    geometry.messages = rest.take_top(px(kMessage) * static_cast<float>(input.messages));
  }
  rest.take_top(is_short ? px(kGap / 2) : px(kGap));
  if (state.panels.minimap && !is_short) {
    geometry.minimap = rest.take_top(px(kMinimap));
    rest.take_top(px(kGap));
  }
  place_below(geometry, rest, input, state);
  return geometry;
}

}  // namespace shardlens::viewer
