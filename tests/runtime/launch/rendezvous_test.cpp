// Tests how ranks on the CPU meet over parts of the world, as threads and as processes; ranks with
// a device are in tests/profiler/null_device/rendezvous_test.cpp. Every rank is forked before this
// process touches LibTorch, whose threads a fork would lose.
#include "runtime/launch/rendezvous.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/board/shared_region.h"
#include "runtime/comm/none.h"
#include "tests/runtime/comm/channel_steps.h"
#include "tests/runtime/comm/ranks.h"

using namespace shardlens;
using namespace shardlens::runtime;
using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using planner::Channel;
using planner::CommunicatorKind;

namespace {

constexpr uint64_t kSeed = 53;

Job job_over(const Grid& grid, CommunicatorKind kind, double timeout_s = 20) {
  Job job;
  job.config.timeout_s = timeout_s;
  job.strategy.world_size = grid.world_size;
  job.strategy.communicator = kind;
  job.train = schedule_over(grid);
  return job;
}

/// The region of a job, as the launcher makes it.
struct SharedJob {
  explicit SharedJob(const Job& job)
      : region(SharedRegion::create(region_bytes(job))),
        board(Board::initialise(region.data(), job.strategy.world_size)) {}
  SharedRegion region;
  Board board;
};

/// Joins, and calls `body` with the channels.
std::string as_rank(const Job& job, const SharedJob& shared, int rank,
                    const std::function<std::string(const Channels&)>& body) {
  const auto streams = make_inline_streams();
  const auto links = join(job, rank, shared.region.data(), *streams);
  return body(links->channels());
}

/// Overload for a process whose failure all others learn, like that of the launcher's ranks.
std::string as_process(const Job& job, const SharedJob& shared, int rank,
                       const std::function<std::string(const Channels&)>& body) {
  alarm(120);  // a hang kills the rank, whose empty text then fails the test
  try {
    return as_rank(job, shared, rank, body);
  } catch (const CommunicationError& error) {
    shared.board.abort_note().raise(error.what());
    throw;
  }
}

std::string text_of(const Grid& grid) {
  return std::to_string(grid.world_size) + " ranks, " + std::to_string(grid.shards) + " shards, " +
         std::to_string(grid.regather_shards) + " in a regather";
}

/// "gather 1 of 4, ..."
std::string places(const Channels& channels) {
  std::string text;
  const auto add = [&](const char* name, const Communicator* communicator) {
    if (communicator == nullptr) return;
    const bool is_alone = dynamic_cast<const NoneCommunicator*>(communicator) != nullptr;
    text += std::string(text.empty() ? "" : ", ") + name + " " +
            std::to_string(communicator->rank()) + " of " +
            std::to_string(communicator->world_size()) + (is_alone ? " alone" : "");
  };
  add("gather", channels.gather);
  add("reduce", channels.reduce);
  add("regather", channels.regather);
  add("replicate", channels.replicate);
  return text;
}

/// The texts of all ranks, as threads.
std::vector<std::string> places_of(const Job& job) {
  const SharedJob shared(job);
  return run_threads(job.strategy.world_size,
                     [&](int rank) { return as_rank(job, shared, rank, places); });
}

}  // namespace

TEST_CASE("a channel joins the ranks that the schedule says") {
  const auto texts = places_of(job_over({8, 4, 2}, CommunicatorKind::local));
  CHECK(texts[0] == "gather 0 of 4, reduce 0 of 4, regather 0 of 2, replicate 0 of 2");
  CHECK(texts[3] == "gather 3 of 4, reduce 3 of 4, regather 1 of 2, replicate 0 of 2");
  CHECK(texts[6] == "gather 2 of 4, reduce 2 of 4, regather 0 of 2, replicate 1 of 2");
}

TEST_CASE("channels that no action uses are not joined, nor does a single rank join any") {
  CHECK(places_of(job_over({4, 4, 0}, CommunicatorKind::local))[2] ==
        "gather 2 of 4, reduce 2 of 4");
  CHECK(places_of(job_over({2, 2, 1}, CommunicatorKind::local))[1] ==
        "gather 1 of 2, reduce 1 of 2, regather 0 of 1 alone");
  CHECK(places_of(job_over({1, 1, 0}, CommunicatorKind::local))[0] ==
        "gather 0 of 1 alone, reduce 0 of 1 alone");
}

TEST_CASE("a solo rank takes its place in every set") {
  Job job = job_over({8, 4, 2}, CommunicatorKind::local);
  job.config.solo_rank = 6;
  const SharedJob shared(job);
  CHECK(as_rank(job, shared, 6, places) ==
        "gather 2 of 4 alone, reduce 2 of 4 alone, regather 0 of 2 alone, replicate 1 of 2 alone");
}

TEST_CASE("reductions that do not join the whole world are a logic error") {
  Job job = job_over({8, 4, 2}, CommunicatorKind::local);
  std::erase_if(job.train.actions,
                [](const auto& action) { return action.channel == Channel::replicate; });
  const SharedJob shared(job);
  CHECK_THROWS_AS(as_rank(job, shared, 0, places), std::logic_error);
}

TEST_CASE("the region has room exactly for every set of every channel") {
  const Grid grid{8, 4, 2};
  const Job job = job_over(grid, CommunicatorKind::local);
  // Four staging areas a rank and channel hold the largest operation; the board, counters and notes
  // are small.
  const size_t range_bytes = 2000 * 4;
  const size_t staged = 8 * 4 * range_bytes * (1 + 1 + 4 + 1);
  const size_t areas = region_bytes(job) - Board::bytes(8);
  CHECK(areas >= staged);
  CHECK(areas < staged + staged / 50);
  CHECK(region_bytes(job_over(grid, CommunicatorKind::gloo)) == Board::bytes(8));
  CHECK(region_bytes(job_over({1, 1, 0}, CommunicatorKind::local)) == Board::bytes(1));
}

TEST_CASE("threads over parts of the world in one region get the values of the whole") {
  const Grid grid = GENERATE(Grid{8, 4, 2}, Grid{8, 2, 2}, Grid{8, 8, 4}, Grid{4, 2, 1});
  INFO("seed " << kSeed << ", " << text_of(grid));
  const Job job = job_over(grid, CommunicatorKind::local);
  const SharedJob shared(job);
  const auto texts = run_threads(grid.world_size, [&](int rank) {
    return as_rank(job, shared, rank, [&](const Channels& channels) {
      return run_steps(grid, rank, channels, kSeed, 20);
    });
  });
  for (const std::string& text : texts) CHECK(text == "ok");
}

TEST_CASE("processes over parts of the world get the values of the whole") {
  const Grid grid = GENERATE(Grid{4, 2, 2}, Grid{4, 4, 2});
  const CommunicatorKind kind = GENERATE(CommunicatorKind::gloo, CommunicatorKind::local);
  INFO("seed " << kSeed << ", " << text_of(grid) << ", communicator " << static_cast<int>(kind));
  const Job job = job_over(grid, kind);
  const SharedJob shared(job);
  const auto texts = run_processes(grid.world_size, [&](int rank) {
    return as_process(job, shared, rank, [&](const Channels& channels) {
      return run_steps(grid, rank, channels, kSeed, 10);
    });
  });
  for (const std::string& text : texts) CHECK(text == "ok");
}

// Ranks 2 and 3 are one set, 0 and 1 the other: rank 1 works, but comes too late on purpose.
TEST_CASE("a process lost in one set ends the wait of ranks in other sets") {
  const CommunicatorKind kind = GENERATE(CommunicatorKind::gloo, CommunicatorKind::local);
  const bool is_killed = GENERATE(true, false);
  const Job patient = job_over({4, 2, 0}, kind, 60);
  const Job hasty = job_over({4, 2, 0}, kind, 2);
  const SharedJob shared(patient);
  const auto body = [&](int rank) -> std::string {
    return as_process(rank < 2 ? patient : hasty, shared, rank, [&](const Channels& channels) {
      if (rank == 3) is_killed ? _exit(3) : static_cast<void>(raise(SIGSTOP));
      while (rank == 1 && !shared.board.abort_note().is_raised()) usleep(1000);
      if (rank == 1) usleep(3'000'000);  // its own end would be another error for rank 0
      channels.reduce->barrier({37, "BARRIER"});
      return "no error";
    });
  };
  const auto texts = run_processes(4, body, 3);
  INFO("rank 2: " << texts[2]);
  CHECK_THAT(texts[2], StartsWith("rank 2, step 37, BARRIER: "));
  if (kind == CommunicatorKind::local) {
    CHECK_THAT(texts[2], ContainsSubstring("rank 3 did not arrive within 2 s; last seen in "));
  }
  CHECK(texts[0] == "rank 0, step 37, BARRIER: stopped: " + texts[2]);
  CHECK(texts[1] == "rank 1, step 37, BARRIER: stopped: " + texts[2]);
}

TEST_CASE("an incomplete set of ranks is named by the ranks' numbers") {
  const Job job = job_over({4, 2, 0}, CommunicatorKind::gloo, 2);
  const SharedJob shared(job);
  const auto texts = run_processes(4, [&](int rank) -> std::string {
    if (rank == 3) return "never came";
    return as_process(job, shared, rank, places);
  });
  INFO("rank 0: " << texts[0]);
  CHECK_THAT(texts[2],
             StartsWith("rank 2 could not join the gather group of ranks 2 to 3 within 2 s: "));
}
