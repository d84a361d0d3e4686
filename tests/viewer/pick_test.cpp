// A press selects the block that was drawn there, and its details are those that were recorded.

#include "viewer/scene/pick.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/units.h"
#include "profiler/exchange/write_recording.h"
#include "tests/support/recordings/stacked_recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/acts.h"
#include "viewer/scene/block_image.h"
#include "viewer/scene/panels/tree_panel.h"
#include "viewer/scene/presenter.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;

constexpr Canvas kWide{1400, 900, 0, 1};

/// Two strategies, one of two ranks, with stacks.
struct StackedRuns {
  StackedRuns() {
    for (const char* name : {"keep", "reshard"}) {
      tests::ViewRecordingOptions options{.keep_weights = name == std::string("keep")};
      fs::create_directories(folder.file(name));
      for (options.rank = 0; options.rank < 2; ++options.rank) {
        profiler::write_recording(
            tests::stacked_recording(options),
            folder.file(name) + "/rank" + std::to_string(options.rank) + ".slp");
      }
      state.files.push_back(folder.file(name));
    }
  }

  tests::TemporaryFolder folder;
  ViewState state;
};

const StackedRuns& stacked_runs() {
  static const StackedRuns all;
  return all;
}

const Picture& pictured(Presenter& presenter) {
  return presenter.picture(kWide, plain_fonts(kWide.scale));
}

std::vector<Area> areas_of(Presenter& presenter, Area::Kind kind) {
  return areas_of(pictured(presenter), kind);
}

void press(Presenter& presenter, const Area& area) {
  presenter.press(area.box.x + area.box.w / 2, area.box.y + area.box.h / 2);
  presenter.release();
}

bool says(Presenter& presenter, const std::string& text) { return says(pictured(presenter), text); }

const Lane& lane_of_pick(const Presenter& presenter) {
  const Pick& pick = *presenter.state().pick;
  return presenter.runs()[pick.run].ranks[pick.rank].lane;
}

struct Shares {
  int64_t part = 0;  // bytes of the blocks whose name begins with mlp
  int64_t all = 0;
};

Shares shares_of(const Presenter& presenter) {
  const Lane& lane = presenter.runs()[presenter.state().focus].at_peak().lane;
  Shares shares;
  for (const uint32_t index : lane.alive_after(lane.peak().max_change)) {
    const Block& block = lane.arrays().blocks[index];
    shares.all += block.given_bytes;
    if (lane.label(block).starts_with("mlp")) shares.part += block.given_bytes;
  }
  return shares;
}

}  // namespace

TEST_CASE("in a column of blocks, every block is as high as its bytes are drawn") {
  Presenter presenter(stacked_runs().state, "");
  act(presenter, {"detail.next"});
  const Area lane = areas_of(presenter, Area::Kind::lane).front();
  const float x = lane.box.x + lane.box.w * 0.6F;
  std::map<uint32_t, int> heights;
  for (float y = lane.box.y + 0.5F; y < lane.box.bottom(); ++y) {
    presenter.press(x, y);
    presenter.release();
    const auto& pick = presenter.state().pick;
    if (pick && pick->scope == PickScope::block) ++heights[pick->block];
  }
  REQUIRE(heights.size() > 5);
  const Lane& shown = lane_of_pick(presenter);
  int64_t highest = 0;
  for (const Run& run : presenter.runs()) {
    highest = std::max(highest, run.at_peak().lane.peak().max_bytes);
  }
  uint32_t last_born = 0;
  uint32_t first_died = kNeverFreed;
  for (const auto& [index, height] : heights) {
    const Block& block = shown.arrays().blocks[index];
    const double top = 1.08 * static_cast<double>(highest);
    const double wanted = static_cast<double>(block.given_bytes) * std::floor(lane.box.h) / top;
    CHECK(std::abs(wanted - height) <= 1.01);
    last_born = std::max(last_born, block.born);
    first_died = std::min(first_died, block.died);
  }
  CHECK(last_born < first_died);  // a column is one moment
}

TEST_CASE("a press on an address selects the block that has it") {
  Presenter presenter(stacked_runs().state, "");
  act(presenter, {"detail.next", "detail.next"});
  const Area lane = areas_of(presenter, Area::Kind::lane).front();
  std::set<uint32_t> found;
  for (int i = 0; i < 40; ++i) {
    const float x = lane.box.x + lane.box.w * (0.1F + 0.02F * static_cast<float>(i));
    const float y = lane.box.bottom() - lane.box.h * (0.02F + 0.023F * static_cast<float>(i));
    presenter.press(x, y);
    presenter.release();
    const auto& pick = presenter.state().pick;
    if (!pick) continue;
    CHECK(pick->scope == PickScope::block);
    found.insert(pick->block);
    const double cursor = *presenter.state().cursor;
    const Block& block = lane_of_pick(presenter).arrays().blocks[pick->block];
    const Warp warp = warps_of(presenter.runs(), presenter.state().alignment, 0)[0][pick->rank];
    const auto x_of = [&](uint32_t change) {
      return x_of_change(warp, lane_of_pick(presenter), change);
    };
    const double pixel = presenter.facts().column_x;
    CHECK(x_of(block.born) <= cursor + pixel);
    CHECK((block.died == kNeverFreed || x_of(block.died) >= cursor - pixel));
  }
  CHECK(found.size() > 3);
}

TEST_CASE("a press on a band, a name in the legend and a row of the table select a category") {
  Presenter presenter(stacked_runs().state, "");
  const Area lane = areas_of(presenter, Area::Kind::lane).front();
  presenter.press(lane.box.x + lane.box.w * 0.6F, lane.box.bottom() - 2);
  presenter.release();
  REQUIRE(presenter.state().pick);
  CHECK(presenter.state().pick->scope == PickScope::category);
  CHECK(presenter.state().pick->category == Category::parameter_shard);
  CHECK(says(presenter, "in this category"));
  presenter.press(lane.box.x + lane.box.w * 0.6F, lane.box.y + 1);  // above the stack
  presenter.release();
  CHECK_FALSE(presenter.state().pick);
  for (const Area& area : areas_of(presenter, Area::Kind::category)) {
    press(presenter, area);
    REQUIRE(presenter.state().pick);
    CHECK(static_cast<size_t>(presenter.state().pick->category) == area.index);
    CHECK(presenter.state().hidden_categories == 0);
  }
}

TEST_CASE("rows of the panel of live memory select their category or place") {
  for (const auto& [grouping, scope] :
       {std::pair{Grouping::none, PickScope::block}, std::pair{Grouping::label, PickScope::name},
        std::pair{Grouping::category, PickScope::category}}) {
    ViewState state = stacked_runs().state;
    state.grouping = grouping;
    Presenter presenter(state, "");
    const Area row = areas_of(presenter, Area::Kind::alive_row).front();
    press(presenter, row);
    REQUIRE(presenter.state().pick);
    CHECK(presenter.state().pick->scope == scope);
    const Lane& lane = lane_of_pick(presenter);
    const auto rows =
        alive_rows(lane, presenter.runs()[0].ranks[0].names, lane.peak().max_change, grouping);
    CHECK(presenter.state().pick->block == rows.front().block);
    if (scope != PickScope::block) {
      CHECK(says(presenter, std::to_string(rows.front().count) + " block"));
      CHECK(says(presenter, bytes_text(rows.front().bytes)));
    }
  }
}

TEST_CASE("a place in the panel selects its largest block and all of that name, in its run") {
  for (const size_t focus : {0, 1}) {  // the baseline shows places, the other changes
    Presenter presenter(stacked_runs().state, "");
    ViewState state = presenter.state();
    state.focus = focus;
    presenter.restore(state);
    const auto rows = areas_of(presenter, Area::Kind::matched_row);
    REQUIRE(rows.size() > 1);
    for (const Area& row : rows) {
      press(presenter, row);
      REQUIRE(presenter.state().pick);
      CHECK(presenter.state().pick->scope == PickScope::name);
      const auto& blocks = lane_of_pick(presenter).arrays().blocks;
      REQUIRE(presenter.state().pick->block < blocks.size());
      const std::string hover = presenter.hover_text(row.box.x + 1, row.box.y + 1);
      const auto label = lane_of_pick(presenter).label(blocks[presenter.state().pick->block]);
      CHECK(hover.substr(0, 2) == std::string(label.substr(0, 2)));
      act(presenter, "cursor.clear");
      if (presenter.state().focus != focus) act(presenter, "undo");
      presenter.restore(state);
      pictured(presenter);
    }
  }
}

TEST_CASE("S goes through every block that is alive, the largest first") {
  Presenter presenter(stacked_runs().state, "");
  const Lane& lane = presenter.runs()[0].at_peak().lane;
  const auto alive = lane.alive_after(lane.peak().max_change);
  std::set<uint32_t> seen;
  int64_t before = INT64_MAX;
  for (size_t i = 0; i < alive.size(); ++i) {
    act(presenter, {"pick.next"});
    const int64_t bytes = lane.arrays().blocks[presenter.state().pick->block].given_bytes;
    CHECK(bytes <= before);
    before = bytes;
    CHECK(seen.insert(presenter.state().pick->block).second);
  }
  CHECK(seen == std::set<uint32_t>(alive.begin(), alive.end()));
  // A category only selects its own blocks.
  act(presenter, {"pick.next", "pick.wider", "pick.wider"});
  CHECK(presenter.state().pick->scope == PickScope::category);
  for (int i = 0; i < 30; ++i) {
    act(presenter, {"pick.next"});
    CHECK(lane.arrays().blocks[presenter.state().pick->block].category ==
          presenter.state().pick->category);
  }
}

TEST_CASE("a block's details are those recorded, with its whole stack") {
  Presenter presenter(stacked_runs().state, "");
  CHECK(presenter.pick_text().empty());
  CHECK_FALSE(presenter.pick_call());
  ViewState state = presenter.state();
  const RankLane& rank = presenter.runs()[0].ranks[0];
  const auto& blocks = rank.lane.arrays().blocks;
  const auto mlp = std::ranges::find_if(blocks, [&](const Block& block) {
    return rank.lane.label(block).starts_with("mlp3") && block.category == Category::activation;
  });
  REQUIRE(mlp != blocks.end());
  state.pick =
      Pick{.block = static_cast<uint32_t>(mlp - blocks.begin()), .category = Category::activation};
  presenter.restore(state);
  const std::string text = presenter.pick_text();
  for (const char* part :
       {"mlp3\n", "category  activation\n", "(3145728 bytes)\n", "born      step 0, 0.",
        "born in   FORWARD", "freed     step 0, 0.", "freed in  BACKWARD", "operator  aten::mm\n",
        "module    Model > Mlp\n", "  aten::mm\n  Mlp.forward  /u/model.py:90\n",
        "  main  /u/train.py:100\n", "in        keep, rank 0\n"}) {
    CAPTURE(text, part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(says(presenter, "Mlp.forward"));
  CHECK(says(presenter, "train.py:100"));
  // The innermost call with a file is opened, unless another one is marked.
  REQUIRE(presenter.pick_call());
  CHECK(presenter.pick_call()->name == "Mlp.forward");
  const auto calls = areas_of(presenter, Area::Kind::call);
  REQUIRE(calls.size() == 5);  // the operator has no file
  press(presenter, calls.back());
  CHECK(presenter.pick_call()->name == "main");
  CHECK(presenter.pick_call()->line == 100);
}

TEST_CASE("a selection that the recordings lack is reported, and harms nothing") {
  for (const Pick& pick :
       {Pick{.run = 9}, Pick{.rank = 9}, Pick{.block = kNoBlock - 1},
        Pick{.scope = PickScope::name, .block = kNoBlock - 1},
        Pick{.scope = PickScope::place, .path = {"nosuch"}},
        Pick{.scope = PickScope::category, .category = Category::checkpoint_staging},
        Pick{.block = 0, .call = 999}}) {
    ViewState state = stacked_runs().state;
    state.pick = pick;
    state.tree.is_open = true;
    Presenter presenter(state, "");
    pictured(presenter);
    presenter.pick_text();
    presenter.pick_call();
    act(presenter, {"pick.next", "pick.wider"});
    pictured(presenter);
  }
}

TEST_CASE("a press on a frame makes it fill the width, and a second press goes back") {
  Presenter presenter(stacked_runs().state, "");
  act(presenter, {"tree"});
  const auto frames = areas_of(presenter, Area::Kind::frame);
  REQUIRE(frames.size() > 3);
  const Area& smaller =
      *std::ranges::min_element(frames, {}, [](const Area& a) { return a.box.w; });
  press(presenter, smaller);
  REQUIRE(presenter.state().pick);
  CHECK(presenter.state().pick->scope == PickScope::place);
  CHECK(presenter.state().tree.zoom == presenter.state().pick->path);
  const auto zoomed = areas_of(presenter, Area::Kind::frame);
  CHECK(zoomed.front().index == smaller.index);
  CHECK(zoomed.front().box.w == frames.front().box.w);
  press(presenter, zoomed.front());
  CHECK(presenter.state().tree.zoom.size() < presenter.state().pick->path.size());
  act(presenter, {"undo", "undo"});
  CHECK_FALSE(presenter.state().pick);
  CHECK(presenter.state().tree.zoom.empty());
}

TEST_CASE("a place gives way to its block if the tree is another one") {
  for (const char* id : {"tree.by", "tree.from", "focus.next", "rank.next"}) {
    Presenter presenter(stacked_runs().state, "");
    act(presenter, {"rank.next", "tree"});
    press(presenter, areas_of(presenter, Area::Kind::frame).back());
    REQUIRE(presenter.state().pick);
    CHECK(presenter.state().pick->scope == PickScope::place);
    act(presenter, {id});
    CHECK(presenter.state().pick->scope == PickScope::block);
    CHECK(says(presenter, "one block"));
  }
}

TEST_CASE("the tree's choices and the heads of its list can be pressed") {
  Presenter presenter(stacked_runs().state, "");
  act(presenter, {"tree"});
  const auto choices = areas_of(presenter, Area::Kind::tree_choice);
  REQUIRE(choices.size() == 10);
  press(presenter, choices[1]);
  CHECK(presenter.state().tree.of == TreeContent::churn);
  press(presenter, choices[5]);
  CHECK(presenter.state().tree.by == profiler::TreeGrouping::category);
  press(presenter, choices[7]);
  CHECK(presenter.state().tree.from == profiler::TreeStart::bottom);
  press(presenter, choices[9]);
  CHECK(presenter.state().tree.form == TreeForm::list);
  for (const Area& head : areas_of(presenter, Area::Kind::tree_sort)) {
    press(presenter, head);
    CHECK(static_cast<size_t>(presenter.state().tree.sort) == head.index);
  }
  const Area row = areas_of(presenter, Area::Kind::place_row).front();
  press(presenter, row);
  REQUIRE(presenter.state().pick);
  CHECK(presenter.state().tree.zoom.empty());
  presenter.wheel(row.box.x + 1, row.box.y + 1, -1);
  CHECK(presenter.state().tree.first == 1);
  CHECK_FALSE(presenter.hover_text(row.box.x + 1, row.box.y + 1).empty());
}

TEST_CASE("with another run in focus the tree shows changes, and a search its results") {
  ViewState state = stacked_runs().state;
  state.tree.is_open = true;
  state.focus = 1;
  Presenter presenter(state, "");
  CHECK(says(presenter, " less"));
  act(presenter, {"tree.compare"});
  CHECK_FALSE(says(presenter, "same"));
  presenter.set_search("mlp.forward");
  const Shares shares = shares_of(presenter);
  CHECK(says(presenter, fmt::format("mlp.forward: {}, {:.1f} %", bytes_text(shares.part),
                                    100.0 * static_cast<double>(shares.part) /
                                        static_cast<double>(shares.all))));
}

TEST_CASE("a search lists its hits that are alive at the moment, and no others") {
  Presenter presenter(stacked_runs().state, "");
  presenter.set_search("mlp.forward");
  std::map<std::pair<std::string, Category>, int64_t> alive;
  const Lane& searched = presenter.runs()[presenter.state().focus].at_peak().lane;
  for (const uint32_t index : searched.alive_after(searched.peak().max_change)) {
    const Block& block = searched.arrays().blocks[index];
    const std::string name(searched.label(block));
    if (name.starts_with("mlp")) alive[{name, block.category}] += block.given_bytes;
  }
  REQUIRE(alive.size() > 1);
  CHECK(presenter.facts().alive_rows == alive.size());
  for (const auto& [place, bytes] : alive) CHECK(says(presenter, bytes_text(bytes)));
  for (const Area& row : areas_of(presenter, Area::Kind::alive_row)) {
    press(presenter, row);
    const Lane& lane = lane_of_pick(presenter);
    CHECK(lane.label(lane.arrays().blocks[presenter.state().pick->block]).starts_with("mlp"));
  }
  presenter.set_search("mlp.forward >1TiB");
  CHECK(areas_of(presenter, Area::Kind::alive_row).empty());
  CHECK(says(presenter, "nothing found"));
}

TEST_CASE("details have room beside narrow lanes without covering other parts") {
  ViewState state;
  state.pick = Pick{};
  state.tree.is_open = true;
  for (const auto& [width, height, scale] :
       {std::tuple{1000, 600, 1.0}, {1600, 1000, 1.0}, {3840, 2160, 2.0}}) {
    const Geometry geometry = geometry_of({.width = width,
                                           .height = height,
                                           .top = 20,
                                           .scale = scale,
                                           .runs = 2,
                                           .lanes = 2,
                                           .folded = 0,
                                           .table_rows = 12,
                                           .messages = 0,
                                           .has_plans = false},
                                          state);
    CHECK(geometry.details.w > 0);
    CHECK(geometry.tree.h > 0);
    CHECK(geometry.table.h == 0);
    std::vector<Box> boxes = {geometry.header, geometry.legend,  geometry.minimap,
                              geometry.alive,  geometry.details, geometry.tree};
    for (const CardGeometry& card : geometry.cards) boxes.push_back(card.card);
    std::erase_if(boxes, [](const Box& box) { return box.w <= 0 || box.h <= 0; });
    for (size_t i = 0; i < boxes.size(); ++i) {
      CHECK(boxes[i].right() <= static_cast<float>(width));
      CHECK(boxes[i].bottom() <= static_cast<float>(height));
      for (size_t j = i + 1; j < boxes.size(); ++j) {
        CHECK((boxes[i].right() <= boxes[j].x || boxes[j].right() <= boxes[i].x ||
               boxes[i].bottom() <= boxes[j].y || boxes[j].bottom() <= boxes[i].y));
      }
    }
  }
}

TEST_CASE("the wheel goes through a stack that does not fit") {
  Presenter presenter(stacked_runs().state, "");
  act(presenter, "pick.next");
  const auto calls = areas_of(presenter, Area::Kind::call);
  REQUIRE_FALSE(calls.empty());
  const float x = calls.front().box.x + 3;
  const float y = calls.front().box.y + 3;
  std::set<size_t> marked;
  for (int i = 0; i < 20; ++i) {
    presenter.wheel(x, y, -1);
    marked.insert(*presenter.state().pick->call);
  }
  const auto stack =
      profiler::TreePaths(lane_of_pick(presenter).info().header,
                          lane_of_pick(presenter).info().strings,
                          lane_of_pick(presenter).info().stacks)
          .stack(lane_of_pick(presenter).arrays().blocks[presenter.state().pick->block].label);
  CHECK(*marked.rbegin() == stack.size() - 1);
}

TEST_CASE("a press on small blocks selects the one that lies there") {
  const Lane lane = lane_of(tests::stacked_recording());
  const Warp warp({{{0, 1}, {0, static_cast<double>(lane.info().end_ns + 1)}}}, false);
  const auto columns = columns_of(warp, lane, {0, 1}, 100);
  const LaneStyle style{.height = 8, .top_bytes = static_cast<double>(lane.peak().max_bytes)};
  int found = 0;
  for (const auto& column : columns) {
    if (!column || column->max_bytes == 0) continue;
    for (double y = 0.25; y < 8; y += 0.5) {
      const auto point = stack_point(lane, *column, style, y);
      if (!point) continue;
      REQUIRE(point->block);
      const Block& block = lane.arrays().blocks[*point->block];
      CHECK(block.category == point->category);
      CHECK(block.is_alive_after(column->max_change));
      ++found;
    }
  }
  CHECK(found > 50);
}

}  // namespace shardlens::viewer
