#include "base/gpus.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "base/nearest.h"

using namespace shardlens;

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::MessageMatches;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

/// Memory on the data sheet, in decimal or binary GB as NVIDIA prints it.
int64_t advertised_gb(const std::string& name) {
  static const std::map<std::string, int64_t> kAdvertised = {
      {"b300", 288},     {"gb200", 192}, {"b200", 192},   {"h200", 141},   {"h100", 80},
      {"h100-pcie", 80}, {"h20", 96},    {"a100-80", 80}, {"a100-40", 40}, {"a800", 80},
      {"l40s", 48},      {"l4", 24},     {"a10g", 24},    {"a6000", 48},   {"v100", 32},
      {"v100-16", 16},   {"t4", 16},     {"rtx5090", 32}, {"rtx4090", 24}, {"rtx3090", 24}};
  return kAdvertised.at(name);
}

}  // namespace

TEST_CASE("every GPU has a name of its own and is found by it") {
  std::set<std::string_view> names, display_names;
  for (const Gpu& gpu : gpus()) {
    CHECK(names.insert(gpu.name).second);
    CHECK(display_names.insert(gpu.display_name).second);
    CHECK(&find_gpu(gpu.name) == &gpu);
  }
  CHECK(names == std::set<std::string_view>{"b300",      "gb200", "b200",    "h200",    "h100",
                                            "h100-pcie", "h20",   "a100-80", "a100-40", "a800",
                                            "l40s",      "l4",    "a10g",    "a6000",   "v100",
                                            "v100-16",   "t4",    "rtx5090", "rtx4090", "rtx3090"});
}

TEST_CASE("a GPU's memory is that of its data sheet, less what the driver keeps") {
  for (const Gpu& gpu : gpus()) {
    CAPTURE(gpu.name);
    const int64_t advertised = advertised_gb(std::string(gpu.name));
    CHECK(gpu.memory_bytes < advertised * kGiB);
    CHECK(gpu.memory_bytes > advertised * kGiB * 91 / 100);
  }
}

TEST_CASE("the limits of a multiprocessor are possible ones") {
  for (const Gpu& gpu : gpus()) {
    CAPTURE(gpu.name);
    const ComputeCapability& capability = gpu.capability;
    const int64_t kept_bytes = capability.major >= 8 ? 1024 : 0;
    CHECK(capability.shared_memory_per_block_opt_in_bytes + kept_bytes ==
          capability.shared_memory_per_sm_bytes);
    CHECK(capability.max_threads_per_sm >= 1024);
    CHECK(capability.max_threads_per_sm % capability.max_blocks_per_sm == 0);
    CHECK(gpu.sm_count % 2 == 0);  // they come in pairs
    CHECK(gpu.l2_bytes < gpu.memory_bytes);
    CHECK(capability.major * 10 + capability.minor >= 70);
  }
  CHECK(find_gpu("h200").capability.shared_memory_per_block_opt_in_bytes == 232448);
}

TEST_CASE("an unknown GPU is refused with the names, and the one that was meant") {
  CHECK_THROWS_MATCHES(
      find_gpu("h2000"), std::invalid_argument,
      MessageMatches(ContainsSubstring("GPU h2000: not known; did you mean h200?")));
  CHECK_THROWS_MATCHES(find_gpu("a100"), std::invalid_argument,
                       MessageMatches(ContainsSubstring("did you mean a100-80?") &&
                                      ContainsSubstring("a100-80, a100-40")));
  CHECK_THROWS_MATCHES(
      find_gpu("something-else"), std::invalid_argument,
      MessageMatches(ContainsSubstring("give one of b300, gb200, b200") && EndsWith("rtx3090")));
  CHECK_THROWS_AS(find_gpu(""), std::invalid_argument);
}

TEST_CASE("the edit distance counts insertions, removals and replacements") {
  CHECK(shardlens::edit_distance("", "") == 0);
  CHECK(shardlens::edit_distance("", "abc") == 3);
  CHECK(shardlens::edit_distance("abc", "") == 3);
  CHECK(shardlens::edit_distance("kitten", "sitting") == 3);
  CHECK(shardlens::edit_distance("h200", "h100") == 1);
}
