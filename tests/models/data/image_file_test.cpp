#include "models/data/image_file.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <stdexcept>

#include "tests/support/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::models;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("pixels are the file's") {
  const tests::TemporaryFolder folder;
  tests::Picture picture{.width = 3, .height = 2};
  for (size_t i = 0; i < picture.pixels.size(); ++i)
    picture.pixels[i] = static_cast<uint8_t>(i * 13);
  tests::write_picture(folder.file("p.png"), picture);
  const DecodedImage image = decode_image(folder.file("p.png"), 3);
  CHECK(image.height == 2);
  CHECK(image.width == 3);
  CHECK(image.pixels == picture.pixels);
}

TEST_CASE("colours become grey by their brightness, and grey becomes three equal channels") {
  const tests::TemporaryFolder folder;
  tests::write_picture(folder.file("c.png"), tests::plain_picture(2, 2, 200, 100, 50));
  const DecodedImage grey = decode_image(folder.file("c.png"), 1);
  REQUIRE(grey.pixels.size() == 4);
  CHECK(std::abs(grey.pixels[0] - (0.299 * 200 + 0.587 * 100 + 0.114 * 50)) <= 1);
  tests::Picture one{.width = 2, .height = 1, .channels = 1, .pixels = {7, 250}};
  tests::write_picture(folder.file("g.png"), one);
  CHECK(decode_image(folder.file("g.png"), 3).pixels ==
        std::vector<uint8_t>{7, 7, 7, 250, 250, 250});
}

TEST_CASE("a JPEG is read to about its pixels") {
  const tests::TemporaryFolder folder;
  tests::write_picture(folder.file("j.jpg"), tests::plain_picture(16, 16, 200, 100, 50));
  const DecodedImage image = decode_image(folder.file("j.jpg"), 3);
  REQUIRE(image.pixels.size() == 16 * 16 * 3);
  CHECK(std::abs(image.pixels[0] - 200) <= 4);
  CHECK(std::abs(image.pixels[1] - 100) <= 4);
  CHECK(std::abs(image.pixels[2] - 50) <= 4);
}

TEST_CASE("an unreadable image is named in one line") {
  const tests::TemporaryFolder folder;
  tests::write_picture(folder.file("p.png"), tests::plain_picture(9, 9, 1, 2, 3));
  const std::string whole = tests::read_file(folder.file("p.png"));
  const auto content =
      GENERATE_COPY(std::string(), std::string("no image"), whole.substr(0, whole.size() / 2));
  tests::write_file(folder.file("p.png"), content);
  for (const char* name : {"p.png", "missing.png"}) {
    try {
      decode_image(folder.file(name), 3);
      FAIL("was read");
    } catch (const std::invalid_argument& error) {
      CHECK_THAT(error.what(),
                 ContainsSubstring(folder.file(name) + ": cannot be read as an image"));
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
}
