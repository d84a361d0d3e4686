#include "viewer/state/notes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "viewer/state/zoom.h"

namespace shardlens::viewer {

void show_note(ViewState& state, size_t note) {
  if (note >= state.notes.size()) return;
  const Note& wanted = state.notes[note];
  if (state.alignment != wanted.alignment) state.view.reset();
  state.alignment = wanted.alignment;
  show_moment(state, wanted.x);
}

void go_to_note(ViewState& state, int64_t forward) {
  if (state.notes.empty()) return;
  const auto place = [&](size_t i) {
    return std::tuple(state.notes[i].alignment, state.notes[i].x, i);
  };
  std::vector<size_t> order(state.notes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, place);
  const auto here = std::pair(state.alignment, state.cursor.value_or(-HUGE_VAL));
  const auto is_before = [&](size_t i) {
    return std::pair(state.notes[i].alignment, state.notes[i].x) < here;
  };
  const auto is_here = [&](size_t i) {
    return std::pair(state.notes[i].alignment, state.notes[i].x) == here;
  };
  const auto count = static_cast<int64_t>(order.size());
  const int64_t before = std::ranges::count_if(order, is_before);
  const int64_t at = std::ranges::count_if(order, is_here);
  const int64_t next = forward > 0 ? before + at : before - 1;
  show_note(state, order[static_cast<size_t>((next + count) % count)]);
}

void remove_nearest_note(ViewState& state, const Facts& facts) {
  const double x = state.cursor.value_or(view_of(state, facts.extent).begin);
  const auto distance = [&](const Note& note) {
    return note.alignment == state.alignment ? std::abs(note.x - x) : HUGE_VAL;
  };
  const auto nearest = std::ranges::min_element(state.notes, {}, distance);
  if (nearest == state.notes.end() || nearest->alignment != state.alignment) return;
  state.notes.erase(nearest);
}

}  // namespace shardlens::viewer
