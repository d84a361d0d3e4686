// Draws the panel of the selection: the facts of a block, and its whole stack.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "viewer/scene/parts.h"
#include "viewer/scene/pick.h"

namespace shardlens::viewer {

namespace {

constexpr float kFactRow = 16;   // points
constexpr float kFactName = 62;  //
constexpr float kCallRow = 16;

void draw_facts(Painter& paint, const BlockFacts& facts, Box& box) {
  for (const BlockFact& fact : facts.facts) {
    if (box.h < paint.px(kFactRow)) return;
    Box row = box.take_top(paint.px(kFactRow));
    paint.text(row.take_left(paint.px(kFactName)), fact.name, paint.colors.muted, Style::small);
    const bool ends_matter = std::string_view(fact.name) == "module";  // the innermost is last
    paint.text(row, ends_matter ? paint.fitted_end(Style::small, fact.text, row.w) : fact.text,
               paint.colors.text, Style::small);
  }
}

/// Draws a call with its function at the left and its line at the right; the line is never cut.
void draw_call(Scene& scene, const profiler::TreePlace& call, size_t index, bool is_marked,
               Box row) {
  Painter& paint = scene.paint;
  if (is_marked) paint.fill(row, paint.colors.accent.with_alpha(60), paint.px(2));
  if (!call.file.empty()) paint.area({row, Area::Kind::call, 0, index});
  const std::string place =
      call.file.empty()
          ? ""
          : fmt::format("{}:{}", call.file.substr(call.file.rfind('/') + 1), call.line);
  const float width = std::min(row.w * 0.6F, paint.width(Style::small, place) + paint.px(4));
  paint.text_right(row.take_right(width), paint.fitted_place(Style::small, place, width),
                   paint.colors.muted, Style::small);
  row.take_left(paint.px(3));
  row.take_right(paint.px(4));
  paint.text(row, call.name, paint.colors.text, Style::small);
}

/// Draws the calls that fit, from the innermost; for longer stacks, those around the marked one.
void draw_stack_of_block(Scene& scene, const BlockFacts& facts, Box box) {
  Painter& paint = scene.paint;
  if (facts.stack.empty()) {
    if (box.h < paint.px(kCallRow)) return;
    paint.text(box.take_top(paint.px(kCallRow)), "no stack was recorded for it", paint.colors.muted,
               Style::small);
    return;
  }
  const size_t marked = scene.state().pick->call.value_or(main_call(facts));
  const auto room = static_cast<size_t>(std::max(0.F, box.h / paint.px(kCallRow)));
  if (room == 0) return;
  const size_t count = facts.stack.size();
  const size_t shown = room >= count ? count : std::max<size_t>(1, room - 1);
  const size_t last_first = count - shown;
  const size_t first =
      marked < count ? std::min(marked - std::min(marked, shown / 2), last_first) : 0;
  for (size_t i = first; i < first + shown; ++i) {
    draw_call(scene, facts.stack[i], i, i == marked, box.take_top(paint.px(kCallRow)));
  }
  if (shown < count && box.h >= paint.px(kCallRow) * 0.9F) {
    paint.text(box,
               fmt::format("calls {} to {} of {}: turn the wheel", first + 1, first + shown, count),
               paint.colors.muted, Style::small);
  }
}

}  // namespace

void draw_details(Scene& scene) {
  if (scene.geometry.details.w <= 0) return;
  Painter& paint = scene.paint;
  const Box& card = scene.geometry.details;
  paint.card(card, paint.colors.accent);
  Box box = card.inset(paint.px(10));
  const Pick& pick = *scene.state().pick;
  const auto picked = picked_of(scene.in, scene.cache, scene.shown);
  Box head = box.take_top(paint.px(20));
  paint.text_right(head.take_right(paint.px(142)), "Ctrl+C copies, E opens", paint.colors.muted,
                   Style::small);
  paint.text(head, "Selected", paint.colors.text, Style::strong);
  if (!picked) {
    paint.text(box.take_top(paint.px(kFactRow)), "it is not in these runs", paint.colors.muted,
               Style::small);
    return;
  }
  Box title = box.take_top(paint.px(18));
  paint.swatch(title, color_of(pick.category));
  const BlockFacts* const facts = facts_of_pick(scene.in, scene.cache);
  const bool is_block = facts != nullptr;
  const std::string name = pick.scope == PickScope::place && !pick.path.empty() ? pick.path.back()
                           : is_block                                           ? facts->name
                                      : words_of(pick.category, have_shards(scene.shown));
  paint.text(title, paint.fitted_place(Style::strong, name, title.w), paint.colors.text,
             Style::strong);
  paint.text(box.take_top(paint.px(kFactRow)),
             fmt::format("{}, rank {}", picked->run->name, picked->rank->lane.rank()),
             paint.colors.muted, Style::small);
  paint.text(box.take_top(paint.px(kFactRow)), scope_text(pick, *picked), paint.colors.text,
             Style::small);
  if (!is_block) return;
  if (const std::string use = use_text(scene.in, scene.shown); !use.empty()) {
    paint.text(box.take_top(paint.px(kFactRow)), use, paint.colors.text, Style::small);
  }
  box.take_top(paint.px(3));
  draw_facts(paint, *facts, box);
  box.take_top(paint.px(5));
  draw_stack_of_block(scene, *facts, box);
}

}  // namespace shardlens::viewer
