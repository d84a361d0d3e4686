// Compares lanes, a session's plots and the what-if panel with pictures that a person has approved:
// tests/fixtures/viewer/*.png. They are the same bytes on every machine, since no graphics driver
// draws them, and have no text. After an intended change, viewer_tests "[record]" writes them
// again; look at them before you keep them.

#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "profiler/exchange/write_recording.h"
#include "tests/support/process.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/stacked_recording.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/acts.h"
#include "tests/support/viewer/lever_programs.h"
#include "viewer/model/lane_builder.h"
#include "viewer/scene/block_image.h"
#include "viewer/scene/lane_image.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {
namespace {

constexpr int kWidth = 320;
constexpr int kHeight = 160;
constexpr Canvas kSessionCanvas{1000, 640, 0, 1};
constexpr Canvas kPanelCanvas{1400, 900, 0, 1};

std::string path_of(const std::string& name) {
  return SHARDLENS_SOURCE_DIR "/tests/fixtures/viewer/" + name + ".png";
}

struct OpenedLane {
  explicit OpenedLane(const tests::ViewRecordingOptions& options)
      : lane(lane_of(tests::view_recording(options))), names(lane.info().header) {}
  Columns columns(const OpenedLane& baseline, const Range& x) const {
    const Warp warp = warp_of(Alignment::phase, {&lane, &names}, {&baseline.lane, &baseline.names});
    return columns_of(warp, lane, x, kWidth);
  }

  Lane lane;
  ActionNames names;
};

std::map<std::string, Image> lane_images() {
  const OpenedLane keep({.keep_weights = true});
  const OpenedLane reshard({.activation_bytes = 4 << 20, .forward_ns = 9'000'000});
  const Range all{-1, 4};
  const Columns a = keep.columns(keep, all);
  const Columns b = reshard.columns(keep, all);
  LaneStyle style{.height = kHeight,
                  .top_bytes = 1.08 * static_cast<double>(reshard.lane.peak().max_bytes)};
  std::map<std::string, Image> lanes;
  lanes["stack"] = stack_image(a, style);
  lanes["step"] = stack_image(reshard.columns(keep, {1, 2}), style);
  lanes["folded"] = folded_image({a, b}, style);
  lanes["blocks"] = block_stack_image(keep.lane, a, style);
  draw_outline(lanes["outline"] = stack_image(a, style), totals_of(b, 0), style,
               line_color(1, Theme::light), 0);
  style.theme = Theme::dark;
  style.hatch_period = 7;
  lanes["hatches"] = stack_image(b, style);
  style.top_bytes /= 4;
  lanes["difference"] = difference_image(difference(a, b), style);
  return lanes;
}

/// Everything except text in the smallest box with all areas of a kind.
Image plots(Presenter& presenter, Area::Kind kind, const Canvas& canvas = kSessionCanvas) {
  const Picture& picture = presenter.picture(canvas, plain_fonts(1));
  std::optional<Box> all;
  for (const Area& area : picture.areas) {
    if (area.kind != kind) continue;
    const Box before = all.value_or(area.box);
    const float x = std::min(before.x, area.box.x);
    const float y = std::min(before.y, area.box.y);
    all = {x, y, std::max(before.right(), area.box.right()) - x,
           std::max(before.bottom(), area.box.bottom()) - y};
  }
  REQUIRE(all);
  const Image& ground = presenter.ground();
  Image image;
  image.width = static_cast<int>(all->w);
  image.height = static_cast<int>(all->h);
  for (int row = 0; row < image.height; ++row) {
    for (int x = 0; x < image.width; ++x) {
      image.pixels.push_back(
          ground.at(static_cast<int>(all->x) + x, static_cast<int>(all->y) + row));
    }
  }
  return image;
}

/// Selects the right half of the first plot.
void select_half(Presenter& presenter) {
  for (const Area& area : presenter.picture(kSessionCanvas, plain_fonts(1)).areas) {
    if (area.kind != Area::Kind::lane) continue;
    presenter.press(area.box.x + area.box.w / 2, area.box.y + area.box.h / 2);
    presenter.drag(area.box.right() - 1);
    return presenter.release();
  }
}

/// Opened, aligned, zoomed, selected, compared, saved and opened again.
std::map<std::string, Image> session_images() {
  const tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("keep.slp"), folder.file("reshard.slp")};
  tests::write_profile(state.files[0], tests::view_recording({.keep_weights = true}));
  tests::write_profile(state.files[1], tests::view_recording(
                                           {.activation_bytes = 4 << 20, .forward_ns = 9'000'000}));
  Presenter presenter(state, "");
  std::map<std::string, Image> images;
  images["session-opened"] = plots(presenter, Area::Kind::lane);
  act(presenter, {"align.phase", "step.next", "zoom.in"});
  select_half(presenter);
  images["session-selected"] = plots(presenter, Area::Kind::lane);
  act(presenter, {"layout.overlay"});
  images["session-overlay"] = plots(presenter, Area::Kind::lane);
  act(presenter, {"layout.difference", "theme.next"});
  images["session-difference"] = plots(presenter, Area::Kind::lane);
  save_session(presenter.state(), folder.file("s.json"));
  Presenter again(load_session(folder.file("s.json")), "");
  CHECK(plots(again, Area::Kind::lane).pixels == images["session-difference"].pixels);
  return images;
}

/// More lanes than there is room for, some of them folded.
std::map<std::string, Image> lanes_images() {
  const tests::TemporaryFolder folder;
  ViewState state;
  for (int i = 0; i < 14; ++i) {
    state.files.push_back(folder.file("run" + std::to_string(i) + ".slp"));
    tests::write_profile(
        state.files.back(),
        tests::view_recording({.steps = 1, .activation_bytes = (3 + i % 5) << 20}));
    if (i % 3 == 1) state.lanes.folded.push_back(state.files.back());
  }
  state.lanes.sort = LaneSort::peak;
  Presenter presenter(state, "");
  std::map<std::string, Image> images;
  images["lanes-many"] = plots(presenter, Area::Kind::lane);
  images["lanes-folded"] = plots(presenter, Area::Kind::folded_lane);
  act(presenter, {"step.next", "height.fit", "height.in", "height.in"});
  images["lanes-fitted"] = plots(presenter, Area::Kind::lane);
  act(presenter, {"lanes.down", "layout.rows"});
  images["lanes-bar"] = plots(presenter, Area::Kind::lane_bar);
  return images;
}

std::map<std::string, Image> what_if_images() {
  const tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("config.json")};
  tests::write_file(state.files[0],
                    R"({"model":"vit-tutorial","data":"synthetic","device":"null:h200"})");
  Presenter presenter(state, "");
  act(presenter, {"whatif", "whatif.batch.more", "whatif.offload.next"});
  return {{"what-if", plots(presenter, Area::Kind::control, kPanelCanvas)}};
}

/// Levers in each state: known, not known, marked, chosen, running, failed, not applicable.
std::map<std::string, Image> lever_images() {
  LeverPrograms programs;
  programs.run.write();
  programs.add_variant("recompute=full", 40);
  programs.add_variant("optimizer=single", 90000);
  programs.prepare_failure("optimizer=fused", "shardlens record: it failed\n", 1);
  programs.wait_with("empty-cache");
  Presenter presenter(programs.state(), "");
  presenter.record_with(programs.record());
  plots(presenter, Area::Kind::lane);
  act(presenter, {"whatif", "whatif.lever.run", "whatif.lever.next", "whatif.lever.next"});
  plots(presenter, Area::Kind::lever, kPanelCanvas);
  presenter.set_lever_patience(std::chrono::milliseconds(0));
  act(presenter, {"whatif.lever.run", "whatif.lever.next", "whatif.lever.mark"});
  REQUIRE(tests::wait_until([&] { return !programs.asked().ends_with("fused\n"); }));
  presenter.follow_levers();
  return {{"what-if-levers", plots(presenter, Area::Kind::lever, kPanelCanvas)}};
}

/// A selection in every kind of plot, and the tree in its forms.
std::map<std::string, Image> tree_images() {
  const tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("before.slp"), folder.file("after.slp")};
  profiler::write_recording(tests::stacked_recording({.keep_weights = true}), state.files[0]);
  profiler::write_recording(
      tests::stacked_recording({.keep_weights = true, .activation_bytes = 4 << 20}, 9),
      state.files[1]);
  Presenter presenter(state, "");
  std::map<std::string, Image> images;
  act(presenter, {"pick.next", "pick.wider", "pick.wider"});
  images["pick-category"] = plots(presenter, Area::Kind::lane);
  act(presenter, {"detail.next", "pick.wider"});
  images["pick-block"] = plots(presenter, Area::Kind::lane);
  act(presenter, {"detail.next"});
  images["pick-address"] = plots(presenter, Area::Kind::lane);
  act(presenter, {"cursor.clear", "tree"});
  images["tree-flame"] = plots(presenter, Area::Kind::frame, kPanelCanvas);
  presenter.set_search("mlp");
  images["tree-search"] = plots(presenter, Area::Kind::frame, kPanelCanvas);
  act(presenter, {"search.clear", "tree.from", "tree.by", "tree.by"});
  images["tree-category"] = plots(presenter, Area::Kind::frame, kPanelCanvas);
  act(presenter, {"tree.by", "tree.from", "focus.next"});
  images["tree-changed"] = plots(presenter, Area::Kind::frame, kPanelCanvas);
  act(presenter, {"tree.form", "theme.next"});
  images["tree-list"] = plots(presenter, Area::Kind::place_row, kPanelCanvas);
  return images;
}

/// The table's bars, the places that changed, and the allocations and frees around a request that
/// failed.
std::map<std::string, Image> panel_images() {
  const tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("keep.slp"), folder.file("reshard.slp")};
  tests::write_profile(state.files[0], tests::view_recording({.keep_weights = true}));
  tests::write_profile(state.files[1], tests::view_recording({.activation_bytes = 4 << 20}));
  Presenter presenter(state, "");
  presenter.choose_view();
  std::map<std::string, Image> images;
  images["panel-table"] = plots(presenter, Area::Kind::table, kPanelCanvas);
  images["panel-places"] = plots(presenter, Area::Kind::matched_row, kPanelCanvas);
  ViewState snapshot;
  snapshot.files = {SHARDLENS_SOURCE_DIR "/tests/fixtures/memory_viz/whole.pickle"};
  Presenter failed(snapshot, "");
  failed.choose_view();
  act(failed, {"failure.next", "panel.events"});
  images["panel-failure"] = plots(failed, Area::Kind::lane, kPanelCanvas);
  images["panel-events"] = plots(failed, Area::Kind::event_row, kPanelCanvas);
  return images;
}

std::map<std::string, Image> all_images() {
  auto all = lane_images();
  all.merge(session_images());
  all.merge(lanes_images());
  all.merge(what_if_images());
  all.merge(lever_images());
  all.merge(tree_images());
  all.merge(panel_images());
  return all;
}

void record(const std::string& name, const Image& image) {
  REQUIRE(stbi_write_png(path_of(name).c_str(), image.width, image.height, 4, image.pixels.data(),
                         4 * image.width) != 0);
}

}  // namespace

TEST_CASE("lanes and sessions are the pictures that were approved") {
  for (const auto& [name, image] : all_images()) {
    CAPTURE(name);
    int width = 0;
    int height = 0;
    int channels = 0;
    const std::unique_ptr<stbi_uc, void (*)(void*)> golden(
        stbi_load(path_of(name).c_str(), &width, &height, &channels, 4), stbi_image_free);
    REQUIRE(golden != nullptr);
    REQUIRE(width == image.width);
    REQUIRE(height == image.height);
    CHECK(std::memcmp(golden.get(), image.pixels.data(), 4 * image.pixels.size()) == 0);
    // A blank picture would equal another blank picture.
    CHECK(std::set<uint32_t>(image.pixels.begin(), image.pixels.end()).size() > 3);
  }
}

TEST_CASE("a scripted session draws the same plots twice") {
  const auto first = session_images();
  for (const auto& [name, image] : session_images()) {
    CAPTURE(name);
    CHECK(image.pixels == first.at(name).pixels);
  }
}

TEST_CASE("write the pictures again", "[.record]") {
  for (const auto& [name, image] : all_images()) record(name, image);
}

}  // namespace shardlens::viewer
