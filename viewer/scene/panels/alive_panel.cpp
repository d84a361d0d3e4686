// Draws the panel of live allocations: by group, and below that by place, with the changes from the
// baseline.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "base/units.h"
#include "viewer/model/compare.h"
#include "viewer/scene/block_image.h"
#include "viewer/scene/panels/treemap.h"
#include "viewer/scene/parts.h"
#include "viewer/scene/pick.h"

namespace shardlens::viewer {

namespace {

constexpr float kAliveRow = 27;      // points
constexpr float kPlaceLine = 17;     //
constexpr float kPlacesPart = 0.5F;  // part of the panel for the list of places

/// True for the row that contains the selection.
bool is_row_picked(const Scene& scene, const AliveRow& row) {
  const auto& pick = scene.state().pick;
  const ShownRun& one = scene.focus();
  if (!pick || pick->run != one.index || pick->rank != one.rank) return false;
  switch (listed_grouping(scene.state())) {
    case Grouping::category:
      return row.category == pick->category;
    case Grouping::none:
      return row.block == pick->block;
    case Grouping::label: {
      const auto& blocks = one.lane->lane.arrays().blocks;
      return pick->block < blocks.size() && row.block < blocks.size() &&
             one.lane->lane.label(blocks[pick->block]) == one.lane->lane.label(blocks[row.block]) &&
             row.category == pick->category;
    }
    case Grouping::age:
      break;
  }
  return false;
}

/// Returns the colour that the focused run's plot gives a block, or its category's if the plot
/// shows categories.
Color listed_color(const Scene& scene, uint32_t block, Category category) {
  const Lane& lane = scene.focus().lane->lane;
  const bool shows_places = scene.state().detail != Detail::bands && are_colored_by_place(lane);
  if (!shows_places || block >= lane.arrays().blocks.size()) return color_of(category);
  const std::string_view place = lane.label(lane.arrays().blocks[block]);
  return place.empty() ? color_of(category) : place_color(place);
}

void draw_alive_row(Scene& scene, const AliveRow& row, int64_t total, size_t index, Box box) {
  Painter& paint = scene.paint;
  paint.area({box, Area::Kind::alive_row, scene.focus().index, index});
  if (is_row_picked(scene, row)) {
    paint.fill(box.inset(-paint.px(1)), paint.colors.accent.with_alpha(60), paint.px(2));
  }
  Box line = box.take_top(paint.px(17));
  const Grouping grouping = listed_grouping(scene.state());
  const bool is_place = grouping == Grouping::label || grouping == Grouping::none;
  const Color color =
      is_place ? listed_color(scene, row.block, row.category) : color_of(row.category);
  paint.swatch(line, color);
  Box amount = line.take_right(paint.px(78));
  paint.text_right(amount, bytes_text(row.bytes), paint.colors.text, Style::small);
  const std::string count = row.count > 1 ? fmt::format(" x {}", row.count) : "";
  line.w -= paint.width(Style::small, count);
  const float end = paint.text(line, paint.fitted_place(Style::small, row.name, line.w),
                               paint.colors.text, Style::small);
  line = {end, line.y, line.w, line.h};
  paint.text(line, count, paint.colors.muted, Style::small);
  const float share =
      total > 0 ? static_cast<float>(static_cast<double>(row.bytes) / static_cast<double>(total))
                : 0;
  const Box bar = box.take_top(paint.px(4));
  paint.fill(bar, paint.colors.grid, paint.px(2));
  paint.fill({bar.x, bar.y, std::max(1.F, bar.w * share), bar.h}, color, paint.px(2));
}

void draw_rows(Scene& scene, const ShownRun& one, Box& box, float reserve) {
  const auto rows = listed_rows(scene.in, one);
  Painter& paint = scene.paint;
  int64_t rest = 0;
  size_t left_out = 0;
  const size_t first = std::min(scene.state().alive_first, rows.empty() ? 0 : rows.size() - 1);
  for (size_t i = first; i < rows.size(); ++i) {
    const bool has_room = box.h - reserve >= paint.px(kAliveRow + 18);
    const bool is_only = i == first && box.h >= paint.px(kAliveRow);
    if (!has_room && !is_only) {
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
void draw_areas(Scene& scene, const ShownRun& one, Box& box, float reserve) {
  auto rows = listed_rows(scene.in, one);
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

/// Draws a bar in three parts: only in the baseline, in both, only in the focused run.
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
    paint.swatch(row, color);
    paint.text_right(row.take_right(paint.px(78)), bytes_text(bytes), paint.colors.text,
                     Style::small);
    paint.text(row, name, paint.colors.text, Style::small);
  };
  line("only in " + scene.base_of(scene.focus()).run->name, matching.only_a_bytes,
       paint.colors.less);
  line("in both", matching.in_both_bytes, paint.colors.muted);
  line("only in " + scene.focus().run->name, matching.only_b_bytes, paint.colors.more);
}

/// Returns "3.00 MiB more" for a place that changed, and the bytes of a place that is not compared.
std::string amount_of(const profiler::MatchedPlace& row, bool compares) {
  const int64_t growth = row.growth_bytes();
  if (!compares) return bytes_text(row.b_bytes);
  if (growth == 0) return "other blocks";
  return growth_in_words(growth);
}

/// True if the selection has the name and the category of a place.
bool is_place_picked(const Scene& scene, const profiler::MatchedPlace& row) {
  const auto& pick = scene.state().pick;
  const bool is_one = pick && (pick->scope == PickScope::name || pick->scope == PickScope::block);
  if (!is_one) return false;
  const Pick own = pick_of_place(scene.shown, scene.focus(), row);
  if (pick->run != own.run || pick->rank != own.rank || pick->category != own.category)
    return false;
  const Lane& lane = scene.shown[own.run].lane->lane;
  const auto& blocks = lane.arrays().blocks;
  if (pick->block >= blocks.size() || own.block >= blocks.size()) return false;
  return lane.label(blocks[pick->block]) == lane.label(blocks[own.block]);
}

/// Draws a place: its name, which is cut in the middle, since places that look alike differ at
/// their ends, and its bytes or its change at the right.
void draw_matched_place(Scene& scene, const profiler::MatchedPlace& row, size_t index, Box line) {
  Painter& paint = scene.paint;
  const bool compares = !Scene::is_baseline(scene.focus());
  paint.area({line, Area::Kind::matched_row, scene.focus().index, index});
  if (is_place_picked(scene, row)) {
    paint.fill(line, paint.colors.accent.with_alpha(60), paint.px(2));
  }
  const int64_t growth = row.growth_bytes();
  const Color& color = compares ? color_of_change(paint.colors, growth) : paint.colors.text;
  if (compares) {
    const Box arrow = line.take_left(paint.px(14));
    if (growth != 0) {
      paint.triangle(arrow.x, arrow.y + arrow.h / 2, paint.px(8), growth > 0, color);
    }
  }
  paint.swatch(line, listed_color(scene, row.b_block, row.category));
  const std::string amount = amount_of(row, compares);
  const float width = std::min(line.w / 2, paint.width(Style::small, amount) + paint.px(8));
  paint.text_right(line.take_right(width), amount, color, Style::small);
  const std::string layers = row.layers > 1 ? fmt::format(" x {}", row.layers) : "";
  paint.text(line, paint.fitted_place(Style::small, row.name + layers, line.w), paint.colors.text,
             Style::small);
}

/// Draws the places from the first one that is scrolled to, as many as fit.
void draw_matched_places(Scene& scene, const profiler::Matching& matching, Box box) {
  Painter& paint = scene.paint;
  const size_t count = changed_places(matching);
  const size_t first = std::min(scene.state().places_first, count > 0 ? count - 1 : 0);
  for (size_t i = first; i < count && box.h >= paint.px(kPlaceLine); ++i) {
    const Box line = box.take_top(paint.px(kPlaceLine));
    const bool is_cut = i + 1 < count && box.h < paint.px(kPlaceLine);
    if (!is_cut) {
      draw_matched_place(scene, matching.rows[i], i, line);
      continue;
    }
    const bool compares = !Scene::is_baseline(scene.focus());
    paint.text(
        line,
        fmt::format("{} more places{}: Alt+Shift+PageDown", count - i, compares ? " differ" : ""),
        paint.colors.muted, Style::small);
  }
}

/// Returns the name of what was allocated or freed: that of the call, if it is known.
std::string name_of_change(const ShownRun& one, int64_t change) {
  const Lane& lane = one.lane->lane;
  const uint32_t word = lane.arrays().words[static_cast<size_t>(change)];
  const Block& block = lane.arrays().blocks[block_of(word)];
  const std::string_view label = lane.label(block);
  if (!label.empty()) return std::string(label);
  if (block.action < 0) return "without a name";
  return one.lane->names.name_of(block.phase, block.action).text;
}

/// Draws an allocation with a triangle that points up, or a free with one that points down.
void draw_event(Scene& scene, const ShownRun& one, int64_t change, Box line) {
  Painter& paint = scene.paint;
  const auto& arrays = one.lane->lane.arrays();
  const uint32_t word = arrays.words[static_cast<size_t>(change)];
  const Block& block = arrays.blocks[block_of(word)];
  const auto& pick = scene.state().pick;
  paint.area({line, Area::Kind::event_row, one.index, static_cast<size_t>(change)});
  const bool is_here = pick && pick->run == one.index && pick->rank == one.rank;
  if (is_here && pick->block == block_of(word)) {
    paint.fill(line, paint.colors.accent.with_alpha(60), paint.px(2));
  }
  if (change == one.change) paint.outline(line, paint.colors.cursor, paint.px(2));
  const bool is_alloc = !is_free(word);
  const Color& color = is_alloc ? paint.colors.more : paint.colors.less;
  line.take_left(paint.px(2));
  const Box arrow = line.take_left(paint.px(14));
  paint.triangle(arrow.x, arrow.y + arrow.h / 2, paint.px(8), is_alloc, color);
  paint.swatch(line, color_of(block.category));
  const std::string amount = bytes_text(block.given_bytes);
  paint.text_right(line.take_right(paint.width(Style::small, amount) + paint.px(8)), amount, color,
                   Style::small);
  paint.text(line, paint.fitted_place(Style::small, name_of_change(one, change), line.w),
             paint.colors.text, Style::small);
}

void draw_failure(Scene& scene, const ShownRun& one, const FailedRequest& failure,
                  const Box& line) {
  const std::string asked = fmt::format("out of memory: {} asked", bytes_text(failure.asked_bytes));
  const std::string free = fmt::format(", {} free", bytes_text(failure.free_bytes));
  const std::string who(one.lane->lane.label(failure.label));
  const std::string by = who.empty() ? asked : fmt::format("{} by {}", asked, who);
  const auto index = &failure - one.lane->lane.arrays().failures.data();
  scene.paint.area({line, Area::Kind::failure, one.index, static_cast<size_t>(index)});
  scene.paint.text_that_fits(line, {by + free, by, who, asked}, scene.paint.colors.more,
                             Style::small);
}

/// Returns the first of `room` changes around the shown moment: the moment is in the middle, or
/// where it was pressed.
int64_t first_event_of(const Scene& scene, const ShownRun& one, int64_t room, int64_t last_first) {
  const std::optional<int64_t> pressed = scene.state().events_first;
  const bool is_in_view = pressed && *pressed <= one.change && one.change < *pressed + room;
  const int64_t first = is_in_view ? *pressed : one.change - room / 2;
  return std::clamp<int64_t>(first, 0, last_first);
}

/// Draws the allocations and frees around the shown moment: earlier ones above it, later ones
/// below. Failed requests are listed at the moment when they were made.
void draw_events(Scene& scene, const ShownRun& one, Box box) {
  const float height = scene.paint.px(kPlaceLine);
  const auto room = static_cast<int64_t>(box.h / height);
  const int64_t changes = one.lane->lane.changes();
  const auto& failures = one.lane->lane.arrays().failures;
  const auto first_failure = [&](int64_t change) {
    return std::ranges::lower_bound(failures, change, {}, &FailedRequest::change);
  };
  const int64_t at_end = failures.end() - first_failure(changes - room);
  const int64_t last_first = std::max<int64_t>(0, changes + at_end - room);
  const int64_t first = first_event_of(scene, one, room, last_first);
  auto failure = first_failure(first);
  for (int64_t change = first; box.h >= height; ++change) {
    for (; failure != failures.end() && failure->change <= change; ++failure) {
      if (box.h < height) return;
      draw_failure(scene, one, *failure, box.take_top(height));
    }
    if (change >= changes || box.h < height) return;
    draw_event(scene, one, change, box.take_top(height));
  }
}

/// Returns "246.00 MiB reserved" for a moment; empty if that was not recorded.
std::string reserved_text(const ShownRun& one) {
  const Lane& lane = one.lane->lane;
  if (one.change < 0 || lane.info().space != profiler::Space::device) return "";
  const auto time = static_cast<double>(one.time_ns);
  const auto reserved = lane.reserved_between(time, time);
  return reserved ? bytes_text(*reserved) + " reserved" : "";
}

/// Draws the head above the lists: the moment, and the bytes that are alive then.
void draw_alive_head(Scene& scene, const ShownRun& one, std::string_view title,
                     std::string_view what, Box& box) {
  Painter& paint = scene.paint;
  const bool at_cursor = scene.state().at == TableMoment::cursor && scene.state().cursor;
  paint.text(box.take_top(paint.px(20)),
             fmt::format("{} the {}", title, at_cursor ? "cursor" : "peak"), paint.colors.text,
             Style::strong);
  paint.text(box.take_top(paint.px(16)), one.run->name, paint.colors.text, Style::small);
  paint.text(box.take_top(paint.px(16)), moment_text(*one.lane, one.change), paint.colors.muted,
             Style::small);
  Box sum = box.take_top(paint.px(20));
  paint.text_right(sum.take_right(paint.px(110)), bytes_text(one.total), paint.colors.text,
                   Style::strong);
  const std::string reserved = reserved_text(one);
  const std::string words(what);
  const std::vector<std::string> texts =
      reserved.empty() ? std::vector{words} : std::vector{words + ", " + reserved, reserved};
  paint.text_that_fits(sum, texts, paint.colors.muted, Style::small);
}

/// Draws rows as `profile report` writes them: their indents stay, their columns do not.
void draw_findings(Scene& scene, std::string_view title, const std::string& rows, Box& box) {
  Painter& paint = scene.paint;
  if (rows.empty() || box.h < paint.px(36)) return;
  paint.text(box.take_top(paint.px(18)), title, paint.colors.text, Style::strong);
  std::istringstream lines(rows);
  for (std::string line; std::getline(lines, line);) {
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos) continue;
    Box rest = box;
    rest.take_left(paint.px(2) * static_cast<float>(std::min<size_t>(indent, 6)));
    box.take_top(box.h - paint.text_lines(rest, line, paint.colors.text, Style::small).h);
  }
  box.take_top(paint.px(6));
}

/// Draws what the recording says about failures, growth and reserved memory.
void draw_why(Scene& scene, const ShownRun& one, Box box) {
  Painter& paint = scene.paint;
  const LaneFindings& found = one.lane->lane.info().findings;
  paint.text(box.take_top(paint.px(20)), "Why", paint.colors.text, Style::strong);
  paint.text(box.take_top(paint.px(16)), one.run->name, paint.colors.text, Style::small);
  if (const auto use = one.run->device_use(*one.lane)) {
    box = paint.text_lines(box, "headroom " + headroom_text(*use), paint.colors.text, Style::small);
  }
  box.take_top(paint.px(6));
  const auto& failures = one.lane->lane.arrays().failures;
  if (!failures.empty()) {
    box = paint.text_lines(box, failure_text(*one.lane, failures.back()), paint.colors.more,
                           Style::small);
    box.take_top(paint.px(6));
  }
  draw_findings(scene, "Growth", found.growth, box);
  draw_findings(scene, "When memory last ran out", found.out_of_memory, box);
  draw_findings(scene, "Reserved memory", found.reserved, box);
  const bool is_silent = found.growth.empty() && found.reserved.empty() && failures.empty();
  if (!is_silent) return;
  paint.text_lines(box, "no growth, no failed request, and no reserved memory was recorded",
                   paint.colors.muted, Style::small);
}

/// Says how many of the blocks that a search found are listed: those that are alive.
void draw_found_line(Scene& scene, const ShownRun& one, Box& box) {
  const SearchHits& found = scene.in.hits[one.index];
  const Lane& lane = one.lane->lane;
  const auto alive = std::ranges::count_if(found.hits, [&](const Hit& hit) {
    return lane.arrays().blocks[hit.block].is_alive_after(one.change);
  });
  const std::string text = fmt::format(
      "{}: {} of {} blocks found are alive here, {}; N goes to the next", scene.state().search,
      alive, found.hits.size(), bytes_text(found.alive_bytes(lane, one.change)));
  box = scene.paint.text_lines(box,
                               found.hits.empty() ? scene.state().search + ": nothing found" : text,
                               scene.paint.colors.accent, Style::small);
}

void draw_comparison(Scene& scene, Box box) {
  Painter& paint = scene.paint;
  const profiler::Matching& matching = shown_places(scene.in, scene.cache, scene.shown);
  paint.text(box.take_top(paint.px(20)), "Compared with " + scene.base_of(scene.focus()).run->name,
             paint.colors.text, Style::strong);
  draw_shares(scene, matching, box);
  box.take_top(paint.px(4));
  draw_matched_places(scene, matching, box);
}

/// Draws the places of a run that is not compared, unless the rows above are already places.
void draw_largest(Scene& scene, Box box) {
  const Grouping grouping = listed_grouping(scene.state());
  const bool has_places = grouping == Grouping::none || grouping == Grouping::label;
  if (has_places || box.h < scene.paint.px(20 + 2 * kPlaceLine)) return;
  scene.paint.text(box.take_top(scene.paint.px(20)), "Largest places", scene.paint.colors.text,
                   Style::strong);
  draw_matched_places(scene, shown_places(scene.in, scene.cache, scene.shown), box);
}

}  // namespace

void draw_alive(Scene& scene) {
  if (scene.geometry.alive.w <= 0) return;
  Painter& paint = scene.paint;
  paint.card(scene.geometry.alive, paint.colors.card_edge);
  Box box = scene.geometry.alive.inset(paint.px(10));
  const ShownRun& one = scene.focus();
  if (scene.state().panels.why) return draw_why(scene, one, box);
  if (scene.state().panels.events) {
    draw_alive_head(scene, one, "Around", "allocated and freed", box);
    return draw_events(scene, one, box);
  }
  const auto grouping = grouping_words(listed_grouping(scene.state()));
  draw_alive_head(scene, one, "Alive at", fmt::format("by {}", grouping), box);
  if (one.index < scene.in.hits.size()) draw_found_line(scene, one, box);
  const bool compares = !Scene::is_baseline(one);
  const float reserve = compares ? box.h * kPlacesPart : 0;
  if (scene.state().panels.treemap) {
    draw_areas(scene, one, box, reserve);
  } else {
    draw_rows(scene, one, box, reserve);
  }
  box.take_top(paint.px(8));
  compares ? draw_comparison(scene, box) : draw_largest(scene, box);
}

}  // namespace shardlens::viewer
