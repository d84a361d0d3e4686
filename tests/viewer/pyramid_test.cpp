// Compares the pyramid with a plain scan of all changes.

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "viewer/model/pyramid.h"

namespace shardlens::viewer {
namespace {

/// Random lives: up to a few hundred blocks at any moment, sometimes a spike of one change.
LaneData random_changes(std::mt19937_64& engine, int64_t changes) {
  LaneData data;
  std::vector<uint32_t> live;
  while (static_cast<int64_t>(data.words.size()) < changes) {
    const auto now = static_cast<uint32_t>(data.words.size());
    const bool is_spike = engine() % 997 == 0;
    if (live.empty() || engine() % 300 > live.size()) {
      const auto block = static_cast<uint32_t>(data.blocks.size());
      const auto bytes = static_cast<int64_t>(engine() % (is_spike ? 1U << 31 : 1U << 20));
      data.blocks.push_back({.given_bytes = bytes,
                             .born = now,
                             .category = static_cast<Category>(engine() % kCategories)});
      data.words.push_back(block << 1);
      live.push_back(block);
      if (!is_spike) continue;
    }
    const size_t victim = is_spike ? live.size() - 1 : engine() % live.size();
    data.blocks[live[victim]].died = static_cast<uint32_t>(data.words.size());
    data.words.push_back(live[victim] << 1 | 1);
    live[victim] = live.back();
    live.pop_back();
  }
  build_pyramid(data);
  return data;
}

Pyramid pyramid_of(const LaneData& data) {
  return {data.words, data.blocks, data.nodes, data.checkpoints};
}

/// The result of a scan from the first change on.
Extent brute_force(const LaneData& data, int64_t begin, int64_t end) {
  Extent best{.max_bytes = -1, .min_bytes = INT64_MAX};
  CategoryBytes bytes{};
  for (int64_t i = -1; i < end; ++i) {
    if (i >= 0) {
      const Block& block = data.blocks[block_of(data.words[static_cast<size_t>(i)])];
      bytes[static_cast<size_t>(block.category)] +=
          is_free(data.words[static_cast<size_t>(i)]) ? -block.given_bytes : block.given_bytes;
    }
    if (i < begin) continue;
    const int64_t total = sum_of(bytes);
    best.min_bytes = std::min(best.min_bytes, total);
    if (total > best.max_bytes) best = {total, best.min_bytes, i, bytes};
  }
  return best;
}

void check_equal(const Extent& found, const Extent& wanted) {
  CHECK(found.max_bytes == wanted.max_bytes);
  CHECK(found.min_bytes == wanted.min_bytes);
  CHECK(found.max_change == wanted.max_change);
  CHECK(found.at_max == wanted.at_max);
  CHECK(sum_of(found.at_max) == found.max_bytes);
}

}  // namespace

TEST_CASE("any column of the pyramid is what a scan of all changes finds") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  for (const int64_t changes : {1, 63, 64, 65, 511, 513, 4096, 40'000}) {
    const LaneData data = random_changes(engine, changes);
    const Pyramid pyramid = pyramid_of(data);
    const auto count = static_cast<int64_t>(data.words.size());
    for (int i = 0; i < 60; ++i) {
      const auto a = static_cast<int64_t>(engine() % static_cast<uint64_t>(count + 1)) - 1;
      const auto b = static_cast<int64_t>(engine() % static_cast<uint64_t>(count + 1)) - 1;
      const int64_t begin = std::min(a, b);
      const int64_t end = std::max(a, b) + 1;
      CAPTURE(changes, begin, end);
      check_equal(pyramid.query(begin, end), brute_force(data, begin, end));
    }
    check_equal(pyramid.query(kBeforeAll, count), brute_force(data, kBeforeAll, count));
  }
}

TEST_CASE("the higher of two neighbouring columns is the highest of both, at any zoom") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed + 1);
  const LaneData data = random_changes(engine, 20'000);
  const Pyramid pyramid = pyramid_of(data);
  for (int i = 0; i < 300; ++i) {
    auto cuts = std::array<int64_t, 3>{};
    for (int64_t& cut : cuts) cut = static_cast<int64_t>(engine() % 20'000);
    std::ranges::sort(cuts);
    if (cuts[0] == cuts[1] || cuts[1] == cuts[2]) continue;
    const Extent left = pyramid.query(cuts[0], cuts[1]);
    const Extent right = pyramid.query(cuts[1], cuts[2]);
    const Extent& higher = right.max_bytes > left.max_bytes ? right : left;
    const Extent both = pyramid.query(cuts[0], cuts[2]);
    CHECK(both.max_bytes == higher.max_bytes);
    CHECK(both.max_change == higher.max_change);
    CHECK(both.at_max == higher.at_max);
    CHECK(both.min_bytes == std::min(left.min_bytes, right.min_bytes));
  }
}

TEST_CASE("the composition after a change is the sum of those before") {
  std::mt19937_64 engine(7);
  const LaneData data = random_changes(engine, 3000);
  const Pyramid pyramid = pyramid_of(data);
  for (int64_t change = -1; change < 3000; change += 37) {
    CHECK(pyramid.bytes_after(change) == brute_force(data, change, change + 1).at_max);
  }
}

TEST_CASE("a pyramid over nothing is empty") {
  LaneData data;
  build_pyramid(data);
  const Pyramid pyramid = pyramid_of(data);
  CHECK(pyramid.query(kBeforeAll, 10).max_bytes == 0);
  CHECK(pyramid.query(3, 3).max_change == kBeforeAll);
  CHECK(sum_of(pyramid.bytes_after(5)) == 0);
}

}  // namespace shardlens::viewer
