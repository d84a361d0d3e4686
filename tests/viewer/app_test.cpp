// Runs the program as a user starts it: reports, screenshots without a display, and all wrong
// flags.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

#include "tests/support/process.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/driven_window.h"
#include "tests/support/viewer/png_file.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {
namespace {

using tests::ProcessEnd;

ProcessEnd view(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"/usr/bin/env", kDriverLeaks, SHARDLENS, "view"});
  arguments.emplace_back("--no-cache");
  return tests::run(arguments);
}

bool has_offscreen(const Files& files) {
  const ProcessEnd ended = view({files.a, "--screenshot", files.folder.file("probe.png")});
  return ended.err.find("no OpenGL") == std::string::npos;
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
    const ProcessEnd ended = view({files.a, files.b, flag, path});
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(tests::read_file(path).find("reshard") != std::string::npos);
  }
}

TEST_CASE("a missing file is reported before a display is asked for") {
  const ProcessEnd ended = tests::run({"/usr/bin/env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY",
                                       kDriverLeaks, SHARDLENS, "view", "nothing.slp"});
  CHECK(ended.exit_code == 2);
  CHECK(
      ended.err ==
      "shardlens view: nothing.slp: no such file or folder; give a run's folder or a .slp file\n");
}

TEST_CASE("a report is for the memory that the last command chose") {
  const Files files;
  const std::string path = files.folder.file("report.txt");
  REQUIRE(view({files.a, "--do", "memory.next", "--report", path}).exit_code == 0);
  CHECK(tests::read_file(path).starts_with("Host memory of keep\n"));
  CHECK(tests::read_file(path).find("nothing is allocated in this range") != std::string::npos);
}

TEST_CASE("a report for a range names the range") {
  const Files files;
  const std::string path = files.folder.file("report.txt");
  REQUIRE(view({files.a, files.b, "--range", "1:2", "--report", path}).exit_code == 0);
  CHECK(tests::read_file(path).find(", from 1 to 2 (step") != std::string::npos);
}

TEST_CASE("a screenshot is the same bytes twice, in the size that was asked for") {
  const Files files;
  if (!has_offscreen(files)) SKIP("this machine has no EGL that draws without a display");
  const std::string first = files.folder.file("first.png");
  const std::string second = files.folder.file("second.png");
  for (const std::string& path : {first, second}) {
    const ProcessEnd ended = view({files.a, files.b, "--screenshot", path, "--size", "900x600"});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
  }
  CHECK(tests::read_file(first) == tests::read_file(second));
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
    const ProcessEnd ended =
        view({files.a, files.b, "--screenshot", path, "--size", "1100x700", "--do", script});
    CAPTURE(script, ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(pictures.insert(tests::read_file(path)).second);
  }
  const std::string fine = files.folder.file("fine.png");
  CHECK(view({files.a, "--screenshot", fine, "--size", "1600x1200", "--scale", "2"}).exit_code ==
        0);
}

TEST_CASE("a range shows the same as a session with that view") {
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
  CHECK(tests::read_file(first) == tests::read_file(second));
}

TEST_CASE("the what-if panel is in a screenshot, the same bytes twice") {
  const Files files;
  if (!has_offscreen(files)) SKIP("this machine has no EGL that draws without a display");
  const std::string config = files.folder.file("config.json");
  tests::write_file(config, R"({"model":"vit-tutorial","data":"synthetic","device":"null:h200"})");
  std::set<std::string> pictures;
  for (const char* script : {"whatif,whatif.batch.more", "whatif,whatif.batch.more", "whatif"}) {
    const std::string path = files.folder.file("whatif.png");
    const ProcessEnd ended = view({config, "--screenshot", path, "--do", script});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    pictures.insert(tests::read_file(path));
  }
  CHECK(pictures.size() == 2);
}

TEST_CASE("a file that cannot be opened is a message, and the rest is drawn") {
  const Files files;
  const std::string path = files.folder.file("report.txt");
  const ProcessEnd ended = view({files.a, files.folder.file("none"), "--report", path});
  CHECK(ended.exit_code == 1);
  CHECK(ended.err.find("none: no such file or folder") != std::string::npos);
  CHECK(tests::read_file(path).find("keep") != std::string::npos);
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
    const ProcessEnd ended = view(arguments);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(ended.err.starts_with("shardlens view: "));
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  }
}

TEST_CASE("the help lists every command") {
  const ProcessEnd ended = tests::run({SHARDLENS, "view", "--help"});
  CHECK(ended.exit_code == 0);
  CHECK(ended.out.find("layout.difference") != std::string::npos);
}

TEST_CASE("without a display the window is refused with an alternative") {
  const ProcessEnd ended =
      tests::run({"/usr/bin/env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY", SHARDLENS, "view"});
  CHECK(ended.exit_code == 1);
  CHECK(ended.err.find("--screenshot") != std::string::npos);
}

}  // namespace shardlens::viewer
