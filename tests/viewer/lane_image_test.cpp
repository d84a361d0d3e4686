// Compares images of lanes with what they must show, counted pixel by pixel.

#include "viewer/scene/lane_image.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <random>

#include "tests/support/recordings/view_recording.h"
#include "viewer/model/lane_builder.h"
#include "viewer/scene/block_image.h"

namespace shardlens::viewer {
namespace {

/// Draws no line over the stack, so that every pixel belongs to a category.
LaneStyle plain(int height, double top_bytes) {
  return {.height = height, .top_bytes = top_bytes, .edge = 0};
}

std::map<uint32_t, int> colors_in(const Image& image, int x) {
  std::map<uint32_t, int> counts;
  for (int y = 0; y < image.height; ++y) ++counts[image.at(x, y)];
  return counts;
}

Columns random_columns(std::mt19937_64& engine, int count) {
  Columns columns;
  for (int i = 0; i < count; ++i) {
    Extent extent;
    for (int64_t& bytes : extent.at_max) {
      bytes = engine() % 2 == 0 ? 0 : static_cast<int64_t>(engine() % 30);
    }
    extent.max_bytes = extent.min_bytes = sum_of(extent.at_max);
    columns.emplace_back(extent);
  }
  return columns;
}

int covered(const Image& image, int x) {
  int rows = 0;
  for (int y = 0; y < image.height; ++y) rows += image.at(x, y) != 0 ? 1 : 0;
  return rows;
}

}  // namespace

TEST_CASE("a stack's column is as high as its bytes, and so is every band in it") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const Columns columns = random_columns(engine, 200);
  const Image image = stack_image(columns, plain(400, 400));  // a pixel a byte
  for (size_t x = 0; x < columns.size(); ++x) {
    CHECK(covered(image, static_cast<int>(x)) == columns[x]->max_bytes);
    const auto counts = colors_in(image, static_cast<int>(x));
    for (size_t c = 0; c < kCategories; ++c) {
      const auto at = counts.find(packed(color_of(static_cast<Category>(c))));
      CHECK((at == counts.end() ? 0 : at->second) == columns[x]->at_max[c]);
    }
  }
}

TEST_CASE("bands are in stacking order from the bottom") {
  Extent extent;
  extent.at_max.fill(10);
  constexpr int kHeight = 10 * kCategories;
  const Image image = stack_image({extent}, plain(kHeight, kHeight));
  for (int i = 0; i < kCategories; ++i) {
    const int row = kHeight - 1 - 10 * i - 5;
    CHECK(image.at(0, row) == packed(color_of(stacking_order()[static_cast<size_t>(i)])));
  }
}

TEST_CASE("hidden categories and gaps leave nothing") {
  Extent extent;
  extent.at_max[0] = 10;
  extent.at_max[5] = 20;
  LaneStyle style = plain(40, 40);
  style.hidden_categories = 1U << 5;
  const Image image = stack_image({extent, std::nullopt}, style);
  CHECK(covered(image, 0) == 10);
  CHECK(covered(image, 1) == 0);
  CHECK(totals_of({extent, std::nullopt}, 1U << 5) ==
        std::vector<std::optional<int64_t>>{10, std::nullopt});
}

TEST_CASE("a difference grows up and shrinks down from the middle, and mirrors") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const Columns a = random_columns(engine, 100);
  const Columns b = random_columns(engine, 100);
  const LaneStyle style = plain(800, 400);
  const Image forth = difference_image(difference(a, b), style);
  const Image back = difference_image(difference(b, a), style);
  const Image self = difference_image(difference(a, a), style);
  for (int x = 0; x < 100; ++x) {
    CHECK(covered(self, x) == 0);
    for (int y = 0; y < 800; ++y) REQUIRE(forth.at(x, y) == back.at(x, 799 - y));
  }
  CHECK(covered(forth, 3) > 0);
}

TEST_CASE("an outline follows the totals without gaps") {
  std::vector<std::optional<int64_t>> line;
  for (int x = 0; x < 60; ++x) line.emplace_back(x % 20 < 10 ? 5 : 35);
  LaneStyle style = plain(40, 40);
  style.edge = 1;
  Image image = stack_image(Columns(60), style);
  draw_outline(image, line, style, {1, 2, 3}, 0);
  for (int x = 0; x < 60; ++x) {
    CHECK(image.at(x, 39 - static_cast<int>(*line[static_cast<size_t>(x)])) == packed({1, 2, 3}));
  }
  for (int y = 39 - 35; y <= 39 - 5; ++y) CHECK(image.at(10, y) == packed({1, 2, 3}));
}

TEST_CASE("folded ranks span from the least to the most") {
  std::vector<Columns> ranks;
  for (const int64_t bytes : {10, 30, 20}) {
    Extent extent;
    extent.max_bytes = bytes;
    ranks.push_back({extent});
  }
  const Image image = folded_image(ranks, plain(40, 40));
  CHECK(covered(image, 0) == 30);
  CHECK(image.at(0, 39 - 5) != image.at(0, 39 - 25));
}

TEST_CASE("blocks are stacked as high as the bands, despite invisibly small ones") {
  const Lane lane = lane_of(tests::view_recording());
  const ActionNames names(lane.info().header);
  const Warp warp = warp_of(Alignment::step, {&lane, &names}, {&lane, &names});
  const Columns columns = columns_of(warp, lane, warp.extent(), 300);
  const LaneStyle style = plain(200, 1.05 * static_cast<double>(lane.peak().max_bytes));
  const Image image = block_stack_image(lane, columns, style);
  for (int x = 0; x < 300; ++x) {
    const double rows =
        static_cast<double>(columns[static_cast<size_t>(x)]->max_bytes) * 200 / style.top_bytes;
    CHECK(std::abs(covered(image, x) - rows) <= 1);
  }
}

TEST_CASE("by address, blocks that are alive together do not overlap") {
  const Lane lane = lane_of(tests::view_recording({.steps = 1}));
  const ActionNames names(lane.info().header);
  const Warp warp = warp_of(Alignment::event, {&lane, &names}, {&lane, &names});
  const AddressPicture picture = address_image(lane, warp, warp.extent(), 400, plain(300, 1));
  uint64_t before = 0;
  int64_t bytes = 0;
  for (const ShownAddresses& range : picture.ranges) {
    CHECK(range.begin >= before);
    CHECK(range.end > range.begin);
    before = range.end;
    bytes += static_cast<int64_t>(range.end - range.begin);
  }
  CHECK(bytes == picture.shown_bytes);
  CHECK(bytes >= lane.peak().max_bytes);
  CHECK(covered(picture.image, 200) > 0);
}

TEST_CASE("a segment is pale where no tensor lies, and its addresses have marks") {
  profiler::Profile profile;
  profile.header.device = "cuda";
  profile.strings = {"", "model.py:7 forward"};
  const auto add = [&](int64_t time_ns, uint64_t address, int64_t bytes, profiler::Space space,
                       bool is_free = false) {
    profile.events.push_back(
        {.time_ns = time_ns,
         .address = address,
         .value = bytes,
         .label = 1,
         .kind = is_free ? profiler::EventKind::free : profiler::EventKind::alloc,
         .space = space});
  };
  constexpr int64_t kMiB = 1 << 20;
  constexpr uint64_t kBegin = 0x7f0000000000;
  add(0, kBegin, 64 * kMiB, profiler::Space::segment);
  add(1, kBegin, 16 * kMiB, profiler::Space::device);               // to the end
  add(50, kBegin + 32 * kMiB, 16 * kMiB, profiler::Space::device);  // the second half
  add(100, kBegin + 32 * kMiB, 0, profiler::Space::device, true);
  const Lane lane = lane_of(profile, profiler::Space::segment);
  const ActionNames names(lane.info().header);
  const Warp warp = warp_of(Alignment::time, {&lane, &names}, {&lane, &names});
  const AddressPicture picture = address_image(lane, warp, warp.extent(), 100, plain(643, 1));
  REQUIRE(picture.ranges.size() == 1);
  const auto at = [&](int x, int64_t mib) {  // ten pixels a MiB
    return picture.image.at(x, 642 - static_cast<int>(10 * mib + 5));
  };
  const uint32_t used = at(50, 0);
  const uint32_t pale = at(50, 20);
  CHECK(used != pale);
  CHECK(pale != 0);  // the segment is there
  CHECK(at(75, 15) == used);
  CHECK(at(75, 40) == used);
  CHECK(at(25, 40) == pale);  // before the tensor was allocated
  CHECK(at(75, 31) == pale);
  CHECK(at(75, 60) == pale);
  std::vector<std::string> marks;
  for (const ImageMark& mark : picture.image.marks) marks.push_back(mark.text);
  REQUIRE(marks.size() > 3);
  CHECK(marks[0] == "0x7f0000000000");
  const auto middle = std::ranges::find(picture.image.marks, "+32 MiB", &ImageMark::text);
  REQUIRE(middle != picture.image.marks.end());
  CHECK(std::abs(middle->row - 320) < 1);
  CHECK(picture.image.caption.find("pale where it is free") != std::string::npos);
}

}  // namespace shardlens::viewer
