// Checks that small windows keep every panel in reach, and that panels stay where they are.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/acts.h"
#include "viewer/paint/geometry.h"
#include "viewer/paint/painter.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/commands.h"

namespace shardlens::viewer {
namespace {

struct OneRun {
  OneRun() {
    state.files = {folder.file("run.slp")};
    tests::write_profile(state.files[0], tests::view_recording({.steps = 3}));
  }
  tests::TemporaryFolder folder;
  ViewState state;
};

const Picture& pictured(Presenter& presenter, const Canvas& canvas) {
  return presenter.picture(canvas, plain_fonts(canvas.scale));
}

Box box_of(Presenter& presenter, const Canvas& canvas, Area::Kind kind) {
  const auto areas = areas_of(pictured(presenter, canvas), kind);
  REQUIRE_FALSE(areas.empty());
  return areas.front().box;
}

/// Returns the panels that are seen while all tabs are gone through.
std::set<std::string> panels_seen(Presenter& presenter, const Canvas& canvas) {
  std::set<std::string> seen;
  for (int i = 0; i < 6; ++i) {
    const Picture& picture = pictured(presenter, canvas);
    const auto shows = [&](Area::Kind kind) { return !areas_of(picture, kind).empty(); };
    if (shows(Area::Kind::lane)) seen.insert("lanes");
    if (shows(Area::Kind::table) || shows(Area::Kind::tree)) seen.insert("below");
    if (shows(Area::Kind::alive_row)) seen.insert("alive");
    if (says(picture, "Selected")) seen.insert("selection");
    if (shows(Area::Kind::control)) seen.insert("what if");
    act(presenter, "panel.front");
  }
  return seen;
}

}  // namespace

TEST_CASE("at any scale every panel is in reach, and its tab says so") {
  for (const double scale : {0.75, 1.0, 2.0, 3.0, 4.0}) {
    CAPTURE(scale);
    const Canvas canvas{1600, 1000, 0, scale};
    const OneRun run;
    Presenter presenter(run.state, "");
    CHECK(panels_seen(presenter, canvas) == std::set<std::string>{"lanes", "below", "alive"});
    act(presenter, {"whatif", "pick.next"});
    CHECK(panels_seen(presenter, canvas) ==
          std::set<std::string>{"lanes", "below", "alive", "selection", "what if"});
    act(presenter, {"tree", "tree.form"});
    CHECK(panels_seen(presenter, canvas).contains("below"));
    const auto tabs = areas_of(pictured(presenter, canvas), Area::Kind::tab);
    CHECK(tabs.empty() == (scale <= 1));
    for (const Area& tab : tabs) {
      presenter.press(tab.box.x + 2, tab.box.y + 2);
      presenter.release();
      CHECK(static_cast<size_t>(presenter.state().front) == tab.index);
    }
  }
}

TEST_CASE("a low window leaves a plot that can be read, and nothing covers another part") {
  struct Case {
    Canvas canvas;
    std::string layout;
  };
  for (const Case& one :
       {Case{{1200, 500, 0, 2}, "layout.columns"}, Case{{1200, 500, 0, 2}, "layout.rows"},
        Case{{1600, 1000, 0, 4}, "layout.columns"}, Case{{900, 300, 0, 1}, "layout.columns"}}) {
    CAPTURE(one.canvas.width, one.canvas.scale, one.layout);
    const OneRun run;
    Presenter presenter(run.state, "");
    act(presenter, one.layout);
    const Box plot = box_of(presenter, one.canvas, Area::Kind::lane);
    CHECK(plot.h >= 55 * one.canvas.scale);
    CHECK(plot.w >= 100 * one.canvas.scale);
    const Box title = box_of(presenter, one.canvas, Area::Kind::card);
    CHECK((title.right() <= plot.x || title.bottom() <= plot.y));
  }
}

TEST_CASE("the tree's panel and the plots stay where they are, whatever the tree holds") {
  const Canvas canvas{1600, 1000, 0, 1};
  const OneRun run;
  Presenter presenter(run.state, "");
  act(presenter, "tree");
  const Box plot = box_of(presenter, canvas, Area::Kind::lane);
  for (const char* const command : {"tree.form", "tree.of", "tree.of", "tree.by", "tree.from",
                                    "tree.form", "tree.more", "pick.next", "tree.zoom"}) {
    CAPTURE(command);
    act(presenter, command);
    const Box now = box_of(presenter, canvas, Area::Kind::lane);
    CHECK(now.y == plot.y);
    CHECK(now.h == plot.h);
  }
}

TEST_CASE("a press on an event leaves the list as it is") {
  const Canvas canvas{2200, 900, 0, 1};
  const OneRun run;
  Presenter presenter(run.state, "");
  act(presenter, {"align.event", "panel.events", "pick.next"});
  const auto rows = areas_of(pictured(presenter, canvas), Area::Kind::event_row);
  REQUIRE(rows.size() > 8);
  for (const size_t row : {size_t{1}, rows.size() / 2 + 2, size_t{3}}) {
    presenter.press(rows[row].box.x + 2, rows[row].box.y + 2);
    presenter.release();
    const auto now = areas_of(pictured(presenter, canvas), Area::Kind::event_row);
    CHECK(now.front().index == rows.front().index);
  }
  act(presenter, "peak");  // a moment that is not in the list is in its middle
  for (int i = 0; i < 40; ++i) act(presenter, "event.next");
  const auto moved = areas_of(pictured(presenter, canvas), Area::Kind::event_row);
  CHECK(moved.front().index != rows.front().index);
}

}  // namespace shardlens::viewer
