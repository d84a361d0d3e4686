// Draws the table of categories and runs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/units.h"
#include "viewer/model/compare.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

// The lengths below are in points.
constexpr float kRow = 19;
constexpr float kNameColumn = 150;
constexpr float kLeastColumn = 92;
constexpr float kColumnGap = 16;
constexpr float kArrow = 11;
constexpr float kBeside = 8;  // between a number and the text beside it
constexpr float kLeastBar = 40;
constexpr float kBar = 9;  // high

struct Row {
  std::string name;
  std::optional<Category> category;
  std::vector<std::optional<int64_t>> bytes;  // one for each run
  bool is_strong = false;
  bool more_is_better = false;
};

Row row_of(const std::vector<ShownRun>& shown, std::string name, bool is_strong,
           const std::function<std::optional<int64_t>(const ShownRun&)>& bytes) {
  Row row{.name = std::move(name),
          .category = {},
          .bytes = {},
          .is_strong = is_strong,
          .more_is_better = false};
  for (const ShownRun& one : shown) row.bytes.push_back(bytes(one));
  return row;
}

/// Returns the most bytes that any run has of a category at the moment of the table.
int64_t bytes_at_moment(const std::vector<ShownRun>& shown, Category category) {
  int64_t most = 0;
  for (const ShownRun& one : shown) most = std::max(most, one.bytes[static_cast<size_t>(category)]);
  return most;
}

/// Returns the sum, the categories with the largest first, and what the device has left.
std::vector<Row> rows_of(const std::vector<ShownRun>& shown) {
  std::vector<Row> rows;
  rows.push_back(row_of(shown, "all", true, [](const ShownRun& one) { return one.total; }));
  std::vector<Category> categories = used_categories(shown);
  std::ranges::stable_sort(categories, std::greater(), [&](Category category) {
    return std::pair(bytes_at_moment(shown, category), most_bytes(shown, category));
  });
  for (const Category category : categories) {
    rows.push_back(
        row_of(shown, words_of(category, have_shards(shown)), false,
               [&](const ShownRun& one) { return one.bytes[static_cast<size_t>(category)]; }));
    rows.back().category = category;
  }
  const auto reserved = [](const ShownRun& one) {
    return one.reserved_peak > 0 ? std::optional(one.reserved_peak) : std::nullopt;
  };
  const auto beside = [](const ShownRun& one) { return one.lane->notes.beside_bytes; };
  const auto headroom = [](const ShownRun& one) -> std::optional<int64_t> {
    const auto use = one.run->device_use(*one.lane);
    const bool has_any = use && !use->is_out_of_memory;
    return has_any ? std::optional(use->free_bytes()) : std::nullopt;
  };
  rows.push_back(row_of(shown, "peak reserved", false, reserved));
  rows.push_back(row_of(shown, "beside PyTorch", false, beside));
  rows.push_back(row_of(shown, "headroom", false, headroom));
  rows.back().more_is_better = true;
  std::erase_if(rows, [](const Row& row) {
    return std::ranges::none_of(row.bytes, [](const auto& bytes) { return bytes.has_value(); });
  });
  return rows;
}

/// Says how much of a change fits next to each number of the table.
enum class ChangeForm : uint8_t { none, amount, words };

/// The columns of the table: the runs, and how wide their parts are, in pixels. All columns are
/// alike, so that numbers line up.
struct TableColumns {
  std::vector<size_t> runs;
  float name_width = 0;
  float width = 0;         // of a run's column
  float bar_width = 0;     // 0: bars do not fit; includes a gap after them
  float number_width = 0;  // all numbers of the column end at its end
  float beside_width = 0;  // of the change from the baseline, or of the share
  ChangeForm change{};
  int64_t most_bytes = 0;  // a bar of this size fills the width
};

Style row_style(const Row& row) { return row.is_strong ? Style::strong : Style::small; }

/// Returns "3.00 MiB less" or "3.00 MiB"; the arrow before the text also shows the direction.
std::string change_text(int64_t growth, ChangeForm form) {
  if (form == ChangeForm::amount) return bytes_text(growth < 0 ? -growth : growth);
  return growth_in_words(growth);
}

/// Returns "56 %" for a category of a run that is not compared; empty for other rows.
std::string share_text(const Row& row, int64_t bytes, int64_t total) {
  if (!row.category || total <= 0) return "";
  const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(total);
  return percent >= 0.5 ? fmt::format("{:.0f} %", percent) : "";
}

/// Returns how much a run's row grew from its baseline's; nothing if there is no baseline.
std::optional<int64_t> growth_in_row(const Scene& scene, const Row& row, size_t run) {
  const size_t base = scene.shown[run].base;
  if (base == run || !row.bytes[run] || !row.bytes[base]) return std::nullopt;
  return *row.bytes[run] - *row.bytes[base];
}

void draw_row_change(Scene& scene, const Row& row, int64_t growth, ChangeForm form, Box cell) {
  Painter& paint = scene.paint;
  if (growth == 0) {
    paint.text(cell, "same", paint.colors.muted, Style::small);
    return;
  }
  const bool is_worse = (growth > 0) != row.more_is_better;
  const Color& color = is_worse ? paint.colors.more : paint.colors.less;
  const Box arrow = cell.take_left(paint.px(kArrow));
  paint.triangle(arrow.x, arrow.y + arrow.h / 2, paint.px(7), growth > 0, color);
  paint.text(cell, change_text(growth, form), color, Style::small);
}

/// Draws a category's bytes as a bar, and the sum as a bar of all its categories.
void draw_row_bar(Scene& scene, const Row& row, size_t run, int64_t most_bytes, Box place) {
  Painter& paint = scene.paint;
  const bool is_sum = row.is_strong;
  if (most_bytes <= 0 || (!row.category && !is_sum)) return;
  place.take_right(paint.px(kBeside));
  Box bar{place.x, place.y + (place.h - paint.px(kBar)) / 2, place.w, paint.px(kBar)};
  const auto fill = [&](Category category, int64_t bytes) {
    const double part = static_cast<double>(bytes) / static_cast<double>(most_bytes);
    const float width = std::max(1.F, place.w * static_cast<float>(part));
    if (bytes > 0) paint.fill(bar.take_left(width), color_of(category));
  };
  if (row.category) return fill(*row.category, *row.bytes[run]);
  for (const Category category : stacking_order()) {
    fill(category, scene.shown[run].bytes[static_cast<size_t>(category)]);
  }
}

/// Draws "====   12.00 MiB  3.00 MiB less": a bar, the number, and what changed.
void draw_cell(Scene& scene, const Row& row, size_t run, const TableColumns& columns, Box cell) {
  Painter& paint = scene.paint;
  const auto& bytes = row.bytes[run];
  const Box bar = cell.take_left(columns.bar_width);
  const Box number = cell.take_left(columns.number_width);
  if (!bytes) {
    paint.text_right(number, "-", paint.colors.muted, Style::small);
    return;
  }
  if (columns.bar_width > 0) draw_row_bar(scene, row, run, columns.most_bytes, bar);
  paint.text_right(number, bytes_text(*bytes), paint.colors.text, row_style(row));
  if (columns.beside_width <= 0) return;
  cell.take_left(paint.px(kBeside));
  if (const auto growth = growth_in_row(scene, row, run)) {
    return draw_row_change(scene, row, *growth, columns.change, cell);
  }
  paint.text(cell, share_text(row, *bytes, scene.shown[run].total), paint.colors.muted,
             Style::small);
}

void draw_row_name(Scene& scene, const Row& row, Box cell) {
  Painter& paint = scene.paint;
  if (row.category) {
    paint.area({cell, Area::Kind::category, 0, static_cast<size_t>(*row.category)});
    paint.swatch(cell, color_of(*row.category));
  }
  paint.text(cell, row.name, paint.colors.text, row_style(row));
}

std::string table_title(const Scene& scene) {
  const bool at_cursor = scene.state().at == TableMoment::cursor && scene.state().cursor;
  return at_cursor ? "at the cursor" : "at each run's peak";
}

/// Returns the runs that are drawn above the table, after those that they are compared with, as
/// many as fit with a whole number each.
std::vector<size_t> runs_of_table(const Scene& scene, float room) {
  std::vector<size_t> runs = scene.compared;
  for (const size_t run : scene.compared) {
    const size_t base = scene.shown[run].base;
    if (std::ranges::find(runs, base) == runs.end()) runs.insert(runs.begin(), base);
  }
  const auto most = static_cast<size_t>(std::max(1.F, room / scene.paint.px(kLeastColumn)));
  runs.resize(std::min(runs.size(), most));
  return runs;
}

/// Returns the width of the texts beside the numbers: changes, or shares for runs that are not
/// compared.
float side_width(const Scene& scene, const std::vector<Row>& rows, const std::vector<size_t>& runs,
                 ChangeForm form) {
  const Painter& paint = scene.paint;
  float width = 0;
  for (const Row& row : rows) {
    for (const size_t run : runs) {
      if (!row.bytes[run]) continue;
      const auto growth = growth_in_row(scene, row, run);
      const std::string text = growth ? change_text(*growth, form)
                                      : share_text(row, *row.bytes[run], scene.shown[run].total);
      width = std::max(width, paint.width(Style::small, text) + (growth ? paint.px(kArrow) : 0));
    }
  }
  return width > 0 ? width + paint.px(kBeside) : 0;
}

/// Measures what the columns hold, and gives space to the numbers first, then to as much of the
/// changes as fits in all columns, then to bars.
TableColumns table_columns(const Scene& scene, const std::vector<Row>& rows, const Box& box) {
  const Painter& paint = scene.paint;
  const float room = box.w - paint.px(kNameColumn);
  TableColumns columns{.runs = runs_of_table(scene, room), .name_width = paint.px(kNameColumn)};
  columns.width = room / static_cast<float>(std::max<size_t>(1, columns.runs.size()));
  for (const size_t run : columns.runs) {
    columns.most_bytes = std::max(columns.most_bytes, scene.shown[run].total);
    for (const Row& row : rows) {
      if (!row.bytes[run]) continue;
      columns.number_width =
          std::max(columns.number_width, paint.width(row_style(row), bytes_text(*row.bytes[run])));
    }
  }
  for (const ChangeForm form : {ChangeForm::words, ChangeForm::amount}) {
    const float beside = side_width(scene, rows, columns.runs, form);
    if (columns.number_width + beside + paint.px(kColumnGap) > columns.width) continue;
    columns.change = form;
    columns.beside_width = beside;
    break;
  }
  const float left = std::max(
      0.F, columns.width - columns.number_width - columns.beside_width - paint.px(kColumnGap));
  const bool has_bars = columns.beside_width > 0 && left >= paint.px(kLeastBar + kBeside);
  (has_bars ? columns.bar_width : columns.number_width) += left;
  columns.number_width = std::min(columns.number_width, columns.width);
  return columns;
}

void draw_row(Scene& scene, const Row& row, Box line, const TableColumns& columns) {
  const auto& pick = scene.state().pick;
  if (pick && row.category == pick->category) {
    scene.paint.fill(line, scene.paint.colors.accent.with_alpha(60), scene.paint.px(2));
  }
  draw_row_name(scene, row, line.take_left(columns.name_width));
  for (const size_t run : columns.runs) {
    draw_cell(scene, row, run, columns, line.take_left(columns.width));
  }
}

/// Draws the rows that fit. If not all fit, the sum stays and the others scroll, the decisive ones
/// first.
void draw_table_rows(Scene& scene, std::vector<Row> rows, Box box, const TableColumns& columns) {
  Painter& paint = scene.paint;
  const float height = paint.px(kRow);
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

/// Draws a run's name at the left of its bars or, without bars, above the end of its numbers.
/// "baseline" is dropped before the name is cut.
void draw_column_head(Scene& scene, const ShownRun& one, const TableColumns& columns, Box cell) {
  Painter& paint = scene.paint;
  const bool is_base = Scene::is_baseline(one) && one.has_others;
  const profiler::Judgement judgement = one.run->judgement();
  const bool is_sound = profiler::is_whole(judgement);
  const std::string name =
      one.run->name + (is_sound ? "" : fmt::format(" ({})", to_string(judgement.state)));
  const Color& color = is_sound ? paint.colors.text : paint.colors.warning;
  cell.take_right(paint.px(kBeside));
  const std::vector<std::string> texts =
      is_base ? std::vector{name + " (baseline)", name} : std::vector{name};
  const auto fits = [&](const std::string& text) {
    return paint.width(Style::strong, text) <= columns.number_width;
  };
  const auto fitting = std::ranges::find_if(texts, fits);
  if (columns.bar_width > 0 || fitting == texts.end()) {
    return paint.text_that_fits(cell, texts, color, Style::strong);
  }
  paint.text_right(cell.take_left(columns.number_width), *fitting, color, Style::strong);
}

}  // namespace

size_t table_rows(const std::vector<ShownRun>& shown) { return rows_of(shown).size(); }

void draw_table(Scene& scene) {
  if (scene.geometry.table.h <= 0) return;
  Painter& paint = scene.paint;
  const Box& card = scene.geometry.table;
  paint.card(card, paint.colors.card_edge);
  paint.area({card, Area::Kind::table, 0, 0});
  Box box = card.inset(paint.px(8));
  std::vector<Row> rows = rows_of(scene.shown);
  const TableColumns columns = table_columns(scene, rows, box);
  Box head = box.take_top(paint.px(kRow));
  paint.text(head.take_left(columns.name_width), table_title(scene), paint.colors.muted,
             Style::small);
  for (const size_t run : columns.runs) {
    draw_column_head(scene, scene.shown[run], columns, head.take_left(columns.width));
  }
  paint.line(box.x, box.y, box.right(), box.y, paint.colors.card_edge);
  draw_table_rows(scene, std::move(rows), box, columns);
}

}  // namespace shardlens::viewer
