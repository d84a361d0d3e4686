#include "viewer/state/zoom.h"

#include <algorithm>

namespace shardlens::viewer {

namespace {

constexpr double kLeastPart = 1e-9;  // of the extent

}  // namespace

void show_moment(ViewState& state, double x) {
  state.cursor = x;
  state.at = TableMoment::cursor;
  if (!state.view || state.view->contains(x)) return;
  const double half = state.view->length() / 2;
  state.view = Range{x - half, x + half};
}

void zoom_at(ViewState& state, const Facts& facts, double x, double factor) {
  const Range now = view_of(state, facts.extent);
  if (!now.contains(x)) x = (now.begin + now.end) / 2;
  const double least = facts.extent.length() * kLeastPart;
  const double length = std::max(least, now.length() * factor);
  if (length >= facts.extent.length()) {
    state.view.reset();
    return;
  }
  const double part = now.length() > 0 ? (x - now.begin) / now.length() : 0.5;
  const double begin = std::clamp(x - part * length, facts.extent.begin, facts.extent.end - length);
  state.view = Range{begin, begin + length};
}

void zoom_heights(ViewState& state, double part, double factor) {
  constexpr double kLeastHeights = 1e-4;
  const Range now = state.heights;
  const double length = std::clamp(now.length() * factor, kLeastHeights, 1.0);
  const double begin = now.begin + part * (now.length() - length);
  state.heights.begin = std::clamp(begin, 0.0, 1 - length);
  state.heights.end = length == 1 ? 1 : state.heights.begin + length;
}

void pan_heights(ViewState& state, double parts) {
  const double length = state.heights.length();
  if (length == 1) return;
  const double begin = std::clamp(state.heights.begin + parts * length, 0.0, 1 - length);
  state.heights = {begin, begin + length};
}

void pan_by(ViewState& state, const Facts& facts, double x) {
  const Range now = view_of(state, facts.extent);
  if (!state.view) return;
  const double length = std::min(now.length(), facts.extent.length());
  const double begin = std::clamp(now.begin + x, facts.extent.begin, facts.extent.end - length);
  state.view = Range{begin, begin + length};
}

}  // namespace shardlens::viewer
