// Lanes against pictures that were looked at: tests/fixtures/viewer/*.png. They are the same bytes
// on every machine, since no graphics driver draws them. After a change that is meant,
// viewer_tests "[record]" writes them anew; look at them before they are kept.

#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "tests/support/view_recording.h"
#include "viewer/model/lane_builder.h"
#include "viewer/scene/block_image.h"
#include "viewer/scene/lane_image.h"

namespace shardlens::viewer {
namespace {

constexpr int kWidth = 320;
constexpr int kHeight = 160;

std::string path_of(const std::string& name) {
  return std::string(SHARDLENS_SOURCE_DIR) + "/tests/fixtures/viewer/" + name + ".png";
}

struct Opened {
  explicit Opened(const test::ViewRecordingOptions& options)
      : lane(lane_of(test::view_recording(options))), names(lane.info().header) {}
  Columns columns(const Opened& baseline, const Range& x) const {
    const Warp warp = warp_of(Alignment::phase, {&lane, &names}, {&baseline.lane, &baseline.names});
    return columns_of(warp, lane, x, kWidth);
  }

  Lane lane;
  ActionNames names;
};

std::map<std::string, Image> images() {
  const Opened keep({.keep_weights = true});
  const Opened reshard({.activation_bytes = 4 << 20, .forward_ns = 9'000'000});
  const Range all{-1, 4};
  const Columns a = keep.columns(keep, all);
  const Columns b = reshard.columns(keep, all);
  LaneStyle style{.height = kHeight,
                  .top_bytes = 1.08 * static_cast<double>(reshard.lane.peak().max_bytes)};
  std::map<std::string, Image> all_images;
  all_images["stack"] = stack_image(a, style);
  all_images["step"] = stack_image(reshard.columns(keep, {1, 2}), style);
  all_images["folded"] = folded_image({a, b}, style);
  all_images["blocks"] = block_stack_image(keep.lane, a, style);
  draw_outline(all_images["outline"] = stack_image(a, style), totals_of(b, 0), style,
               line_color(1, Theme::light), 0);
  style.theme = Theme::dark;
  style.hatch_period = 7;
  all_images["hatches"] = stack_image(b, style);
  style.top_bytes /= 4;
  all_images["difference"] = difference_image(difference(a, b), style);
  return all_images;
}

void record(const std::string& name, const Image& image) {
  REQUIRE(stbi_write_png(path_of(name).c_str(), image.width, image.height, 4, image.pixels.data(),
                         4 * image.width) != 0);
}

}  // namespace

TEST_CASE("lanes are the pictures that were looked at") {
  for (const auto& [name, image] : images()) {
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
    // A blank picture would be equal to a blank picture.
    CHECK(std::set<uint32_t>(image.pixels.begin(), image.pixels.end()).size() > 3);
  }
}

TEST_CASE("write the pictures anew", "[.record]") {
  for (const auto& [name, image] : images()) record(name, image);
}

}  // namespace shardlens::viewer
