// Tests many runs: their lanes are scrolled, folded, sorted, closed and renamed, none of their
// numbers is cut, and runs of two memories are compared separately.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "tests/support/recordings/failing_recording.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/acts.h"
#include "viewer/scene/panels/comparison_report.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {
namespace {

constexpr int kRuns = 64;
constexpr Canvas kSmall{1000, 600, 20, 1};
constexpr Canvas kWide{1600, 1000, 0, 1};
constexpr Canvas kLarge{3840, 2160, 40, 2};

/// Runs whose peaks are in another order than their names.
struct ManyRuns {
  explicit ManyRuns(int count) {
    for (int i = 0; i < count; ++i) {
      const int64_t activations = 3 + i * 29 % count;
      write("run-" + std::string(1, static_cast<char>('a' + i / 26)) +
                std::string(1, static_cast<char>('a' + i % 26)),
            {.steps = 1, .activation_bytes = activations << 18});
    }
  }
  void write(const std::string& name, const tests::ViewRecordingOptions& options) {
    std::filesystem::create_directories(folder.file(name));
    tests::write_profile(folder.file(name + "/rank0.slp"), tests::view_recording(options));
    state.files.push_back(folder.file(name));
  }

  tests::TemporaryFolder folder;
  ViewState state;
};

const ManyRuns& many() {
  static const ManyRuns runs(kRuns);
  return runs;
}

const Picture& draw_on(Presenter& presenter, const Canvas& canvas) {
  return presenter.picture(canvas, plain_fonts(canvas.scale));
}

/// Returns the runs that have a card, in their order.
std::vector<size_t> cards_of(const Picture& picture) {
  std::vector<size_t> runs;
  for (const Area& area : areas_of(picture, Area::Kind::card)) runs.push_back(area.run);
  return runs;
}

/// Returns the texts that were cut within a number: "12.3..." for "12.34 MiB".
std::vector<std::string> cut_numbers(const Picture& picture) {
  std::vector<std::string> cut;
  for (const Item& item : picture.items) {
    const auto* const text = std::get_if<Text>(&item);
    if (text == nullptr || !text->text.ends_with("...") || text->text.size() < 4) continue;
    const char before = text->text[text->text.size() - 4];
    const bool is_in_number =
        std::isdigit(static_cast<unsigned char>(before)) != 0 || before == '.';
    if (is_in_number) cut.push_back(text->text);
  }
  return cut;
}

}  // namespace

TEST_CASE("sixty-four lanes are scrolled: each has its card, and no number is cut") {
  ViewState state = many().state;
  state.panels.alive = false;  // its names contain numbers
  Presenter presenter(state, "");
  const auto scroll_through = [&](const Canvas& canvas, std::string_view layout) {
    act(presenter, layout);
    for (int i = 0; i < kRuns; ++i) act(presenter, "lanes.up");
    std::set<size_t> seen;
    for (size_t line = 0; presenter.state().lanes.first == line; ++line) {
      const Picture& picture = draw_on(presenter, canvas);
      CAPTURE(layout, canvas.width, line, cut_numbers(picture));
      CHECK(cut_numbers(picture).empty());
      for (const size_t run : cards_of(picture)) {
        const auto peak = presenter.runs()[run].at_peak().lane.peak().max_bytes;
        CHECK(says(picture, " " + bytes_text(peak) + "\n"));
        seen.insert(run);
      }
      act(presenter, "lanes.down");
    }
    CHECK(seen.size() == kRuns);
  };
  for (const char* layout : {"layout.columns", "layout.rows", "layout.difference"}) {
    scroll_through(kSmall, layout);
  }
  scroll_through(kLarge, "layout.columns");
}

TEST_CASE("every part of the picture has a tooltip that says what it is or does") {
  ViewState state = many().state;
  state.files.resize(6);
  state.lanes.folded = {state.files[5]};
  state.tree = {.is_open = true, .form = TreeForm::list};
  Presenter presenter(state, "");
  draw_on(presenter, kWide);
  act(presenter, "pick.next");
  std::set<Area::Kind> silent;
  std::set<Area::Kind> seen;
  const auto look = [&] {
    const Picture picture = draw_on(presenter, kWide);
    for (const Area& area : picture.areas) {
      const float x = area.box.x + area.box.w / 2;
      const float y = area.box.y + area.box.h / 2;
      const Area* const top = area_at(picture, x, y);
      if (top == nullptr || top->kind != area.kind) continue;
      seen.insert(area.kind);
      if (presenter.hover_text(x, y).empty()) silent.insert(area.kind);
    }
  };
  look();
  act(presenter, "tree.form");
  look();
  act(presenter, "tree");
  look();
  silent.erase(Area::Kind::tree);  // its background
  silent.erase(Area::Kind::lane);  // a run may have nothing at the middle of the axis
  CHECK(silent.empty());
  for (const Area::Kind kind :
       {Area::Kind::legend, Area::Kind::category, Area::Kind::card, Area::Kind::folded_lane,
        Area::Kind::lane_close, Area::Kind::lane_fold, Area::Kind::minimap, Area::Kind::table,
        Area::Kind::tree_choice, Area::Kind::tree_sort}) {
    CHECK(seen.contains(kind));
  }
}

TEST_CASE("the wheel beside a plot scrolls the lanes, and a press on their bar jumps") {
  Presenter presenter(many().state, "");
  const Picture& picture = draw_on(presenter, kSmall);
  const auto bar = areas_of(picture, Area::Kind::lane_bar);
  REQUIRE(bar.size() == 1);
  const auto card = areas_of(picture, Area::Kind::card).front();
  presenter.wheel(card.box.x + 1, card.box.y + 1, -1);
  CHECK(presenter.state().lanes.first == 1);
  presenter.press(bar[0].box.x + 1, bar[0].box.bottom() - 1);
  presenter.release();
  CHECK(cards_of(draw_on(presenter, kSmall)).back() == kRuns - 1);
  presenter.press(bar[0].box.x + 1, bar[0].box.y + 1);
  CHECK(cards_of(draw_on(presenter, kSmall)).front() == 0);
}

TEST_CASE("the focus goes through the lanes in their order, and its lane is shown") {
  Presenter presenter(many().state, "");
  draw_on(presenter, kSmall);
  act(presenter, "lanes.sort");
  const auto peak = [&](size_t run) {
    return presenter.runs()[run].at_peak().lane.peak().max_bytes;
  };
  act(presenter, "focus.next");
  std::vector<size_t> visited;
  for (int i = 0; i < kRuns; ++i) {
    const auto cards = cards_of(draw_on(presenter, kSmall));
    CHECK(std::ranges::is_sorted(cards, std::greater(), peak));
    CHECK(std::ranges::find(cards, presenter.state().focus) != cards.end());
    visited.push_back(presenter.state().focus);
    act(presenter, "focus.next");
  }
  CHECK(std::set<size_t>(visited.begin(), visited.end()).size() == kRuns);
  act(presenter, "lanes.sort");
  CHECK(presenter.state().lanes.sort == LaneSort::name);
}

TEST_CASE("lanes are folded to a line with their peak, and unfolded by a press") {
  Presenter presenter(many().state, "");
  draw_on(presenter, kSmall);
  act(presenter, "lane.fold.others");
  const Picture& picture = draw_on(presenter, kSmall);
  CHECK(cards_of(picture) == std::vector<size_t>{0});
  const auto lines = areas_of(picture, Area::Kind::folded_lane);
  REQUIRE_FALSE(lines.empty());
  CHECK(says(picture, std::to_string(kRuns - 1 - lines.size()) + " more are folded: Ctrl+U"));
  const size_t run = lines.back().run;
  CHECK(says(picture, " " + presenter.runs()[run].name + "\n"));
  presenter.press(lines.back().box.x + 1, lines.back().box.y + 1);
  presenter.release();
  CHECK(presenter.state().focus == run);
  CHECK(cards_of(draw_on(presenter, kSmall)) == std::vector<size_t>{0, run});
  act(presenter, "lane.unfold");
  CHECK(areas_of(draw_on(presenter, kSmall), Area::Kind::folded_lane).empty());
  const auto fold = areas_of(draw_on(presenter, kSmall), Area::Kind::lane_fold).front();
  presenter.press(fold.box.x + 1, fold.box.y + 1);
  CHECK(presenter.state().lanes.folded ==
        std::vector<std::string>{presenter.runs()[fold.run].key()});
}

TEST_CASE("a run is closed by its button, comes back by undo, and stays closed in a session") {
  ManyRuns three(3);
  ViewState state = three.state;
  state.files = {three.folder.path()};  // a folder of runs
  Presenter presenter(state, "");
  const auto close = areas_of(draw_on(presenter, kSmall), Area::Kind::lane_close);
  REQUIRE(close.size() == 3);
  const std::string gone = presenter.runs()[1].name;
  presenter.press(close[1].box.x + 1, close[1].box.y + 1);
  presenter.release();
  draw_on(presenter, kSmall);
  REQUIRE(presenter.runs().size() == 2);
  CHECK(presenter.messages().empty());
  save_session(presenter.state(), three.folder.file("s.json"));
  Presenter again(load_session(three.folder.file("s.json")), "");
  CHECK(again.runs().size() == 2);
  act(presenter, "undo");
  draw_on(presenter, kSmall);
  REQUIRE(presenter.runs().size() == 3);
  CHECK(presenter.runs()[1].name == gone);
}

TEST_CASE("a tooltip while a run is closed does not show another run") {
  ManyRuns two(2);
  Presenter presenter(two.state, "");
  const auto lanes = areas_of(draw_on(presenter, kSmall), Area::Kind::lane);
  REQUIRE(lanes.size() == 2);
  act(presenter, "focus.next");
  act(presenter, "lane.close");
  const Box& last = lanes[1].box;
  CHECK(presenter.hover_text(last.x + 9, last.y + 9).empty());
  presenter.press(last.x + 9, last.y + 9);
  presenter.release();
  presenter.wheel(last.x + 9, last.y + 9, 1);
  CHECK(presenter.runs().size() == 1);
  CHECK_FALSE(presenter.state().cursor.has_value());
}

TEST_CASE("a run is renamed wherever it is named, and an empty name restores the first") {
  ManyRuns two(2);
  Presenter presenter(two.state, "");
  draw_on(presenter, kWide);
  presenter.rename("before the change");
  CHECK(says(draw_on(presenter, kWide), "compared with before the change"));
  CHECK(presenter.table_csv().starts_with("category,\"before the change bytes\""));
  save_session(presenter.state(), two.folder.file("s.json"));
  Presenter again(load_session(two.folder.file("s.json")), "");
  CHECK(says(draw_on(again, kWide), "before the change"));
  presenter.rename("");
  CHECK(says(draw_on(presenter, kWide), "compared with run-aa"));
}

TEST_CASE("every memory has its baseline: card, table, panel, difference and report agree") {
  ManyRuns mixed(2);
  mixed.write("host", {.steps = 1, .device = "cpu"});
  mixed.write("more", {.steps = 1, .activation_bytes = 5 << 20, .device = "cpu"});
  mixed.write("most", {.steps = 1, .activation_bytes = 6 << 20, .device = "cpu"});
  Presenter presenter(mixed.state, "");
  const auto focus = [&](size_t run) {
    while (presenter.state().focus != run) act(presenter, "focus.next");
  };
  draw_on(presenter, kWide);
  focus(4);
  CHECK(says(draw_on(presenter, kWide), " Compared with host\n"));
  CHECK(says(draw_on(presenter, kWide), "compared with run-aa and host"));
  focus(3);
  act(presenter, "baseline");
  focus(1);
  act(presenter, "baseline");
  focus(4);
  const Picture& picture = draw_on(presenter, kWide);
  CHECK(says(picture, " Compared with more\n"));
  CHECK(says(picture, "compared with run-ab and more"));
  const auto peak = [&](size_t run) {
    return presenter.runs()[run].at_peak().lane.peak().max_bytes;
  };
  CHECK(says(picture, change_in_words(peak(3), peak(4))));
  const ViewState& state = presenter.state();
  const std::string report = comparison_report(presenter.runs(), state.baseline, ReportFormat::text,
                                               std::nullopt, state.earlier_baselines);
  CHECK(report.find("compared with run-ab and more") != std::string::npos);
  CHECK(report.find(change_in_words(peak(3), peak(4)) + " against more") != std::string::npos);
  CHECK(report.find("against host") == std::string::npos);
  // The overlay has a card for each memory.
  act(presenter, "layout.overlay");
  CHECK(cards_of(draw_on(presenter, kWide)) == std::vector<size_t>{1, 3});
}

namespace {

/// Returns the runs of the overview's lines, from the top.
std::vector<size_t> listed_runs(const Picture& picture) {
  std::vector<size_t> runs;
  for (const Area& area : areas_of(picture, Area::Kind::overview_row)) runs.push_back(area.run);
  return runs;
}

void press_on(Presenter& presenter, const Area& area) {
  presenter.press(area.box.x + area.box.w / 2, area.box.y + area.box.h / 2);
  presenter.release();
}

}  // namespace

TEST_CASE("the overview lists all runs, sorted by a column, and a line opens its lane") {
  Presenter presenter(many().state, "");
  act(presenter, "overview");
  REQUIRE(listed_runs(draw_on(presenter, kLarge)).size() == kRuns);
  CHECK(cards_of(draw_on(presenter, kLarge)).empty());
  for (const Area& head : areas_of(draw_on(presenter, kLarge), Area::Kind::overview_sort)) {
    if (static_cast<OverviewSort>(head.index) != OverviewSort::peak) continue;
    press_on(presenter, head);
    break;
  }
  REQUIRE(presenter.state().overview.sort == OverviewSort::peak);
  const std::vector<size_t> runs = listed_runs(draw_on(presenter, kLarge));
  const auto peak = [&](size_t run) {
    return presenter.runs()[run].at_peak().lane.peak().max_bytes;
  };
  CHECK(std::ranges::is_sorted(runs, std::greater(), peak));
  CHECK(std::set<size_t>(runs.begin(), runs.end()).size() == kRuns);
  const Area line = areas_of(draw_on(presenter, kLarge), Area::Kind::overview_row)[40];
  press_on(presenter, line);
  CHECK_FALSE(presenter.state().overview.is_open);
  CHECK(presenter.state().focus == runs[40]);
  const std::vector<size_t> cards = cards_of(draw_on(presenter, kWide));
  CHECK(std::ranges::find(cards, runs[40]) != cards.end());
}

TEST_CASE("the overview scrolls, and cuts no number in any window") {
  Presenter presenter(many().state, "");
  act(presenter, "overview");
  for (const Canvas& canvas : {kSmall, kWide, kLarge}) {
    CAPTURE(canvas.width);
    std::set<size_t> seen;
    for (int i = 0; i < kRuns; ++i) {
      const Picture& picture = draw_on(presenter, canvas);
      CHECK(cut_numbers(picture).empty());
      for (const size_t run : listed_runs(picture)) seen.insert(run);
      const Area row = areas_of(picture, Area::Kind::overview_row).front();
      presenter.wheel(row.box.x + 5, row.box.y + 5, -1);
    }
    CHECK(seen.size() == kRuns);
    for (int i = 0; i < kRuns; ++i) act(presenter, "lanes.up");
    CHECK(presenter.state().overview.first == 0);
  }
}

TEST_CASE("the overview says first which runs ran out of memory, and which grow") {
  ManyRuns runs(3);
  tests::write_profile(runs.folder.file("failed.slp"), tests::failing_recording());
  runs.state.files.push_back(runs.folder.file("failed.slp"));
  Presenter presenter(runs.state, "");
  act(presenter, {"overview", "overview.sort", "overview.sort"});
  REQUIRE(presenter.state().overview.sort == OverviewSort::verdict);
  const Picture& picture = draw_on(presenter, kWide);
  CHECK(listed_runs(picture).front() == 3);
  CHECK(says(picture, "out of memory"));
  CHECK(says(picture, "fits: "));
}

TEST_CASE("the overview of one run lists its ranks, and a line shows that rank") {
  tests::TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("ranks"));
  for (int rank = 0; rank < 5; ++rank) {
    profiler::Profile profile =
        tests::view_recording({.steps = 1, .activation_bytes = (7 - rank) << 18});
    profile.header.rank = rank;
    profile.header.world_size = 5;
    tests::write_profile(folder.file("ranks/rank" + std::to_string(rank) + ".slp"), profile);
  }
  ViewState state;
  state.files = {folder.file("ranks")};
  Presenter presenter(state, "");
  act(presenter, "overview");
  const std::vector<Area> lines = areas_of(draw_on(presenter, kWide), Area::Kind::overview_row);
  REQUIRE(lines.size() == 5);
  CHECK(says(draw_on(presenter, kWide), "3 of 5"));
  press_on(presenter, lines[3]);
  CHECK(presenter.state().rank == 3);
  CHECK_FALSE(presenter.state().overview.is_open);
}

namespace {

/// Returns the texts of a picture that cover another one.
std::vector<std::string> covering_texts(const Picture& picture, const Fonts& fonts) {
  std::vector<std::pair<Box, std::string>> seen;
  std::vector<std::string> covering;
  for (const Item& item : picture.items) {
    const auto* const text = std::get_if<Text>(&item);
    if (text == nullptr) continue;
    // Letters do not reach the edges of their line.
    const float height = fonts.height(text->style);
    const Box box{text->x, text->y + height * 0.15F, fonts.width(text->style, text->text),
                  height * 0.7F};
    for (const auto& [other, words] : seen) {
      const bool overlaps = box.x < other.right() && other.x < box.right() &&
                            box.y < other.bottom() && other.y < box.bottom();
      if (overlaps) covering.push_back(text->text + " over " + words);
    }
    seen.emplace_back(box, text->text);
  }
  return covering;
}

}  // namespace

TEST_CASE("no text of a figure covers another, whatever is marked in it") {
  const tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("first.slp"), folder.file("second.slp")};
  tests::write_profile(state.files[0], tests::failing_recording());
  tests::write_profile(state.files[1], tests::failing_recording());
  for (const bool is_alone : {true, false}) {
    if (is_alone) state.files.pop_back();
    if (!is_alone) state.files.push_back(folder.file("second.slp"));
    Presenter presenter(state, "");
    act(presenter, {"height.next", "height.next"});  // up to the device's memory
    presenter.set_search("model");
    act(presenter, "failure.next");
    presenter.add_note("here it ends, and this note is long");
    act(presenter, "peak");
    presenter.add_note("the peak");
    for (const auto& [width, height] : {std::pair{320, 420}, {480, 300}, {800, 500}, {1600, 900}}) {
      for (const double scale : {1.0, 3.0}) {
        const Canvas canvas{.width = static_cast<int>(width * scale),
                            .height = static_cast<int>(height * scale),
                            .scale = scale,
                            .is_figure = true};
        const Fonts fonts = plain_fonts(scale);
        const Picture& picture = presenter.picture(canvas, fonts);
        CAPTURE(is_alone, width, scale);
        CHECK(covering_texts(picture, fonts) == std::vector<std::string>());
        CHECK_FALSE(says(picture, "Memory of"));
        CHECK(areas_of(picture, Area::Kind::card).empty());
        CHECK(areas_of(picture, Area::Kind::lane).size() == state.files.size());
      }
    }
  }
}

TEST_CASE("numbers of the axes do not cover each other, however near a moment is") {
  const tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("run.slp")};
  tests::write_profile(state.files[0], tests::view_recording({.steps = 2000}),
                       {.seals_old = false});  // this fast, sealing each second loses events
  const Fonts fonts = plain_fonts(1);
  for (const char* alignment : {"align.step", "align.time", "align.event"}) {
    Presenter presenter(state, "");
    act(presenter, {alignment, "peak"});
    for (int i = 0; i < 100; ++i) {
      const Canvas canvas{.width = 700, .height = 400, .is_figure = true};
      CAPTURE(alignment, i);
      CHECK(covering_texts(presenter.picture(canvas, fonts), fonts) == std::vector<std::string>());
      act(presenter, "zoom.in");
    }
  }
}

TEST_CASE("of many ranks each has a lane with its peak, where the lanes are scrolled") {
  constexpr int kRanks = 40;
  ManyRuns run(0);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::filesystem::create_directories(run.folder.file("run"));
    tests::write_profile(run.folder.file("run/rank" + std::to_string(rank) + ".slp"),
                         tests::view_recording({.rank = rank,
                                                .world_size = kRanks,
                                                .steps = 1,
                                                .activation_bytes = int64_t{1 + rank} << 18}));
  }
  run.state.files = {run.folder.file("run")};
  run.state.ranks = Ranks::each;
  Presenter presenter(run.state, "");
  std::set<size_t> seen;
  for (size_t first = 0; presenter.state().lanes.first_rank == first; ++first) {
    const Picture picture = draw_on(presenter, kWide);
    for (const Area& area : areas_of(picture, Area::Kind::lane)) {
      const auto peak = presenter.runs()[0].ranks[area.index].lane.peak().max_bytes;
      CHECK(says(picture, "rank " + std::to_string(area.index) + ", peak " + bytes_text(peak)));
      seen.insert(area.index);
    }
    CHECK(says(picture, "more: Alt+PageUp") == (first > 0));
    CHECK(says(picture, "more: Alt+PageDown") == (seen.size() < kRanks));
    act(presenter, "lanes.down");
  }
  CHECK(seen.size() == kRanks);
  act(presenter, "lanes.up");
  CHECK(draw_on(presenter, kWide).areas.size() > 0);
  CHECK(presenter.state().lanes.first_rank > 0);
}

}  // namespace shardlens::viewer
