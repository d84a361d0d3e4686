#include "viewer/scene/flatten.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace shardlens::viewer {
namespace {

constexpr Color kWhite{255, 255, 255};
constexpr Color kRed{200, 0, 0};

Picture on_white(int width, int height, std::vector<Item> items) {
  Picture picture{.width = width, .height = height, .items = {}, .areas = {}};
  picture.items.emplace_back(
      Fill{{0, 0, static_cast<float>(width), static_cast<float>(height)}, kWhite});
  picture.items.insert(picture.items.end(), items.begin(), items.end());
  return picture;
}

Image flat(const Picture& picture) {
  Image image;
  flatten(picture, image);
  return image;
}

int count(const Image& image, const Color& color) {
  return static_cast<int>(std::count(image.pixels.begin(), image.pixels.end(), packed(color)));
}

}  // namespace

TEST_CASE("boxes and lines fill whole pixels, cut to the picture", "[threads]") {
  const Image image = flat(on_white(20, 10, {Fill{{15, 5, 100, 100}, kRed}}));
  CHECK(count(image, kRed) == 25);
  CHECK(count(image, kWhite) == 175);
  CHECK(count(flat(on_white(20, 10, {Line{2, 3, 12, 3, kRed, 1}})), kRed) == 10);
  CHECK(count(flat(on_white(20, 10, {Line{2, 1, 2, 8, kRed, 2}})), kRed) == 14);
  CHECK(count(flat(on_white(20, 10, {Outline{{2, 2, 6, 5}, kRed}})), kRed) == 18);
  CHECK(count(flat(on_white(20, 10, {Fill{{-50, -50, 10, 10}, kRed}})), kRed) == 0);
}

TEST_CASE("rows from the bottom are the same picture") {
  const Picture picture = on_white(20, 9, {Fill{{3, 1, 4, 2}, kRed}, Outline{{2, 2, 6, 5}, kRed}});
  const Image image = flat(picture);
  Image bottom_up{.pixels = {}, .caption = {}, .is_bottom_up = true};
  flatten(picture, bottom_up);
  int differences = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x)
      differences += image.at(x, y) == bottom_up.at(x, y) ? 0 : 1;
  }
  CHECK(differences == 0);
  CHECK(bottom_up.pixels[20 * 7 + 3] == packed(kRed));  // the row of y 1, the last but one
}

TEST_CASE("half-transparent colours mix, also twice") {
  const Image image = flat(on_white(1, 1, {Fill{{0, 0, 1, 1}, {0, 0, 0, 128}}}));
  CHECK(std::abs(static_cast<int>(image.at(0, 0) & 0xFF) - 127) <= 1);
  CHECK(image.at(0, 0) >> 24 == 255);
  const Image twice = flat(
      on_white(1, 1, {Fill{{0, 0, 1, 1}, {0, 0, 0, 128}}, Fill{{0, 0, 1, 1}, {0, 0, 0, 128}}}));
  CHECK(std::abs(static_cast<int>(twice.at(0, 0) & 0xFF) - 63) <= 2);
}

TEST_CASE("round corners and triangles cover their area") {
  const auto area = [](const Image& image) {
    double sum = 0;
    for (const uint32_t pixel : image.pixels) sum += (255 - (pixel >> 8 & 0xFF)) / 255.0;
    return sum;
  };
  const double pi = std::acos(-1.0);
  CHECK(std::abs(area(flat(on_white(60, 60, {Fill{{10, 10, 40, 40}, kRed, 20}}))) - pi * 400) < 12);
  const double ring = pi * (400 - 18 * 18);
  CHECK(std::abs(area(flat(on_white(60, 60, {Outline{{10, 10, 40, 40}, kRed, 20, 2}}))) - ring) <
        12);
  const Triangle triangle{{10, 10, 50, 10, 30, 50}, kRed};
  CHECK(std::abs(area(flat(on_white(60, 60, {triangle}))) - 800) < 12);
}

TEST_CASE("images are placed pixel by pixel, or stretched, and their gaps show the picture below") {
  Image source;
  source.width = 2;
  source.height = 1;
  source.pixels = {packed(kRed), 0};
  CHECK(count(flat(on_white(10, 10, {PlacedImage{{3, 3, 2, 1}, &source}})), kRed) == 1);
  CHECK(count(flat(on_white(10, 10, {PlacedImage{{0, 0, 10, 10}, &source}})), kRed) == 50);
}

}  // namespace shardlens::viewer
