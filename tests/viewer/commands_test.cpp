// The table of commands is complete and without clashes, and each does what its title says.

#include "viewer/state/commands.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "viewer/state/choices.h"

namespace shardlens::viewer {
namespace {

const std::string kConfig =
    R"({"model":"vit-tutorial","batch":48,"workers":2,"world":0,"solo_rank":0,"offload":"none"})";

Facts some_facts() {
  return {
      .extent = {-1, 4},
      .peak_x = {0.5, 1.5, 2.5},
      .peaks_x = {{-0.5, 0.5, 1.25}, {0.1, 1.5}, {2.5}},
      .failures_x = {{0.5, 3}, {}, {}},
      .steps_x = {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}},
      .hits_x = {0.2, 0.7, 3.1},
      .focus_request = {"keep", kConfig, "h200"},
      .levers = {"", "recompute=full", "optimizer=fused"},
      .pickable = {{7, Category::activation}, {3, Category::gradient}, {5, Category::activation}},
      .focus_rank = 2,
      .tree_rows = 40,
      .tree_above = {"main"},
      .next_change_x = 0.75,
      .previous_change_x = 0.25,
      .alive_rows = 25,
      .place_rows = 20,
      .table_rows = 9,
      .keys = {"a", "b", "c"},
      .order = {2, 0, 1},
      .bases = {0, 0, 0},
      .lane_lines = 2,
      .tabs = {FrontPanel::lanes, FrontPanel::table},
      .most_ranks = 4,
      .column_x = 0.005};
}

ViewState state_after(std::string_view id, ViewState state = {}) {
  const Command* const command = find_command(id);
  REQUIRE(command != nullptr);
  REQUIRE(command->apply != nullptr);
  command->apply(state, some_facts());
  return state;
}

ViewState changed_state(const std::function<void(ViewState&)>& change) {
  ViewState state;
  change(state);
  return state;
}

using Change = std::function<void(ViewState&)>;

/// The open panel, with a configuration in which some keys have given values.
WhatIfEdit what_if(const nlohmann::ordered_json& changes = nlohmann::ordered_json::object()) {
  WhatIfEdit now{.of = "keep", .base = kConfig, .config = kConfig, .gpu = "h200"};
  if (changes.empty()) return now;
  auto config = nlohmann::ordered_json::parse(kConfig);
  for (const auto& [key, value] : changes.items()) config[key] = value;
  now.config = config.dump();
  return now;
}

/// A control that turns one configuration into another.
struct Turn {
  std::string_view id;
  nlohmann::ordered_json from;
  nlohmann::ordered_json to;
};

const std::vector<Turn> kTurns = {
    {"whatif.batch.more", {}, {{"batch", 64}}},
    {"whatif.batch.less", {{"batch", 64}}, {{"batch", 32}}},
    {"whatif.world.more", {}, {{"workers", 4}, {"world", 4}, {"solo_rank", -1}}},
    {"whatif.world.less", {{"world", 8}}, {{"workers", 4}, {"world", 4}, {"solo_rank", -1}}},
    {"whatif.accumulate.more", {{"accumulate", 1}}, {{"accumulate", 2}}},
    {"whatif.accumulate.less", {{"accumulate", 8}}, {{"accumulate", 4}}},
    {"whatif.strategy.next", {{"strategy", "fsdp"}}, {{"strategy", "single"}}},
    {"whatif.strategy.previous", {{"strategy", "fsdp"}}, {{"strategy", "ddp"}}},
    {"whatif.reshard.next",
     {{"reshard_after_forward", "auto"}},
     {{"reshard_after_forward", "true"}}},
    {"whatif.reshard.previous",
     {{"reshard_after_forward", "auto"}},
     {{"reshard_after_forward", "false"}}},
    {"whatif.dtype.next", {{"param_dtype", "fp32"}}, {{"param_dtype", "bf16"}}},
    {"whatif.dtype.previous", {{"param_dtype", "fp32"}}, {{"param_dtype", "fp16"}}},
    {"whatif.reduce.next", {{"reduce_dtype", "fp16"}}, {{"reduce_dtype", "fp32"}}},
    {"whatif.reduce.previous", {{"reduce_dtype", "bf16"}}, {{"reduce_dtype", "fp32"}}},
    {"whatif.offload.next", {}, {{"offload", "params"}}},
    {"whatif.offload.previous", {}, {{"offload", "all"}}},
    {"whatif.recompute.next", {{"recompute", "every:4"}}, {{"recompute", "every:2"}}},
    {"whatif.recompute.previous", {{"recompute", "every:4"}}, {{"recompute", "none"}}},
    {"whatif.wrap.next", {{"wrap", "block"}}, {{"wrap", "root"}}},
    {"whatif.wrap.previous", {{"wrap", "root"}}, {{"wrap", "block"}}},
};

/// A block of the focused strategy, selected.
Pick picked(uint32_t block, Category category) {
  return {.run = 0, .rank = 2, .block = block, .category = category};
}

/// The effect of each command on a state, if it is a change of one field.
struct Effect {
  Change given = [](ViewState&) {};
  Change wanted;
};

/// A command that scrolls a list from one first row to another.
template <auto kFirst, size_t kFrom, size_t kTo>
Effect scrolls() {
  return {.given = [](ViewState& state) { state.*kFirst = kFrom; },
          .wanted = [](ViewState& state) { state.*kFirst = kTo; }};
}

const std::map<std::string_view, Effect> kEffects = {
    {"layout.rows", {.wanted = [](auto& s) { s.layout = LaneLayout::rows; }}},
    {"layout.columns",
     {.given = [](auto& s) { s.layout = LaneLayout::rows; },
      .wanted = [](auto& s) { s.layout = LaneLayout::columns; }}},
    {"layout.overlay", {.wanted = [](auto& s) { s.layout = LaneLayout::overlay; }}},
    {"layout.difference", {.wanted = [](auto& s) { s.layout = LaneLayout::difference; }}},
    {"height.next", {.wanted = [](auto& s) { s.height = Height::own; }}},
    {"height.fit",
     {.given =
          [](auto& s) {
            s.heights = {0.5, 0.75};
          },
      .wanted =
          [](auto& s) {
            s.height = Height::view, s.heights = {0, 1};
          }}},
    {"height.in",
     {.given =
          [](auto& s) {
            s.heights = {0.5, 1};
          },
      .wanted =
          [](auto& s) {
            s.heights = {1 - 0.5 * 0.7, 1};
          }}},
    {"height.out",
     {.given =
          [](auto& s) {
            s.heights = {0.75, 1};
          },
      .wanted =
          [](auto& s) {
            s.heights = {1 - 0.25 / 0.7, 1};
          }}},
    {"height.up",
     {.given =
          [](auto& s) {
            s.heights = {0.25, 0.75};
          },
      .wanted =
          [](auto& s) {
            s.heights = {0.25 + 0.2 * 0.5, 0.25 + 0.2 * 0.5 + 0.5};
          }}},
    {"height.down",
     {.given =
          [](auto& s) {
            s.heights = {0.05, 0.55};
          },
      .wanted =
          [](auto& s) {
            s.heights = {0, 0.5};
          }}},
    {"height.all",
     {.given =
          [](auto& s) {
            s.heights = {0.5, 0.75};
          },
      .wanted =
          [](auto& s) {
            s.heights = {0, 1};
          }}},
    {"detail.next", {.wanted = [](auto& s) { s.detail = Detail::blocks; }}},
    {"ranks.next", {.wanted = [](auto& s) { s.ranks = Ranks::each; }}},
    {"detail.previous", {.wanted = [](auto& s) { s.detail = Detail::addresses; }}},
    {"memory.next", {.wanted = [](auto& s) { s.memory = ShownMemory::host; }}},
    {"memory.previous", {.wanted = [](auto& s) { s.memory = ShownMemory::segments; }}},
    {"clock.predicted",
     {.given =
          [](auto& s) {
            s.alignment = Alignment::time, s.view = {0, 1}, s.cursor = 1;
          },
      .wanted = [](auto& s) { s.view.reset(), s.cursor.reset(), s.clock = Clock::recorded; }}},
    {"rank.next", {.wanted = [](auto& s) { s.rank = 0; }}},
    {"rank.previous", {.wanted = [](auto& s) { s.rank = 2; }}},
    {"rank.peak",
     {.given = [](auto& s) { s.rank = 1; }, .wanted = [](auto& s) { s.rank.reset(); }}},
    {"category.isolate", {.wanted = [](auto& s) { s.hidden_categories = 0x1FFE; }}},
    {"category.all",
     {.given = [](auto& s) { s.hidden_categories = 5; },
      .wanted = [](auto& s) { s.hidden_categories = 0; }}},
    {"whatif", {.wanted = [](auto& s) { s.what_if = what_if(); }}},
    {"whatif.keep",
     {.given =
          [](auto& s) {
            s.what_if = what_if({{"batch", 96}});
          },
      .wanted = [](auto& s) { s.plans.push_back(request_of(*s.what_if)); }}},
    {"whatif.drop",
     {.given =
          [](auto& s) {
            s.plans = {{"a", "{}", ""}, {"b", "{}", ""}};
          },
      .wanted = [](auto& s) { s.plans.pop_back(); }}},
    {"whatif.reset",
     {.given =
          [](auto& s) {
            s.what_if = what_if({{"batch", 96}});
          },
      .wanted = [](auto& s) { s.what_if = what_if(); }}},
    {"whatif.lever.next",
     {.given = [](auto& s) { s.what_if = what_if(); },
      .wanted = [](auto& s) { s.what_if->lever_row = 1; }}},
    {"whatif.lever.previous",
     {.given = [](auto& s) { s.what_if = what_if(); },
      .wanted = [](auto& s) { s.what_if->lever_row = 2; }}},
    {"whatif.lever.mark",
     {.given =
          [](auto& s) {
            s.what_if = what_if();
            s.what_if->lever_row = 1;
          },
      .wanted = [](auto& s) { s.what_if->levers = {"recompute=full"}; }}},
    {"panel.plans", {.wanted = [](auto& s) { s.panels.plans = false; }}},
    {"panel.why", {.wanted = [](auto& s) { s.panels.why = true; }}},
    {"panel.treemap", {.wanted = [](auto& s) { s.panels.treemap = true; }}},
    {"panel.front", {.wanted = [](auto& s) { s.front = FrontPanel::table; }}},
    {"theme.next", {.wanted = [](auto& s) { s.theme = Theme::dark; }}},
    {"hatches", {.wanted = [](auto& s) { s.panels.hatches = true; }}},
    {"scale.up", {.wanted = [](auto& s) { s.zoom = 1.25; }}},
    {"scale.down", {.wanted = [](auto& s) { s.zoom = 0.8; }}},
    {"scale.reset", {.given = [](auto& s) { s.zoom = 2; }, .wanted = [](auto& s) { s.zoom = 1; }}},
    {"align.next", {.wanted = [](auto& s) { s.alignment = Alignment::phase; }}},
    {"align.time", {.wanted = [](auto& s) { s.alignment = Alignment::time; }}},
    {"align.step",
     {.given =
          [](auto& s) {
            s.alignment = Alignment::time, s.view = Range{0, 1};
          },
      .wanted = [](auto& s) { s.alignment = Alignment::step; }}},
    {"align.phase", {.wanted = [](auto& s) { s.alignment = Alignment::phase; }}},
    {"align.event", {.wanted = [](auto& s) { s.alignment = Alignment::event; }}},
    {"align.normalised", {.wanted = [](auto& s) { s.alignment = Alignment::normalised; }}},
    {"baseline",
     {.given = [](auto& s) { s.focus = 2, s.earlier_baselines = {2}; },
      .wanted = [](auto& s) { s.baseline = 2, s.earlier_baselines = {0}; }}},
    {"focus.next", {.wanted = [](auto& s) { s.focus = 1, s.lanes.first = 1; }}},
    {"focus.previous",
     {.given = [](auto& s) { s.lanes.first = 1; },
      .wanted = [](auto& s) { s.focus = 2, s.lanes.first = 0; }}},
    {"lanes.sort",
     {.given = [](auto& s) { s.lanes.first = 1; },
      .wanted = [](auto& s) { s.lanes.sort = LaneSort::peak, s.lanes.first = 0; }}},
    {"lanes.down", {.wanted = [](auto& s) { s.lanes.first = 1; }}},
    {"lanes.up",
     {.given = [](auto& s) { s.lanes.first = 1; }, .wanted = [](auto& s) { s.lanes.first = 0; }}},
    {"lane.fold", {.wanted = [](auto& s) { s.lanes.folded = {"a"}; }}},
    {"lane.fold.others",
     {.wanted =
          [](auto& s) {
            s.lanes.folded = {"b", "c"};
          }}},
    {"lane.unfold",
     {.given = [](auto& s) { s.lanes.folded = {"b"}; },
      .wanted = [](auto& s) { s.lanes.folded.clear(); }}},
    {"lane.close",
     {.given =
          [](auto& s) {
            s.focus = 1, s.baseline = 2, s.earlier_baselines = {1, 2}, s.lanes.folded = {"b"};
            s.pick = Pick{.run = 2};
          },
      .wanted =
          [](auto& s) {
            s.focus = 1, s.baseline = 1, s.earlier_baselines = {1}, s.lanes.folded.clear();
            s.pick = Pick{.run = 1}, s.lanes.closed = {"b"};
          }}},
    {"zoom.in",
     {.wanted =
          [](auto& s) {
            s.view = Range{-0.25, 3.25};
          }}},
    {"zoom.out",
     {.given =
          [](auto& s) {
            s.view = Range{0, 4};
          },
      .wanted = [](auto& s) { s.view.reset(); }}},
    {"zoom.all",
     {.given =
          [](auto& s) {
            s.view = Range{0, 1};
          },
      .wanted = [](auto& s) { s.view.reset(); }}},
    {"zoom.selection",
     {.given =
          [](auto& s) {
            s.selection = Range{1, 2};
          },
      .wanted =
          [](auto& s) {
            s.view = Range{1, 2}, s.selection.reset();
          }}},
    {"pan.left",
     {.given =
          [](auto& s) {
            s.view = Range{1, 2};
          },
      .wanted =
          [](auto& s) {
            s.view = Range{0.8, 1.8};
          }}},
    {"pan.right",
     {.given =
          [](auto& s) {
            s.view = Range{1, 2};
          },
      .wanted =
          [](auto& s) {
            s.view = Range{1.2, 2.2};
          }}},
    {"cursor.left",
     {.given = [](auto& s) { s.cursor = 1; },
      .wanted = [](auto& s) { s.cursor = 0.995, s.at = TableMoment::cursor; }}},
    {"cursor.right",
     {.given = [](auto& s) { s.cursor = 1; },
      .wanted = [](auto& s) { s.cursor = 1.005, s.at = TableMoment::cursor; }}},
    {"cursor.clear",
     {.given =
          [](auto& s) {
            s.cursor = 1, s.selection = Range{1, 2}, s.at = TableMoment::cursor, s.pick = Pick{};
          },
      .wanted =
          [](auto& s) {
            s.cursor.reset(), s.selection.reset(), s.at = TableMoment::peak, s.pick.reset();
          }}},
    {"peak", {.wanted = [](auto& s) { s.cursor = 0.5, s.at = TableMoment::cursor; }}},
    {"peak.next",
     {.given = [](auto& s) { s.cursor = 0.5; },
      .wanted = [](auto& s) { s.cursor = 1.25, s.at = TableMoment::cursor; }}},
    {"step.next",
     {.wanted =
          [](auto& s) {
            s.view = Range{0, 1};
          }}},
    {"step.previous",
     {.given =
          [](auto& s) {
            s.view = Range{2, 3};
          },
      .wanted =
          [](auto& s) {
            s.view = Range{1, 2};
          }}},
    {"search.next", {.wanted = [](auto& s) { s.cursor = 0.2, s.at = TableMoment::cursor; }}},
    {"search.previous", {.wanted = [](auto& s) { s.cursor = 3.1, s.at = TableMoment::cursor; }}},
    {"search.clear",
     {.given = [](auto& s) { s.search = "mlp"; }, .wanted = [](auto& s) { s.search.clear(); }}},
    {"note.remove",
     {.given =
          [](auto& s) {
            const Alignment step = Alignment::step;
            s.notes = {{0, "far", step}, {2, "near", step}, {1.9, "else", Alignment::time}};
            s.cursor = 1.9;
          },
      .wanted = [](auto& s) { s.notes.erase(s.notes.begin() + 1); }}},
    {"note.next",
     {.given =
          [](auto& s) {
            s.notes = {{2, "b", Alignment::step}, {1, "a", Alignment::step}}, s.cursor = 1;
          },
      .wanted = [](auto& s) { s.cursor = 2, s.at = TableMoment::cursor; }}},
    {"note.previous",
     {.given =
          [](auto& s) {
            s.notes = {{7, "b", Alignment::time}, {1, "a", Alignment::step}}, s.cursor = 1;
            s.view = Range{0, 2};
          },
      .wanted =
          [](auto& s) {
            s.alignment = Alignment::time, s.view.reset(), s.cursor = 7, s.at = TableMoment::cursor;
          }}},
    {"panel.alive", {.wanted = [](auto& s) { s.panels.alive = false; }}},
    {"panel.table", {.wanted = [](auto& s) { s.panels.table = false; }}},
    {"panel.minimap", {.wanted = [](auto& s) { s.panels.minimap = false; }}},
    {"overview", {.wanted = [](auto& s) { s.overview.is_open = true; }}},
    {"overview.sort",
     {.wanted = [](auto& s) { s.overview.is_open = true, s.overview.sort = OverviewSort::name; }}},
    {"panel.ribbon", {.wanted = [](auto& s) { s.panels.ribbon = false; }}},
    {"panel.steps", {.wanted = [](auto& s) { s.panels.steps = false; }}},
    {"panel.reserved", {.wanted = [](auto& s) { s.panels.reserved = false; }}},
    {"failure.next",
     {.given = [](auto& s) { s.cursor = 1; },
      .wanted = [](auto& s) { s.cursor = 3, s.at = TableMoment::cursor; }}},
    {"panel.events", {.wanted = [](auto& s) { s.panels.events = true; }}},
    {"event.next", {.wanted = [](auto& s) { s.cursor = 0.75, s.at = TableMoment::cursor; }}},
    {"event.previous", {.wanted = [](auto& s) { s.cursor = 0.25, s.at = TableMoment::cursor; }}},
    {"at.next", {.wanted = [](auto& s) { s.at = TableMoment::cursor; }}},
    {"alive.down", scrolls<&ViewState::alive_first, 20, 24>()},
    {"alive.up", scrolls<&ViewState::alive_first, 12, 2>()},
    {"places.down", scrolls<&ViewState::places_first, 5, 15>()},
    {"places.up", scrolls<&ViewState::places_first, 5, 0>()},
    {"table.down", scrolls<&ViewState::table_first, 2, 3>()},
    {"table.up", scrolls<&ViewState::table_first, 2, 1>()},
    {"pick.next",
     {.given = [](auto& s) { s.pick = picked(7, Category::activation); },
      .wanted = [](auto& s) { s.pick = picked(3, Category::gradient); }}},
    {"pick.previous", {.wanted = [](auto& s) { s.pick = picked(5, Category::activation); }}},
    {"pick.wider",
     {.given = [](auto& s) { s.pick = picked(7, Category::activation); },
      .wanted =
          [](auto& s) {
            s.pick = picked(7, Category::activation), s.pick->scope = PickScope::name;
          }}},
    {"tree", {.wanted = [](auto& s) { s.tree.is_open = true; }}},
    {"tree.form", {.wanted = [](auto& s) { s.tree.is_open = true, s.tree.form = TreeForm::list; }}},
    {"tree.of",
     {.given = [](auto& s) { s.tree.zoom = {"main"}; },
      .wanted =
          [](auto& s) {
            s.tree.is_open = true, s.tree.of = TreeContent::churn, s.tree.zoom.clear();
          }}},
    {"tree.by",
     {.wanted =
          [](auto& s) { s.tree.is_open = true, s.tree.by = profiler::TreeGrouping::module; }}},
    {"tree.from",
     {.wanted = [](auto& s) { s.tree.is_open = true, s.tree.from = profiler::TreeStart::bottom; }}},
    {"tree.sort",
     {.given = [](auto& s) { s.tree.first = 3; },
      .wanted = [](auto& s) { s.tree.sort = PlaceSort::total, s.tree.first = 0; }}},
    {"tree.compare", {.wanted = [](auto& s) { s.tree.compares = false; }}},
    {"tree.fewer", {.wanted = [](auto& s) { s.tree.threshold = 2; }}},
    {"tree.more", {.wanted = [](auto& s) { s.tree.threshold = 0; }}},
    {"tree.zoom",
     {.given =
          [](auto& s) {
            s.pick = Pick{.scope = PickScope::place, .path = {"main", "step"}}, s.tree.first = 2;
          },
      .wanted =
          [](auto& s) {
            s.tree.zoom = {"main", "step"}, s.tree.first = 0;
          }}},
    {"tree.out",
     {.given =
          [](auto& s) {
            s.tree.zoom = {"main", "step"};
          },
      .wanted = [](auto& s) { s.tree.zoom = {"main"}; }}},
    {"tree.down",
     {.given = [](auto& s) { s.tree.first = 35; }, .wanted = [](auto& s) { s.tree.first = 39; }}},
    {"tree.up",
     {.given = [](auto& s) { s.tree.first = 12; }, .wanted = [](auto& s) { s.tree.first = 2; }}},
    {"group.next", {.wanted = [](auto& s) { s.grouping = Grouping::label; }}},
};

bool is_turn(std::string_view id) {
  return std::ranges::find(kTurns, id, &Turn::id) != kTurns.end();
}

void check_near(const std::optional<Range>& found, const std::optional<Range>& wanted) {
  REQUIRE(found.has_value() == wanted.has_value());
  if (!found) return;
  CHECK(found->begin == Catch::Approx(wanted->begin));
  CHECK(found->end == Catch::Approx(wanted->end));
}

}  // namespace

TEST_CASE("every command has an id, a key and a title of its own") {
  std::set<std::string_view> ids;
  std::set<std::string_view> keys;
  std::set<std::string_view> titles;
  for (const Command& command : commands()) {
    CAPTURE(command.id);
    CHECK(ids.insert(command.id).second);
    CHECK_FALSE(command.key.empty());
    CHECK(keys.insert(command.key).second);
    CHECK(titles.insert(command.title).second);
    CHECK_FALSE(command.menu.empty());
    CHECK((command.apply != nullptr) != (command.request != Request::none));
    CHECK(find_command(command.id) == &command);
    CHECK(command_of_key(command.key) == &command);
  }
  CHECK(find_command("no.such") == nullptr);
}

TEST_CASE("every command that changes the state does what its title says") {
  for (const Command& command : commands()) {
    if (command.apply == nullptr) continue;
    CAPTURE(command.id);
    if (is_turn(command.id)) continue;
    REQUIRE(kEffects.contains(command.id));
    const Effect& effect = kEffects.at(command.id);
    const ViewState given = changed_state(effect.given);
    ViewState wanted = given;
    effect.wanted(wanted);
    ViewState found = state_after(command.id, given);
    // Ranges are rounded; everything else is exact.
    check_near(found.view, wanted.view);
    found.view = wanted.view;
    REQUIRE(found.cursor.has_value() == wanted.cursor.has_value());
    if (found.cursor) CHECK(*found.cursor == Catch::Approx(*wanted.cursor));
    found.cursor = wanted.cursor;
    check_near(found.heights, wanted.heights);
    found.heights = wanted.heights;
    CHECK(found == wanted);
    CHECK(found != given);
  }
}

TEST_CASE("every control changes one choice of the configuration, and nothing else") {
  for (const Turn& turn : kTurns) {
    CAPTURE(turn.id);
    ViewState given;
    given.what_if = what_if(turn.from);
    const ViewState found = state_after(turn.id, given);
    auto wanted = nlohmann::json::parse(given.what_if->config);
    for (const auto& [key, value] : turn.to.items()) wanted[key] = value;
    CHECK(nlohmann::json::parse(found.what_if->config) == wanted);
    CHECK(found.what_if->base == given.what_if->base);
    CHECK(state_after(turn.id) == ViewState());  // the panel is closed
  }
  // There is a control for each choice, in both directions.
  CHECK(kTurns.size() == 2 * kControls);
}

TEST_CASE("sliders stop at their ends, and accept values between their choices") {
  ViewState state;
  state.what_if = what_if();
  const Choices batch = choices_of(*state.what_if, Control::batch);
  CHECK(batch.is_number);
  CHECK(batch.words[batch.chosen] == "48");
  CHECK(batch.words[batch.chosen - 1] == "32");
  CHECK(batch.words[batch.chosen + 1] == "64");
  for (int i = 0; i < 40; ++i) state = state_after("whatif.batch.less", state);
  CHECK(choices_of(*state.what_if, Control::batch).chosen == 0);
  for (int i = 0; i < 40; ++i) state = state_after("whatif.batch.more", state);
  const Choices most = choices_of(*state.what_if, Control::batch);
  CHECK(most.chosen + 1 == most.words.size());
  CHECK(request_of(*state.what_if).name == "keep: batch 4096");
  CHECK(request_of(what_if()).name == "keep as planned");
}

TEST_CASE(
    "a menu marks what is on: each layout and alignment, and what a second time switches off") {
  for (const Command& command : commands()) {
    if (command.apply == nullptr) continue;
    CAPTURE(command.id);
    const ViewState before;
    const ViewState once = state_after(command.id);
    const bool switches = once != before && state_after(command.id, once) == before;
    const auto marked = is_on(command.id, once);
    // These switch between two settings, neither of which is off.
    const std::set<std::string_view> pairs = {"at.next",    "tree.form", "tree.from",  "lane.fold",
                                              "focus.next", "pick.next", "panel.front"};
    if (switches && !pairs.contains(command.id)) REQUIRE(marked);
    if (!marked) continue;
    if (switches) CHECK(is_on(command.id, before) != marked);
    if (!switches) CHECK(marked == true);  // it chooses one of several
  }
  CHECK(is_on("layout.columns", ViewState()) == true);
  CHECK(is_on("layout.rows", ViewState()) == false);
  CHECK_FALSE(is_on("zoom.in", ViewState()).has_value());
}

TEST_CASE("no command fails without recordings") {
  for (const Command& command : commands()) {
    if (command.apply == nullptr) continue;
    ViewState state;
    command.apply(state, Facts{});
  }
}

TEST_CASE("the palette finds commands by words of their title") {
  CHECK(matching_commands("").size() == commands().size());
  const auto found = matching_commands("zoom SEL");
  REQUIRE(found.size() == 1);
  CHECK(found.front()->id == "zoom.selection");
  CHECK(matching_commands("no such thing at all").empty());
}

}  // namespace shardlens::viewer
