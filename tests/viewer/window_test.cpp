// Drives the window as a user does, by keyboard and mouse, on a display without a screen.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "profiler/exchange/write_recording.h"
#include "tests/support/recordings/stacked_recording.h"
#include "tests/support/viewer/acts.h"
#include "tests/support/viewer/driven_window.h"
#include "tests/support/viewer/png_file.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;

/// Writes a session, drives a window through it, and returns the picture that was exported.
std::string driven_picture(const Display& display, const Files& files, const std::string& folder) {
  fs::create_directories(folder);
  const std::string session = folder + "/s.json";
  ViewState state;
  state.files = {files.a, files.b};
  save_session(state, session);
  DrivenWindow window(display, {folder, session});
  window.keys({"1", "t", "alt+3", "bracketright"});
  CHECK(window.settles([](const ViewState& saved) {
    return saved.layout == LaneLayout::rows && saved.theme == Theme::dark &&
           saved.alignment == Alignment::phase && saved.view == Range{0, 1};
  }));
  window.click(620, 190);
  CHECK(window.settles([](const ViewState& saved) { return saved.cursor.has_value(); }));
  window.keys({"g"});
  CHECK(window.settles([](const ViewState& saved) { return saved.grouping == Grouping::label; }));
  const std::string picture = folder + "/s.png";
  window.keys({"ctrl+e"});
  CHECK(tests::wait_until([&] { return fs::exists(picture); }, std::chrono::seconds(300)));
  window.quit();
  // The view is back, though it was not saved.
  const ViewState last = load_session(folder + "/cache/shardlens/last.session.json");
  CHECK(last.grouping == Grouping::label);
  CHECK(last.files == state.files);
  CHECK(tests::read_file(folder + "/cache/shardlens/recent.txt") ==
        files.a + "\n" + files.b + "\n");
  return picture;
}

/// Returns where a window that shows a session has the first frame below the frame of all.
Box frame_below_all(const ViewState& state) {
  constexpr Canvas kWindow{1200, 800, 21, 1};  // the menu takes 21 pixels
  Presenter presenter(state, "");
  const auto frames = areas_of(presenter.picture(kWindow, plain_fonts(1)), Area::Kind::frame);
  const auto at = std::ranges::find_if(
      frames, [&](const Area& area) { return area.box.y > frames.front().box.y; });
  REQUIRE(at != frames.end());
  return at->box;
}

/// A question to a memory snapshot, and how it is answered in a window that has just opened.
struct Question {
  const char* what;
  int acts_of_memory_viz;
  std::function<void(DrivenWindow&)> ask;
  std::function<bool(const ViewState&)> is_answered;
};

/// Everything that PyTorch's memory_viz answers in its timelines of active memory and of cached
/// segments and in its history of the allocator's state, with the number of presses, drags and
/// notches that it takes there, by the source of MemoryViz.js, after the file is open. Its views
/// are chosen from a list: one press opens the list, and one chooses the view. Pointing counts as a
/// press.
const std::vector<Question> kQuestions = {
    {"which block is this, how large, and who allocated it", 1,
     [](DrivenWindow& window) { window.click(500, 530); },
     [](const ViewState& saved) { return saved.pick && saved.pick->scope == PickScope::block; }},
    {"what is between two moments", 1,
     [](DrivenWindow& window) { window.drag(300, 110, 600, 110); },
     [](const ViewState& saved) { return saved.view.has_value(); }},
    {"what is in the lower half", 1, [](DrivenWindow& window) { window.wheel(500, 500, 1, "alt"); },
     [](const ViewState& saved) { return saved.heights.length() < 1; }},
    {"what was allocated and freed, one by one", 2,
     [](DrivenWindow& window) { window.keys({"shift+g"}); },
     [](const ViewState& saved) { return saved.panels.events; }},
    {"who did this, and how much was allocated and reserved then", 3,
     [](DrivenWindow& window) {
       window.keys({"shift+g"});
       window.click(1000, 250);
     },
     [](const ViewState& saved) { return saved.cursor && saved.pick; }},
    {"what came next", 4,
     [](DrivenWindow& window) {
       window.keys({"shift+g", "ctrl+Right"});
     },
     [](const ViewState& saved) { return saved.cursor.has_value(); }},
    {"who freed this block", 3, [](DrivenWindow& window) { window.keys({"s"}); },
     [](const ViewState& saved) { return saved.pick.has_value(); }},
    {"which blocks are where in the allocator's segments", 2,
     [](DrivenWindow& window) { window.keys({"v"}); },
     [](const ViewState& saved) { return saved.detail == Detail::addresses; }},
    {"which block is this, and how many of its bytes are lost to rounding", 3,
     [](DrivenWindow& window) {
       window.keys({"v", "s"});
     },
     [](const ViewState& saved) { return saved.detail == Detail::addresses && saved.pick; }},
    {"which segments existed, and when", 2, [](DrivenWindow& window) { window.keys({"shift+x"}); },
     [](const ViewState& saved) { return saved.memory == ShownMemory::segments; }},
    {"who made the allocator take this segment, and how many of its bytes are free", 3,
     [](DrivenWindow& window) {
       window.keys({"shift+x", "s"});
     },
     [](const ViewState& saved) { return saved.memory == ShownMemory::segments && saved.pick; }},
    {"where did a request fail, and what was free then", 2,
     [](DrivenWindow& window) { window.keys({"ctrl+shift+f"}); },
     [](const ViewState& saved) { return saved.cursor.has_value(); }},
};

/// Returns true for a session in which a place of the tree is selected, as in `has`.
bool is_at_place(const ViewState& state, bool is_zoomed) {
  return state.pick && state.pick->scope == PickScope::place &&
         state.tree.zoom.empty() != is_zoomed;
}

}  // namespace

TEST_CASE("keys mean what a German keyboard says they mean") {
  if (const auto missing = missing_driver({"setxkbmap"}); !missing.empty()) SKIP(missing);
  const Files files;
  const Display display;
  REQUIRE(tests::run({"/usr/bin/env", display.name(), "setxkbmap", "de"}).exit_code == 0);
  const std::string folder = files.folder.file("german");
  fs::create_directories(folder);
  const std::string session = folder + "/s.json";
  ViewState state;
  state.files = {files.a};
  save_session(state, session);
  DrivenWindow window(display, {folder, session});
  window.keys({"bracketright"});  // AltGr and 9
  CHECK(window.settles([](const ViewState& saved) { return saved.view.has_value(); }));
  const auto settles = [&](Grouping wanted) {
    return window.settles([=](const ViewState& saved) { return saved.grouping == wanted; });
  };
  window.keys({"g"});
  CHECK(settles(Grouping::label));
  window.keys({"z"});  // where an American keyboard has Y
  CHECK(settles(Grouping::category));
  window.keys({"slash"});  // Shift and 7
  window.type("mlp3");
  window.keys({"Return"});
  CHECK(window.settles([](const ViewState& saved) { return saved.search == "mlp3"; }));
  window.quit();
}

TEST_CASE("a window driven by keyboard and mouse gives the same picture twice") {
  if (const auto missing = missing_driver(); !missing.empty()) SKIP(missing);
  const Files files;
  const Display display;
  const std::string first = driven_picture(display, files, files.folder.file("first"));
  const std::string second = driven_picture(display, files, files.folder.file("second"));
  CHECK(pixels_of(first).colors.size() > 50);
  CHECK(tests::read_file(first) == tests::read_file(second));
}

TEST_CASE("lanes are sorted, folded, renamed, closed and brought back by hand") {
  if (const auto missing = missing_driver(); !missing.empty()) SKIP(missing);
  const tests::TemporaryFolder folder;
  const std::string session = folder.file("s.json");
  ViewState state;
  for (int i = 0; i < 12; ++i) {
    state.files.push_back(folder.file("run" + std::to_string(i) + ".slp"));
    tests::write_profile(state.files.back(),
                         tests::view_recording({.steps = 1, .activation_bytes = (3 + i) << 20}));
  }
  save_session(state, session);
  const Display display;
  DrivenWindow window(display, {folder.file(""), session});
  const auto settles = [&](const std::function<bool(const Lanes&)>& wanted) {
    return window.settles([&](const ViewState& saved) { return wanted(saved.lanes); });
  };
  window.keys({"shift+k"});
  CHECK(settles([](const Lanes& lanes) { return lanes.sort == LaneSort::peak; }));
  window.keys({"alt+Page_Down"});
  CHECK(settles([](const Lanes& lanes) { return lanes.first == 1; }));
  window.keys({"ctrl+n", "x", "y", "Return"});
  CHECK(settles([](const Lanes& lanes) {
    return lanes.names.size() == 1 && lanes.names.front().name == "xy";
  }));
  window.type("/mlp3 >1MiB");  // faster than frames are drawn
  window.keys({"Return"});
  CHECK(window.settles([](const ViewState& saved) { return saved.search == "mlp3 >1MiB"; }));
  window.keys({"ctrl+f"});
  CHECK(settles([](const Lanes& lanes) { return lanes.folded.size() == 11; }));
  window.keys({"ctrl+w"});
  CHECK(settles([](const Lanes& lanes) { return lanes.closed.size() == 1; }));
  window.keys({"z"});
  CHECK(settles([](const Lanes& lanes) { return lanes.closed.empty(); }));
  window.keys({"ctrl+u"});
  CHECK(settles([](const Lanes& lanes) { return lanes.folded.empty(); }));
  window.quit();
}

TEST_CASE("the y axis is zoomed, moved, fitted and shown whole by hand") {
  if (const auto missing = missing_driver(); !missing.empty()) SKIP(missing);
  const Files files;
  const std::string session = files.folder.file("s.json");
  ViewState state;
  state.files = {files.a, files.b};
  state.layout = LaneLayout::rows;
  save_session(state, session);
  const Display display;
  DrivenWindow window(display, {files.folder.file(""), session});
  const auto settles = [&](const std::function<bool(const Range&)>& wanted) {
    return window.settles([&](const ViewState& saved) { return wanted(saved.heights); });
  };
  window.wheel(620, 190, 2, "alt");  // in the upper half of a plot
  Range zoomed{};
  CHECK(settles([&](const Range& heights) {
    zoomed = heights;
    return heights.length() < 1 && heights.begin > 0;
  }));
  window.keys({"shift+Up"});
  CHECK(settles([&](const Range& heights) { return heights.length() < zoomed.length(); }));
  window.drag_right(620, 180, 620, 260);
  Range moved{};
  CHECK(settles([&](const Range& heights) {
    moved = heights;
    return heights.end > zoomed.end;
  }));
  window.keys({"alt+Down"});
  CHECK(settles([&](const Range& heights) { return heights.begin < moved.begin; }));
  window.keys({"ctrl+y"});
  CHECK(settles([](const Range& heights) { return heights == Range{0, 1}; }));
  window.keys({"bracketright", "shift+Up", "shift+y"});
  CHECK(window.settles([](const ViewState& saved) {
    return saved.height == Height::view && saved.heights == Range{0, 1};
  }));
  window.quit();
}

TEST_CASE("a folder of runs is opened as a list, and further runs from the list of files") {
  if (const auto missing = missing_driver(); !missing.empty()) SKIP(missing);
  const tests::TemporaryFolder folder;
  for (const char* run : {"run2", "run10", "run11"}) {
    fs::create_directories(folder.file("runs/") + run);
    tests::write_profile(folder.file("runs/") + run + "/rank0.slp",
                         tests::view_recording({.steps = 1}));
  }
  const std::string runs = fs::absolute(folder.file("runs")).lexically_normal();
  const std::string session = folder.file("shardlens.session.json");  // where Ctrl+S saves it
  const Display display;
  {
    DrivenWindow window(display, {.folder = folder.file(""),
                                  .session = session,
                                  .command = {SHARDLENS, "view", "runs/", "--no-cache"}});
    window.keys({"shift+k", "ctrl+f"});
    CHECK(window.settles([](const ViewState& saved) { return saved.lanes.folded.size() == 2; }));
    window.quit();
  }
  DrivenWindow window(display, {.folder = folder.file(""),
                                .session = session,
                                .command = {SHARDLENS, "view", "--no-cache"}});
  window.keys({"ctrl+o", "Return"});  // the last opened path comes first
  CHECK(window.settles([](const ViewState& saved) { return saved.files.size() == 1; }));
  window.keys({"ctrl+o"});
  window.type(runs + "/");
  window.keys({"Down", "Return"});  // below "all of the folder": its first run
  CHECK(window.settles([&](const ViewState& saved) {
    return saved.files.size() == 2 && saved.files.back() == runs + "/run2";
  }));
  window.keys({"ctrl+o"});
  window.type(runs + "/run11");
  window.keys({"Return"});
  CHECK(window.settles([&](const ViewState& saved) {
    return saved.files.size() == 3 && saved.files.back() == runs + "/run11";
  }));
  window.quit();
}

TEST_CASE("a note is found in the list, and a link opens the session at the same place") {
  if (const auto missing = missing_driver(); !missing.empty()) SKIP(missing);
  const Files files;
  const std::string session = files.folder.file("s.json");
  ViewState state;
  state.files = {files.a, files.b};
  save_session(state, session);
  const Display display;
  std::string link;
  std::optional<double> place;
  {
    DrivenWindow window(display, {files.folder.file(""), session});
    window.keys({"p", "m"});
    window.type("highest");
    window.keys({"Return", "alt+4", "m"});  // by event
    window.type("elsewhere");
    window.keys({"Return"});
    CHECK(window.settles([](const ViewState& saved) { return saved.notes.size() == 2; }));
    window.keys({"alt+m", "Return"});
    CHECK(window.settles([&](const ViewState& saved) {
      place = saved.notes.front().x;
      return saved.alignment == Alignment::step && saved.cursor == place;
    }));
    window.keys({"alt+m", "Down", "Delete", "Escape"});
    CHECK(window.settles([](const ViewState& saved) { return saved.notes.size() == 1; }));
    window.keys({"bracketright", "t", "ctrl+shift+s", "m", "ctrl+v", "Return"});
    CHECK(window.settles([&](const ViewState& saved) {
      if (saved.notes.size() == 2) link = saved.notes.back().text;
      return saved.notes.size() == 2;
    }));
    window.quit();
  }
  CHECK(link == link_to(session));
  const ViewState sent = load_session(session);
  CHECK(sent.theme == Theme::dark);
  CHECK(sent.cursor == place);
  // Another user has a program of that name on the PATH, and another place to start it from.
  const std::string there = files.folder.file("there");
  fs::create_directories(there);
  const std::string path = "PATH=" + fs::path(SHARDLENS).parent_path().string() + ":/usr/bin:/bin";
  DrivenWindow window(display,
                      {.folder = there,
                       .session = session,
                       .command = {"/usr/bin/env", path, "/bin/sh", "-c", "exec " + link}});
  CHECK(window.settles([&](const ViewState& saved) { return saved == sent; }));
  window.quit();
}

TEST_CASE("memory_viz's questions take no more acts here") {
  if (const auto missing = missing_driver(); !missing.empty()) SKIP(missing);
  const tests::TemporaryFolder folder;
  const std::string snapshot = SHARDLENS_SOURCE_DIR "/tests/fixtures/memory_viz/whole.pickle";
  const Display display;
  DrivenWindow window(
      display, {.folder = folder.file(""),
                .session = folder.file("shardlens.session.json"),  // where Ctrl+S saves it
                .command = {SHARDLENS, "view", snapshot, "--size", "1200x800", "--no-cache"}});
  ViewState opened;
  CHECK(window.settles([&](const ViewState& saved) {
    opened = saved;
    return saved.detail == Detail::blocks;
  }));
  for (const Question& question : kQuestions) {
    CAPTURE(question.what);
    window.take_acts();
    question.ask(window);
    CHECK(window.settles(question.is_answered));
    const int acts = window.take_acts();
    CHECK(acts <= question.acts_of_memory_viz);
    fmt::print("{}: {} acts, {} in memory_viz\n", question.what, acts, question.acts_of_memory_viz);
    window.keys({"z", "z", "z", "z", "ctrl+y"});  // a wheel is not undone
    CHECK(window.settles([&](const ViewState& saved) { return saved == opened; }));
  }
  window.quit();
}

TEST_CASE("a block is selected, opened in the editor and found in the flame graph, by hand") {
  if (const auto missing = missing_driver(); !missing.empty()) SKIP(missing);
  const tests::TemporaryFolder folder;
  const std::string session = folder.file("s.json");
  ViewState state;
  state.files = {folder.file("run.slp")};
  profiler::write_recording(tests::stacked_recording({}, 0, folder.file("src")), state.files[0]);
  fs::create_directories(folder.file("src"));
  tests::write_file(folder.file("src/model.py"), "the script");
  save_session(state, session);
  const Display display;
  DrivenWindow window(display, {folder.file(""), session, "cp {file} opened-{line}"});
  window.keys({"s"});
  CHECK(window.settles([](const ViewState& saved) { return saved.pick.has_value(); }));
  window.keys({"e"});
  CHECK(tests::wait_until([&] { return fs::exists(folder.file("opened-40")); },
                          std::chrono::seconds(300)));
  window.keys({"F9"});
  CHECK(window.settles([](const ViewState& saved) { return saved.tree.is_open; }));
  const Box frame = frame_below_all(load_session(session));
  window.click(static_cast<int>(frame.x + frame.w / 2), static_cast<int>(frame.y + frame.h / 2));
  CHECK(window.settles([](const ViewState& saved) { return is_at_place(saved, true); }));
  window.keys({"shift+Return"});
  CHECK(window.settles([](const ViewState& saved) { return is_at_place(saved, false); }));
  window.keys({"l", "Escape"});
  CHECK(window.settles(
      [](const ViewState& saved) { return saved.tree.form == TreeForm::list && !saved.pick; }));
  window.quit();
}

}  // namespace shardlens::viewer
