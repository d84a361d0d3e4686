// Runs the executor on the null device, with its checks: in a step as scheduled every use is
// ordered, and each wait that is taken away leaves a race. Cases run with SHARDLENS_NULL_CHECK=1,
// each in its own process.
#include "runtime/execute/executor.h"

#include <ATen/ATen.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "models/families.h"
#include "runtime/execute/device.h"
#include "runtime/execute/null_inspection.h"
#include "tests/support/idle_communicator.h"
#include "tests/support/sample.h"

using namespace shardlens;
using namespace shardlens::profiler;
using namespace shardlens::runtime;
using planner::Schedule;

namespace {

/// Starts passes without waiting for earlier work.
class StreamsWithoutBegin final : public Streams {
 public:
  explicit StreamsWithoutBegin(Streams& streams) : streams_(streams) {}
  void begin(size_t actions) override {
    if (std::exchange(began_, true)) return;
    streams_.begin(actions);
  }
  void select(planner::Stream stream) override { streams_.select(stream); }
  void record(int action, planner::Stream stream) override { streams_.record(action, stream); }
  void wait(planner::Stream stream, int action) override { streams_.wait(stream, action); }
  void synchronize(int action) const override { streams_.synchronize(action); }
  void end() override { streams_.end(); }
  void* handle(planner::Stream stream) const override { return streams_.handle(stream); }

 private:
  Streams& streams_;
  bool began_ = false;
};

const models::ModelSpec& spec() {
  static const models::ModelSpec spec = models::make_spec("small", models::VitSizes{.image_px = 8,
                                                                                    .patch_px = 4,
                                                                                    .channels = 1,
                                                                                    .layers = 3,
                                                                                    .heads = 2,
                                                                                    .width = 64,
                                                                                    .mlp_width = 96,
                                                                                    .classes = 10});
  return spec;
}

c10::Device null_device() {
  keep_backward_on_this_thread();
  return open_device({.kind = DeviceKind::null, .gpu = "h200"}, 0);
}

/// Trains one rank, step by step.
class Rank {
 public:
  explicit Rank(const planner::Strategy& strategy, bool begins = true)
      : schedule(build_schedule(spec(), strategy, planner::Pass::train)),
        device_(null_device()),
        streams_(make_streams(device_)),
        without_begin_(*streams_),
        state_(spec(), schedule, 0, device_),
        inspection_(*find_null_checks(), state_, *streams_, /*by_nccl=*/false),
        executor_(spec(), state_, begins ? *streams_ : without_begin_, {&gather_, &reduce_}, {}) {
    executor_.inspect(inspection_);
    batch_ = {.input = at::zeros({4, 1, 8, 8}, at::dtype(at::kFloat).device(device_)),
              .targets = at::zeros({4}, at::dtype(at::kLong).device(device_))};
    inspection_.take_faults();
  }

  /// Runs a step by any schedule for this state; returns what the checker finds in it.
  std::vector<std::string> findings_of_step(const Schedule& of_step) {
    executor_.run(of_step, step_++, [this] { return batch_; });
    return inspection_.take_faults();
  }

  /// Keeps a fault in one step from causing findings in the next.
  void settle() const { REQUIRE(cudaDeviceSynchronize() == cudaSuccess); }

  const Schedule schedule;

 private:
  c10::Device device_;
  std::unique_ptr<Streams> streams_;
  StreamsWithoutBegin without_begin_;
  RankState state_;
  NullInspection inspection_;
  // The checker only learns from the schedule what collectives would do. And no thread of a
  // communicator asks whether an event is done: the answer would order the host after it, and hide
  // the races that this test looks for.
  tests::IdleCommunicator gather_, reduce_;
  Executor executor_;
  models::Batch batch_;
  int64_t step_ = 0;
};

using planner::Reshard;
using planner::StrategyKind;

std::vector<planner::Strategy> strategies() {
  std::vector<planner::Strategy> all;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const Reshard reshard : {Reshard::yes, Reshard::automatic, Reshard::no}) {
      all.push_back({.kind = StrategyKind::fsdp,
                     .world_size = 8,
                     .reshard_after_forward = reshard,
                     .param_dtype = dtype});
    }
    all.push_back({.kind = StrategyKind::ddp, .world_size = 8, .param_dtype = dtype});
  }
  return all;
}

}  // namespace

TEST_CASE("a scheduled step leaves nothing unordered", "[checks]") {
  for (const planner::Strategy& strategy : strategies()) {
    Rank rank(strategy);
    for (int step = 0; step < 3; ++step) {
      CAPTURE(to_string(strategy.kind), step);
      CHECK(rank.findings_of_step(rank.schedule) == std::vector<std::string>{});
    }
  }
}

/// Events of a round are recorded again in the next, and waits go from one round to another.
TEST_CASE("rounds of microbatches leave nothing unordered", "[checks]") {
  tests::Sample sample;
  for (planner::Strategy strategy : strategies()) {
    for (const planner::Sync sync : {planner::Sync::every, planner::Sync::last}) {
      strategy.microbatches = 12;
      strategy.sync = sync;
      Rank rank(strategy);
      REQUIRE(rank.schedule.repetition.times > 1);
      for (int step = 0; step < 2; ++step) {
        CAPTURE(to_string(strategy.kind), step);
        CHECK(rank.findings_of_step(rank.schedule) == std::vector<std::string>{});
      }
      const planner::Repetition& repetition = rank.schedule.repetition;
      for (int index = repetition.begin; index < repetition.end; ++index) {
        const auto at = static_cast<size_t>(index);
        if (rank.schedule.actions[at].waits.empty() || !sample.has_next()) continue;
        Schedule broken = rank.schedule;
        broken.actions[at].waits.clear();
        INFO("without the waits of " << action_to_text(rank.schedule, index));
        CHECK_FALSE(rank.findings_of_step(broken).empty());
        rank.settle();
      }
    }
  }
}

TEST_CASE("every wait that is skipped is reported", "[checks]") {
  int skipped = 0;
  for (const planner::Strategy& strategy : strategies()) {
    Rank rank(strategy);
    rank.findings_of_step(rank.schedule);
    for (size_t id = 0; id < rank.schedule.actions.size(); ++id) {
      for (size_t i = 0; i < rank.schedule.actions[id].waits.size(); ++i, ++skipped) {
        Schedule broken = rank.schedule;
        auto& waits = broken.actions[id].waits;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(i));
        INFO("without wait " << i << " of " << action_to_text(rank.schedule, static_cast<int>(id)));
        CHECK_FALSE(rank.findings_of_step(broken).empty());
        rank.settle();
      }
    }
    CHECK(rank.findings_of_step(rank.schedule).empty());
  }
  CHECK(skipped > 200);
}

TEST_CASE("a step that does not wait for the one before is reported", "[checks]") {
  for (const planner::Strategy& strategy : strategies()) {
    const bool casts = strategy.kind == StrategyKind::fsdp || strategy.param_dtype != DType::fp32;
    Rank rank(strategy, /*begins=*/false);
    rank.findings_of_step(rank.schedule);
    CHECK(rank.findings_of_step(rank.schedule).empty() == !casts);
  }
}
