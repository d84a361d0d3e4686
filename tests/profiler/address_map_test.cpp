#include "profiler/report/address_map.h"

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <unordered_map>

using shardlens::profiler::AddressMap;

TEST_CASE("an address map answers as a map of the standard library") {
  const uint64_t seed = 1;
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  AddressMap map;
  std::unordered_map<uint64_t, uint32_t> expected;
  const auto find_in_expected = [&](uint64_t address) {
    const auto found = expected.find(address);
    return found == expected.end() ? AddressMap::kNone : found->second;
  };
  int64_t right = 0;
  constexpr int kSteps = 200'000;
  for (int i = 0; i < kSteps; ++i) {
    // Few addresses, both starts of blocks and random ones, 0 among them: hits, misses and
    // collisions.
    const uint64_t address = engine() % 2 == 0 ? engine() % 3000 * 512 : (engine() % 900) << 52;
    const uint32_t before = find_in_expected(address);
    uint32_t told = 0;
    if (engine() % 2 == 0) {
      told = map.insert(address, static_cast<uint32_t>(i));
      expected[address] = static_cast<uint32_t>(i);
    } else {
      told = map.erase(address);
      expected.erase(address);
    }
    const uint64_t asked = engine() % 3000 * 512;
    const bool is_found = map.find(asked) == find_in_expected(asked);
    if (told == before && is_found && map.size() == expected.size()) ++right;
  }
  CHECK(right == kSteps);
}
