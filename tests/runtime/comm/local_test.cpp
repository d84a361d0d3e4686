#include "runtime/comm/local.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>

#include "runtime/comm/board/shared_region.h"
#include "runtime/comm/half.h"
#include "runtime/comm/none.h"
#include "tests/runtime/comm/collective_plan.h"
#include "tests/runtime/comm/ranks.h"

using namespace shardlens;
using namespace shardlens::runtime;
using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Equals;
using Catch::Matchers::StartsWith;
using shardlens::DType;
using namespace std::chrono_literals;

namespace {

Operation operation(std::string_view kind, std::string_view group = "", int bucket = -1) {
  return {37, kind, group, bucket};
}

/// A board and two channels in one region, as the runtime lays them out.
class World {
 public:
  explicit World(const LocalLayout& layout)
      : layout_(layout),
        region_(SharedRegion::create(Board::bytes(layout.ranks.size) +
                                     2 * LocalCommunicator::bytes(layout))),
        board_(Board::initialise(region_.data(), layout.ranks.size)) {}

  std::unique_ptr<LocalCommunicator> channel(int index, int rank,
                                             std::chrono::nanoseconds deadline = 60s) const {
    std::byte* memory = region_.data() + Board::bytes(layout_.ranks.size) +
                        static_cast<size_t>(index) * LocalCommunicator::bytes(layout_);
    const auto describe = [](int peer) { return "action " + std::to_string(100 + peer); };
    return std::make_unique<LocalCommunicator>(
        memory, LocalOptions{layout_, rank, deadline, describe, board_});
  }
  const Board& board() const { return board_; }

 private:
  LocalLayout layout_;
  SharedRegion region_;
  Board board_;
};

LocalLayout layout_of(const Plan& plan) {
  return {{plan.world_size}, plan.max_gather_bytes(), plan.max_reduce_bytes()};
}

void check_plan(const Plan& plan, const std::vector<std::string>& texts) {
  INFO("seed " << plan.seed << ", world size " << plan.world_size);
  for (const std::string& text : texts) {
    CHECK_THAT(text, StartsWith("ok "));
    CHECK(text == texts[0]);  // gathers, all_reduce and sum: the same bits on every rank
  }
}

std::chrono::milliseconds elapsed_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               start);
}

/// Two ranks of one float each: rank 1 does `other`; returns the error of rank 0's reduction.
std::string error_of_rank_0(const World& world, const std::function<void()>& other) {
  return run_processes(
      2,
      [&](int rank) -> std::string {
        const auto channel = world.channel(0, rank, 300ms);
        channel->barrier(operation("BARRIER"));
        if (rank == 1) other();
        const std::vector<float> input{1, 2};
        float output = 0;
        const ReduceBuffers buffers{input.data(), &output, nullptr, 1, DType::fp32};
        channel->wait(channel->reduce_scatter(operation("REDUCE_SCATTER", "block3", 1), buffers));
        return "no error";
      },
      1)[0];
}

}  // namespace

TEST_CASE("random collectives between threads equal a serial computation", "[threads]") {
  const int world_size = GENERATE(1, 2, 3, 4, 7);
  const uint64_t seed = GENERATE(11u, 12u, 13u);
  const Plan plan = random_plan(seed + static_cast<uint64_t>(world_size) * 1000, world_size, 200);
  const World world(layout_of(plan));
  check_plan(plan, run_threads(world_size, [&](int rank) {
               return run_plan(plan, *world.channel(0, rank), *world.channel(1, rank),
                               AllReduceOrder::rank);
             }));
}

TEST_CASE("random collectives between processes equal a serial computation", "[processes]") {
  const int world_size = GENERATE(1, 2, 3, 4, 7);
  const Plan plan = random_plan(4200 + static_cast<uint64_t>(world_size), world_size, 200);
  const World world(layout_of(plan));
  check_plan(plan, run_processes(world_size, [&](int rank) {
               return run_plan(plan, *world.channel(0, rank), *world.channel(1, rank),
                               AllReduceOrder::rank);
             }));
}

TEST_CASE("results do not depend on how often or when a plan is run", "[threads]") {
  const Plan plan = random_plan(77, 3, 100);
  const World first(layout_of(plan));
  const World second(layout_of(plan));
  const auto run = [&](const World& world, int slow_rank) {
    return run_threads(3, [&](int rank) {
      if (rank == slow_rank) std::this_thread::sleep_for(20ms);
      return run_plan(plan, *world.channel(0, rank), *world.channel(1, rank), AllReduceOrder::rank);
    });
  };
  CHECK(run(first, 0) == run(second, 2));
}

TEST_CASE("one rank may run ahead by many operations", "[threads]") {
  const int operations = 1000;
  const World world({{2}, 64, 64});
  const auto texts = run_threads(2, [&](int rank) -> std::string {
    const auto channel = world.channel(0, rank);
    std::vector<std::array<float, 2>> values(operations);
    std::vector<Ticket> tickets;
    for (int i = 0; i < operations; ++i) {
      auto& value = values[static_cast<size_t>(i)];
      value[static_cast<size_t>(rank)] = static_cast<float>(2 * i + rank);
      const GatherBuffer buffer{value.data(), 2, DType::fp32};
      tickets.push_back(channel->all_gather(operation("ALL_GATHER"), {&buffer, 1}));
      if (rank == 1 && i % 100 == 0) std::this_thread::sleep_for(1ms);
    }
    for (const Ticket ticket : tickets) channel->wait(ticket);
    for (int i = 0; i < operations; ++i) {
      const auto want = static_cast<float>(2 * i);
      if (values[static_cast<size_t>(i)] != std::array<float, 2>{want, want + 1}) return "wrong";
    }
    return "ok";
  });
  CHECK(texts == std::vector<std::string>{"ok", "ok"});
}

TEST_CASE("sums are in rank order, not in any other", "[threads]") {
  // ((1e8 + -1e8) + 1) = 1, but (1e8 + (-1e8 + 1)) = 0 in fp32.
  const std::array<float, 3> terms{1e8f, -1e8f, 1.0f};
  const World world({{3}, 64, 64});
  const auto texts = run_threads(3, [&](int rank) {
    const auto channel = world.channel(0, rank);
    float value = terms[static_cast<size_t>(rank)];
    channel->wait(channel->all_reduce(operation("ALL_REDUCE"), &value, 1, DType::fp32));
    return std::to_string(value * 3);
  });
  for (const std::string& text : texts) CHECK(text == "1.000000");
}

TEST_CASE("a rank that dies is named by the others within the deadline", "[processes]") {
  const World world({{2}, 64, 64});
  const auto start = std::chrono::steady_clock::now();
  const std::string text = error_of_rank_0(world, [] { _exit(3); });
  CHECK_THAT(text, Equals("rank 0, step 37, REDUCE_SCATTER of block3 bucket 1: rank 1 did not "
                          "arrive within 0.3 s; last seen in action 101"));
  CHECK(elapsed_since(start) < 10s);
  CHECK(world.board().abort_note().reason() == text);
}

TEST_CASE("a stopped rank is named by the others after the deadline", "[processes]") {
  const World world({{2}, 64, 64});
  const std::string text = error_of_rank_0(world, [] { raise(SIGSTOP); });
  CHECK_THAT(text, ContainsSubstring("rank 1 did not arrive within 0.3 s"));
}

TEST_CASE("the first rank to give up ends all others", "[threads]") {
  const World world({{3}, 64, 64});
  const auto texts = run_threads(3, [&](int rank) -> std::string {
    if (rank == 2) return "never came";
    world.channel(0, rank, rank == 0 ? 300ms : 60s)->barrier(operation("BARRIER"));
    return "no error";
  });
  CHECK_THAT(texts[0], ContainsSubstring("rank 2 did not arrive within 0.3 s"));
  CHECK_THAT(texts[1], Equals("rank 1, step 37, BARRIER: stopped: " + texts[0]));
}

TEST_CASE("several waits share one deadline", "[threads]") {
  AbortNote note;
  FutexWord silent;
  FutexWord raised;
  publish(raised, 5);
  std::chrono::nanoseconds left = 60ms;
  CHECK(wait_for(raised, 5, left, note) == WaitResult::reached);
  CHECK(left == 60ms);
  CHECK(wait_for(silent, 1, left, note) == WaitResult::deadline_passed);
  CHECK(left <= 0ms);
  CHECK(wait_for(silent, 1, left, note) == WaitResult::deadline_passed);
  CHECK(wait_for(raised, 5, left, note) == WaitResult::reached);
}

TEST_CASE("counters may wrap", "[threads]") {
  AbortNote note;
  FutexWord word;
  std::chrono::nanoseconds left = 10ms;
  publish(word, 0xffffffffu);
  CHECK(wait_for(word, 0xfffffff0u, left, note) == WaitResult::reached);
  CHECK(wait_for(word, 1, left, note) == WaitResult::deadline_passed);
  publish(word, 2);
  CHECK(wait_for(word, 0xfffffff0u, left, note) == WaitResult::reached);
}

TEST_CASE("abort from another thread ends waits soon, and the communicator stays dead",
          "[threads]") {
  const World world({{2}, 64, 64});
  const auto waiting = world.channel(0, 0);
  const auto other_channel = world.channel(1, 0);
  std::chrono::steady_clock::time_point aborted;
  std::thread breaker([&] {
    std::this_thread::sleep_for(100ms);
    aborted = std::chrono::steady_clock::now();
    waiting->abort("out of patience");
  });
  std::array<float, 2> values{};
  const GatherBuffer buffer{values.data(), 2, DType::fp32};
  const Ticket ticket = waiting->all_gather(operation("ALL_GATHER", "block4"), {&buffer, 1});
  const std::string expected = "rank 0, step 37, ALL_GATHER of block4: stopped: out of patience";
  CHECK_THROWS_WITH(waiting->wait(ticket), expected);
  breaker.join();
  CHECK(elapsed_since(aborted) < 5s);
  CHECK_THROWS_WITH(waiting->wait(ticket), expected);
  CHECK_THROWS_WITH(waiting->barrier(operation("BARRIER")), expected);
  CHECK_THROWS_AS(other_channel->barrier(operation("BARRIER")), CommunicationError);
}

TEST_CASE("without a board the channel carries its own abort note", "[threads]") {
  const LocalLayout layout{{2}, 64, 64};
  const SharedRegion region = SharedRegion::create(LocalCommunicator::bytes(layout));
  LocalCommunicator first(region.data(), {layout, 0, 60s, {}, {}});
  LocalCommunicator second(region.data(), {layout, 1, 60s, {}, {}});
  first.abort("enough");
  CHECK_THROWS_WITH(second.barrier(operation("BARRIER")),
                    "rank 1, step 37, BARRIER: stopped: enough");
}

TEST_CASE("misuse is a logic error", "[threads]") {
  const LocalLayout layout{{1}, 64, 64};
  const SharedRegion region = SharedRegion::create(LocalCommunicator::bytes({{3}, 1 << 20, 64}));
  LocalCommunicator channel(region.data(), {layout, 0, 60s, {}, {}});
  float value = 1;
  const auto issue = [&] {
    return channel.all_reduce(operation("ALL_REDUCE"), &value, 1, DType::fp32);
  };
  SECTION("tickets out of order, twice, or never issued") {
    CHECK_THROWS_AS(channel.wait(0), std::logic_error);
    const Ticket first = issue();
    const Ticket second = issue();
    CHECK_THROWS_AS(channel.wait(second), std::logic_error);
    channel.wait(first);
    CHECK_THROWS_AS(channel.wait(first), std::logic_error);
    CHECK_THROWS_AS(channel.barrier(operation("BARRIER")), std::logic_error);
  }
  SECTION("a buffer larger than the staging area") {
    std::vector<float> large(2000);
    const GatherBuffer buffer{large.data(), 2000, DType::fp32};
    CHECK_THROWS_AS(channel.all_gather(operation("ALL_GATHER"), {&buffer, 1}), std::logic_error);
    CHECK_THROWS_AS(channel.all_reduce(operation("ALL_REDUCE"), large.data(), 2000, DType::fp32),
                    std::logic_error);
  }
  SECTION("another layout over the same memory") {
    CHECK_THROWS_AS(LocalCommunicator(region.data(), {{{1}, 1 << 20, 64}, 0, 60s, {}, {}}),
                    std::logic_error);
    CHECK_THROWS_AS(LocalCommunicator(region.data(), {{{3}, 64, 64}, 0, 60s, {}, {}}),
                    std::logic_error);
  }
  SECTION("another set of ranks over the same memory") {
    CHECK_THROWS_AS(LocalCommunicator(region.data(), {layout, 1, 60s, {}, {}}), std::logic_error);
  }
  SECTION("a rank outside its world") {
    CHECK_THROWS_AS(LocalCommunicator(region.data(), {layout, -1, 60s, {}, {}}), std::logic_error);
  }
}

TEST_CASE("a world of one without transport equals the serial computation") {
  const Plan plan = random_plan(5, 1, 200);
  NoneCommunicator first;
  NoneCommunicator second;
  CHECK_THAT(run_plan(plan, first, second, AllReduceOrder::rank), StartsWith("ok "));
  CHECK_THROWS_AS(first.wait(0), std::logic_error);
}

TEST_CASE("a solo rank touches its own range only") {
  NoneCommunicator solo(1, {3});
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<float> before = values;
  const GatherBuffer gather{values.data(), 6, DType::fp32};
  solo.wait(solo.all_gather(operation("ALL_GATHER"), {&gather, 1}));
  CHECK(values == before);
  std::vector<float> output(2);
  const ReduceBuffers reduce{values.data(), output.data(), nullptr, 2, DType::fp32};
  solo.wait(solo.reduce_scatter(operation("REDUCE_SCATTER"), reduce));
  CHECK(output == std::vector<float>{3, 4});
  solo.abort("enough");
  CHECK_THROWS_WITH(solo.barrier(operation("BARRIER")),
                    "rank 1, step 37, BARRIER: stopped: enough");
  CHECK_THROWS_AS(NoneCommunicator(-1, {3}), std::logic_error);
}

TEST_CASE("every bf16 and fp16 value widens exactly and comes back") {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const auto same = [&](float wide, DType dtype, uint16_t back) {
      const double want = decode(bits, dtype);
      if (std::isnan(want)) return std::isnan(wide) && std::isnan(decode(back, dtype));
      return wide == want && std::signbit(wide) == std::signbit(want) && back == half;
    };
    CAPTURE(bits);
    REQUIRE(same(bf16_to_fp32(half), DType::bf16, fp32_to_bf16(bf16_to_fp32(half))));
    REQUIRE(same(fp16_to_fp32(half), DType::fp16, fp32_to_fp16(fp16_to_fp32(half))));
  }
}

TEST_CASE("fp32 rounds to bf16 and fp16 as computed in double") {
  // Every upper half of an fp32, with lower halves around the ties of both formats.
  for (uint32_t upper = 0; upper <= 0xffff; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u,
                                 0x7fffu, 0x8000u, 0x8001u, 0xefffu, 0xf000u, 0xffffu}) {
      const auto value = std::bit_cast<float>(upper << 16 | lower);
      if (std::isnan(value)) continue;
      CAPTURE(upper, lower);
      if (fp32_to_bf16(value) != encode(value, DType::bf16)) FAIL("bf16");
      if (fp32_to_fp16(value) != encode(value, DType::fp16)) FAIL("fp16");
    }
  }
  CHECK(fp32_to_fp16(65519.996f) == 0x7bff);
  CHECK(fp32_to_fp16(65520.0f) == 0x7c00);
  CHECK(std::isnan(bf16_to_fp32(fp32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(fp16_to_fp32(fp32_to_fp16(std::bit_cast<float>(0xff800001u)))));
}
