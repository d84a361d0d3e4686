#include "profiler/recording/peak_bands.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

using namespace shardlens::profiler;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

}  // namespace

TEST_CASE("bands are said only of peaks that depend on addresses") {
  PeakBands bands = exact_bands(6 * kGiB, 7 * kGiB);
  CHECK(bands_text(bands).empty());
  CHECK(doubts_of(bands, Verdict::fits).empty());
  bands.orders = 40;
  bands.reserved.include(8 * kGiB);
  CHECK(bands.reserved == PeakBand{7 * kGiB, 7 * kGiB, 8 * kGiB});
  CHECK(bands_text(bands) == "7.00 GiB to 8.00 GiB reserved in 40 orders");
  bands.allocated.include(5 * kGiB);
  CHECK(bands_text(bands) ==
        "5.00 GiB to 6.00 GiB allocated, 7.00 GiB to 8.00 GiB reserved in 40 orders");
}

TEST_CASE("a verdict is doubted for each other one that some orders lead to") {
  PeakBands bands = exact_bands(kGiB, kGiB);
  bands.orders = 40;
  bands.failed_orders = 35;
  bands.retried_orders = 5;
  CHECK(
      doubts_of(bands, Verdict::does_not_fit) ==
      std::vector<std::string>{"in 5 of 40 orders of the driver's addresses it fits with retries"});
  CHECK(doubts_of(bands, Verdict::fits).size() == 2);
}

TEST_CASE("bands are read as they were written, and from nothing else") {
  PeakBands bands = exact_bands(3, 5);
  bands.orders = 40;
  bands.reserved.include(9);
  CHECK(read_bands(nlohmann::json(bands_json(bands))) == bands);
  CHECK(bands_json({}) == nullptr);
  for (const char* text : {"null", "[]", "{}", R"({"orders": 40, "allocated": 3, "reserved": {}})",
                           R"({"orders": "40"})"}) {
    CHECK_FALSE(read_bands(nlohmann::json::parse(text)));
  }
}
