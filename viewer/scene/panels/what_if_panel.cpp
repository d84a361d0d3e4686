// Draws the what-if panel: a row for every control, and the plan's verdict; or, of a recorded
// program, its levers.
#include <fmt/format.h>

#include <algorithm>

#include "viewer/scene/parts.h"
#include "viewer/state/commands.h"

namespace shardlens::viewer {

namespace {

constexpr float kControlRow = 29;  // points
constexpr float kNameWidth = 82;

void draw_slider(Scene& scene, Control control, const Choices& choices, Box box) {
  Painter& paint = scene.paint;
  paint.text_right(box.take_right(paint.px(44)), choices.words[choices.chosen], paint.colors.text,
                   Style::strong);
  box.take_right(paint.px(4));
  const auto count = static_cast<float>(choices.words.size());
  const float width = box.w / count;
  const float middle = box.y + box.h / 2;
  const float knob = box.x + (static_cast<float>(choices.chosen) + 0.5F) * width;
  paint.fill({box.x + width / 2, middle - paint.px(2), box.w - width, paint.px(4)},
             paint.colors.grid, paint.px(2));
  paint.fill({box.x + width / 2, middle - paint.px(2), knob - box.x - width / 2, paint.px(4)},
             paint.colors.accent, paint.px(2));
  for (size_t i = 0; i < choices.words.size(); ++i) {
    const Box zone{box.x + static_cast<float>(i) * width, box.y, width, box.h};
    paint.area({zone, Area::Kind::control, static_cast<size_t>(control), i});
  }
  paint.fill({knob - paint.px(5), middle - paint.px(7), paint.px(10), paint.px(14)},
             paint.colors.accent, paint.px(4));
}

void draw_choices(Scene& scene, Control control, const Choices& choices, Box box) {
  Painter& paint = scene.paint;
  const float gap = paint.px(3);
  const auto count = static_cast<float>(choices.words.size());
  float words = 0;
  for (const std::string& word : choices.words) words += paint.width(Style::small, word);
  const float around = (box.w - gap * (count - 1) - words) / count;  // the same for each word
  for (size_t i = 0; i < choices.words.size(); ++i) {
    Box chip = box.take_left(paint.width(Style::small, choices.words[i]) + around);
    box.take_left(gap);
    chip = {chip.x, chip.y + paint.px(3), chip.w, chip.h - paint.px(6)};
    const bool is_chosen = i == choices.chosen;
    paint.fill(chip, is_chosen ? paint.colors.accent : paint.colors.plot, paint.px(4));
    if (!is_chosen) paint.outline(chip, paint.colors.card_edge, paint.px(4));
    paint.text_middle(chip, choices.words[i],
                      is_chosen ? paint.colors.on_accent : paint.colors.text, Style::small);
    paint.area({chip, Area::Kind::control, static_cast<size_t>(control), i});
  }
}

void draw_verdict(Scene& scene, Box box) {
  Painter& paint = scene.paint;
  const PlanNews& news = scene.in.plan_news;
  Box state = box.take_top(paint.px(18));
  if (news.refusal) {
    paint.text(state, "no plan", paint.colors.warning, Style::strong);
    paint.text_lines(box, *news.refusal, paint.colors.warning, Style::small);
    return;
  }
  if (!news.run) return (void)paint.text(state, "planning ...", paint.colors.muted, Style::small);
  const Run& run = scene.in.runs[*news.run];
  const Outlook& outlook = *run.outlook;
  const std::string title = news.is_stale           ? "planning; the last plan:"
                            : outlook.fits          ? "it fits"
                            : outlook.needs_retries ? "it fits only with retries"
                                                    : "it does not fit";
  paint.text(state, title,
             news.is_stale  ? paint.colors.muted
             : outlook.fits ? paint.colors.less
                            : paint.colors.more,
             Style::strong);
  Box bar = box.take_top(paint.px(12));
  bar = {bar.x, bar.y + paint.px(2), bar.w, paint.px(8)};
  const double used = outlook.capacity_bytes > 0 ? static_cast<double>(outlook.device_bytes) /
                                                       static_cast<double>(outlook.capacity_bytes)
                                                 : 0;
  paint.fill(bar, paint.colors.grid, paint.px(3));
  paint.fill({bar.x, bar.y, bar.w * static_cast<float>(std::min(1.0, used)), bar.h},
             outlook.fits ? paint.colors.less : paint.colors.more, paint.px(3));
  if (!outlook.step_time.empty()) {
    paint.text(box.take_top(paint.px(16)),
               fmt::format("a step of {}, predicted, cold", outlook.step_time), paint.colors.muted,
               Style::small);
  }
  paint.text_lines(box, outlook.verdict, paint.colors.text, Style::small);
}

/// Draws a row for every control that the run has.
void draw_controls(Scene& scene, const WhatIfEdit& what_if, Box& box) {
  Painter& paint = scene.paint;
  for (int i = 0; i < kControls; ++i) {
    const auto control = static_cast<Control>(i);
    const Choices choices = choices_of(what_if, control);
    if (choices.words.empty()) continue;
    if (box.h < paint.px(kControlRow)) return;
    Box row = box.take_top(paint.px(kControlRow));
    paint.text(row.take_left(paint.px(kNameWidth)), kWords<Control>[static_cast<size_t>(i)],
               paint.colors.text, Style::small);
    choices.is_number ? draw_slider(scene, control, choices, row)
                      : draw_choices(scene, control, choices, row);
  }
}

/// Draws what can be changed about a recorded program: its levers, its batch and its ranks.
void draw_program(Scene& scene, const WhatIfEdit& what_if, Box box) {
  Painter& paint = scene.paint;
  draw_controls(scene, what_if, box);
  const bool has_batch = !choices_of(what_if, Control::batch).words.empty();
  if (!has_batch) {
    paint.text(box.take_top(paint.px(18)), "its arguments set no batch size", paint.colors.muted,
               Style::small);
  }
  Box command = box.take_bottom(paint.px(66));
  const std::string key(find_command("whatif.copy")->key);
  paint.text(command.take_top(paint.px(18)), key + " copies this command:", paint.colors.muted,
             Style::small);
  paint.text_lines(command, record_line(what_if), paint.colors.text, Style::small);
  if (scene.in.levers == nullptr) return;
  draw_levers(scene, what_if, *scene.in.levers, box);
}

/// Draws why nothing can be asked about a run.
void draw_no_plan(Scene& scene, Box box) {
  Painter& paint = scene.paint;
  paint.text(box.take_top(paint.px(20)), "No plan", paint.colors.text, Style::strong);
  paint.text_lines(box,
                   "This recording does not say how it was made. `shardlens record` keeps the "
                   "command, `shardlens train` the configuration.",
                   paint.colors.muted, Style::small);
}

}  // namespace

void draw_what_if(Scene& scene) {
  const auto& what_if = scene.state().what_if;
  if (!what_if || scene.geometry.what_if.w <= 0) return;
  Painter& paint = scene.paint;
  const Box& card = scene.geometry.what_if;
  paint.card(card, paint.colors.card_edge);
  Box box = card.inset(paint.px(10));
  Box head = box.take_top(paint.px(20));
  const WhatIfKind kind = what_if_kind_of(*what_if);
  const bool is_plan = kind == WhatIfKind::plan;
  if (is_plan) {
    paint.text_right(head.take_right(paint.px(96)), "Alt+K keeps it", paint.colors.muted,
                     Style::small);
  }
  paint.text(head, "What if", paint.colors.text, Style::strong);
  paint.text(box.take_top(paint.px(16)), is_plan ? request_of(*what_if).name : what_if->of,
             paint.colors.muted, Style::small);
  if (kind == WhatIfKind::recording) return draw_program(scene, *what_if, box);
  if (kind == WhatIfKind::nothing) return draw_no_plan(scene, box);
  draw_controls(scene, *what_if, box);
  box.take_top(paint.px(4));
  draw_verdict(scene, box);
}

}  // namespace shardlens::viewer
