// The program as a user starts it: reports, screenshots without a display, a window in a virtual
// one, and everything that can be wrong with its flags.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>

#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>

#include "profiler/exchange/write_recording.h"
#include "tests/support/process.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/stacked_recording.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;
using test::Ended;

struct Files {
  Files() {
    test::write_profile(a, test::view_recording({.keep_weights = true}));
    test::write_profile(b, test::view_recording({.forward_ns = 9'000'000}));
  }
  test::TemporaryFolder folder;
  std::string a = folder.file("keep.slp");
  std::string b = folder.file("reshard.slp");
};

/// What a driver of OpenGL keeps to itself until the process ends is not ours to free.
constexpr const char* kDriverLeaks = "ASAN_OPTIONS=detect_leaks=0";

Ended view(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"/usr/bin/env", kDriverLeaks, SHARDLENS, "view"});
  arguments.emplace_back("--no-cache");
  return test::run(arguments);
}

bool has_offscreen(const Files& files) {
  const Ended ended = view({files.a, "--screenshot", files.folder.file("probe.png")});
  return ended.err.find("no OpenGL") == std::string::npos;
}

struct Pixels {
  int width = 0;
  int height = 0;
  std::set<unsigned> colors;
};

Pixels pixels_of(const std::string& path) {
  Pixels pixels;
  int channels = 0;
  stbi_uc* const bytes = stbi_load(path.c_str(), &pixels.width, &pixels.height, &channels, 3);
  REQUIRE(bytes != nullptr);
  for (int i = 0; i < pixels.width * pixels.height; ++i) {
    pixels.colors.insert(static_cast<unsigned>(bytes[3 * i]) << 16 |
                         static_cast<unsigned>(bytes[3 * i + 1]) << 8 | bytes[3 * i + 2]);
  }
  stbi_image_free(bytes);
  return pixels;
}

bool is_program(const char* path) { return fs::exists(path); }

/// A display of its own, without a screen.
class Display {
 public:
  Display()
      : server_({"/bin/sh", "-c",
                 "exec Xvfb -displayfd 3 -screen 0 1280x900x24 -nolisten tcp 3>" + number_file()}) {
    REQUIRE(test::wait_until([&] { return fs::exists(number_file()) && !number().empty(); }));
  }
  std::string name() const { return "DISPLAY=:" + number(); }

 private:
  std::string number_file() const { return folder_.file("number"); }
  std::string number() const {
    std::string text = test::read_file(number_file());
    return text.ends_with('\n') ? text.substr(0, text.size() - 1) : "";
  }

  test::TemporaryFolder folder_;
  test::Process server_;
};

/// A window on a display, driven by events of a keyboard and a mouse.
class DrivenWindow {
 public:
  DrivenWindow(const Display& display, const std::string& folder, const std::string& session,
               const std::string& editor = "")
      : display_(display.name()),
        program_({"/usr/bin/env", "-C", folder, display_, kDriverLeaks,
                  "XDG_CACHE_HOME=" + folder + "/cache", "SHARDLENS_EDITOR=" + editor, SHARDLENS,
                  "view", "--session", session, "--size", "1200x800", "--no-cache"}) {
    const Ended found = xdotool({"search", "--sync", "--onlyvisible", "--name", "^Shardlens$"});
    REQUIRE(found.exit_code == 0);
    window_ = found.out.substr(0, found.out.find('\n'));
    REQUIRE(xdotool({"windowfocus", "--sync", window_}).exit_code == 0);
  }
  void keys(const std::vector<std::string>& names) {
    for (const std::string& name : names) REQUIRE(xdotool({"key", name}).exit_code == 0);
  }
  void type(const std::string& text) {
    REQUIRE(xdotool({"type", "--delay", "0", text}).exit_code == 0);
  }
  void click(int x, int y) {
    REQUIRE(xdotool({"mousemove", "--window", window_, std::to_string(x), std::to_string(y)})
                .exit_code == 0);
    REQUIRE(xdotool({"click", "1"}).exit_code == 0);
  }
  /// Saves the session until it is as it should be: what was pressed has then been drawn, too. The
  /// window may be slow, so time decides only where it stands still altogether.
  bool settles(const std::string& session, const std::function<bool(const ViewState&)>& wanted) {
    constexpr int kMostSaves = 200;
    for (int i = 0; i < kMostSaves; ++i) {
      fs::remove(session);
      keys({"ctrl+s"});
      if (!test::wait_until([&] { return fs::exists(session); }, kStandstill)) return false;
      if (wanted(load_session(session))) return true;
    }
    return false;
  }
  Ended wait() { return program_.wait(); }

 private:
  static constexpr std::chrono::seconds kStandstill{300};

  Ended xdotool(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"/usr/bin/env", display_, "timeout", "300", "xdotool"});
    return test::run(arguments);
  }

  std::string display_;
  std::string window_;
  test::Process program_;
};

/// Writes a session, drives a window through it, and returns the picture that was exported.
std::string driven_picture(const Display& display, const Files& files, const std::string& folder) {
  fs::create_directories(folder);
  const std::string session = folder + "/s.json";
  ViewState state;
  state.files = {files.a, files.b};
  save_session(state, session);
  DrivenWindow window(display, folder, session);
  window.keys({"1", "t", "alt+3", "bracketright"});
  CHECK(window.settles(session, [](const ViewState& saved) {
    return saved.layout == Layout::rows && saved.theme == Theme::dark &&
           saved.alignment == Alignment::phase && saved.view == Range{0, 1};
  }));
  window.click(620, 190);
  CHECK(window.settles(session, [](const ViewState& saved) { return saved.cursor.has_value(); }));
  window.keys({"g"});
  CHECK(window.settles(session,
                       [](const ViewState& saved) { return saved.grouping == Grouping::label; }));
  const std::string picture = folder + "/s.png";
  window.keys({"ctrl+e"});
  CHECK(test::wait_until([&] { return fs::exists(picture); }, std::chrono::seconds(300)));
  window.keys({"ctrl+q"});
  CHECK(window.wait().exit_code == 0);
  // What was looked at is there again without having been saved.
  const ViewState last = load_session(folder + "/cache/shardlens/last.session.json");
  CHECK(last.grouping == Grouping::label);
  CHECK(last.files == state.files);
  CHECK(test::read_file(folder + "/cache/shardlens/recent.txt") == files.a + "\n" + files.b + "\n");
  return picture;
}

/// Returns true for a session in which a place of the tree is selected, as in `has`.
bool is_at_place(const ViewState& state, bool is_zoomed) {
  return state.pick && state.pick->scope == PickScope::place &&
         state.tree.zoom.empty() != is_zoomed;
}

}  // namespace

TEST_CASE("reports and pages are written without OpenGL or display") {
  const Files files;
  const std::vector<std::pair<std::string, std::string>> kinds = {{"--report", "report.txt"},
                                                                  {"--report", "report.json"},
                                                                  {"--report", "report.csv"},
                                                                  {"--export", "page.html"}};
  for (const auto& [flag, name] : kinds) {
    const std::string path = files.folder.file(name);
    const Ended ended = view({files.a, files.b, flag, path});
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(test::read_file(path).find("reshard") != std::string::npos);
  }
}

TEST_CASE("a file that is missing is said before a display is asked for") {
  const Ended ended = test::run({"/usr/bin/env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY",
                                 kDriverLeaks, SHARDLENS, "view", "nothing.slp"});
  CHECK(ended.exit_code == 2);
  CHECK(
      ended.err ==
      "shardlens view: nothing.slp: no such file or folder; give a run's folder or a .slp file\n");
}

TEST_CASE("a report is of the memory that the last command chose") {
  const Files files;
  const std::string path = files.folder.file("report.txt");
  REQUIRE(view({files.a, "--do", "memory.next", "--report", path}).exit_code == 0);
  CHECK(test::read_file(path).starts_with("Host memory of keep\n"));
  CHECK(test::read_file(path).find("nothing is allocated there") != std::string::npos);
}

TEST_CASE("a report of a range says which") {
  const Files files;
  const std::string path = files.folder.file("report.txt");
  REQUIRE(view({files.a, files.b, "--range", "1:2", "--report", path}).exit_code == 0);
  CHECK(test::read_file(path).find(", from 1 to 2 (step") != std::string::npos);
}

TEST_CASE("a screenshot is the same bytes twice, in the size that was asked for") {
  const Files files;
  if (!has_offscreen(files)) SKIP("this machine has no EGL that draws without a display");
  const std::string first = files.folder.file("first.png");
  const std::string second = files.folder.file("second.png");
  for (const std::string& path : {first, second}) {
    const Ended ended = view({files.a, files.b, "--screenshot", path, "--size", "900x600"});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
  }
  CHECK(test::read_file(first) == test::read_file(second));
  const Pixels pixels = pixels_of(first);
  CHECK(pixels.width == 900);
  CHECK(pixels.height == 600);
  CHECK(pixels.colors.size() > 50);
  // Categories have their colours on screen.
  for (const unsigned color : {0x0072B2U, 0x009E73U, 0x56B4E9U})
    CHECK(pixels.colors.contains(color));
}

TEST_CASE("every layout, detail and theme has a screenshot of its own") {
  const Files files;
  if (!has_offscreen(files)) SKIP("this machine has no EGL that draws without a display");
  std::set<std::string> pictures;
  const std::vector<std::string> scripts = {"layout.columns",     "layout.rows", "layout.overlay",
                                            "layout.difference",  "detail.next", "theme.next",
                                            "ranks.next,hatches", "align.event", "peak,zoom.in",
                                            "panel.alive",        "scale.up"};
  for (const std::string& script : scripts) {
    const std::string path = files.folder.file("view.png");
    const Ended ended =
        view({files.a, files.b, "--screenshot", path, "--size", "1100x700", "--do", script});
    CAPTURE(script, ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(pictures.insert(test::read_file(path)).second);
  }
  const std::string fine = files.folder.file("fine.png");
  CHECK(view({files.a, "--screenshot", fine, "--size", "1600x1200", "--scale", "2"}).exit_code ==
        0);
}

TEST_CASE("a range is what a session with that view shows") {
  const Files files;
  if (!has_offscreen(files)) SKIP("this machine has no EGL that draws without a display");
  const std::string session = files.folder.file("range.session.json");
  ViewState state;
  state.files = {files.a, files.b};
  state.focus = 1;  // two files are opened with the second one in focus, a session as it was saved
  state.view = Range{1, 2.5};
  save_session(state, session);
  const std::string first = files.folder.file("first.png");
  const std::string second = files.folder.file("second.png");
  REQUIRE(view({"--session", session, "--screenshot", first}).exit_code == 0);
  REQUIRE(view({files.a, files.b, "--do", "align.time,align.step", "--range", "1:2.5",
                "--screenshot", second})
              .exit_code == 0);
  CHECK(test::read_file(first) == test::read_file(second));
}

TEST_CASE("the what-if panel is in a screenshot, the same bytes twice") {
  const Files files;
  if (!has_offscreen(files)) SKIP("this machine has no EGL that draws without a display");
  const std::string config = files.folder.file("config.json");
  test::write_file(config, R"({"model":"vit-tutorial","data":"synthetic","device":"null:h200"})");
  std::set<std::string> pictures;
  for (const char* script : {"whatif,whatif.batch.more", "whatif,whatif.batch.more", "whatif"}) {
    const std::string path = files.folder.file("whatif.png");
    const Ended ended = view({config, "--screenshot", path, "--do", script});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    pictures.insert(test::read_file(path));
  }
  CHECK(pictures.size() == 2);
}

TEST_CASE("what cannot be opened is a message, and the rest is drawn") {
  const Files files;
  const std::string path = files.folder.file("report.txt");
  const Ended ended = view({files.a, files.folder.file("none"), "--report", path});
  CHECK(ended.exit_code == 1);
  CHECK(ended.err.find("none: no such file or folder") != std::string::npos);
  CHECK(test::read_file(path).find("keep") != std::string::npos);
  CHECK(view({files.folder.file("none"), "--report", path}).exit_code == 1);
}

TEST_CASE("wrong usage is one line and exit code 2") {
  const Files files;
  const std::string png = files.folder.file("x.png");
  const std::vector<std::vector<std::string>> wrong = {
      {files.a, "--screenshot", files.folder.file("x.jpg")},
      {files.a, "--screenshot", png, "--size", "big"},
      {files.a, "--screenshot", png, "--size", "10x10"},
      {files.a, "--screenshot", png, "--scale", "99"},
      {files.a, "--screenshot", png, "--do", "no.such"},
      {files.a, "--report", files.folder.file("x.pdf")},
      {files.a, "--report", files.folder.file("x.html")},
      {files.a, "--export", files.folder.file("x.txt")},
      {files.a, "--report", files.folder.file("x.txt"), "--baseline", "nobody"},
      {"--report", files.folder.file("x.txt")},
      {files.a, "--screenshot", png, "--range", "5:3"},
      {files.a, "--screenshot", png, "--editor", "vi"},
      {files.a, "--screenshot", png, "--range", "3"},
      {files.a, "--report", files.folder.file("x.txt"), "--range", "30:40"},
      {"--session", png, "--last"},
      {"--session", files.folder.file("none.json"), "--report", files.folder.file("x.txt")},
      {"--no-such-flag"}};
  for (const auto& arguments : wrong) {
    const Ended ended = view(arguments);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(ended.err.starts_with("shardlens view: "));
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  }
}

TEST_CASE("the help lists every command") {
  const Ended ended = test::run({SHARDLENS, "view", "--help"});
  CHECK(ended.exit_code == 0);
  CHECK(ended.out.find("layout.difference") != std::string::npos);
}

TEST_CASE("without a display the window is refused with what to do instead") {
  const Ended ended =
      test::run({"/usr/bin/env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY", SHARDLENS, "view"});
  CHECK(ended.exit_code == 1);
  CHECK(ended.err.find("--screenshot") != std::string::npos);
}

TEST_CASE("keys mean what a German keyboard says that they are") {
  for (const char* program : {"/usr/bin/Xvfb", "/usr/bin/xdotool", "/usr/bin/setxkbmap"}) {
    if (!is_program(program)) SKIP(std::string(program) + " is not installed");
  }
  const Files files;
  const Display display;
  REQUIRE(test::run({"/usr/bin/env", display.name(), "setxkbmap", "de"}).exit_code == 0);
  const std::string folder = files.folder.file("german");
  fs::create_directories(folder);
  const std::string session = folder + "/s.json";
  ViewState state;
  state.files = {files.a};
  save_session(state, session);
  DrivenWindow window(display, folder, session);
  window.keys({"bracketright"});  // AltGr and 9
  CHECK(window.settles(session, [](const ViewState& saved) { return saved.view.has_value(); }));
  const auto settles = [&](Grouping wanted) {
    return window.settles(session,
                          [=](const ViewState& saved) { return saved.grouping == wanted; });
  };
  window.keys({"g"});
  CHECK(settles(Grouping::label));
  window.keys({"z"});  // where an American keyboard has Y
  CHECK(settles(Grouping::category));
  window.keys({"ctrl+q"});
  CHECK(window.wait().exit_code == 0);
}

TEST_CASE("a window is driven by keyboard and mouse, twice to the same picture") {
  if (!is_program("/usr/bin/Xvfb") || !is_program("/usr/bin/xdotool")) {
    SKIP("Xvfb or xdotool is not installed");
  }
  const Files files;
  const Display display;
  const std::string first = driven_picture(display, files, files.folder.file("first"));
  const std::string second = driven_picture(display, files, files.folder.file("second"));
  CHECK(pixels_of(first).colors.size() > 50);
  CHECK(test::read_file(first) == test::read_file(second));
}

TEST_CASE("lanes are sorted, folded, renamed, closed and brought back by hand") {
  if (!is_program("/usr/bin/Xvfb") || !is_program("/usr/bin/xdotool")) {
    SKIP("Xvfb or xdotool is not installed");
  }
  const test::TemporaryFolder folder;
  const std::string session = folder.file("s.json");
  ViewState state;
  for (int i = 0; i < 12; ++i) {
    state.files.push_back(folder.file("run" + std::to_string(i) + ".slp"));
    test::write_profile(state.files.back(),
                        test::view_recording({.steps = 1, .activation_bytes = (3 + i) << 20}));
  }
  save_session(state, session);
  const Display display;
  DrivenWindow window(display, folder.file(""), session);
  const auto settles = [&](const std::function<bool(const Lanes&)>& wanted) {
    return window.settles(session, [&](const ViewState& saved) { return wanted(saved.lanes); });
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
  CHECK(
      window.settles(session, [](const ViewState& saved) { return saved.search == "mlp3 >1MiB"; }));
  window.keys({"ctrl+f"});
  CHECK(settles([](const Lanes& lanes) { return lanes.folded.size() == 11; }));
  window.keys({"ctrl+w"});
  CHECK(settles([](const Lanes& lanes) { return lanes.closed.size() == 1; }));
  window.keys({"z"});
  CHECK(settles([](const Lanes& lanes) { return lanes.closed.empty(); }));
  window.keys({"ctrl+u"});
  CHECK(settles([](const Lanes& lanes) { return lanes.folded.empty(); }));
  window.keys({"ctrl+q"});
  CHECK(window.wait().exit_code == 0);
}

TEST_CASE("a block is selected, opened in the editor and found in the flame graph, by hand") {
  if (!is_program("/usr/bin/Xvfb") || !is_program("/usr/bin/xdotool")) {
    SKIP("Xvfb or xdotool is not installed");
  }
  const test::TemporaryFolder folder;
  const std::string session = folder.file("s.json");
  ViewState state;
  state.files = {folder.file("run.slp")};
  profiler::write_recording(test::stacked_recording({}, 0, folder.file("src")), state.files[0]);
  fs::create_directories(folder.file("src"));
  test::write_file(folder.file("src/model.py"), "the script");
  save_session(state, session);
  const Display display;
  DrivenWindow window(display, folder.file(""), session, "cp {file} opened-{line}");
  window.keys({"s"});
  CHECK(window.settles(session, [](const ViewState& saved) { return saved.pick.has_value(); }));
  window.keys({"e"});
  CHECK(test::wait_until([&] { return fs::exists(folder.file("opened-40")); },
                         std::chrono::seconds(300)));
  window.keys({"F9"});
  CHECK(window.settles(session, [](const ViewState& saved) { return saved.tree.is_open; }));
  window.click(300, 545);
  CHECK(window.settles(session, [](const ViewState& saved) { return is_at_place(saved, true); }));
  window.keys({"shift+Return"});
  CHECK(window.settles(session, [](const ViewState& saved) { return is_at_place(saved, false); }));
  window.keys({"l", "Escape"});
  CHECK(window.settles(session, [](const ViewState& saved) {
    return saved.tree.form == TreeForm::list && !saved.pick;
  }));
  window.keys({"ctrl+q"});
  CHECK(window.wait().exit_code == 0);
}

}  // namespace shardlens::viewer
