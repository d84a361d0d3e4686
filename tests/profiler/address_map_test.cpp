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
  int64_t right = 0;
  constexpr int kSteps = 200'000;
  for (int i = 0; i < kSteps; ++i) {
    // Few addresses, both starts of blocks and random ones, 0 among them: hits, misses and
    // collisions.
    const uint64_t address = engine() % 2 == 0 ? engine() % 3000 * 512 : (engine() % 900) << 52;
    if (engine() % 2 == 0) {
      map.insert(address, static_cast<uint32_t>(i));
      expected[address] = static_cast<uint32_t>(i);
    } else {
      map.erase(address);
      expected.erase(address);
    }
    const uint64_t asked = engine() % 3000 * 512;
    const auto found = expected.find(asked);
    const uint32_t wanted = found == expected.end() ? AddressMap::kNone : found->second;
    if (map.find(asked) == wanted && map.size() == expected.size()) ++right;
  }
  CHECK(right == kSteps);
}
