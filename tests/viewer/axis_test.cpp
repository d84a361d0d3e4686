#include "viewer/paint/axis.h"

#include <catch2/catch_test_macros.hpp>

namespace shardlens::viewer {
namespace {

std::vector<std::string> texts(const std::vector<Tick>& ticks) {
  std::vector<std::string> all;
  for (const Tick& tick : ticks) all.push_back(tick.text);
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("bytes have round binary ticks") {
  CHECK(texts(byte_ticks(100 << 20, 4)) == Texts{"0", "32 MiB", "64 MiB", "96 MiB"});
  CHECK(texts(byte_ticks(1.6 * (1 << 30), 4)) == Texts{"0", "512 MiB", "1 GiB", "1.50 GiB"});
  CHECK(texts(byte_ticks(0, 4)) == Texts{"0"});
  CHECK(texts(signed_byte_ticks(5, 4)) == Texts{"0", "+4 B", "-4 B"});
}

TEST_CASE("no axis has more ticks than there is room for") {
  for (double top = 1; top < 1e15; top *= 3.7) {
    for (const int most : {1, 3, 8}) {
      CHECK(byte_ticks(top, most).size() <= static_cast<size_t>(most) + 1);
    }
  }
  for (int i = 0; i < kAlignments; ++i) {
    for (double length = 1e-12; length < 1e7; length *= 13) {
      const Range range{0.123, 0.123 + length};
      const auto ticks = x_ticks(static_cast<Alignment>(i), range, {-1, 1e8}, 7);
      CHECK(ticks.size() <= 9);
      for (const Tick& tick : ticks) CHECK(tick.text.size() < 24);
    }
  }
}

TEST_CASE("x is labelled in its own unit") {
  CHECK(texts(x_ticks(Alignment::step, {-1, 4}, {-1, 4}, 6)) ==
        Texts{"start", "0", "1", "2", "3", "end"});
  CHECK(texts(x_ticks(Alignment::step, {1, 2}, {-1, 4}, 2)) == Texts{"1.0", "1.5", "2.0"});
  CHECK(texts(x_ticks(Alignment::time, {0, 0.02}, {-1, 4}, 2)) == Texts{"0 ms", "10 ms", "20 ms"});
  CHECK(texts(x_ticks(Alignment::time, {-1, 1}, {-1, 4}, 2)) == Texts{"-1 s", "0 s", "1 s"});
  CHECK(texts(x_ticks(Alignment::event, {0, 2}, {0, 2}, 9)) == Texts{"0", "1", "2"});
  CHECK(texts(x_ticks(Alignment::normalised, {0, 1}, {0, 1}, 2)) == Texts{"0 %", "50 %", "100 %"});
  CHECK(x_ticks(Alignment::step, {2, 2}, {-1, 4}, 5).empty());
}

TEST_CASE("ticks of a zoomed axis begin at its lower edge, and no two read the same") {
  constexpr double kGiB = 1 << 30;
  const auto ticks = byte_ticks(40.02 * kGiB, 6, 40 * kGiB);
  REQUIRE(ticks.size() >= 3);
  for (size_t i = 0; i < ticks.size(); ++i) {
    CHECK(ticks[i].at >= 40 * kGiB);
    CHECK(ticks[i].at <= 40.02 * kGiB);
    if (i > 0) CHECK(ticks[i].text != ticks[i - 1].text);
  }
  CHECK(byte_ticks(2 * kGiB, 2).front().text == "0");
}

}  // namespace shardlens::viewer
