// Draws a run's card: its name, its peak and the change, its plot with axes and marks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "viewer/model/compare.h"
#include "viewer/paint/axis.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

constexpr float kTickDistance = 34;   // points, of the y axis
constexpr float kXTickDistance = 62;  //

/// Returns the name of the only category that is shown, or a word for several.
std::string shown_words(const Scene& scene) {
  std::vector<Category> all = used_categories(scene.shown);
  std::erase_if(all, [&](Category category) { return !scene.state().shows(category); });
  return all.size() == 1 ? words_of(all.front(), have_shards(scene.shown)) : "shown categories";
}

std::string peak_words(const Scene& scene, const ShownRun& one) {
  const bool at_cursor = scene.state().at == TableMoment::cursor && scene.state().cursor;
  std::string words = at_cursor ? "at the cursor" : "peak";
  if (scene.state().hidden_categories != 0) {
    words = fmt::format("{} at the {}", shown_words(scene), at_cursor ? "cursor" : "peak");
  }
  if (one.run->ranks.size() > 1) {
    words += fmt::format(", rank {} of {}", one.lane->lane.rank(), one.run->ranks.size());
  }
  return words;
}

/// Draws "12 MiB less than keep (-9.6 %)" with an arrow, so that colour is not the only sign.
void draw_change(Scene& scene, const ShownRun& one, Box line) {
  Painter& paint = scene.paint;
  const ShownRun& base = scene.base_of(one);
  if (base.index == one.index) {
    if (scene.shown.size() > 1) {
      paint.text_that_fits(
          line,
          {one.has_others ? "the baseline for the other runs" : "no other run to compare with", ""},
          paint.colors.muted, Style::small);
    }
    return;
  }
  const int64_t here = shown_bytes(scene.state(), one.bytes);
  const int64_t there = shown_bytes(scene.state(), base.bytes);
  const int64_t growth = here - there;
  const Color& color = growth > 0   ? paint.colors.more
                       : growth < 0 ? paint.colors.less
                                    : paint.colors.muted;
  if (growth != 0) {
    const Box arrow = line.take_left(paint.px(13));
    paint.triangle(arrow.x, arrow.y + arrow.h / 2, paint.px(8), growth > 0, color);
  }
  const std::string words = change_in_words(there, here);
  const std::string amount = bytes_text(growth < 0 ? -growth : growth);
  paint.text_that_fits(line,
                       {fmt::format("{}, against {}", words, base.run->name), words, amount, "..."},
                       color, Style::small);
}

/// Returns how far apart the ranks' peaks are; empty if they are equal.
std::string imbalance_words(const Run& run) {
  const auto bytes = [](const RankLane& rank) { return rank.lane.peak().max_bytes; };
  const auto [least, most] = std::ranges::minmax_element(run.ranks, {}, bytes);
  if (bytes(*least) == bytes(*most)) return "";
  return fmt::format("ranks {} apart", bytes_text(bytes(*most) - bytes(*least)));
}

/// Returns how much of the device is used, "62.1 % of 80.00 GiB", and how far apart the ranks are;
/// only the latter if the device's memory is unknown.
std::string headroom_words(const ShownRun& one) {
  const auto use = one.run->device_use(*one.lane);
  if (!use) return imbalance_words(*one.run);
  const double percent =
      100.0 * static_cast<double>(use->used_bytes()) / static_cast<double>(use->capacity_bytes);
  const std::string ranks = imbalance_words(*one.run);
  return fmt::format("{:.1f} % of {}{}{}", percent, bytes_text(use->capacity_bytes),
                     ranks.empty() ? "" : ", ", ranks);
}

std::string_view badge_words(const profiler::Judgement& judgement) {
  switch (judgement.state) {
    case profiler::RecordingState::whole:
      return "events lost";
    case profiler::RecordingState::growing:
      return "still recording";
    case profiler::RecordingState::killed:
    case profiler::RecordingState::newer:
    case profiler::RecordingState::damaged:
      break;
  }
  return to_string(judgement.state);
}

void draw_title(Scene& scene, const ShownRun& one, Box box) {
  Painter& paint = scene.paint;
  paint.area({box, Area::Kind::card, one.index, 0});
  Box name = box.take_top(paint.px(19));
  draw_lane_buttons(scene, one, name);
  if (Scene::is_baseline(one) && one.has_others) draw_badge(paint, name, "baseline");
  const profiler::Judgement judgement = one.run->judgement();
  const bool is_sound = profiler::is_whole(judgement);
  if (!is_sound) draw_badge(paint, name, badge_words(judgement));
  const bool is_what_if = scene.in.plan_news.run == one.index;
  if (is_what_if && scene.in.plan_news.is_stale) draw_badge(paint, name, "stale");
  if (one.run->is_predicted()) draw_badge(paint, name, is_what_if ? "what if" : "plan");
  if (!one.lane->lane.arrays().failures.empty()) draw_badge(paint, name, "out of memory");
  const bool has_steps = one.lane->lane.first_step() != nullptr;  // rounds are less sure
  const bool grows = !one.lane->lane.info().findings.growth.empty();
  if (grows && has_steps) draw_badge(paint, name, "grows");
  const bool is_focus = one.index == scene.focus().index && scene.shown.size() > 1;
  if (is_focus) {
    const Box bar = name.take_left(paint.px(9));
    paint.fill({bar.x, bar.y + paint.px(3), paint.px(4), bar.h - paint.px(6)}, paint.colors.accent);
  }
  paint.text(name, one.run->name, paint.colors.text, Style::strong);
  if (box.h < paint.px(16)) return;
  paint.text(box.take_top(paint.px(16)),
             is_sound ? one.run->strategy : profiler::judgement_text(judgement),
             is_sound ? paint.colors.muted : paint.colors.warning, Style::small);
  Box figure = box.take_top(paint.px(24));
  const std::string total =
      std::string(bound_prefix(judgement)) + bytes_text(shown_bytes(scene.state(), one.bytes));
  figure.take_left(paint.text(figure, total, paint.colors.text, Style::figure) - figure.x +
                   paint.px(8));
  figure.y += paint.px(2);
  paint.text_that_fits(figure, {peak_words(scene, one), ""}, paint.colors.muted, Style::small);
  draw_change(scene, one, box.take_top(paint.px(16)));
  if (box.h >= paint.px(14)) {
    paint.text(box.take_top(paint.px(16)), headroom_words(one), paint.colors.muted, Style::small);
  }
  if (box.h >= paint.px(14)) {
    const std::string clock = one.change < 0 ? "..." : clock_text(one.lane->lane, one.change);
    paint.text_that_fits(box.take_top(paint.px(16)), {moment_text(*one.lane, one.change), clock},
                         paint.colors.muted, Style::small);
  }
}

void draw_peak(Scene& scene, const ShownRun& one, const Box& plot, const YAxis& y_axis) {
  Painter& paint = scene.paint;
  const Extent& peak = one.lane->lane.peak();
  const double x = x_of_change(*one.warp, one.lane->lane, peak.max_change);
  const auto bytes = static_cast<double>(peak.max_bytes);
  if (!scene.view.contains(x) || !y_axis.contains(bytes)) return;
  const float at = scene.x_of(plot, x);
  const float y = y_axis.y_of(plot, bytes);
  const float size = paint.px(7);
  paint.triangle(at - size / 2, y - size * 0.7F, size, false, paint.colors.cursor);
  const std::string label = fmt::format("peak {}{}", bound_prefix(one.lane->lane.info().judgement),
                                        bytes_text(peak.max_bytes));
  const float width = paint.width(Style::small, label);
  if (width + paint.px(4) > plot.w) return;  // the headline says it, too
  const float height = paint.height(Style::small);
  float left = std::clamp(at - width / 2, plot.x + paint.px(2), plot.right() - width - paint.px(2));
  float top = y - size * 1.2F - height;
  if (top < plot.y) {
    // There is no room above, so the label goes beside the peak.
    top = plot.y + paint.px(1);
    const bool is_left = at + size + width < plot.right();
    left = is_left ? at + size : std::max(plot.x, at - size - width);
  }
  const auto ground =
      free_place(scene, plot, {left - paint.px(3), top, width + paint.px(6), height});
  if (!ground) return;
  paint.fill(*ground, paint.colors.plot.with_alpha(215), paint.px(2));
  paint.text_middle(*ground, label, paint.colors.text, Style::small);
}

/// Calls `draw` with each failed request for memory that is in view, and where its line is.
template <class Draw>
void for_each_failure(const Scene& scene, const ShownRun& one, const Box& plot, const Draw& draw) {
  const Lane& lane = one.lane->lane;
  for (const FailedRequest& failure : lane.arrays().failures) {
    const double x = x_of_failure(*one.warp, lane, failure);
    if (scene.view.contains(x)) draw(failure, std::round(scene.x_of(plot, x)));
  }
}

/// Draws where requests for memory failed.
void draw_failures(Scene& scene, const ShownRun& one, const Box& plot) {
  Painter& paint = scene.paint;
  float last = -1;  // the line that was drawn last
  for_each_failure(scene, one, plot, [&](const FailedRequest& failure, float at) {
    if (at == last) return;
    last = at;
    paint.line(at, plot.y, at, plot.bottom(), paint.colors.more, 2);
    const auto index = static_cast<size_t>(&failure - one.lane->lane.arrays().failures.data());
    paint.area(
        {{at - paint.px(4), plot.y, paint.px(8), plot.h}, Area::Kind::failure, one.index, index});
  });
}

/// Writes what was asked for beside the lines of failed requests, as far as there is room.
void draw_failure_texts(Scene& scene, const ShownRun& one, const Box& plot) {
  Painter& paint = scene.paint;
  float last_end = -1;  // the end of the last text
  for_each_failure(scene, one, plot, [&](const FailedRequest& failure, float at) {
    const std::string_view who = one.lane->lane.label(failure.label);
    const std::string text =
        fmt::format("out of memory: {} asked{}{}", bytes_text(failure.asked_bytes),
                    who.empty() ? "" : " by ", who);
    const float width = paint.width(Style::small, text) + paint.px(8);
    const float height = paint.height(Style::small) + paint.px(2);
    const bool is_left = at + width + paint.px(3) > plot.right();
    const float left = is_left ? at - width - paint.px(3) : at + paint.px(3);
    if (left < std::max(plot.x, last_end) || height * 3 > plot.h) return;
    last_end = left + width;
    const auto box =
        free_place(scene, plot, {left, plot.y + plot.h / 2 - height / 2, width, height});
    if (!box) return;
    paint.fill(*box, paint.colors.plot.with_alpha(230), paint.px(2));
    paint.text_middle(*box, text, paint.colors.more, Style::small);
  });
}

void draw_budget(Scene& scene, const ShownRun& one, const Box& plot, const YAxis& y_axis) {
  const auto capacity = static_cast<double>(one.run->capacity_bytes());
  if (capacity <= 0 || !y_axis.contains(capacity)) return;
  Painter& paint = scene.paint;
  const float y = y_axis.y_of(plot, capacity);
  paint.line(plot.x, y, plot.right(), y, paint.colors.warning, 1.5F);
  const int64_t headroom = one.run->device_use(*one.lane)->free_bytes();
  const std::string words = headroom >= 0
                                ? fmt::format("{} of the device left", bytes_text(headroom))
                                : fmt::format("{} over the device's memory", bytes_text(-headroom));
  const float width = std::min(plot.w, paint.width(Style::small, words) + paint.px(8));
  const auto box = free_place(
      scene, plot, {plot.right() - width, y + paint.px(1), width, paint.height(Style::small)});
  if (!box) return;
  paint.fill(*box, paint.colors.plot.with_alpha(215), paint.px(2));
  paint.text_middle(*box, words, paint.colors.warning, Style::small);
}

void draw_notes(Scene& scene, const Box& plot) {
  Painter& paint = scene.paint;
  for (const Note& note : scene.state().notes) {
    if (note.alignment != scene.state().alignment || !scene.view.contains(note.x)) continue;
    const float x = scene.x_of(plot, note.x);
    paint.line(x, plot.y, x, plot.bottom(), paint.colors.accent);
    const Box flag{x + paint.px(3), plot.y + plot.h * 0.4F,
                   std::min(plot.right() - x - paint.px(3),
                            paint.width(Style::small, note.text) + paint.px(8)),
                   paint.height(Style::small) + paint.px(2)};
    if (flag.w < paint.px(12)) continue;
    const auto place = free_place(scene, plot, flag);
    if (!place) continue;
    paint.fill(*place, paint.colors.accent, paint.px(2));
    paint.text({place->x + paint.px(4), place->y, place->w - paint.px(4), place->h}, note.text,
               paint.colors.on_accent, Style::small);
  }
}

/// Draws how much the search found in the plot's upper right corner, even if it found nothing.
void draw_found(Scene& scene, const ShownRun& one, const SearchHits& found, const Box& plot) {
  Painter& paint = scene.paint;
  const bool at_cursor = scene.state().at == TableMoment::cursor && scene.state().cursor;
  std::string words = scene.state().search + ": nothing found";
  if (!found.hits.empty()) {
    words = fmt::format("{}: {} block{}, {} alive", scene.state().search, found.hits.size(),
                        found.hits.size() == 1 ? "" : "s",
                        bytes_text(found.alive_bytes(one.lane->lane, one.change)));
    const std::string_view when = at_cursor ? " at the cursor" : " at the peak";
    const float whole = paint.width(Style::small, words + std::string(when)) + paint.px(8);
    if (whole <= plot.w) words += when;
  }
  const float width = std::min(plot.w, paint.width(Style::small, words) + paint.px(8));
  const auto ground = free_place(
      scene, plot, {plot.right() - width, plot.y + paint.px(5), width, paint.height(Style::small)});
  if (!ground) return;
  paint.fill(*ground, paint.colors.accent, paint.px(2));
  paint.text({ground->x + paint.px(4), ground->y, width - paint.px(4), ground->h}, words,
             paint.colors.on_accent, Style::small);
}

/// Draws a bar on the plot's upper edge while blocks that were found are alive.
void draw_hits(Scene& scene, const ShownRun& one, const Box& plot) {
  if (one.index >= scene.in.hits.size()) return;
  const SearchHits& found = scene.in.hits[one.index];
  const Lane& lane = one.lane->lane;
  std::vector<bool> lit(static_cast<size_t>(std::max(0.F, plot.w)));
  const auto column = [&](int64_t change) {
    const double x = x_of_change(*one.warp, lane, change);
    const double at =
        (x - scene.view.begin) / scene.view.length() * static_cast<double>(lit.size());
    return static_cast<int64_t>(std::clamp(at, -1.0, static_cast<double>(lit.size())));
  };
  for (const Hit& hit : found.hits) {
    const Block& block = lane.arrays().blocks[hit.block];
    const auto died =
        block.died == kNeverFreed ? lane.changes() - 1 : static_cast<int64_t>(block.died);
    const int64_t end = std::min<int64_t>(column(died) + 1, static_cast<int64_t>(lit.size()));
    for (int64_t x = std::max<int64_t>(0, column(block.born)); x < end; ++x) {
      lit[static_cast<size_t>(x)] = true;
    }
  }
  for (size_t x = 0; x < lit.size();) {
    size_t end = x + 1;
    while (end < lit.size() && lit[end] == lit[x]) ++end;
    const float left = plot.x + static_cast<float>(x);
    if (lit[x]) {
      scene.paint.fill({left, plot.y, static_cast<float>(end - x), scene.paint.px(4)},
                       scene.paint.colors.accent);
    }
    x = end;
  }
  draw_found(scene, one, found, plot);
}

/// Draws the life of the selected block as a bar under the plot's upper edge.
void draw_life(Scene& scene, const ShownRun& one, const Box& plot) {
  const auto& pick = scene.state().pick;
  if (!pick || pick->run != one.index || pick->rank != one.rank) return;
  const Lane& lane = one.lane->lane;
  if (pick->block >= lane.arrays().blocks.size()) return;
  const Block& block = lane.arrays().blocks[pick->block];
  const auto died =
      block.died == kNeverFreed ? lane.changes() - 1 : static_cast<int64_t>(block.died);
  const auto x = [&](int64_t change) {
    return std::clamp(scene.x_of(plot, x_of_change(*one.warp, lane, change)), plot.x, plot.right());
  };
  const float begin = x(block.born);
  const float end = x(died);
  if (begin >= plot.right() || end <= plot.x) return;
  Painter& paint = scene.paint;
  const Box bar{begin, plot.y + paint.px(1), std::max(paint.px(2), end - begin), paint.px(5)};
  paint.fill(bar, paint.colors.cursor, paint.px(1));
  for (const float at : {bar.x, bar.right() - paint.px(1)}) {
    paint.fill({at, plot.y, paint.px(1), paint.px(11)}, paint.colors.cursor);
  }
}

/// Returns "12.345 ms: 1.50 GiB allocated, 1.00 GiB freed, 512.00 MiB more" for a part of the axis.
std::string interval_text(const Warp& warp, const Lane& lane, const Range& x) {
  const auto clipped = [&](double at) {
    return warp.position_at(std::clamp(at, warp.extent().begin, warp.extent().end));
  };
  const auto from = clipped(x.begin);
  const auto to = clipped(x.end);
  if (!from || !to) return "no data";
  const auto change = [&](double position) {
    return warp.is_by_change() ? std::min(static_cast<int64_t>(position), lane.changes())
                               : lane.change_at(position);
  };
  const int64_t first = change(*from);
  const int64_t end = change(*to);
  int64_t allocated = 0;
  int64_t freed = 0;
  for (int64_t i = first; i < end; ++i) {
    const uint32_t word = lane.arrays().words[static_cast<size_t>(i)];
    (is_free(word) ? freed : allocated) += lane.arrays().blocks[block_of(word)].given_bytes;
  }
  constexpr double kNsPerMs = 1e6;
  const double ns = warp.is_by_change()
                        ? static_cast<double>(lane.time_of(end - 1) - lane.time_of(first))
                        : *to - *from;
  const int64_t growth = allocated - freed;
  return fmt::format("{:.3f} ms: {} allocated, {} freed, {}", std::max(0.0, ns) / kNsPerMs,
                     bytes_text(allocated), bytes_text(freed),
                     growth == 0 ? "the same at its end" : growth_in_words(growth));
}

void draw_cursor(Scene& scene, const ShownRun& one, const Box& plot) {
  const auto& cursor = scene.state().cursor;
  Painter& paint = scene.paint;
  if (const auto& selection = scene.state().selection) {
    const float begin = std::clamp(scene.x_of(plot, selection->begin), plot.x, plot.right());
    const float end = std::clamp(scene.x_of(plot, selection->end), plot.x, plot.right());
    paint.fill({begin, plot.y, end - begin, plot.h}, paint.colors.accent.with_alpha(50));
    const std::string text = interval_text(*one.warp, one.lane->lane, *selection);
    const float width = std::min(plot.w, paint.width(Style::small, text) + paint.px(8));
    const float left = std::clamp(begin, plot.x, plot.right() - width);
    const auto box = free_place(
        scene, plot, {left, plot.y + paint.px(3), width, paint.height(Style::small) + paint.px(2)});
    if (box) {
      paint.fill(*box, paint.colors.accent, paint.px(2));
      paint.text_middle(*box, text, paint.colors.on_accent, Style::small);
    }
  }
  if (!cursor || !scene.view.contains(*cursor)) return;
  const float x = scene.x_of(plot, *cursor);
  paint.line(x, plot.y, x, plot.bottom(), paint.colors.cursor);
  const auto change = change_at(*one.warp, one.lane->lane, *cursor);
  const std::string label =
      change ? bytes_text(sum_of(one.lane->lane.pyramid().bytes_after(*change))) : "no data";
  const float width = paint.width(Style::small, label) + paint.px(8);
  const float height = paint.height(Style::small) + paint.px(2);
  const float left =
      x + width + paint.px(4) < plot.right() ? x + paint.px(3) : x - width - paint.px(3);
  const auto box =
      free_place(scene, plot, {left, plot.bottom() - height - paint.px(3), width, height});
  if (!box) return;
  paint.fill(*box, paint.colors.cursor.with_alpha(230), paint.px(2));
  paint.text_middle(*box, label, paint.colors.plot, Style::small);
}

}  // namespace

std::optional<Box> free_place(Scene& scene, const Box& plot, const Box& wanted) {
  const auto overlaps = [](const Box& a, const Box& b) {
    return a.x < b.right() && b.x < a.right() && a.y < b.bottom() && b.y < a.bottom();
  };
  const auto is_free = [&](const Box& box) {
    const bool is_inside = box.y >= plot.y && box.bottom() <= plot.bottom();
    return is_inside && std::ranges::none_of(
                            scene.labels, [&](const Box& label) { return overlaps(box, label); });
  };
  constexpr float kFarthest = 6;  // in heights of the label: further away it would say nothing
  for (float away = 0; away <= kFarthest * wanted.h; away += wanted.h / 2) {
    for (const float by : {away, -away}) {
      const Box box{wanted.x, wanted.y + by, wanted.w, wanted.h};
      if (!is_free(box)) continue;
      scene.labels.push_back(box);
      return box;
    }
  }
  return std::nullopt;
}

void draw_badge(Painter& paint, Box& line, std::string_view text) {
  const float width = paint.width(Style::small, text) + paint.px(10);
  Box badge = line.take_right(width);
  badge = {badge.x, badge.y + paint.px(2), badge.w, badge.h - paint.px(4)};
  paint.fill(badge, paint.colors.accent, paint.px(3));
  paint.text_middle(badge, text, paint.colors.on_accent, Style::small);
  line.take_right(paint.px(4));
}

void draw_axes(Scene& scene, const CardGeometry& card, const YAxis& y_axis, bool is_signed) {
  Painter& paint = scene.paint;
  const Box& plot = card.plot;
  const int most = std::max(1, static_cast<int>(plot.h / paint.px(kTickDistance)));
  const auto ticks =
      is_signed ? signed_byte_ticks(y_axis.top, most) : byte_ticks(y_axis.top, most, y_axis.bottom);
  const YAxis around{.bottom = is_signed ? -y_axis.top : y_axis.bottom, .top = y_axis.top};
  for (const Tick& tick : ticks) {
    if (y_axis.top <= 0) break;
    const float y = std::round(around.y_of(plot, tick.at));
    paint.line(plot.x, y, plot.right(), y, paint.colors.grid);
    const float height = paint.height(Style::small);
    paint.text_right({card.y_axis.x, y - height / 2, card.y_axis.w - paint.px(5), height},
                     tick.text, paint.colors.muted, Style::small);
  }
  Box axis = card.x_axis;
  const Box numbers = axis.take_top(paint.px(16));
  const double columns = plot.w / paint.px(kXTickDistance);
  float last_end = -paint.px(kXTickDistance);
  for (const Tick& tick :
       x_ticks(scene.state().alignment, scene.view, scene.in.facts.extent, columns)) {
    const float x = std::round(scene.x_of(plot, tick.at));
    paint.line(x, plot.y, x, plot.bottom(), paint.colors.grid);
    const float width = paint.width(Style::small, tick.text);
    const float left =
        std::clamp(x - width / 2, card.y_axis.x, card.card.right() - width - paint.px(3));
    // Numbers have many digits when a moment is shown from very near.
    if (left < last_end + paint.px(4)) continue;
    last_end = left + width;
    paint.text({left, numbers.y, width + 1, numbers.h}, tick.text, paint.colors.muted,
               Style::small);
  }
  paint.text_middle({plot.x, axis.y, plot.w, paint.px(16)}, axis_title(scene.state().alignment),
                    paint.colors.muted, Style::small);
}

void draw_marks(Scene& scene, const ShownRun& one, const CardGeometry& card, const YAxis& y_axis) {
  const bool has_bands =
      scene.state().detail != Detail::addresses && scene.state().ranks != Ranks::each;
  draw_failures(scene, one, card.plot);  // whose lines would cross a label
  draw_hits(scene, one, card.plot);
  if (has_bands) {
    if (scene.state().hidden_categories == 0) draw_peak(scene, one, card.plot, y_axis);
    draw_budget(scene, one, card.plot, y_axis);
  }
  draw_failure_texts(scene, one, card.plot);
  draw_life(scene, one, card.plot);
  draw_notes(scene, card.plot);
  draw_cursor(scene, one, card.plot);
  scene.paint.outline(card.plot, scene.paint.colors.card_edge);
}

void draw_card(Scene& scene, const ShownRun& one, const CardGeometry& card) {
  Painter& paint = scene.paint;
  if (scene.in.is_figure) {
    const std::string name = one.run->name;
    Box line = card.title;
    line.take_left(card.plot.x - line.x);
    if (line.h > 0) paint.text(line, name, paint.colors.text, Style::strong);
  } else {
    const bool is_focus = one.index == scene.focus().index && scene.shown.size() > 1;
    paint.card(card.card, is_focus ? paint.colors.accent : paint.colors.card_edge);
    draw_title(scene, one, card.title);
  }
  draw_plot(scene, one, card);
  draw_residual(scene, one, card);
  if (card.bars.h > 0) draw_bars(scene, one, card);
  if (card.ribbon.h > 0) draw_ribbon(scene, one, card);
  if (card.work.h > 0) draw_gpu_work(scene, one, card);
}

}  // namespace shardlens::viewer
