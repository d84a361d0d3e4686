// Checks what only a GPU can show; tests/gpu/run.sh runs it on a machine that has one. Every case
// is tagged [gpu].
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <chrono>
#include <cmath>
#include <thread>

#include "runtime/comm/device/nccl_api.h"
#include "runtime/comm/none.h"
#include "runtime/execute/device.h"
#include "runtime/execute/executor.h"
#include "runtime/train/batches.h"
#include "tests/support/thread_ranks.h"

using namespace shardlens;
using namespace shardlens::models;
using namespace shardlens::runtime;
using Catch::Matchers::WithinRel;

namespace {

c10::Device gpu() {
  keep_backward_on_this_thread();
  const c10::Device device = open_device({.kind = DeviceKind::cuda, .gpu = ""}, 0);
  at::globalContext().setAllowTF32CuBLAS(false);
  return device;
}

/// The losses of a single rank, on a batch that is the same on every device.
std::vector<double> losses_on(const c10::Device& device, const planner::Strategy& strategy) {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const planner::Schedule schedule = build_schedule(spec, strategy, planner::Pass::train);
  RankState state(spec, schedule, 0, device);
  tests::draw_into(state, spec, 7);
  const auto streams = make_streams(device);
  NoneCommunicator none;
  Executor executor(spec, state, *streams, {&none, &none}, {});
  const Batch batch = synthetic_batch(spec, 32, 3, device);
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    executor.run(schedule, step, [&] { return batch; });
    losses.push_back(executor.loss().item<double>());
  }
  return losses;
}

void require(const NcclApi& api, NcclResult result, NcclComm* comm) {
  const auto last_moment = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (result == NcclResult::in_progress && std::chrono::steady_clock::now() < last_moment) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE(api.comm_get_async_error(comm, &result) == NcclResult::success);
  }
  INFO(to_text(api, result));
  REQUIRE(result == NcclResult::success);
}

/// A communicator of one rank, which our runtime never needs.
class OneRank {
 public:
  OneRank() : api(nccl_api()) {
    NcclConfig config;
    config.blocking = 0;
    const NcclResult begun = api.comm_init_rank_config(&comm, 1, new_nccl_id(api), 0, &config);
    require(api, begun, comm);
  }

  const NcclApi& api;
  NcclComm* comm = nullptr;
};

}  // namespace

TEST_CASE("a GPU's losses are the CPU's", "[gpu]") {
  const c10::Device device = gpu();
  for (const auto kind : {planner::StrategyKind::single, planner::StrategyKind::fsdp}) {
    for (const auto dtype : {DType::fp32, DType::bf16}) {
      const planner::Strategy strategy{.kind = kind, .param_dtype = dtype};
      const std::vector<double> here = losses_on(device, strategy);
      const std::vector<double> there = losses_on(c10::Device(c10::kCPU), strategy);
      for (size_t step = 0; step < here.size(); ++step) {
        CAPTURE(to_string(kind), to_string(dtype), step);
        const bool is_exact = dtype == DType::fp32;
        CHECK_THAT(here[step], WithinRel(there[step], is_exact ? 1e-4 : 2e-2));
      }
    }
  }
}

TEST_CASE("sharding over several streams gives the same as one stream", "[gpu]") {
  const c10::Device device = gpu();
  const std::vector<double> single = losses_on(device, {.kind = planner::StrategyKind::single});
  for (const auto reshard : {planner::Reshard::yes, planner::Reshard::no}) {
    const std::vector<double> sharded =
        losses_on(device, {.kind = planner::StrategyKind::fsdp, .reshard_after_forward = reshard});
    for (size_t step = 0; step < single.size(); ++step) {
      CHECK_THAT(sharded[step], WithinRel(single[step], 1e-6));
    }
  }
}

TEST_CASE("NCCL takes our calls: init, gather, reduce, abort", "[gpu]") {
  const c10::Device device = gpu();
  OneRank rank;
  cudaStream_t stream = c10::cuda::getStreamFromPool(true, device.index()).stream();
  const at::Tensor data = at::arange(1024, at::dtype(at::kFloat).device(device));
  const at::Tensor reduced = at::zeros_like(data);
  c10::cuda::device_synchronize();
  require(rank.api, rank.api.group_start(), rank.comm);
  require(rank.api,
          rank.api.all_gather(data.data_ptr(), data.data_ptr(), 1024, NcclType::fp32, rank.comm,
                              stream),
          rank.comm);
  require(rank.api, rank.api.group_end(), rank.comm);
  require(rank.api,
          rank.api.reduce_scatter(data.data_ptr(), reduced.data_ptr(), 1024, NcclType::fp32,
                                  NcclReduction::average, rank.comm, stream),
          rank.comm);
  c10::cuda::device_synchronize();
  CHECK(at::equal(reduced, at::arange(1024, at::dtype(at::kFloat).device(device))));
  CHECK(rank.api.comm_abort(rank.comm) == NcclResult::success);
}
