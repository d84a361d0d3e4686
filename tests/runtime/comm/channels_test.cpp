// Tests communicators over parts of the world, by shared memory, and operations over all ranks.
#include "runtime/comm/channels.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/board/shared_region.h"
#include "runtime/comm/local.h"
#include "runtime/comm/none.h"
#include "runtime/comm/operation_text.h"
#include "tests/runtime/comm/channel_steps.h"
#include "tests/runtime/comm/ranks.h"

using namespace shardlens;
using namespace shardlens::runtime;
using namespace shardlens::tests;
using shardlens::planner::Channel;
using shardlens::planner::RankSet;
using shardlens::planner::Schedule;
using namespace std::chrono_literals;

namespace {

/// Separate memory for each set of each channel, and one board for all.
class World {
 public:
  explicit World(const Schedule& schedule)
      : schedule_(schedule),
        region_(SharedRegion::create(Board::bytes(schedule.world_size))),
        board_(Board::initialise(region_.data(), schedule.world_size)) {
    for (const auto& action : schedule.actions) {
      const RankSet ranks = schedule.ranks_of(action.channel);
      for (int rank = 0; rank < schedule.world_size; ++rank) {
        areas_.try_emplace({action.channel, ranks.first_of(rank)},
                           SharedRegion::create(LocalCommunicator::bytes(layout(ranks))));
      }
    }
  }

  std::unique_ptr<LocalCommunicator> join(Channel channel, int rank,
                                          std::chrono::nanoseconds deadline = 60s) const {
    const RankSet ranks = schedule_.ranks_of(channel);
    const auto area = areas_.find({channel, ranks.first_of(rank)});
    if (area == areas_.end()) return nullptr;
    const auto describe = [](int peer) { return "action " + std::to_string(100 + peer); };
    return std::make_unique<LocalCommunicator>(
        area->second.data(), LocalOptions{layout(ranks), rank, deadline, describe, board_});
  }

 private:
  static LocalLayout layout(const RankSet& ranks) { return {ranks, 1 << 16, 1 << 16}; }

  Schedule schedule_;
  SharedRegion region_;
  Board board_;
  std::map<std::pair<Channel, int>, SharedRegion> areas_;
};

}  // namespace

TEST_CASE("channels over parts of the world give the values of the whole", "[threads]") {
  const Grid grid = GENERATE(Grid{8, 4, 2}, Grid{8, 2, 2}, Grid{4, 4, 2}, Grid{4, 2, 0});
  const World world(schedule_over(grid));
  const uint64_t seed = 31;
  INFO("seed " << seed << ", " << grid.world_size << " ranks, " << grid.shards << " shards, "
               << grid.regather_shards << " in a regather");
  const auto texts = run_threads(grid.world_size, [&](int rank) {
    const auto gather = world.join(Channel::gather, rank);
    const auto reduce = world.join(Channel::reduce, rank);
    const auto regather = world.join(Channel::regather, rank);
    const auto replicate = world.join(Channel::replicate, rank);
    const Channels channels{gather.get(), reduce.get(), regather.get(), replicate.get()};
    return run_steps(grid, rank, channels, seed, 20);
  });
  for (const std::string& text : texts) CHECK(text == "ok");
}

TEST_CASE("a rank lost in one set is named by its number, and ends all sets", "[threads]") {
  const World world(schedule_over({8, 4, 0}));
  const auto texts = run_threads(8, [&](int rank) -> std::string {
    if (rank == 3 || rank == 6) return "never came";
    const auto reduce = world.join(Channel::reduce, rank, rank < 5 ? 60s : 300ms);
    reduce->barrier({37, "BARRIER"});
    return "no error";
  });
  // Ranks 5 and 7 have the same deadline; all others get the text of the first of them.
  const std::string fault = " did not arrive within 0.3 s; last seen in action 106";
  const std::string by_5 = "rank 5, step 37, BARRIER: rank 6" + fault;
  const std::string by_7 = "rank 7, step 37, BARRIER: rank 6" + fault;
  for (const int rank : {0, 1, 2, 4}) {
    const std::string stopped = "rank " + std::to_string(rank) + ", step 37, BARRIER: stopped: ";
    const std::string& text = texts[static_cast<size_t>(rank)];
    CHECK((text == stopped + by_5 || text == stopped + by_7));
  }
}

TEST_CASE("ranks of a set are numbered by their order in the world") {
  const RankSet every_fourth{.size = 3, .stride = 4};
  NoneCommunicator of_rank_17(17, every_fourth);
  CHECK(of_rank_17.rank() == 1);
  CHECK(of_rank_17.world_size() == 3);
  of_rank_17.abort("enough");
  CHECK_THROWS_WITH(of_rank_17.barrier({2, "BARRIER"}),
                    "rank 17, step 2, BARRIER: stopped: enough");
  CHECK(to_text(every_fourth, 17) == "ranks 13 to 21 in steps of 4");
  CHECK(to_text(RankSet{.size = 4}, 6) == "ranks 4 to 7");
  CHECK(to_text(RankSet{}, 6) == "rank 6");
}

TEST_CASE("a channel that was not joined is a logic error") {
  NoneCommunicator gather, reduce;
  const Channels channels{&gather, &reduce};
  CHECK(&channels.at(Channel::gather) == &gather);
  CHECK(&channels.at(Channel::reduce) == &reduce);
  for (const Channel missing : {Channel::regather, Channel::replicate, Channel::none}) {
    CHECK_THROWS_AS(channels.at(missing), std::logic_error);
  }
  NoneCommunicator regather, replicate;
  const Channels all{&gather, &reduce, &regather, &replicate};
  CHECK(&all.at(Channel::regather) == &regather);
  CHECK(&all.at(Channel::replicate) == &replicate);
}
