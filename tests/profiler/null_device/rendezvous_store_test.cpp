// Ranks that share no memory, as threads over one store: what they read of each other, where they
// stop, and whose reason counts. It is here since each case has its own process, in which
// LibTorch's threads may stay, and since NCCL is the stub library.
#include "runtime/launch/rendezvous_store.h"

#include <unistd.h>

#include <barrier>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/comm/board/shared_region.h"
#include "runtime/comm/device/nccl.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/launch/setup_checks.h"
#include "tests/runtime/comm/ranks.h"
#include "tests/support/free_port.h"

using namespace shardlens;
using namespace shardlens::profiler;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr auto kDeadline = std::chrono::seconds(20);

/// A rank's own board and its place among the others.
struct Peer {
  Peer(int rank, int world_size, uint16_t port, bool agent_serves = false, int restarts = 0)
      : region(SharedRegion::create(Board::bytes(world_size))),
        board(Board::initialise(region.data(), world_size)),
        store({.launcher = LauncherKind::mpirun,
               .rank = rank,
               .world_size = world_size,
               .local_rank = rank,
               .local_world_size = world_size,
               .host = "127.0.0.1",
               .port = port,
               .agent_serves = agent_serves,
               .start_id = "test",
               .restarts = restarts},
              board, kDeadline) {}

  SharedRegion region;
  Board board;
  RendezvousStore store;
};

/// Lets the others go on when a rank ends, well or badly.
struct BarrierLeaver {
  std::barrier<>& barrier;
  ~BarrierLeaver() { barrier.arrive_and_drop(); }
};

/// Returns what `body` returns on each rank; all leave together.
std::vector<std::string> meet(int world_size,
                              const std::function<std::string(int rank, Peer& peer)>& body) {
  ::alarm(120);  // a hang is a failure
  const uint16_t port = tests::free_port();
  return tests::run_threads(world_size, [&](int rank) {
    Peer peer(rank, world_size, port);
    const std::string text = body(rank, peer);
    peer.store.leave(true);
    return text;
  });
}

}  // namespace

TEST_CASE("ranks that share no memory learn NCCL's ids from the store") {
  planner::Config config;
  config.device = device_named("null:h200");
  config.workers = 3;
  Job job;
  job.config = config;
  job.strategy = planner::strategy_of(config);
  job.spec = models::find_spec(config.model);
  job.train = build_schedule(job.spec, job.strategy, planner::Pass::train);
  const auto texts = meet(3, [&](int rank, Peer& peer) {
    const auto streams = make_streams(c10::Device(c10::kCUDA, 0), false);
    const auto links = join(job, rank, peer.region.data(), *streams, &peer.store);
    const bool is_nccl = dynamic_cast<NcclCommunicator*>(links->channels().gather) != nullptr;
    return std::string(is_nccl ? "NCCL" : "another");
  });
  CHECK(texts == std::vector<std::string>{"NCCL", "NCCL", "NCCL"});
}

TEST_CASE("ranks that share no memory read each other's GPUs") {
  const auto on = [](std::vector<int> gpus) {
    return meet(3, [gpus](int rank, Peer& peer) -> std::string {
      GpuUuid gpu{};
      gpu[0] = static_cast<std::byte>(gpus[static_cast<size_t>(rank)]);
      exchange_gpus(peer.store, rank, gpu);
      try {
        expect_own_gpu(peer.board, rank, gpu, kDeadline);
      } catch (const std::invalid_argument& error) {
        return error.what();
      }
      return "its own";
    });
  };
  CHECK(on({0, 1, 2}) == std::vector<std::string>{"its own", "its own", "its own"});
  const std::vector<std::string> shared = on({4, 5, 4});
  CHECK(shared[1] == "its own");
  CHECK_THAT(shared[2], ContainsSubstring("ranks 0 and 2 are on the same GPU"));
}

TEST_CASE("all ranks stop after the same step, which none has passed") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 4; ++round) {
    const int ranks = 2 + round % 3;
    const int asking = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const int64_t asked_at = static_cast<int64_t>(random() % 200);
    std::vector<std::mt19937> delays;
    for (int rank = 0; rank < ranks; ++rank) delays.emplace_back(random());
    std::barrier step_of_all(ranks);
    const auto texts = meet(ranks, [&](int rank, Peer& peer) {
      const BarrierLeaver leaving{step_of_all};
      int64_t step = 0;
      while (!peer.store.must_stop(step)) {
        if (rank == asking && step == asked_at) peer.store.ask_to_stop();
        step_of_all.arrive_and_wait();  // a step needs all ranks
        ::usleep(static_cast<useconds_t>(delays[rank]() % 1500));
        ++step;
      }
      return std::to_string(step);
    });
    CAPTURE(round, asking, asked_at);
    for (const std::string& text : texts) CHECK(text == texts.front());
    CHECK(std::stoll(texts.front()) > asked_at);
  }
}

TEST_CASE("the first reason to give up counts for all ranks") {
  const auto texts = meet(3, [](int rank, Peer& peer) {
    const Fault fault = rank == 2 ? Fault::wrong_use : Fault::disk_full;
    AbortNote& note = peer.board.abort_note();
    if (rank > 0) note.raise("rank " + std::to_string(rank) + " has none", fault, rank);
    while (!note.is_raised()) ::usleep(1000);
    const Failure first = peer.store.first_failure();
    return std::string(to_string(first.fault())) + " of " + std::to_string(first.rank()) + ": " +
           first.what();
  });
  CHECK((texts[0] == "disk_full of 1: rank 1 has none" ||
         texts[0] == "wrong_use of 2: rank 2 has none"));
  for (const std::string& text : texts) CHECK(text == texts.front());
}

// The names of earlier attempts stay in an agent's store, and agents count for themselves.
TEST_CASE("an attempt reads no name of an earlier one in the same store") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto agent = GlooStore::serve({.world_size = 3, .deadline = kDeadline});
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::vector<useconds_t> delays;
    std::vector<int> restarts;
    for (int rank = 0; rank < 3; ++rank) {
      delays.push_back(random() % 300'000);
      restarts.push_back(static_cast<int>(random() % 4));
    }
    const auto texts = tests::run_threads(3, [&](int rank) {
      ::usleep(delays[rank]);
      Peer peer(rank, 3, agent->port(), true, restarts[rank]);
      if (rank == 0) peer.store.set("attempt", std::to_string(attempt));
      std::string text = peer.store.get("attempt", 0, "say the attempt") + " " +
                         std::to_string(peer.store.most_restarts());
      peer.store.leave(true);
      return text;
    });
    CAPTURE(attempt, restarts);
    const std::string expected =
        std::to_string(attempt) + " " + std::to_string(std::ranges::max(restarts));
    CHECK(texts == std::vector<std::string>(3, expected));
  }
}

TEST_CASE("ranks that fall silent are noticed") {
  const auto texts = meet(3, [](int rank, Peer& peer) -> std::string {
    if (rank == 2) return "left";
    if (rank == 1) return peer.store.get("asked", 0, "ask");
    ::usleep(500'000);  // all have reported
    std::string silent;
    for (const int other : peer.store.silent_ranks()) silent += std::to_string(other) + " ";
    peer.store.set("asked", "heard");
    return silent;
  });
  CHECK(texts == std::vector<std::string>{"2 ", "heard", "left"});
}
