// Levers that are run from the window, by keyboard and mouse, on a display without a screen.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/support/viewer/acts.h"
#include "tests/support/viewer/driven_window.h"
#include "tests/support/viewer/lever_programs.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;

/// Returns where a window that shows a session has a part of a row of levers.
Box part_of_row(const LeverPrograms& programs, const ViewState& state, const std::string& lever,
                Area::Kind kind) {
  constexpr Canvas kWindow{1200, 800, 21, 1};  // the menu takes 21 pixels
  Presenter presenter(state, "");
  presenter.record_with(programs.record());
  const auto rows = presenter.facts().levers;
  const auto row = static_cast<size_t>(std::ranges::find(rows, lever) - rows.begin());
  const auto areas = areas_of(presenter.picture(kWindow, plain_fonts(1)), kind);
  const auto at = std::ranges::find(areas, row, &Area::index);
  REQUIRE(at != areas.end());
  return at->box;
}

/// Puts the viewer beside a stand-in for `shardlens-record`, which it finds there.
std::string viewer_beside(const LeverPrograms& programs) {
  const fs::path folder = programs.folder_.file("bin");
  fs::create_directories(folder);
  fs::copy_file(fs::path(SHARDLENS).parent_path() / "shardlens-view", folder / "shardlens-view");
  fs::copy_file(programs.record(), folder / "shardlens-record");
  return (folder / "shardlens-view").string();
}

}  // namespace

TEST_CASE("levers are run, stopped and shown by hand, and the window goes on meanwhile") {
  if (const auto missing = missing_driver(); !missing.empty()) SKIP(missing);
  LeverPrograms programs;
  programs.run.write();
  for (const char* lever : {"optimizer=single", "empty-cache", "recompute=full"}) {
    programs.prepare(lever, 40);
  }
  programs.wait_with("optimizer=single");
  programs.wait_with("empty-cache");
  const std::string session = programs.folder_.file("s.json");
  save_session(programs.state(), session);
  const Display display;
  DrivenWindow window(display, {.folder = programs.folder_.path(),
                                .session = session,
                                .command = {viewer_beside(programs), "--session", session, "--size",
                                            "1200x800", "--no-cache"}});
  const auto click = [&](const std::string& lever, Area::Kind kind) {
    const Box box = part_of_row(programs, load_session(session), lever, kind);
    window.click(static_cast<int>(box.right() - 3), static_cast<int>(box.y + box.h / 2));
  };
  const auto has_asked = [&](const std::string& sets) {
    return tests::wait_until([&] { return programs.asked() == sets; }, std::chrono::seconds(300));
  };
  window.keys({"alt+i"});
  CHECK(window.settles([](const ViewState& saved) { return saved.what_if.has_value(); }));
  window.keys({"alt+j"});
  CHECK(window.settles([](const ViewState& saved) { return saved.what_if->lever_row == 1; }));
  window.keys({"alt+g"});
  CHECK(has_asked("optimizer=single\n"));
  // While the program runs, keys do what they did, and another lever waits.
  window.keys({"t"});
  CHECK(window.settles([](const ViewState& saved) { return saved.theme == Theme::dark; }));
  click("empty-cache", Area::Kind::lever_act);
  CHECK(window.settles([](const ViewState& saved) { return saved.what_if->lever_row == 2; }));
  programs.go_with("optimizer=single");
  CHECK(window.settles([](const ViewState& saved) { return saved.files.size() == 2; }));
  CHECK(has_asked("optimizer=single\nempty-cache\n"));
  window.keys({"alt+shift+g"});
  click("recompute=full", Area::Kind::lever_mark);
  CHECK(window.settles([](const ViewState& saved) { return saved.what_if->levers.size() == 1; }));
  window.keys({"alt+g"});
  CHECK(window.settles([](const ViewState& saved) { return saved.files.size() == 3; }));
  CHECK(has_asked("optimizer=single\nempty-cache\nrecompute=full\n"));
  const ViewState last = load_session(session);
  CHECK(last.files[1].ends_with("/with/optimizer=single"));
  CHECK(last.files[2].ends_with("/with/recompute=full"));
  window.quit();
}

}  // namespace shardlens::viewer
