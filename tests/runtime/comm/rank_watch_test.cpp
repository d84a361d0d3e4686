#include "runtime/comm/board/rank_watch.h"

#include <catch2/catch_test_macros.hpp>

#include "runtime/comm/board/shared_region.h"

using namespace shardlens;
using namespace shardlens::runtime;
using namespace std::chrono_literals;

namespace {

/// Two ranks and a clock that the test moves.
struct Watch {
  SharedRegion region = SharedRegion::create(Board::bytes(2));
  Board board = Board::initialise(region.data(), 2);
  RankWatch watch{{0, 1}, board, 5s};
  RankWatch::Time now{};

  /// Looks every 100 ms; returns which rank was found, and after how long.
  std::optional<QuietRank> look_for(std::chrono::milliseconds time,
                                    std::chrono::milliseconds every = 100ms) {
    for (const auto end = now + time; now < end; now += every) {
      if (auto quiet = watch.look(now)) return quiet;
    }
    return std::nullopt;
  }
};

}  // namespace

TEST_CASE("a rank that is stopped is found once its deadline has passed") {
  Watch ranks;
  ranks.watch.set_stopped(1, true);
  CHECK(ranks.watch.stopped_rank() == 1);
  CHECK_FALSE(ranks.watch.all_stopped());
  CHECK_FALSE(ranks.look_for(6s));
  const auto quiet = ranks.look_for(3s);
  REQUIRE(quiet);
  CHECK(quiet->rank == 1);
  CHECK(quiet->what == "was stopped for 5 s");
}

TEST_CASE("a rank that makes progress is left alone, and so are ranks that only compute") {
  Watch ranks;
  for (int i = 0; i < 10; ++i) {
    ranks.watch.set_stopped(1, true);
    CHECK_FALSE(ranks.look_for(4s));
    ranks.watch.set_stopped(1, false);
    CHECK_FALSE(ranks.look_for(60s));
  }
}

TEST_CASE("the time in which the launcher itself was stopped does not count") {
  Watch ranks;
  ranks.watch.set_stopped(1, true);
  CHECK_FALSE(ranks.look_for(100s, 10s));
}

TEST_CASE("a rank that does nothing after the others have ended is found") {
  Watch ranks;
  CHECK_FALSE(ranks.look_for(60s));
  ranks.watch.set_ended(0, true);
  for (int i = 0; i < 20; ++i) {
    ranks.board.enter(1, RankPhase::saving, 3, i);
    CHECK_FALSE(ranks.look_for(6s));
  }
  const auto quiet = ranks.look_for(8s);
  REQUIRE(quiet);
  CHECK(quiet->rank == 1);
  CHECK(quiet->what == "did not end within 5 s of the others");
}
