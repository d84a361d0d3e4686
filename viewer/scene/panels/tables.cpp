// Draws the table of categories and strategies, and the panel of live allocations.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/units.h"
#include "viewer/model/compare.h"
#include "viewer/scene/panels/treemap.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

using profiler::bytes_text;

namespace {

constexpr float kRow = 19;       // points
constexpr float kAliveRow = 27;  //
constexpr float kNameColumn = 150;
constexpr float kMostColumn = 420;
constexpr float kLeastColumn = 92;
constexpr float kComparisonPart = 0.5F;  // of the panel of what is alive

struct Row {
  std::string name;
  std::optional<Category> category;
  std::vector<std::optional<int64_t>> bytes;  // one for each strategy
  bool is_strong = false;
  bool more_is_better = false;
};

Row row_of(const std::vector<Shown>& shown, std::string name, bool is_strong,
           const std::function<std::optional<int64_t>(const Shown&)>& bytes) {
  Row row{.name = std::move(name),
          .category = {},
          .bytes = {},
          .is_strong = is_strong,
          .more_is_better = false};
  for (const Shown& one : shown) row.bytes.push_back(bytes(one));
  return row;
}

/// Returns the most bytes that any strategy has of a category at the moment of the table.
int64_t bytes_at_moment(const std::vector<Shown>& shown, Category category) {
  int64_t most = 0;
  for (const Shown& one : shown) most = std::max(most, one.bytes[static_cast<size_t>(category)]);
  return most;
}

/// Returns the sum, the categories with the largest first, and what the device has left.
std::vector<Row> rows_of(const std::vector<Shown>& shown) {
  std::vector<Row> rows;
  rows.push_back(row_of(shown, "all", true, [](const Shown& one) { return one.total; }));
  std::vector<Category> categories = used_categories(shown);
  std::ranges::stable_sort(categories, std::greater(), [&](Category category) {
    return std::pair(bytes_at_moment(shown, category), most_bytes(shown, category));
  });
  for (const Category category : categories) {
    rows.push_back(
        row_of(shown, words_of(category, have_shards(shown)), false,
               [&](const Shown& one) { return one.bytes[static_cast<size_t>(category)]; }));
    rows.back().category = category;
  }
  const auto reserved = [](const Shown& one) {
    return one.reserved_peak > 0 ? std::optional(one.reserved_peak) : std::nullopt;
  };
  const auto headroom = [](const Shown& one) -> std::optional<int64_t> {
    const int64_t capacity = one.run->capacity_bytes();
    if (capacity <= 0) return std::nullopt;
    return capacity - std::max(one.reserved_peak, one.lane->lane.peak().max_bytes);
  };
  rows.push_back(row_of(shown, "reserved, at most", false, reserved));
  rows.push_back(row_of(shown, "headroom", false, headroom));
  rows.back().more_is_better = true;
  std::erase_if(rows, [](const Row& row) {
    return std::ranges::none_of(row.bytes, [](const auto& bytes) { return bytes.has_value(); });
  });
  return rows;
}

/// Draws "12.00 MiB  3.00 MiB less": the number at the right of its half, the change beside it.
void draw_cell(Scene& scene, const Row& row, size_t run, Box cell) {
  Painter& paint = scene.paint;
  const auto& bytes = row.bytes[run];
  if (!bytes) {
    paint.text_right(cell.take_left(cell.w * 0.42F), "-", paint.colors.muted, Style::small);
    return;
  }
  const Style style = row.is_strong ? Style::strong : Style::small;
  const std::string number = bytes_text(*bytes);
  const float share = scene.shown.size() > 1 ? 0.44F : 1.F;
  if (paint.width(style, number) > cell.w * share) {
    // A number that is cut says something else, so the change beside it gives way.
    paint.text_right(cell, number, paint.colors.text, style);
    return;
  }
  paint.text_right(cell.take_left(cell.w * share), number, paint.colors.text, style);
  const size_t other = scene.shown[run].base;
  const auto& base = row.bytes[other];
  if (run == other || !base) return;
  const int64_t growth = *bytes - *base;
  cell.take_left(paint.px(8));
  if (growth == 0) {
    paint.text(cell, "same", paint.colors.muted, Style::small);
    return;
  }
  const bool is_worse = (growth > 0) != row.more_is_better;
  const Color& color = is_worse ? paint.colors.more : paint.colors.less;
  const Box arrow = cell.take_left(paint.px(11));
  paint.triangle(arrow.x, arrow.y + arrow.h / 2, paint.px(7), growth > 0, color);
  const int64_t size = growth > 0 ? growth : -growth;
  const std::string amount = bytes_text(size);
  paint.text_that_fits(cell,
                       {fmt::format("{} {}", amount, growth > 0 ? "more" : "less"), amount, ""},
                       color, Style::small);
}

void draw_row_name(Scene& scene, const Row& row, Box cell) {
  Painter& paint = scene.paint;
  if (row.category) {
    paint.area({cell, Area::Kind::category, 0, static_cast<size_t>(*row.category)});
    const Box swatch = cell.take_left(paint.px(15));
    paint.fill({swatch.x, swatch.y + swatch.h / 2 - paint.px(4.5F), paint.px(9), paint.px(9)},
               color_of(*row.category), paint.px(2));
  }
  paint.text(cell, row.name, paint.colors.text, row.is_strong ? Style::strong : Style::small);
}

std::string table_title(const Scene& scene) {
  const bool at_cursor = scene.state().at == At::cursor && scene.state().cursor;
  return at_cursor ? "at the cursor" : "at each one's peak";
}

/// True for the row that has what is selected.
bool is_row_picked(const Scene& scene, const AliveRow& row) {
  const auto& pick = scene.state().pick;
  const Shown& one = scene.focus();
  if (!pick || pick->run != one.index || pick->rank != one.rank) return false;
  switch (scene.state().grouping) {
    case Grouping::category:
      return row.category == pick->category;
    case Grouping::none:
      return row.block == pick->block;
    case Grouping::label: {
      const auto& blocks = one.lane->lane.arrays().blocks;
      return pick->block < blocks.size() && row.block < blocks.size() &&
             one.lane->lane.label(blocks[pick->block]) == one.lane->lane.label(blocks[row.block]);
    }
    case Grouping::age:
      break;
  }
  return false;
}

void draw_alive_row(Scene& scene, const AliveRow& row, int64_t total, size_t index, Box box) {
  Painter& paint = scene.paint;
  paint.area({box, Area::Kind::alive_row, scene.focus().index, index});
  if (is_row_picked(scene, row)) {
    paint.fill(box.inset(-paint.px(1)), paint.colors.accent.with_alpha(60), paint.px(2));
  }
  Box line = box.take_top(paint.px(17));
  const Box swatch = line.take_left(paint.px(14));
  paint.fill({swatch.x, swatch.y + swatch.h / 2 - paint.px(4.5F), paint.px(9), paint.px(9)},
             color_of(row.category), paint.px(2));
  Box amount = line.take_right(paint.px(78));
  paint.text_right(amount, bytes_text(row.bytes), paint.colors.text, Style::small);
  const std::string count = row.count > 1 ? fmt::format(" x {}", row.count) : "";
  paint.text(line, row.name + count, paint.colors.text, Style::small);
  const float share =
      total > 0 ? static_cast<float>(static_cast<double>(row.bytes) / static_cast<double>(total))
                : 0;
  const Box bar = box.take_top(paint.px(4));
  paint.fill(bar, paint.colors.grid, paint.px(2));
  paint.fill({bar.x, bar.y, std::max(1.F, bar.w * share), bar.h}, color_of(row.category),
             paint.px(2));
}

void draw_rows(Scene& scene, const Shown& one, Box& box, float reserve) {
  const auto rows = alive_rows(one.lane->lane, one.lane->names, one.change, scene.state().grouping);
  Painter& paint = scene.paint;
  int64_t rest = 0;
  size_t left_out = 0;
  const size_t first = std::min(scene.state().alive_first, rows.empty() ? 0 : rows.size() - 1);
  for (size_t i = first; i < rows.size(); ++i) {
    if (box.h - reserve < paint.px(kAliveRow + 18)) {
      rest += rows[i].bytes;
      ++left_out;
      continue;
    }
    draw_alive_row(scene, rows[i], one.total, i, box.take_top(paint.px(kAliveRow)));
  }
  if (left_out > 0) {
    paint.text(box.take_top(paint.px(18)),
               fmt::format("{} more row{}, {}: Page Down", left_out, left_out == 1 ? "" : "s",
                           bytes_text(rest)),
               paint.colors.muted, Style::small);
  }
}

/// Draws each row as an area of its size.
void draw_areas(Scene& scene, const Shown& one, Box& box, float reserve) {
  auto rows = alive_rows(one.lane->lane, one.lane->names, one.change, scene.state().grouping);
  std::erase_if(rows, [](const AliveRow& row) { return row.bytes <= 0; });
  std::vector<int64_t> bytes;
  for (const AliveRow& row : rows) bytes.push_back(row.bytes);
  Painter& paint = scene.paint;
  const Box place = box.take_top(box.h - reserve);
  const std::vector<Box> areas = treemap(place, bytes);
  for (size_t i = 0; i < areas.size(); ++i) {
    const Box inside = areas[i].inset(paint.px(0.5F));
    if (inside.w < 1 || inside.h < 1) continue;
    paint.fill(inside, color_of(rows[i].category), paint.px(2));
    paint.area({areas[i], Area::Kind::alive_row, one.index, i});
    if (is_row_picked(scene, rows[i])) {
      paint.outline(inside, paint.colors.cursor, paint.px(2), 2);
    }
    if (inside.w < paint.px(44) || inside.h < paint.px(17)) continue;
    Box label = inside.inset(paint.px(2));
    const auto write = [&](const std::string& text) {
      const Box line = label.take_top(paint.px(14));
      const Box ground{line.x, line.y,
                       std::min(line.w, paint.width(Style::small, text) + paint.px(6)), line.h};
      paint.fill(ground, paint.colors.plot.with_alpha(225), paint.px(2));
      paint.text({line.x + paint.px(3), line.y, line.w - paint.px(6), line.h}, text,
                 paint.colors.text, Style::small);
    };
    write(rows[i].name);
    if (label.h >= paint.px(15)) write(bytes_text(rows[i].bytes));
  }
}

/// Draws a bar in three parts: only in the baseline, in both, only in the focused strategy.
void draw_shares(Scene& scene, const profiler::Matching& matching, Box& box) {
  Painter& paint = scene.paint;
  const auto sum = static_cast<double>(
      std::max<int64_t>(1, matching.only_a_bytes + matching.in_both_bytes + matching.only_b_bytes));
  Box bar = box.take_top(paint.px(8));
  const float width = bar.w;
  const auto part = [&](int64_t bytes) {
    return width * static_cast<float>(static_cast<double>(bytes) / sum);
  };
  paint.fill(bar.take_left(part(matching.only_a_bytes)), paint.colors.less);
  paint.fill(bar.take_left(part(matching.in_both_bytes)), paint.colors.muted);
  paint.fill(bar, paint.colors.more);
  const auto line = [&](const std::string& name, int64_t bytes, const Color& color) {
    Box row = box.take_top(paint.px(17));
    const Box swatch = row.take_left(paint.px(14));
    paint.fill({swatch.x, swatch.y + swatch.h / 2 - paint.px(4.5F), paint.px(9), paint.px(9)},
               color, paint.px(2));
    paint.text_right(row.take_right(paint.px(78)), bytes_text(bytes), paint.colors.text,
                     Style::small);
    paint.text(row, name, paint.colors.text, Style::small);
  };
  line("only in " + scene.base_of(scene.focus()).run->name, matching.only_a_bytes,
       paint.colors.less);
  line("in both", matching.in_both_bytes, paint.colors.muted);
  line("only in " + scene.focus().run->name, matching.only_b_bytes, paint.colors.more);
}

void draw_changed_place(Scene& scene, const profiler::MatchedPlace& row, Box line) {
  Painter& paint = scene.paint;
  const int64_t growth = row.growth_bytes();
  const Color& color = growth > 0   ? paint.colors.more
                       : growth < 0 ? paint.colors.less
                                    : paint.colors.muted;
  const Box arrow = line.take_left(paint.px(14));
  if (growth != 0) {
    paint.triangle(arrow.x, arrow.y + arrow.h / 2, paint.px(8), growth > 0, color);
  }
  const Box swatch = line.take_left(paint.px(14));
  paint.fill({swatch.x, swatch.y + swatch.h / 2 - paint.px(4.5F), paint.px(9), paint.px(9)},
             color_of(row.category), paint.px(2));
  const int64_t size = growth < 0 ? -growth : growth;
  const std::string change =
      growth == 0 ? "other blocks"
                  : fmt::format("{} {}", bytes_text(size), growth > 0 ? "more" : "less");
  paint.text_right(line.take_right(paint.px(108)), change, color, Style::small);
  const std::string layers = row.layers > 1 ? fmt::format(" x {}", row.layers) : "";
  paint.text(line, row.name + layers, paint.colors.text, Style::small);
}

const profiler::Matching& matching_of(Scene& scene) {
  const Shown& one = scene.focus();
  const Shown& base = scene.base_of(one);
  const std::string key = fmt::format("{} {} {} {} {} {} {}", scene.in.generation, base.index,
                                      base.rank, base.change, one.index, one.rank, one.change);
  return scene.cache.matching.get(key, [&] {
    return match({&base.lane->lane, &base.lane->names, base.change},
                 {&one.lane->lane, &one.lane->names, one.change});
  });
}

void draw_comparison(Scene& scene, Box box) {
  Painter& paint = scene.paint;
  const profiler::Matching& matching = matching_of(scene);
  paint.text(box.take_top(paint.px(20)), "Compared with " + scene.base_of(scene.focus()).run->name,
             paint.colors.text, Style::strong);
  draw_shares(scene, matching, box);
  box.take_top(paint.px(4));
  const auto changed =
      std::ranges::count_if(matching.rows, [](const auto& row) { return row.changed_bytes() > 0; });
  for (int64_t i = 0; i < changed && box.h >= paint.px(17); ++i) {
    Box line = box.take_top(paint.px(17));
    const bool is_cut = i + 1 < changed && box.h < paint.px(17);
    if (!is_cut) {
      draw_changed_place(scene, matching.rows[static_cast<size_t>(i)], line);
      continue;
    }
    paint.text(line, fmt::format("{} more places differ", changed - i), paint.colors.muted,
               Style::small);
  }
}

}  // namespace

size_t table_rows(const std::vector<Shown>& shown) { return rows_of(shown).size(); }

namespace {

/// The columns of the table: the strategies, and how wide they are.
struct TableColumns {
  std::vector<size_t> runs;
  float name_width = 0;
  float width = 0;
};

/// Chooses the strategies that are drawn above the table, behind those with which they are
/// compared, as many as have room for a whole number.
TableColumns table_columns(const Scene& scene, const Box& box) {
  TableColumns columns{.runs = scene.compared, .name_width = scene.paint.px(kNameColumn)};
  for (const size_t run : scene.compared) {
    const size_t base = scene.shown[run].base;
    if (std::ranges::find(columns.runs, base) == columns.runs.end()) {
      columns.runs.insert(columns.runs.begin(), base);
    }
  }
  const float room = box.w - columns.name_width;
  const auto most = static_cast<size_t>(std::max(1.F, room / scene.paint.px(kLeastColumn)));
  columns.runs.resize(std::min(columns.runs.size(), most));
  columns.width = std::min(scene.paint.px(kMostColumn),
                           room / static_cast<float>(std::max<size_t>(1, columns.runs.size())));
  return columns;
}

void draw_row(Scene& scene, const Row& row, Box line, const TableColumns& columns) {
  const auto& pick = scene.state().pick;
  if (pick && row.category == pick->category) {
    scene.paint.fill(line, scene.paint.colors.accent.with_alpha(60), scene.paint.px(2));
  }
  draw_row_name(scene, row, line.take_left(columns.name_width));
  for (const size_t run : columns.runs) draw_cell(scene, row, run, line.take_left(columns.width));
}

/// Draws the rows that have room. Where not all have, the sum stays and the others scroll, those
/// first that decide.
void draw_table_rows(Scene& scene, Box box, const TableColumns& columns) {
  Painter& paint = scene.paint;
  const float height = paint.px(kRow);
  std::vector<Row> rows = rows_of(scene.shown);
  const bool fits = box.h >= height * (static_cast<float>(rows.size()) - 0.1F);
  if (!fits) {
    std::stable_partition(rows.begin() + 1, rows.end(), [](const Row& row) {
      return row.category && is_decisive(*row.category);
    });
  }
  draw_row(scene, rows.front(), box.take_top(height), columns);
  const size_t first = fits ? 1 : std::min(1 + scene.state().table_first, rows.size() - 1);
  for (size_t i = first; i < rows.size(); ++i) {
    if (box.h < height * 0.9F) return;
    Box line = box.take_top(height);
    const bool is_cut = i + 1 < rows.size() && box.h < height * 0.9F;
    if (!is_cut) {
      draw_row(scene, rows[i], line, columns);
      continue;
    }
    paint.text(line, fmt::format("{} more rows: Shift+PageDown", rows.size() - i),
               paint.colors.muted, Style::small);
  }
}

}  // namespace

void draw_table(Scene& scene) {
  if (scene.geometry.table.h <= 0) return;
  Painter& paint = scene.paint;
  const Box& card = scene.geometry.table;
  paint.fill(card, paint.colors.card, paint.px(5));
  paint.outline(card, paint.colors.card_edge, paint.px(5));
  paint.area({card, Area::Kind::table, 0, 0});
  Box box = card.inset(paint.px(8));
  const TableColumns columns = table_columns(scene, box);
  Box head = box.take_top(paint.px(kRow));
  paint.text(head.take_left(columns.name_width), table_title(scene), paint.colors.muted,
             Style::small);
  for (const size_t run : columns.runs) {
    const Shown& one = scene.shown[run];
    Box cell = head.take_left(columns.width);
    const bool is_base = Scene::is_baseline(one) && one.has_others;
    cell.take_left(paint.px(12));
    const profiler::Judgement judgement = one.run->judgement();
    const bool is_sound = profiler::is_whole(judgement);
    const std::string doubt =
        is_sound ? "" : fmt::format(" ({})", profiler::name_of(judgement.state));
    paint.text(cell, one.run->name + doubt + (is_base ? " (baseline)" : ""),
               is_sound ? paint.colors.text : paint.colors.warning, Style::strong);
  }
  paint.line(box.x, box.y, box.right(), box.y, paint.colors.card_edge);
  draw_table_rows(scene, box, columns);
}

void draw_alive(Scene& scene) {
  if (scene.geometry.alive.w <= 0) return;
  Painter& paint = scene.paint;
  paint.fill(scene.geometry.alive, paint.colors.card, paint.px(5));
  paint.outline(scene.geometry.alive, paint.colors.card_edge, paint.px(5));
  Box box = scene.geometry.alive.inset(paint.px(10));
  const Shown& one = scene.focus();
  const bool at_cursor = scene.state().at == At::cursor && scene.state().cursor;
  Box head = box.take_top(paint.px(20));
  paint.text(head, at_cursor ? "Alive at the cursor" : "Alive at the peak", paint.colors.text,
             Style::strong);
  paint.text(box.take_top(paint.px(16)), one.run->name, paint.colors.text, Style::small);
  paint.text(box.take_top(paint.px(16)), moment_text(*one.lane, one.change), paint.colors.muted,
             Style::small);
  Box sum = box.take_top(paint.px(20));
  paint.text_right(sum.take_right(paint.px(110)), bytes_text(one.total), paint.colors.text,
                   Style::strong);
  paint.text(sum, fmt::format("by {}", kGroupingNames[static_cast<size_t>(scene.state().grouping)]),
             paint.colors.muted, Style::small);
  const bool compares = !Scene::is_baseline(one);
  const float reserve = compares ? box.h * kComparisonPart : 0;
  if (scene.state().panels.treemap) {
    draw_areas(scene, one, box, reserve);
  } else {
    draw_rows(scene, one, box, reserve);
  }
  if (!compares) return;
  box.take_top(paint.px(8));
  draw_comparison(scene, box);
}

}  // namespace shardlens::viewer
