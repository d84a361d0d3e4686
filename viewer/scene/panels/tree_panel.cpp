// Draws blocks as a tree: a flame graph, or the list of its places.
#include "viewer/scene/panels/tree_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/units.h"
#include "viewer/scene/flame.h"
#include "viewer/scene/parts.h"
#include "viewer/scene/pick.h"
#include "viewer/state/commands.h"

namespace shardlens::viewer {

namespace {

constexpr float kFrameRow = 19;        // points
constexpr float kPlaceRow = 18;        //
constexpr float kLeastFrame = 1.5F;    // pixels of a frame that is drawn by itself
constexpr float kLeastLabel = 26;      // of a frame that has a label
constexpr uint8_t kDim = 70;           // of 255, for frames that are not meant
constexpr uint8_t kChangeAlpha = 150;  // text is drawn over it

constexpr std::array<std::string_view, 2> kFromWords = {"top down", "bottom up"};
constexpr std::array<std::string_view, 3> kOfWords = {"alive", "churn", "kept"};

std::string tree_title(const Scene& scene) {
  const ViewState& state = scene.state();
  const ShownRun& one = scene.focus();
  const auto by = to_string(state.tree.by);
  const int64_t step = step_of_change(one.lane->lane, one.change);
  std::string what;
  switch (state.tree.of) {
    case TreeContent::alive:
      what = state.at == TableMoment::cursor && state.cursor ? "Alive at the cursor"
                                                             : "Alive at the peak";
      break;
    case TreeContent::churn:
      what = step < 0 ? "Allocated and freed again, before the first step"
                      : fmt::format("Allocated and freed again, around step {}", step);
      break;
    case TreeContent::kept:
      what = "Alive from earlier steps (leak candidates)";
      break;
  }
  return fmt::format("{}, by {}: {}", what, by, one.run->name);
}

/// The facts that all parts of the panel need.
struct TreeDrawing {
  Scene& scene;
  const AliveGraph& graph;
  Query query;
  uint32_t root = 0;                 // fills the width
  std::vector<bool> found{};         // by the search
  std::optional<uint32_t> picked{};  // the node that is selected
};

std::optional<uint32_t> picked_node(const Scene& scene, const AliveGraph& graph) {
  const auto& pick = scene.state().pick;
  const ShownRun& one = scene.focus();
  if (!pick || pick->run != one.index || pick->rank != one.rank) return std::nullopt;
  if (pick->scope == PickScope::place) {
    const uint32_t node = node_at(graph, pick->path);
    return path_of(graph, node) == pick->path ? std::optional(node) : std::nullopt;
  }
  const auto& blocks = one.lane->lane.arrays().blocks;
  return pick->block < blocks.size() ? graph.end_of(blocks[pick->block]) : std::nullopt;
}

double share_of(int64_t bytes, int64_t all) {
  return all > 0 ? 100.0 * static_cast<double>(bytes) / static_cast<double>(all) : 0;
}

/// Draws the words of one group of choices, the chosen one on a background.
void draw_tree_choices(const TreeDrawing& drawing, TreeChoice group,
                       std::span<const std::string_view> words, size_t chosen, Box& line) {
  Painter& paint = drawing.scene.paint;
  for (size_t i = 0; i < words.size(); ++i) {
    const float width = paint.width(Style::small, words[i]) + paint.px(12);
    if (line.w < width) return;
    Box chip = line.take_left(width);
    line.take_left(paint.px(2));
    chip = {chip.x, chip.y + paint.px(2), chip.w, chip.h - paint.px(4)};
    const bool is_chosen = i == chosen;
    paint.fill(chip, is_chosen ? paint.colors.accent : paint.colors.plot, paint.px(4));
    if (!is_chosen) paint.outline(chip, paint.colors.card_edge, paint.px(4));
    paint.text_middle(chip, words[i], is_chosen ? paint.colors.on_accent : paint.colors.text,
                      Style::small);
    paint.area({chip, Area::Kind::tree_choice, static_cast<size_t>(group), i});
  }
  line.take_left(paint.px(10));
}

std::string found_text(const TreeDrawing& drawing) {
  if (drawing.query.is_empty()) return "";
  const int64_t bytes = found_bytes(drawing.graph, drawing.found);
  return fmt::format("{}: {}, {:.1f} %", drawing.scene.state().search, bytes_text(bytes),
                     share_of(bytes, drawing.graph.total_bytes()));
}

std::string threshold_text(const TreeView& tree) {
  if (tree.form == TreeForm::list) return "";
  const double least = 100 * kTreeThresholds[std::min(tree.threshold, kTreeThresholds.size() - 1)];
  return least > 0 ? fmt::format("frames over {:g} %", least) : "all frames";
}

void draw_tree_head(const TreeDrawing& drawing, Box& box) {
  Scene& scene = drawing.scene;
  Painter& paint = scene.paint;
  const TreeView& tree = scene.state().tree;
  Box title = box.take_top(paint.px(19));
  const std::string total = fmt::format("{} in {} blocks", bytes_text(drawing.graph.total_bytes()),
                                        drawing.graph.tree.nodes.front().count);
  title.w =
      paint.text_right(title, total, paint.colors.text, Style::strong) - title.x - paint.px(8);
  paint.text(title, tree_title(scene), paint.colors.text, Style::strong);
  Box line = box.take_top(paint.px(22));
  draw_tree_choices(drawing, TreeChoice::of, kOfWords, static_cast<size_t>(tree.of), line);
  draw_tree_choices(drawing, TreeChoice::by, kWords<profiler::TreeGrouping>,
                    static_cast<size_t>(tree.by), line);
  draw_tree_choices(drawing, TreeChoice::from, kFromWords, static_cast<size_t>(tree.from), line);
  draw_tree_choices(drawing, TreeChoice::form, kWords<TreeForm>, static_cast<size_t>(tree.form),
                    line);
  const std::string found = found_text(drawing);
  const std::string right = found.empty() ? threshold_text(tree) : found;
  paint.text_right(line, right, found.empty() ? paint.colors.muted : paint.colors.accent,
                   Style::small);
  box.take_top(paint.px(3));
}

/// True for a frame outside the search or, without a search, outside a selected category.
bool is_dim(const TreeDrawing& drawing, const FlameFrame& frame) {
  const auto& pick = drawing.scene.state().pick;
  if (!drawing.query.is_empty()) {
    for (uint32_t at = frame.node;; at = drawing.graph.tree.nodes[at].parent) {
      if (drawing.found[at]) return false;
      if (at == frame.first || at == 0) return true;
    }
  }
  return pick && pick->scope == PickScope::category &&
         drawing.graph.nodes[frame.node].category != pick->category;
}

/// Draws the categories of a frame as a strip at its foot, if it has several.
void draw_composition(const TreeDrawing& drawing, const GraphNode& node, const Box& box) {
  Painter& paint = drawing.scene.paint;
  int64_t all = 0;
  for (const int64_t bytes : node.bytes) all += bytes;
  if (all <= 0 || node.bytes[static_cast<size_t>(node.category)] == all) return;
  Box strip = box;
  strip = strip.take_bottom(paint.px(4));
  float x = strip.x;
  for (const Category category : stacking_order()) {
    const int64_t bytes = node.bytes[static_cast<size_t>(category)];
    if (bytes <= 0) continue;
    const float width =
        strip.w * static_cast<float>(static_cast<double>(bytes) / static_cast<double>(all));
    paint.fill({x, strip.y, width, strip.h}, color_of(category));
    x += width;
  }
  paint.line(strip.x, strip.y, strip.right(), strip.y, paint.colors.card);
}

/// Draws a frame of two runs: the part that only one of them has is in colour.
void draw_changed_frame(const TreeDrawing& drawing, const FlameFrame& frame, const Box& box) {
  Painter& paint = drawing.scene.paint;
  const profiler::TreeNode& node = drawing.graph.tree.nodes[frame.node];
  const int64_t growth = node.bytes - node.baseline_bytes;
  paint.fill(box, paint.colors.grid, paint.px(2));
  if (growth == 0 || frame.span_bytes <= 0) return;
  const double part =
      static_cast<double>(growth < 0 ? -growth : growth) / static_cast<double>(frame.span_bytes);
  Box changed = box;
  changed = changed.take_right(std::max(paint.px(1), box.w * static_cast<float>(part)));
  const Color& color = growth > 0 ? paint.colors.more : paint.colors.less;
  paint.fill(changed, color.with_alpha(kChangeAlpha), paint.px(2));
}

/// Returns the node of a chain that names it: bottom up the first; top down the last one in the
/// program's own code, as most others are PyTorch's way to call it.
uint32_t naming_node(const TreeDrawing& drawing, const FlameFrame& frame) {
  if (drawing.scene.state().tree.from == profiler::TreeStart::bottom) return frame.first;
  const auto& nodes = drawing.graph.tree.nodes;
  for (uint32_t at = frame.node;; at = nodes[at].parent) {
    const std::string& file = nodes[at].place.file;
    if (!file.empty() && file.find("/torch/") == std::string::npos) return at;
    if (at == frame.first) return frame.node;
  }
}

std::string frame_label(const TreeDrawing& drawing, const FlameFrame& frame) {
  if (frame.smaller > 0) return fmt::format("{} smaller", frame.smaller);
  if (frame.node == 0) return "all";
  const uint32_t named = naming_node(drawing, frame);
  std::string label = profiler::place_text(drawing.graph.tree.nodes[named].place);
  if (frame.calls > 1 && frame.row > 0) label += fmt::format("  (+{})", frame.calls - 1);
  if (frame.row == 0) label += "   (click to go back)";
  return label;
}

std::string frame_amount(const TreeDrawing& drawing, const FlameFrame& frame) {
  const profiler::TreeNode& node = drawing.graph.tree.nodes[frame.node];
  if (!drawing.graph.compares || frame.smaller > 0) return bytes_text(frame.bytes);
  const int64_t growth = node.bytes - node.baseline_bytes;
  if (growth == 0) return "same";
  return growth_in_words(growth);
}

/// Draws the name at the left, cut at its end, and the amount at the right if both fit.
void draw_frame_label(const TreeDrawing& drawing, const FlameFrame& frame, Box box,
                      const Color& ink) {
  Painter& paint = drawing.scene.paint;
  if (box.w < paint.px(kLeastLabel)) return;
  box.take_left(paint.px(4));
  box.take_right(paint.px(3));
  const std::string label = frame_label(drawing, frame);
  const std::string amount = frame_amount(drawing, frame);
  const float width = paint.width(Style::small, amount) + paint.px(10);
  if (paint.width(Style::small, label) + width <= box.w) {
    paint.text_right(box.take_right(width), amount, ink, Style::small);
  }
  paint.text(box, label, ink, Style::small);
}

bool is_picked(const TreeDrawing& drawing, const FlameFrame& frame) {
  return drawing.picked && frame.smaller == 0 && *drawing.picked != 0 &&
         drawing.graph.is_below(*drawing.picked, frame.first) &&
         drawing.graph.is_below(frame.node, *drawing.picked);
}

void draw_frame(const TreeDrawing& drawing, const FlameFrame& frame, Box box) {
  Painter& paint = drawing.scene.paint;
  const GraphNode& node = drawing.graph.nodes[frame.node];
  if (box.w > paint.px(3)) box.w -= paint.px(1);  // a gap between neighbours
  box.h -= paint.px(1);
  const bool dim = is_dim(drawing, frame);
  Color ink = paint.colors.text;
  if (frame.smaller > 0) {
    paint.fill(box, paint.colors.grid, paint.px(2));
  } else if (drawing.graph.compares) {
    draw_changed_frame(drawing, frame, box);
  } else if (frame.row == 0 && frame.node == 0) {
    paint.fill(box, paint.colors.grid, paint.px(2));
    draw_composition(drawing, node, box);
  } else {
    const Color color = color_of(node.category);
    paint.fill(box, dim ? color.with_alpha(kDim) : color, paint.px(2));
    if (!dim) ink = ink_on(color);
    if (!dim) draw_composition(drawing, node, box);
  }
  if (dim && drawing.graph.compares) paint.fill(box, paint.colors.card.with_alpha(150));
  draw_frame_label(drawing, frame, box, dim ? paint.colors.muted : ink);
  if (is_picked(drawing, frame)) paint.outline(box, paint.colors.cursor, paint.px(2), 2);
  if (frame.smaller > 0) return;
  paint.area({box, Area::Kind::frame, 0, naming_node(drawing, frame)});
}

double least_of_width(const TreeView& tree, float width) {
  const double threshold = kTreeThresholds[std::min(tree.threshold, kTreeThresholds.size() - 1)];
  return std::max(threshold, width > 0 ? static_cast<double>(kLeastFrame / width) : 0);
}

void draw_flame(const TreeDrawing& drawing, Box box) {
  Painter& paint = drawing.scene.paint;
  const TreeView& tree = drawing.scene.state().tree;
  const float height = paint.px(kFrameRow);
  const auto frames = flame_frames(drawing.graph, drawing.root, least_of_width(tree, box.w));
  const int last = frames.back().row;
  const int first = static_cast<int>(std::min(tree.first, static_cast<size_t>(last)));
  const int room = static_cast<int>(box.h / height);
  const bool is_cut = last - first >= room;
  const int drawn = is_cut ? room - 1 : room;  // rows
  for (const FlameFrame& frame : frames) {
    const int row = frame.row == 0 ? 0 : frame.row - first;
    const bool is_scrolled_out = frame.row > 0 && row < 1;
    if (is_scrolled_out || row >= drawn) continue;
    const auto x = static_cast<float>(frame.begin) * box.w;
    const auto width = static_cast<float>(frame.end - frame.begin) * box.w;
    draw_frame(drawing, frame,
               {box.x + x, box.y + static_cast<float>(row) * height, width, height});
  }
  if (!is_cut || room < 1) return;
  const Box line{box.x, box.y + static_cast<float>(drawn) * height, box.w, height};
  paint.text(line, fmt::format("{} more rows: Ctrl+PageDown", last - first - drawn + 1),
             paint.colors.muted, Style::small);
}

struct PlaceColumn {
  PlaceSort sort;
  float width;  // points
};
constexpr std::array<PlaceColumn, 5> kPlaceColumns = {{{PlaceSort::own, 86},
                                                       {PlaceSort::total, 86},
                                                       {PlaceSort::count, 62},
                                                       {PlaceSort::age, 62},
                                                       {PlaceSort::change, 112}}};

std::string age_text(int64_t steps) {
  return steps == 0 ? "this step" : fmt::format("{} step{}", steps, steps == 1 ? "" : "s");
}

std::string column_text(const PlaceRow& row, PlaceSort column) {
  switch (column) {
    case PlaceSort::own:
      return bytes_text(row.own_bytes);
    case PlaceSort::total:
      return bytes_text(row.total_bytes);
    case PlaceSort::count:
      return fmt::format("{}", row.own_count);
    case PlaceSort::age:
      return age_text(row.oldest_steps);
    case PlaceSort::change: {
      const int64_t change = row.change_bytes();
      if (change == 0) return "same";
      return growth_in_words(change);
    }
    case PlaceSort::name:
      break;
  }
  return row.name;
}

Color column_color(const TreeDrawing& drawing, const PlaceRow& row, PlaceSort column) {
  const Colors& colors = drawing.scene.paint.colors;
  if (column != PlaceSort::change) return colors.text;
  const int64_t change = row.change_bytes();
  return color_of_change(colors, change);
}

/// Calls a function for every column that is shown, from the right.
template <typename Draw>
void each_column(const TreeDrawing& drawing, Box& line, const Draw& draw) {
  for (size_t i = kPlaceColumns.size(); i-- > 0;) {
    const PlaceColumn& column = kPlaceColumns[i];
    if (column.sort == PlaceSort::change && !drawing.graph.compares) continue;
    draw(column.sort, line.take_right(drawing.scene.paint.px(column.width)));
  }
}

void draw_list_head(const TreeDrawing& drawing, Box line) {
  Painter& paint = drawing.scene.paint;
  const PlaceSort sorted = drawing.scene.state().tree.sort;
  const auto color = [&](PlaceSort sort) {
    return sort == sorted ? paint.colors.accent : paint.colors.muted;
  };
  const auto title = [](PlaceSort sort) { return to_string(sort); };
  each_column(drawing, line, [&](PlaceSort sort, const Box& cell) {
    paint.area({cell, Area::Kind::tree_sort, 0, static_cast<size_t>(sort)});
    const float left = paint.text_right(cell, title(sort), color(sort), Style::small);
    if (sort != sorted) return;
    paint.triangle(left - paint.px(11), cell.y + cell.h / 2, paint.px(7), false, color(sort));
  });
  paint.area({line, Area::Kind::tree_sort, 0, static_cast<size_t>(PlaceSort::name)});
  paint.text(line, title(PlaceSort::name), color(PlaceSort::name), Style::small);
}

void draw_place(const TreeDrawing& drawing, const PlaceRow& row, Box line) {
  Painter& paint = drawing.scene.paint;
  const bool is_chosen =
      drawing.picked && *drawing.picked != 0 &&
      profiler::place_text(drawing.graph.tree.nodes[*drawing.picked].place) == row.name;
  if (is_chosen) paint.fill(line, paint.colors.accent.with_alpha(60), paint.px(2));
  paint.area({line, Area::Kind::place_row, 0, row.node});
  each_column(drawing, line, [&](PlaceSort sort, const Box& cell) {
    paint.text_right(cell, column_text(row, sort), column_color(drawing, row, sort), Style::small);
  });
  paint.swatch(line, color_of(row.category));
  line.take_right(paint.px(6));
  paint.text(line, row.name, paint.colors.text, Style::small);
}

void draw_places(const TreeDrawing& drawing, Box box) {
  Painter& paint = drawing.scene.paint;
  const TreeView& tree = drawing.scene.state().tree;
  const float height = paint.px(kPlaceRow);
  draw_list_head(drawing, box.take_top(height));
  paint.line(box.x, box.y, box.right(), box.y, paint.colors.card_edge);
  const auto rows = place_rows(drawing.graph, drawing.root, tree.sort, drawing.query);
  for (size_t i = std::min(tree.first, rows.size()); i < rows.size() && box.h >= height; ++i) {
    Box line = box.take_top(height);
    const bool is_cut = i + 1 < rows.size() && box.h < height;
    if (!is_cut) {
      draw_place(drawing, rows[i], line);
      continue;
    }
    paint.text(line, fmt::format("{} more places: Ctrl+PageDown", rows.size() - i),
               paint.colors.muted, Style::small);
  }
}

std::string nothing_text(TreeContent of) {
  switch (of) {
    case TreeContent::alive:
      return "nothing is alive at this moment";
    case TreeContent::churn:
      return "nothing is allocated and freed again in this step";
    case TreeContent::kept:
      break;
  }
  return "no leak candidates: nothing alive here is from an earlier step, except the first";
}

}  // namespace

void choose_in_tree(ViewState& state, TreeChoice group, size_t index) {
  TreeView& tree = state.tree;
  switch (group) {
    case TreeChoice::of:
      tree.of = static_cast<TreeContent>(index);
      break;
    case TreeChoice::by:
      tree.by = static_cast<profiler::TreeGrouping>(index);
      break;
    case TreeChoice::from:
      tree.from = static_cast<profiler::TreeStart>(index);
      break;
    case TreeChoice::form:
      tree.form = static_cast<TreeForm>(index);
      tree.first = 0;
      return;  // the places are the same
  }
  zoom_tree(state, {});
  if (state.pick) state.pick->leave_place();
}

size_t tree_rows(const SceneInput& input, ImageCache& cache) {
  const TreeView& tree = input.state.tree;
  if (!tree.is_open || input.runs.empty()) return 0;
  const std::vector<ShownRun> shown = shown_of(input);
  const AliveGraph& graph = tree_graph(input, cache, shown);
  const uint32_t root = node_at(graph, tree.zoom);
  if (tree.form == TreeForm::list) {
    return place_rows(graph, root, tree.sort, query_of_session(input.state.search)).size();
  }
  const auto frames = flame_frames(graph, root, least_of_width(tree, 0));
  return static_cast<size_t>(frames.back().row);
}

std::vector<std::string> tree_above(const SceneInput& input, ImageCache& cache) {
  const std::vector<ShownRun> shown = shown_of(input);
  if (input.state.tree.zoom.empty() || shown.empty()) return {};
  const AliveGraph& graph = tree_graph(input, cache, shown);
  uint32_t node = node_at(graph, input.state.tree.zoom);
  const int64_t span = graph.nodes[node].span_bytes;
  while (node != 0 && graph.nodes[node].span_bytes == span) node = graph.tree.nodes[node].parent;
  return path_of(graph, node);
}

std::string tree_hover_text(const SceneInput& input, ImageCache& cache, uint32_t index) {
  const std::vector<ShownRun> shown = shown_of(input);
  if (shown.empty()) return "";
  const AliveGraph& graph = tree_graph(input, cache, shown);
  if (index >= graph.nodes.size()) return "";
  const profiler::TreeNode& node = graph.tree.nodes[index];
  std::string text = index == 0 ? "all" : profiler::place_text(node.place);
  if (!node.place.file.empty()) text += "\n" + node.place.file;
  text += fmt::format("\n{} ({} bytes), {:.1f} % of all, {} block{}", bytes_text(node.bytes),
                      node.bytes, share_of(node.bytes, graph.total_bytes()), node.count,
                      node.count == 1 ? "" : "s");
  text += fmt::format("\nself {}", bytes_text(graph.tree.own_bytes(index)));
  if (!graph.compares) return text;
  return text + fmt::format("\nbaseline {} in {} blocks", bytes_text(node.baseline_bytes),
                            node.baseline_count);
}

void draw_tree(Scene& scene) {
  if (scene.geometry.tree.h <= 0) return;
  Painter& paint = scene.paint;
  const Box& card = scene.geometry.tree;
  paint.card(card, paint.colors.card_edge);
  paint.area({card, Area::Kind::tree, 0, 0});
  const AliveGraph& graph = tree_graph(scene.in, scene.cache, scene.shown);
  TreeDrawing drawing{
      .scene = scene, .graph = graph, .query = query_of_session(scene.state().search)};
  drawing.root = node_at(graph, scene.state().tree.zoom);
  drawing.found = found_nodes(graph, drawing.query);
  drawing.picked = picked_node(scene, graph);
  Box box = card.inset(paint.px(8));
  draw_tree_head(drawing, box);
  if (graph.nodes.front().span_bytes <= 0) {
    paint.text_middle(box, nothing_text(scene.state().tree.of), paint.colors.muted, Style::body);
  } else if (scene.state().tree.form == TreeForm::list) {
    draw_places(drawing, box);
  } else {
    draw_flame(drawing, box);
  }
}

}  // namespace shardlens::viewer
