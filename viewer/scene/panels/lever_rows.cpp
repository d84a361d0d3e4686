// Draws the levers of a recorded program in the what-if panel: a row for each, with what the
// program takes with it, or how that can be found out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "viewer/scene/parts.h"
#include "viewer/state/commands.h"

namespace shardlens::viewer {

namespace {

constexpr float kLeverRow = 17;  // points
constexpr float kMarkSide = 11;
constexpr float kLeverDetails = 104;
constexpr float kHintLine = 18;
constexpr float kActPart = 0.52F;  // of a row's width

struct Act {
  std::string text;
  Color color;
};

std::string seconds_text(const LeverRow& row) {
  const std::string of =
      row.expected_seconds > 0 ? fmt::format(" of about {:.0f}", row.expected_seconds) : "";
  return fmt::format("{:.0f}{} s: stop", row.seconds, of);
}

std::string words_of_change(int64_t change) {
  if (change == 0) return "no change";
  return fmt::format("{}{}", change > 0 ? "+" : "-", bytes_text(std::abs(change)));
}

/// Returns what stands at the right of a row.
Act act_of(const Scene& scene, const ProgramLevers& levers, const LeverRow& row) {
  const Colors& colors = scene.paint.colors;
  switch (row.state) {
    case LeverState::unknown:
      return levers.obstacle ? Act{"not known", colors.muted} : Act{"run", colors.accent};
    case LeverState::waiting:
      return {"waits: stop", colors.muted};
    case LeverState::running:
      return {seconds_text(row), colors.accent};
    case LeverState::full:
      return {"out of memory", colors.more};
    case LeverState::failed:
      return {"failed", colors.warning};
    case LeverState::idle:
      return {"does not apply", colors.muted};
    case LeverState::measured:
      break;
  }
  std::string text = bytes_text(row.verdict.device_bytes());
  const auto change = levers.change_bytes(row);
  if (!levers.fits(row)) return {text + ": does not fit", colors.more};
  if (row.verdict.exit_code == profiler::kFitsWithRetries) {
    return {text + ", with retries", colors.warning};
  }
  if (!change) return {text, colors.text};
  return {fmt::format("{}, {}", text, words_of_change(*change)), color_of_change(colors, *change)};
}

void draw_mark(Painter& paint, Box box, bool is_marked) {
  const float side = paint.px(kMarkSide);
  const Box mark{box.x, box.y + (box.h - side) / 2, side, side};
  paint.fill(mark, is_marked ? paint.colors.accent : paint.colors.plot, paint.px(2));
  paint.outline(mark, paint.colors.card_edge, paint.px(2));
}

bool is_marked(const WhatIfEdit& what_if, const LeverRow& row) {
  return !row.levers.empty() && std::ranges::all_of(row.levers, [&](const auto& lever) {
    const std::string text = profiler::lever_text(lever);
    return std::ranges::find(what_if.levers, text) != what_if.levers.end();
  });
}

void draw_lever_row(Scene& scene, const WhatIfEdit& what_if, const ProgramLevers& levers,
                    size_t index, Box box) {
  Painter& paint = scene.paint;
  const LeverRow& row = levers.rows[index];
  const bool is_idle = row.state == LeverState::idle;
  const bool is_chosen = index == std::min(what_if.lever_row, levers.rows.size() - 1);
  if (is_chosen) paint.fill(box, paint.colors.accent.with_alpha(40), paint.px(3));
  paint.area({box, Area::Kind::lever, 0, index});
  box.take_left(paint.px(3));
  const Box mark = box.take_left(paint.px(kMarkSide + 6));
  if (!is_idle && !row.levers.empty()) {
    draw_mark(paint, mark, is_marked(what_if, row));
    paint.area({mark, Area::Kind::lever_mark, 0, index});
  }
  const Box act_box = box.take_right(box.w * kActPart);
  const Act act = act_of(scene, levers, row);
  const float begin = paint.text_right(act_box, act.text, act.color, Style::small);
  if (!is_idle) paint.area({act_box, Area::Kind::lever_act, 0, index});
  // A short text at the right leaves its place to a long name.
  box.w = std::max(box.w, begin - paint.px(8) - box.x);
  paint.text(box, paint.fitted_ends(Style::small, row.name(), box.w),
             is_idle ? paint.colors.muted : paint.colors.text, Style::small);
}

/// Returns what the program takes as it was recorded.
std::string now_text(const ProgramLevers& levers) {
  if (!levers.now) return "";
  if (levers.now->is_out_of_memory) return "as recorded: out of memory";
  if (levers.now->exit_code == profiler::kNotRecorded) return "as recorded: not measured";
  const std::string of =
      levers.capacity_bytes > 0 ? " of " + bytes_text(levers.capacity_bytes) : "";
  return "as recorded " + bytes_text(levers.now->device_bytes()) + of;
}

std::string hint_text(const WhatIfEdit& what_if, const LeverRow& row) {
  const auto key = [](const char* command) { return find_command(command)->key; };
  const size_t marked = what_if.levers.size();
  const std::string what = marked == 0   ? row.name()
                           : marked == 1 ? what_if.levers.front()
                                         : fmt::format("the {} marked levers", marked);
  return fmt::format("{} runs {}, {} marks", key("whatif.lever.run"), what,
                     key("whatif.lever.mark"));
}

/// Returns the first row that is shown, and how many are: the chosen one is among them.
std::pair<size_t, size_t> rows_in(const Scene& scene, const WhatIfEdit& what_if,
                                  const ProgramLevers& levers, const Box& box) {
  const auto fit = static_cast<size_t>(std::max(1.F, box.h / scene.paint.px(kLeverRow)));
  const size_t count = std::min(fit, levers.rows.size());
  const size_t chosen = std::min(what_if.lever_row, levers.rows.size() - 1);
  return {chosen < count ? 0 : chosen - count + 1, count};
}

}  // namespace

void draw_levers(Scene& scene, const WhatIfEdit& what_if, const ProgramLevers& levers, Box box) {
  Painter& paint = scene.paint;
  box.take_top(paint.px(4));
  if (levers.obstacle) {
    const Box reason = box.take_top(paint.px(48));
    paint.text_lines(reason, "It cannot be run with levers here: " + *levers.obstacle,
                     paint.colors.warning, Style::small);
  }
  if (levers.rows.empty()) return;
  Box head = box.take_top(paint.px(18));
  const float begin = paint.text_right(head, now_text(levers), paint.colors.muted, Style::small);
  head.w = std::max(0.F, begin - head.x - paint.px(8));
  const LeverRow& chosen = levers.rows[std::min(what_if.lever_row, levers.rows.size() - 1)];
  Box details = box.take_bottom(paint.px(kLeverDetails));
  Box hint = details.take_bottom(levers.obstacle ? 0 : paint.px(kHintLine));
  const auto [first, count] = rows_in(scene, what_if, levers, box);
  std::vector<std::string> titles = {"levers"};
  if (count < levers.rows.size()) {
    titles.insert(titles.begin(), fmt::format("levers {} to {} of {}", first + 1, first + count,
                                              levers.rows.size()));
  }
  paint.text_that_fits(head, titles, paint.colors.text, Style::strong);
  for (size_t i = first; i < first + count; ++i) {
    draw_lever_row(scene, what_if, levers, i, box.take_top(paint.px(kLeverRow)));
  }
  details.take_top(paint.px(4));
  const bool is_failed = chosen.state == LeverState::failed || chosen.state == LeverState::full;
  paint.text_lines(details, levers.details(chosen),
                   is_failed ? paint.colors.warning : paint.colors.muted, Style::small);
  if (levers.obstacle) return;
  paint.text(hint, hint_text(what_if, chosen), paint.colors.muted, Style::small);
}

}  // namespace shardlens::viewer
