#include "viewer/state/session.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "tests/support/odd_files.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "viewer/model/run.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/commands.h"
#include "viewer/state/history.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;

Pick random_pick(std::mt19937_64& engine) {
  const auto below = [&](uint64_t limit) { return engine() % limit; };
  Pick pick{.run = below(3),
            .rank = below(8),
            .scope = static_cast<PickScope>(below(kWords<PickScope>.size())),
            .block = below(2) == 0 ? kNoBlock : static_cast<uint32_t>(below(1U << 20)),
            .category = static_cast<Category>(below(kCategories)),
            .path = {"main  train.py:3", "\"a\" \u00fc"}};
  if (below(2) == 0) pick.call = below(40);
  return pick;
}

WhatIfEdit random_what_if(std::mt19937_64& engine) {
  const auto flag = [&] { return engine() % 2 == 0; };
  WhatIfEdit what_if{"keep", "{}", R"({"batch":7})", "h200"};
  if (flag()) what_if.recording = "/somewhere/runs/b/profiles/rank0.slp";
  if (flag()) what_if.levers = {"recompute=full", "optimizer=fused"};
  what_if.lever_row = flag() ? 3 : 0;
  return what_if;
}

ViewState random_state(std::mt19937_64& engine) {
  const auto below = [&](uint64_t limit) { return engine() % limit; };
  const auto flag = [&] { return below(2) == 0; };
  std::uniform_real_distribution<double> uniform(-10, 1000);
  const auto range = [&]() -> std::optional<Range> {
    if (flag()) return std::nullopt;
    const double begin = uniform(engine);
    return Range{begin, begin + 1 + std::abs(uniform(engine))};
  };
  ViewState state;
  state.files = {"/somewhere/else/a", "/somewhere/runs/b", "/somewhere/runs/deeper/c.slp"};
  state.alignment = static_cast<Alignment>(below(kAlignments));
  state.layout = static_cast<LaneLayout>(below(4));
  state.height = static_cast<Height>(below(kWords<Height>.size()));
  state.theme = static_cast<Theme>(below(3));
  state.ranks = static_cast<Ranks>(below(3));
  state.detail = static_cast<Detail>(below(3));
  state.at = static_cast<TableMoment>(below(2));
  state.memory = static_cast<ShownMemory>(below(kWords<ShownMemory>.size()));
  state.grouping = static_cast<Grouping>(below(kGroupings));
  state.panels = {flag(), flag(), flag(), flag(), flag(), flag(), flag(), flag(), flag(), flag()};
  if (flag()) state.what_if = random_what_if(engine);
  for (uint64_t i = below(3); i > 0; --i) state.plans.push_back({"a plan", "{}", ""});
  state.lanes = {.sort = static_cast<LaneSort>(below(kWords<LaneSort>.size())),
                 .first = below(9),
                 .folded = {},
                 .closed = {},
                 .names = {}};
  state.overview = {.is_open = flag(),
                    .sort = static_cast<OverviewSort>(below(kWords<OverviewSort>.size())),
                    .first = below(9)};
  if (flag()) state.lanes.folded = {state.files[1], "a plan"};
  if (!state.plans.empty()) state.lanes.names.push_back({"a plan", "\u00fc"});
  if (state.plans.empty()) state.lanes.folded.clear();
  if (flag()) state.lanes.closed = {"/somewhere/runs/b/one"};
  if (flag()) state.lanes.names.push_back({state.files[0], "first"});
  if (flag()) state.earlier_baselines = {below(6), below(6)};
  state.baseline = below(6);
  state.focus = below(6);
  if (flag()) state.rank = below(64);
  state.view = range();
  if (flag()) state.heights = {0.25, 0.5};
  if (flag()) state.cursor = uniform(engine);
  state.selection = range();
  state.hidden_categories = static_cast<uint32_t>(below(1U << kCategories));
  state.alive_first = below(100);
  state.places_first = below(100);
  state.table_first = below(12);
  state.zoom = flag() ? 1.25 : 2;
  if (flag()) state.pick = random_pick(engine);
  state.tree = {
      .is_open = flag(),
      .of = static_cast<TreeContent>(below(kWords<TreeContent>.size())),
      .form = static_cast<TreeForm>(below(kWords<TreeForm>.size())),
      .by = static_cast<profiler::TreeGrouping>(below(kWords<profiler::TreeGrouping>.size())),
      .from = static_cast<profiler::TreeStart>(below(kWords<profiler::TreeStart>.size())),
      .sort = static_cast<PlaceSort>(below(kWords<PlaceSort>.size())),
      .compares = flag(),
      .threshold = below(kTreeThresholds.size()),
      .first = below(100)};
  if (flag()) state.tree.zoom = {"main  train.py:3"};
  state.search = "mlp3 >64MiB \"quoted\" \u00fc";
  for (uint64_t i = below(4); i > 0; --i)
    state.notes.push_back(
        {uniform(engine), "note\nof two", static_cast<Alignment>(below(kAlignments))});
  return state;
}

}  // namespace

TEST_CASE("a saved session is restored") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  for (int i = 0; i < 200; ++i) {
    const ViewState state = random_state(engine);
    CHECK(parse_session(session_text(state, "/somewhere/runs"), "/somewhere/runs") == state);
  }
}

TEST_CASE("a session can be moved together with its runs") {
  ViewState state;
  state.files = {"/a/runs/first", "/elsewhere/deep/second"};
  const ViewState moved = parse_session(session_text(state, "/a/runs"), "/b/runs");
  CHECK(moved.files == std::vector<std::string>{"/b/runs/first", "/elsewhere/deep/second"});
}

TEST_CASE("a session survives a round trip through a file") {
  const tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("run")};
  state.cursor = 0.1;
  save_session(state, folder.file("a.session"));
  CHECK(load_session(folder.file("a.session")) == state);
  CHECK_THROWS_AS(load_session(folder.file("b.session")), std::invalid_argument);
  CHECK_THROWS_AS(save_session(state, folder.file("no/such/folder.session")), std::runtime_error);
}

TEST_CASE("a session moved with its runs shows the same place, and its link opens it") {
  const tests::TemporaryFolder folder;
  fs::create_directories(folder.file("here/runs"));
  tests::write_profile(folder.file("here/runs/a.slp"), tests::view_recording());
  ViewState state;
  state.files = {folder.file("here/runs/a.slp")};
  state.view = Range{1, 2};
  state.cursor = 1.5;
  state.at = TableMoment::cursor;
  state.heights = {0.5, 1};
  state.lanes.names = {{state.files[0], "mine"}};
  state.notes = {{1.25, "look", Alignment::step}};
  const Canvas canvas{1200, 800, 0, 1};
  const auto pictured = [&](const ViewState& shown) {
    Presenter presenter(shown, "");
    return to_text(presenter.picture(canvas, plain_fonts(1)));
  };
  const std::string before = pictured(state);
  CHECK(before.find("look") != std::string::npos);
  save_session(state, folder.file("here/it's.json"));
  fs::rename(folder.file("here"), folder.file("there"));
  CHECK(pictured(load_session(folder.file("there/it's.json"))) == before);
  CHECK(link_to("/runs/a.json") == "shardlens view --session /runs/a.json");
  CHECK(link_to("/it's.json") == "shardlens view --session '/it'\\''s.json'");
}

TEST_CASE("a session that is not a file is refused before it is opened") {
  const tests::TemporaryFolder folder;
  tests::make_pipe(folder.file("a.session"));
  tests::make_device(folder.file("b.session"));
  for (const char* name : {"a.session", "b.session"}) {
    CHECK_THROWS_AS(load_session(folder.file(name)), std::invalid_argument);
  }
  for (const char* name : {"p.pickle", "p.json", "p.slp"}) {
    tests::make_pipe(folder.file(name));
    const OpenedRuns opened = open_runs({folder.file(name)});
    CHECK(opened.runs.empty());
    CHECK(opened.messages.size() == 1);
  }
}

TEST_CASE("a file that is not a session is refused in one line") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const std::string whole = session_text(random_state(engine), "/x");
  for (const char* text :
       {"", "{", "[]", "7", "{\"schema\":\"other\"}", "{\"schema\":\"shardlens.session/1\"}",
        "{\"schema\":\"shardlens.session/1\",\"files\":[],\"theme\":\"pink\"}",
        "{\"schema\":\"shardlens.session/1\",\"files\":[],\"view\":[2,1]}"}) {
    CHECK_THROWS_AS(parse_session(text, "/x"), std::invalid_argument);
  }
  CHECK_THROWS_WITH(
      parse_session(R"({"schema":"shardlens.session/1","files":[],"theme":"da\nrk"})", "/x"),
      Catch::Matchers::StartsWith("theme: da\\nrk: not one of "));
  for (int i = 0; i < 500; ++i) {
    std::string damaged = whole;
    damaged[engine() % damaged.size()] = static_cast<char>(engine());
    try {
      parse_session(damaged, "/x");
    } catch (const std::invalid_argument& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("undo goes back through every change, redo forward again") {
  History history;
  ViewState state;
  std::vector<ViewState> states = {state};
  for (const char* id : {"layout.rows", "hatches", "theme.next", "scale.up"}) {
    history.remember(state);
    find_command(id)->apply(state, Facts{});
    states.push_back(state);
  }
  for (size_t i = states.size() - 1; i-- > 0;) {
    CHECK(history.undo(state));
    CHECK(state == states[i]);
  }
  CHECK_FALSE(history.undo(state));
  for (size_t i = 1; i < states.size(); ++i) {
    CHECK(history.redo(state));
    CHECK(state == states[i]);
  }
  CHECK_FALSE(history.redo(state));
}

}  // namespace shardlens::viewer
