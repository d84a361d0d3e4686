#include "viewer/state/choices.h"

#include <algorithm>
#include <array>

namespace shardlens::viewer {

namespace {

using Seen = const ViewState&;

struct Choice {
  std::string_view command;
  bool (*is_on)(const ViewState& state);
};

constexpr std::array kChoices = {
    Choice{"layout.rows", [](Seen s) { return s.layout == LaneLayout::rows; }},
    Choice{"layout.columns", [](Seen s) { return s.layout == LaneLayout::columns; }},
    Choice{"layout.overlay", [](Seen s) { return s.layout == LaneLayout::overlay; }},
    Choice{"layout.difference", [](Seen s) { return s.layout == LaneLayout::difference; }},
    Choice{"hatches", [](Seen s) { return s.panels.hatches; }},
    Choice{"align.time", [](Seen s) { return s.alignment == Alignment::time; }},
    Choice{"align.step", [](Seen s) { return s.alignment == Alignment::step; }},
    Choice{"align.phase", [](Seen s) { return s.alignment == Alignment::phase; }},
    Choice{"align.event", [](Seen s) { return s.alignment == Alignment::event; }},
    Choice{"align.normalised", [](Seen s) { return s.alignment == Alignment::normalised; }},
    Choice{"tree", [](Seen s) { return s.tree.is_open; }},
    Choice{"tree.compare", [](Seen s) { return s.tree.compares; }},
    Choice{"panel.alive", [](Seen s) { return s.panels.alive; }},
    Choice{"panel.table", [](Seen s) { return s.panels.table; }},
    Choice{"panel.minimap", [](Seen s) { return s.panels.minimap; }},
    Choice{"panel.ribbon", [](Seen s) { return s.panels.ribbon; }},
    Choice{"panel.steps", [](Seen s) { return s.panels.steps; }},
    Choice{"panel.reserved", [](Seen s) { return s.panels.reserved; }},
    Choice{"panel.plans", [](Seen s) { return s.panels.plans; }},
    Choice{"panel.events", [](Seen s) { return s.panels.events; }},
    Choice{"panel.treemap", [](Seen s) { return s.panels.treemap; }},
    Choice{"whatif", [](Seen s) { return s.what_if.has_value(); }},
};

}  // namespace

std::optional<bool> is_on(std::string_view command, const ViewState& state) {
  const auto at = std::ranges::find(kChoices, command, &Choice::command);
  if (at == kChoices.end()) return std::nullopt;
  return at->is_on(state);
}

}  // namespace shardlens::viewer
