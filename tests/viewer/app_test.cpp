// Runs the program as a user starts it: reports, screenshots without a display, and all wrong
// flags.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

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

TEST_CASE("a figure as SVG has plots and a legend, and nothing of the window") {
  const Files files;
  const std::string path = files.folder.file("figure.svg");
  const ProcessEnd ended = view({files.a, files.b, "--figure", path, "--size", "480x300"});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string svg = tests::read_file(path);
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.find(R"(width="480" height="300" viewBox="0 0 1440 900")") != std::string::npos);
  for (const char* label : {"keep", "reshard", "activation", "forward", "steps"}) {
    CAPTURE(label);
    CHECK(svg.find(fmt::format("aria-label=\"{}\"", label)) != std::string::npos);
  }
  for (const char* chrome : {"Memory of", "Alive at", "at each run", "compared with"}) {
    CAPTURE(chrome);
    CHECK(svg.find(chrome) == std::string::npos);
  }
  CHECK(svg.find("<text") == std::string::npos);  // letters are outlines
  const auto count = [&](std::string_view part) {
    size_t found = 0;
    for (size_t at = svg.find(part); at != svg.npos; at = svg.find(part, at + 1)) ++found;
    return found;
  };
  CHECK(count("<image ") == 4);  // two plots and their ribbons
}

TEST_CASE("a figure as PDF has its objects where its table says") {
  const Files files;
  const std::string path = files.folder.file("figure.pdf");
  const ProcessEnd ended =
      view({files.a, "--figure", path, "--size", "640x400", "--do", "theme.next"});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string pdf = tests::read_file(path);
  CHECK(pdf.starts_with("%PDF-1.4\n"));
  CHECK(pdf.ends_with("%%EOF\n"));
  CHECK(pdf.find("/MediaBox [0 0 640 400]") != std::string::npos);
  const size_t start = pdf.rfind("startxref\n") + 10;
  const size_t table = std::stoul(pdf.substr(start));
  REQUIRE(pdf.substr(table, 7) == "xref\n0 ");
  const size_t count = std::stoul(pdf.substr(table + 7));
  const size_t first = pdf.find('\n', table + 5) + 1;
  REQUIRE(count > 5);
  for (size_t i = 1; i < count; ++i) {
    constexpr size_t kEntry = 20;  // bytes, as the format says
    const size_t at = std::stoul(pdf.substr(first + kEntry * i, 10));
    CHECK(pdf.substr(at, fmt::format("{} 0 obj\n", i).size()) == fmt::format("{} 0 obj\n", i));
  }
  CHECK(pdf.find("/Font") == std::string::npos);
}

TEST_CASE("a figure as PNG has the size that was asked for") {
  const Files files;
  if (!has_offscreen(files)) SKIP("this machine has no EGL that draws without a display");
  const std::string path = files.folder.file("figure.png");
  REQUIRE(view({files.a, "--figure", path, "--size", "300x200", "--scale", "2"}).exit_code == 0);
  const Pixels pixels = pixels_of(path);
  CHECK(pixels.width == 600);
  CHECK(pixels.height == 400);
  CHECK(pixels.colors.contains(0x0072B2U));
}

TEST_CASE("a figure that has no room for all runs is refused, and no file is written") {
  const Files files;
  const std::string path = files.folder.file("small.svg");
  const ProcessEnd ended = view({files.a, files.b, "--figure", path, "--size", "180x120"});
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("has no room for all runs; give a larger --size") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(path));
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
      {files.a, "--figure", files.folder.file("x.eps")},
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
