// Tests where AllocatorModel places new segments, and that it goes on from what another allocator
// held. tests/evidence compares both with real GPUs.
#include "planner/simulate/allocator/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "planner/simulate/allocator/model.h"
#include "tests/support/allocator_storm.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

AllocatorSettings settings_of(const std::string& text, int64_t capacity_bytes = kUnlimitedBytes) {
  AllocatorSettings settings = parse_allocator_settings(text);
  settings.capacity_bytes = capacity_bytes;
  settings.free_block_order = models::FreeBlockOrder::address;
  return settings;
}

Allocation give(AllocatorModel& model, int64_t bytes) {
  return std::get<Allocation>(model.allocate(bytes, 0));
}

/// Returns which of three equal free segments the next request gets.
SegmentIndex first_of_three(const SegmentAddresses& addresses) {
  AllocatorModel model(settings_of(""));
  model.give_addresses(addresses);
  std::array<BlockId, 3> blocks{};
  for (BlockId& block : blocks) block = give(model, 20 * kMiB).block;
  for (const BlockId block : blocks) model.free(block);
  model.check_totals();
  return give(model, 20 * kMiB).segment;
}

/// Reads what AllocatorModel::state() says of blocks; each held one has its id as purpose.
struct StateReader {
  explicit StateReader(const AllocatorModel& model) {
    const std::vector<int64_t> state = model.state([](BlockId id) { return int64_t{id}; });
    constexpr size_t kHead = 2, kFields = 12;
    for (size_t i = kHead; i < state.size(); i += kFields) add_block(&state[i]);
  }

  void add_block(const int64_t* fields) {
    if (fields[0] != 0) {
      segments.push_back({.address = 1000 * (segments.size() + 1),
                          .stream = static_cast<StreamIndex>(fields[4]),
                          .pool = static_cast<profiler::Pool>(fields[5])});
    }
    const bool is_held = fields[7] != 0;
    segments.back().blocks.push_back(
        {.bytes = fields[2], .requested_bytes = is_held ? fields[3] : 0, .is_held = is_held});
    if (is_held) held.push_back(static_cast<BlockId>(fields[11]));
  }

  std::vector<SegmentLayout> segments;
  std::vector<BlockId> held;
};

/// Everything but the bytes that were requested for blocks that are free now.
std::vector<SegmentLayout> layout_of(const AllocatorModel& model) {
  return StateReader(model).segments;
}

bool are_equal(const std::vector<SegmentLayout>& a, const std::vector<SegmentLayout>& b) {
  const auto block = [](const BlockLayout& x, const BlockLayout& y) {
    return std::tie(x.bytes, x.requested_bytes, x.is_held) ==
           std::tie(y.bytes, y.requested_bytes, y.is_held);
  };
  return std::ranges::equal(a, b, [&](const SegmentLayout& x, const SegmentLayout& y) {
    return x.stream == y.stream && x.pool == y.pool &&
           std::ranges::equal(x.blocks, y.blocks, block);
  });
}

/// Two models that are sent the same requests; the second begins with a layout of the first.
class Pair {
 public:
  Pair(const AllocatorSettings& settings, uint64_t seed)
      : storm_(seed, {.most_live = 300}),
        first_(settings, default_and_pool_streams(4)),
        second_(settings, default_and_pool_streams(4)) {}

  void run_first(int count) {
    for (int i = 0; i < count; ++i) apply(false);
    const StateReader state(first_);
    const std::vector<BlockId> held = second_.lay_out(state.segments);
    REQUIRE(held.size() == state.held.size());
    for (size_t i = 0; i < held.size(); ++i) of_second_[state.held[i]] = held[i];
  }

  void run_both(int count) {
    for (int i = 0; i < count; ++i) {
      apply(true);
      if (i % 50 == 0) REQUIRE(are_equal(layout_of(first_), layout_of(second_)));
    }
    second_.check_totals();
    CHECK(first_.counters().all.reserved_bytes.current ==
          second_.counters().all.reserved_bytes.current);
  }

 private:
  void apply(bool both) {
    const tests::StormOperation operation = storm_.next();
    if (operation.kind == tests::StormKind::allocate) allocate(operation, both);
    if (operation.kind == tests::StormKind::empty_cache) {
      first_.empty_cache();
      if (both) second_.empty_cache();
    }
    if (operation.kind != tests::StormKind::free) return;
    const BlockId block = blocks_.at(operation.slot);
    first_.free(block);
    if (both) second_.free(of_second_.at(block));
  }

  void allocate(const tests::StormOperation& operation, bool both) {
    const AllocationResult result = first_.allocate(operation.bytes, operation.stream);
    const auto* given = std::get_if<Allocation>(&result);
    if (given != nullptr) blocks_[operation.slot] = given->block;
    if (given == nullptr) storm_.failed(operation);
    if (!both) return;
    const AllocationResult other = second_.allocate(operation.bytes, operation.stream);
    REQUIRE(other.index() == result.index());
    if (given != nullptr) compare(*given, std::get<Allocation>(other));
  }

  void compare(const Allocation& first, const Allocation& second) {
    of_second_[first.block] = second.block;
    REQUIRE(first.offset_bytes == second.offset_bytes);
    REQUIRE(first.block_bytes == second.block_bytes);
    REQUIRE(first.source == second.source);
    // Each segment of one is always the same one of the other.
    REQUIRE(segments_.try_emplace(first.segment, second.segment).first->second == second.segment);
  }

  tests::AllocatorStorm storm_;
  AllocatorModel first_;
  AllocatorModel second_;
  std::unordered_map<size_t, BlockId> blocks_;      // of the first, by slot
  std::unordered_map<BlockId, BlockId> of_second_;  // by that of the first
  std::map<SegmentIndex, SegmentIndex> segments_;   // of the second, by that of the first
};

std::vector<SegmentLayout> one_segment(std::vector<BlockLayout> blocks) {
  return {{.address = 4096, .pool = profiler::Pool::large, .blocks = std::move(blocks)}};
}

void check_refused(const std::vector<SegmentLayout>& layout, const std::string& fault,
                   const AllocatorSettings& settings = settings_of("")) {
  AllocatorModel model(settings);
  CHECK_THROWS_MATCHES(model.lay_out(layout), std::invalid_argument,
                       MessageMatches(ContainsSubstring(fault)));
}

}  // namespace

TEST_CASE("of equal free blocks that with the lowest address is taken, also of given ones") {
  CHECK(first_of_three({}) == 2);
  CHECK(first_of_three(rising_addresses()) == 0);
  const std::array<uint64_t, 3> addresses = {30, 10, 20};
  CHECK(first_of_three([&](SegmentIndex segment) { return addresses.at(segment); }) == 1);
}

TEST_CASE("random addresses are all different, and all orders of them equally likely") {
  std::set<uint64_t> seen;
  const SegmentAddresses addresses = random_addresses(7);
  for (SegmentIndex i = 0; i < 10'000; ++i) seen.insert(addresses(i));
  CHECK(seen.size() == 10'000);
  CHECK(addresses(3) == random_addresses(7)(3));

  std::map<std::array<bool, 3>, int> orders;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const SegmentAddresses of = random_addresses(seed);
    ++orders[{of(0) < of(1), of(1) < of(2), of(0) < of(2)}];
  }
  CHECK(orders.size() == 6);
  for (const auto& [order, count] : orders) CHECK(std::abs(count - 1000) < 150);  // 5 sigma
}

TEST_CASE("two segments at one address, and addresses given late, are found") {
  AllocatorModel model(settings_of(""));
  model.give_addresses([](SegmentIndex) { return uint64_t{5}; });
  give(model, 20 * kMiB);
  CHECK_NOTHROW(model.check_totals());
  give(model, 30 * kMiB);
  CHECK_THROWS_AS(model.check_totals(), std::logic_error);
  CHECK_THROWS_AS(model.give_addresses({}), std::logic_error);
  CHECK_THROWS_AS(model.lay_out({}), std::logic_error);
}

TEST_CASE("the totals are the sums over the blocks wherever segments lie") {
  const uint64_t seed = Catch::getSeed();
  fmt::print("seed {}\n", seed);
  for (const std::string text : {"", "expandable_segments:True", "max_split_size_mb:64"}) {
    AllocatorModel model(settings_of(text, int64_t{1} << 30), default_and_pool_streams(4));
    model.give_addresses(random_addresses(seed));
    tests::AllocatorStorm storm(seed, {});
    std::unordered_map<size_t, BlockId> blocks;
    for (int i = 0; i < 5000; ++i) {
      const tests::StormOperation operation = storm.next();
      if (operation.kind == tests::StormKind::free) model.free(blocks.at(operation.slot));
      if (operation.kind == tests::StormKind::empty_cache) model.empty_cache();
      if (operation.kind != tests::StormKind::allocate) continue;
      const AllocationResult result = model.allocate(operation.bytes, operation.stream);
      const auto* given = std::get_if<Allocation>(&result);
      if (given != nullptr) blocks[operation.slot] = given->block;
      if (given == nullptr) storm.failed(operation);
      if (i % 100 == 0) model.check_totals();
    }
    CHECK_NOTHROW(model.check_totals());
  }
}

TEST_CASE("a model laid out as another one stands answers as that one from then on") {
  const uint64_t seed = Catch::getSeed();
  fmt::print("seed {}\n", seed);
  std::mt19937_64 engine(seed);
  for (const std::string text : {"", "max_split_size_mb:64", "roundup_power2_divisions:4"}) {
    for (const int64_t capacity_bytes : {kUnlimitedBytes, int64_t{1} << 30}) {
      CAPTURE(seed, text, capacity_bytes);
      Pair pair(settings_of(text, capacity_bytes), engine());
      pair.run_first(static_cast<int>(engine() % 4000));
      pair.run_both(2000);
    }
  }
}

TEST_CASE("a layout counts what it holds, and new segments lie below it") {
  AllocatorModel model(settings_of(""));
  const std::vector<BlockId> held =
      model.lay_out(one_segment({{.bytes = 4 * kMiB},
                                 {.bytes = 10 * kMiB, .requested_bytes = 1, .is_held = true},
                                 {.bytes = 6 * kMiB}}));
  REQUIRE(held.size() == 1);
  CHECK(model.counters().all.reserved_bytes.current == 20 * kMiB);
  CHECK(model.counters().all.allocated_bytes.peak == 10 * kMiB);
  CHECK(model.counters().all.requested_bytes.current == 1);
  CHECK(model.counters().large.inactive_split_bytes.current == 10 * kMiB);
  const BlockId below = give(model, 20 * kMiB).block;
  model.free(below);
  model.free(held[0]);
  CHECK(give(model, 20 * kMiB).segment == 1);
}

TEST_CASE("a layout that no allocator can have is refused in one line") {
  const BlockLayout held = {.bytes = kMiB, .requested_bytes = kMiB, .is_held = true};
  const BlockLayout free = {.bytes = kMiB};
  check_refused(one_segment({}), "has no blocks");
  check_refused(one_segment({{.bytes = 100}}), "not a multiple of 512");
  check_refused(one_segment({{.bytes = 0}}), "not a multiple of 512");
  check_refused(one_segment({{.bytes = 512, .requested_bytes = 513, .is_held = true}}), "smaller");
  check_refused(one_segment({held, free, free}), "two free neighbours");
  check_refused(one_segment({{.bytes = int64_t{1} << 61}, held, {.bytes = int64_t{1} << 61}}),
                "larger than any device");
  check_refused(one_segment({held, free}), "does not fit", settings_of("", kMiB));
  check_refused(one_segment({held}), "not supported", settings_of("expandable_segments:True"));
  std::vector<SegmentLayout> wrong = one_segment({held});
  wrong.push_back(wrong[0]);
  check_refused(wrong, "is there twice");
  wrong.resize(1);
  wrong[0].stream = 1;
  check_refused(wrong, "not known");
}
