#include "base/units.h"

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <stdexcept>

using shardlens::bytes_text;
using shardlens::parse_bytes;

TEST_CASE("bytes are printed in binary units") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1024) == "1.00 KiB");
  CHECK(bytes_text(-1536) == "-1.50 KiB");
  CHECK(bytes_text(INT64_MIN) == "-8388608.00 TiB");
  CHECK(bytes_text(int64_t{80} << 30) == "80.00 GiB");
}

TEST_CASE("sizes are read with and without a unit") {
  CHECK(parse_bytes("17") == 17);
  CHECK(parse_bytes("80GiB") == int64_t{80} << 30);
  CHECK(parse_bytes("1.5 KiB") == 1536);
  CHECK(parse_bytes("2GB") == 2'000'000'000);
  for (const char* text : {"", "GiB", "-1", "0", "1 GiB!", "12 XB", "nan", "inf", "1e30", "0.1"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_bytes(text), std::invalid_argument);
  }
}

TEST_CASE("a printed size is read back to within its digits") {
  std::mt19937_64 engine(7);
  for (int i = 0; i < 1000; ++i) {
    const auto bytes = static_cast<int64_t>(engine() >> (4 + i % 50)) + 1;
    const auto read = static_cast<double>(parse_bytes(bytes_text(bytes)));
    CAPTURE(bytes);
    CHECK(std::abs(read / static_cast<double>(bytes) - 1) <= 0.005);
  }
}
