// Steps of several ranks, on traces that are written here, and their waits for each other.

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "planner/time/world_time.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Approx;
using profiler::CollectiveKind;
using profiler::NumberType;
using profiler::Work;
using profiler::WorkKind;
using profiler::WorkTrace;

namespace {

/// A rank whose step multiplies `products` times and then meets `world` ranks in an all-reduce.
WorkTrace multiplying(int products, int rank, std::vector<int32_t> world, int reductions = 1) {
  WorkTrace trace;
  trace.communicators.push_back(
      {.size = static_cast<int32_t>(world.size()), .rank = rank, .world_ranks = std::move(world)});
  const profiler::Product product{.m = 8192,
                                  .n = 8192,
                                  .k = 8192,
                                  .a = NumberType::bf16,
                                  .b = NumberType::bf16,
                                  .c = NumberType::bf16,
                                  .compute = NumberType::fp32};
  trace.work = {
      {.kind = WorkKind::step},
      {.kind = WorkKind::product, .product = product},
      {.kind = WorkKind::collective,
       .collective = {.kind = CollectiveKind::all_reduce, .bytes = 1 << 20, .communicator = 1}}};
  for (int step = 0; step < 5; ++step) {
    std::vector<uint32_t> pieces = {0};
    pieces.insert(pieces.end(), static_cast<size_t>(products), 1);
    pieces.insert(pieces.end(), static_cast<size_t>(reductions), 2);
    for (const uint32_t piece : pieces) {
      const int64_t time = 1000 * static_cast<int64_t>(trace.items.size());
      trace.items.push_back({.time_ns = time, .about = step, .work = piece});
    }
  }
  return trace;
}

}  // namespace

TEST_CASE("ranks wait for the slowest in their collectives", "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  const std::vector<WorkTrace> traces = {multiplying(4, 0, {0, 1}), multiplying(6, 1, {0, 1})};
  const StepTime fast = step_time(traces[0], gpu), slow = step_time(traces[1], gpu);
  const WorldTime world = world_time(traces, gpu);
  CHECK(world.doubts.empty());
  CHECK(world.meetings > 0);
  CHECK(world.slowest < 2);
  for (const StepTime& rank : world.ranks) CHECK(rank.seconds == Approx(slow.seconds));
  CHECK(world.ranks[0].waiting_for_ranks == Approx(slow.seconds - fast.seconds).epsilon(0.01));
  CHECK(world.ranks[1].waiting_for_ranks == Approx(0).margin(1e-6));
  CHECK(world.ranks[0].error == Approx(fast.error).epsilon(0.1));
}

TEST_CASE("ranks that were not run are taken to come at once, and the answer says so",
          "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  const std::vector<WorkTrace> traces = {multiplying(4, 0, {0, 1, 2}),
                                         multiplying(6, 2, {0, 1, 2})};
  const WorldTime world = world_time(traces, gpu);
  CHECK(world.doubts.size() == 1);
  CHECK(world.ranks[0].seconds == Approx(world.ranks[1].seconds));

  const std::vector<WorkTrace> unlike = {multiplying(4, 0, {0, 1}), multiplying(4, 1, {0, 1}, 3)};
  const WorldTime apart = world_time(unlike, gpu);
  CHECK(apart.doubts.size() == 1);
  CHECK(apart.meetings == 0);
  CHECK(apart.ranks[0].seconds == Approx(step_time(unlike[0], gpu).seconds));
}

TEST_CASE("one rank, or one without work, is as by itself", "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  const std::vector<WorkTrace> traces = {multiplying(3, 0, {0, 1}), {}};
  const WorldTime world = world_time(traces, gpu);
  CHECK(world.slowest == 0);
  CHECK(world.ranks[0].seconds == Approx(step_time(traces[0], gpu).seconds));
  CHECK(world.ranks[1].seconds == 0);
}
