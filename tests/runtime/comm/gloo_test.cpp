#include "runtime/comm/gloo.h"

#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <thread>

#include "runtime/comm/board/shared_region.h"
#include "tests/runtime/comm/collective_plan.h"
#include "tests/runtime/comm/ranks.h"

// Every rank is forked before this process touches LibTorch, whose threads a fork would lose.

using namespace shardlens;
using namespace shardlens::runtime;
using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using shardlens::DType;
using namespace std::chrono_literals;

namespace {

Operation operation(std::string_view kind, std::string_view group = "", int bucket = -1) {
  return {3, kind, group, bucket};
}

/// Rank 0 serves the store and posts its port on a board, as under the launcher.
class World {
 public:
  explicit World(int world_size, std::chrono::milliseconds deadline = 20s)
      : world_size_(world_size),
        deadline_(deadline),
        region_(SharedRegion::create(Board::bytes(world_size))),
        board_(Board::initialise(region_.data(), world_size)) {}

  std::unique_ptr<GlooStore> store(int rank) const {
    alarm(60);  // a hang kills the rank, whose empty text then fails the test
    GlooStoreOptions options{.rank = rank, .world_size = world_size_, .deadline = deadline_};
    if (rank == 0) {
      auto served = GlooStore::serve(options);
      board_.set_port(served->port());
      return served;
    }
    while (board_.port() == 0) std::this_thread::sleep_for(1ms);
    options.port = board_.port();
    return GlooStore::connect(options);
  }

  std::unique_ptr<Communicator> group(GlooStore& store, int rank, const char* prefix) const {
    return make_gloo(store, {.prefix = prefix,
                             .rank = rank,
                             .ranks = {world_size_},
                             .deadline = deadline_,
                             .board = board_});
  }
  const Board& board() const { return board_; }

 private:
  int world_size_;
  std::chrono::milliseconds deadline_;
  SharedRegion region_;
  Board board_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Two gathers in flight. Returns what waiting for them threw, at the second time, too, and how
/// many seconds waiting and destroying took.
std::string failing_gather(std::unique_ptr<Communicator> group) {
  std::vector<float> first(2000);
  std::vector<float> second(2000);
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  try {
    const GatherBuffer one{first.data(), 2000, DType::fp32};
    const GatherBuffer two{second.data(), 2000, DType::fp32};
    const Ticket ticket = group->all_gather(operation("ALL_GATHER", "block2"), {&one, 1});
    group->all_gather(operation("ALL_GATHER", "block3"), {&two, 1});
    group->wait(ticket);
    return "no error";
  } catch (const CommunicationError& error) {
    text = error.what();
  }
  const double waited = seconds_since(start);
  try {
    group->barrier(operation("BARRIER"));
  } catch (const CommunicationError& error) {
    if (error.what() != text) text += " THEN " + std::string(error.what());
  }
  const auto destroying = std::chrono::steady_clock::now();
  group.reset();
  const double destroyed = seconds_since(destroying);
  const bool in_time = waited < 10 && destroyed < 10;
  return text + " [waited " + std::to_string(waited) + " s, destroyed in " +
         std::to_string(destroyed) + " s, " + (in_time ? "in time]" : "too late]");
}

std::string error_of_rank_0(const World& world, const std::function<void()>& other) {
  const auto body = [&](int rank) -> std::string {
    const auto store = world.store(rank);
    auto group = world.group(*store, rank, "gather");
    group->barrier(operation("BARRIER"));
    if (rank == 1) other();
    return failing_gather(std::move(group));
  };
  return run_processes(2, body, 1)[0];
}

}  // namespace

TEST_CASE("random collectives over Gloo equal a serial computation") {
  const int world_size = GENERATE(1, 2, 3);
  const Plan plan = random_plan(900 + static_cast<uint64_t>(world_size), world_size, 120);
  INFO("seed " << plan.seed << ", world size " << world_size);
  const World world(world_size);
  const auto texts = run_processes(world_size, [&](int rank) {
    const auto store = world.store(rank);
    const auto gather = world.group(*store, rank, "gather");
    const auto reduce = world.group(*store, rank, "reduce");
    // Two ranks have only one order of summing.
    const auto order = world_size <= 2 ? AllReduceOrder::rank : AllReduceOrder::any;
    return run_plan(plan, *gather, *reduce, order);
  });
  for (const std::string& text : texts) {
    CHECK_THAT(text, StartsWith("ok "));
    CHECK(text == texts[0]);
  }
}

TEST_CASE("a dead peer ends a Gloo group at once") {
  const std::string text = error_of_rank_0(World(2), [] { _exit(3); });
  CHECK_THAT(text, StartsWith("rank 0, step 3, ALL_GATHER of block2: ") &&
                       !ContainsSubstring("THEN") && !ContainsSubstring("\n") &&
                       EndsWith("in time]"));
}

TEST_CASE("a stopped peer ends a Gloo group after the deadline") {
  const std::string text = error_of_rank_0(World(2, 3s), [] { raise(SIGSTOP); });
  CHECK_THAT(text, StartsWith("rank 0, step 3, ALL_GATHER of block2: ") &&
                       ContainsSubstring("block2: a peer did not arrive within 3 s: ") &&
                       !ContainsSubstring("THEN") && EndsWith("in time]"));
}

TEST_CASE("a peer that never joins is an error of the group") {
  const World world(2, 2s);
  const auto texts = run_processes(2, [&](int rank) -> std::string {
    const auto store = world.store(rank);
    if (rank == 1) {
      std::this_thread::sleep_for(4s);
      return "";
    }
    world.group(*store, rank, "reduce");
    return "no error";
  });
  CHECK_THAT(texts[0],
             StartsWith("rank 0 could not join the reduce group of ranks 0 to 1 within 2 s: "));
}

TEST_CASE("a store that cannot be reached is named") {
  const auto texts = run_processes(1, [](int) -> std::string {
    alarm(60);
    // No process listens on a port that was just free.
    uint16_t port = 0;
    { port = GlooStore::serve({})->port(); }
    GlooStore::connect({.port = port, .rank = 1, .world_size = 2, .deadline = 1s});
    return "no error";
  });
  CHECK_THAT(texts[0], StartsWith("rank 1 could not reach the rendezvous store at 127.0.0.1:") &&
                           ContainsSubstring(" within 1 s: ") && !ContainsSubstring("\n"));
}

TEST_CASE("a port in use is an error of the serving rank") {
  const auto texts = run_processes(1, [](int) -> std::string {
    const auto first = GlooStore::serve({});
    GlooStore::serve({.port = first->port()});
    return "no error";
  });
  CHECK_THAT(texts[0], StartsWith("rank 0 could not serve the rendezvous store at 127.0.0.1:") &&
                           EndsWith("Address already in use"));
}

TEST_CASE("an abort by any process of the host ends a wait over Gloo") {
  const World world(2, 30s);
  const auto body = [&](int rank) -> std::string {
    const auto store = world.store(rank);
    auto group = world.group(*store, rank, "gather");
    if (rank == 0) return failing_gather(std::move(group));
    std::this_thread::sleep_for(300ms);
    group->abort("rank 1 ran out of memory");
    raise(SIGSTOP);  // its sockets stay open
    return "";
  };
  const auto texts = run_processes(2, body, 1);
  CHECK_THAT(texts[0], StartsWith("rank 0, step 3, ALL_GATHER of block2: stopped: rank 1 ran out "
                                  "of memory [") &&
                           EndsWith("in time]"));
}

TEST_CASE("tickets over Gloo are waited for in order of issue") {
  const World world(1);
  const auto texts = run_processes(1, [&](int rank) -> std::string {
    const auto store = world.store(rank);
    const auto group = world.group(*store, rank, "gather");
    float value = 1;
    group->all_reduce(operation("ALL_REDUCE"), &value, 1, DType::fp32);
    const Ticket second = group->all_reduce(operation("ALL_REDUCE"), &value, 1, DType::fp32);
    try {
      group->wait(second);
    } catch (const std::logic_error&) {
      return "refused";
    }
    return "no error";
  });
  CHECK(texts[0] == "refused");
}
