#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>
#include <vector>

#include "profiler/record/known/routing.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

/// The number of tokens that each expert gets if all tokens choose different ones.
std::vector<int64_t> counts_of(const Routing& routing, int64_t tokens, int64_t k, int64_t experts) {
  const std::vector<int64_t> chosen = choose_experts(routing, tokens, k, experts);
  REQUIRE(chosen.size() == static_cast<size_t>(tokens * k));
  std::vector<int64_t> counts(static_cast<size_t>(experts));
  for (auto token = chosen.begin(); token != chosen.end(); token += k) {
    REQUIRE(std::set<int64_t>(token, token + k).size() == static_cast<size_t>(k));
  }
  for (const int64_t expert : chosen) ++counts.at(static_cast<size_t>(expert));
  return counts;
}

/// `total` dealt out to `number` in turn.
void append_share(std::vector<int64_t>& counts, int64_t total, int64_t number) {
  for (int64_t i = 0; i < number; ++i) counts.push_back(total / number + (i < total % number));
}

}  // namespace

TEST_CASE("experts get what the formulas of their routing say") {
  std::mt19937 random(20251121);
  for (int round = 0; round < 300; ++round) {
    const int64_t ranks = int64_t{1} << random() % 4;
    const int64_t own = 1 + random() % 8, experts = ranks * own;
    const int64_t k = 1 + random() % std::min<int64_t>(experts, 8), tokens = 1 + random() % 500;
    std::vector<int64_t> expected;
    append_share(expected, tokens * k, experts);
    CHECK(counts_of({}, tokens, k, experts) == expected);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t first = rank * own, others = experts - own;
      const int64_t to_own = tokens * std::min(k, own);
      std::vector<int64_t> of_own, of_others;
      append_share(of_own, to_own, own);
      append_share(of_others, tokens * k - to_own, others);
      of_others.insert(of_others.begin() + first, of_own.begin(), of_own.end());
      const Routing worst{.kind = Routing::Kind::worst, .ranks = ranks, .rank = rank};
      CHECK(counts_of(worst, tokens, k, experts) == of_others);
    }
  }
}

TEST_CASE("the busiest expert gets the given multiple of its share, but every token once") {
  const auto skewed = [](double factor) {
    return Routing{.kind = Routing::Kind::skewed, .factor = factor};
  };
  CHECK(counts_of(skewed(2), 96, 2, 8) == std::vector<int64_t>{48, 21, 21, 21, 21, 20, 20, 20});
  CHECK(counts_of(skewed(1), 96, 2, 8) == counts_of({}, 96, 2, 8));
  CHECK(counts_of(skewed(100), 96, 2, 8) == std::vector<int64_t>{96, 14, 14, 14, 14, 14, 13, 13});
  CHECK(counts_of(skewed(3), 10, 4, 4) == std::vector<int64_t>{10, 10, 10, 10});
}
