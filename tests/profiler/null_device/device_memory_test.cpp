#include "profiler/null_device/driver/device_memory.h"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>
#include <vector>

using shardlens::profiler::DeviceMemory;

namespace {

constexpr uint64_t kPage = DeviceMemory::kPageBytes;

}  // namespace

TEST_CASE("allocations take whole pages of the capacity and give them back") {
  DeviceMemory memory(10 * kPage);
  const auto small = memory.allocate(1);
  const auto large = memory.allocate(8 * kPage + 1);
  REQUIRE((small && large));
  CHECK(memory.free_bytes() == 0);
  CHECK_FALSE(memory.allocate(1));
  CHECK_FALSE(memory.allocate(UINT64_MAX));
  CHECK(memory.free(*small));
  CHECK_FALSE(memory.free(*small));
  CHECK_FALSE(memory.free(*large + 1));
  CHECK(memory.free_bytes() == kPage);
  const auto again = memory.allocate(kPage);
  REQUIRE(again);
  CHECK(*again != *small);
  CHECK(DeviceMemory::is_device_address(*again));
}

TEST_CASE("memory without an address lives until it is released and no longer mapped") {
  DeviceMemory memory(4 * kPage);
  const uint64_t address = memory.reserve(100 * kPage).value();
  CHECK(memory.free_bytes() == 4 * kPage);  // addresses cost no memory
  const uint64_t handle = memory.create(3 * kPage).value();
  CHECK_FALSE(memory.create(2 * kPage));
  CHECK(memory.map(address + kPage, 3 * kPage, handle));
  CHECK(memory.release(handle));
  CHECK_FALSE(memory.release(handle));
  CHECK(memory.free_bytes() == kPage);
  CHECK_FALSE(memory.unreserve(address, 100 * kPage));
  CHECK_FALSE(memory.unmap(address + kPage, 2 * kPage));
  CHECK_FALSE(memory.unmap(address, 3 * kPage));
  CHECK(memory.unmap(address + kPage, 3 * kPage));
  CHECK(memory.free_bytes() == 4 * kPage);
  CHECK(memory.unreserve(address, 100 * kPage));
}

TEST_CASE("a mapping must be in a part of a reservation where nothing is mapped") {
  DeviceMemory memory(100 * kPage);
  const uint64_t address = memory.reserve(4 * kPage).value();
  const uint64_t first = memory.create(2 * kPage).value();
  const uint64_t second = memory.create(2 * kPage).value();
  CHECK_FALSE(memory.map(address + 3 * kPage, 2 * kPage, first));
  CHECK_FALSE(memory.map(address - kPage, 2 * kPage, first));
  CHECK_FALSE(memory.map(address + 1, 2 * kPage, first));
  CHECK_FALSE(memory.map(address, kPage, first));
  CHECK_FALSE(memory.map(address, 2 * kPage, 999));
  REQUIRE(memory.map(address + kPage, 2 * kPage, first));
  CHECK_FALSE(memory.map(address, 2 * kPage, second));
  CHECK_FALSE(memory.map(address + 2 * kPage, 2 * kPage, second));
  CHECK_FALSE(memory.reserve(1));
  CHECK_FALSE(memory.create(kPage + 1));
  CHECK_FALSE(memory.create(0));
}

TEST_CASE("free memory is the capacity minus held memory, after any sequence of calls") {
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr uint64_t kCapacityPages = 64;
  DeviceMemory memory(kCapacityPages * kPage);
  std::map<uint64_t, uint64_t> live;  // address -> pages
  std::set<uint64_t> pages_seen;
  uint64_t held_pages = 0;
  for (int i = 0; i < 2000; ++i) {
    if (live.empty() || random() % 2 == 0) {
      const uint64_t pages = 1 + random() % 16;
      const auto address = memory.allocate(pages * kPage - random() % kPage);
      REQUIRE(address.has_value() == (held_pages + pages <= kCapacityPages));
      if (!address) continue;
      for (uint64_t p = 0; p < pages; ++p) REQUIRE(pages_seen.insert(*address + p * kPage).second);
      live.emplace(*address, pages);
      held_pages += pages;
    } else {
      const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      REQUIRE(memory.free(victim->first));
      held_pages -= victim->second;
      live.erase(victim);
    }
    REQUIRE(memory.free_bytes() == (kCapacityPages - held_pages) * kPage);
  }
}

TEST_CASE("what is taken beside PyTorch is gone, and no more than there is") {
  using shardlens::profiler::DeviceMemory;
  DeviceMemory memory(10 * kPage);
  memory.take_beside(kPage + 1);
  CHECK(memory.free_bytes() == 8 * kPage);
  CHECK_FALSE(memory.allocate(9 * kPage));
  const auto all = memory.allocate(8 * kPage);
  REQUIRE(all);
  memory.take_beside(kPage);
  CHECK(memory.free_bytes() == 0);
  REQUIRE(memory.free(*all));
  CHECK(memory.free_bytes() == 8 * kPage);
  memory.take_beside(20 * kPage);
  CHECK(memory.free_bytes() == 0);
}

TEST_CASE("the last addresses are handed out, and none beyond them") {
  using shardlens::profiler::DeviceMemory;
  constexpr uint64_t kAll = DeviceMemory::kVariableAddress - DeviceMemory::kFirstAddress;
  DeviceMemory memory(kPage);
  CHECK_FALSE(memory.reserve(kAll));
  REQUIRE(memory.reserve(kAll - kPage) == DeviceMemory::kFirstAddress);
  CHECK_FALSE(memory.reserve(kPage));
  CHECK_FALSE(memory.allocate(1));
  CHECK(memory.free_bytes() == kPage);
}
