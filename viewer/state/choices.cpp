#include "viewer/state/choices.h"

#include <algorithm>
#include <array>

namespace shardlens::viewer {

namespace {

using State = const ViewState&;

struct Choice {
  std::string_view command;
  bool (*is_on)(const ViewState& state);
};

constexpr std::array kChoices = {
    Choice{"layout.rows", [](State s) { return s.layout == LaneLayout::rows; }},
    Choice{"layout.columns", [](State s) { return s.layout == LaneLayout::columns; }},
    Choice{"layout.overlay", [](State s) { return s.layout == LaneLayout::overlay; }},
    Choice{"layout.difference", [](State s) { return s.layout == LaneLayout::difference; }},
    Choice{"hatches", [](State s) { return s.panels.hatches; }},
    Choice{"clock.predicted", [](State s) { return s.clock == Clock::predicted; }},
    Choice{"align.time", [](State s) { return s.alignment == Alignment::time; }},
    Choice{"align.step", [](State s) { return s.alignment == Alignment::step; }},
    Choice{"align.phase", [](State s) { return s.alignment == Alignment::phase; }},
    Choice{"align.event", [](State s) { return s.alignment == Alignment::event; }},
    Choice{"align.normalised", [](State s) { return s.alignment == Alignment::normalised; }},
    Choice{"tree", [](State s) { return s.tree.is_open; }},
    Choice{"tree.compare", [](State s) { return s.tree.compares; }},
    Choice{"panel.alive", [](State s) { return s.panels.alive; }},
    Choice{"panel.table", [](State s) { return s.panels.table; }},
    Choice{"panel.minimap", [](State s) { return s.panels.minimap; }},
    Choice{"overview", [](State s) { return s.overview.is_open; }},
    Choice{"panel.ribbon", [](State s) { return s.panels.ribbon; }},
    Choice{"panel.steps", [](State s) { return s.panels.steps; }},
    Choice{"panel.reserved", [](State s) { return s.panels.reserved; }},
    Choice{"panel.plans", [](State s) { return s.panels.plans; }},
    Choice{"panel.events", [](State s) { return s.panels.events; }},
    Choice{"panel.why", [](State s) { return s.panels.why; }},
    Choice{"panel.treemap", [](State s) { return s.panels.treemap; }},
    Choice{"whatif", [](State s) { return s.what_if.has_value(); }},
};

}  // namespace

std::optional<bool> is_on(std::string_view command, const ViewState& state) {
  const auto at = std::ranges::find(kChoices, command, &Choice::command);
  if (at == kChoices.end()) return std::nullopt;
  return at->is_on(state);
}

}  // namespace shardlens::viewer
