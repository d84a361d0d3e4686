// Tests the staged communicator on the null device, which really copies between host addresses:
// with buffers on the host everything that it does shows in the values.
#include "runtime/comm/device/staged.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/comm/board/shared_region.h"
#include "runtime/comm/local.h"
#include "runtime/comm/none.h"
#include "tests/runtime/comm/collective_plan.h"
#include "tests/runtime/comm/ranks.h"

using namespace shardlens;
using namespace shardlens::profiler;
using namespace shardlens::runtime;
using namespace shardlens::tests;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using shardlens::DType;
using namespace std::chrono_literals;

namespace {

bool is_pinned(const void* address) {
  cudaPointerAttributes attributes;
  return cudaPointerGetAttributes(&attributes, address) == cudaSuccess &&
         attributes.type == cudaMemoryTypeHost;
}

/// The requests to the host's side; rank 1 of 3.
class Host final : public Communicator {
 public:
  int rank() const override { return 1; }
  int world_size() const override { return 3; }
  Ticket all_gather(const Operation&, std::span<const GatherBuffer> buffers) override {
    for (const GatherBuffer& buffer : buffers) {
      add("gather", buffer.numel, is_pinned(buffer.data));
    }
    return next_++;
  }
  Ticket reduce_scatter(const Operation&, const ReduceBuffers& buffers) override {
    add("scatter", buffers.shard_numel, is_pinned(buffers.input) && is_pinned(buffers.output));
    // All of the scratch memory can be written, and it is apart from the rest.
    std::memset(buffers.receive, 1, static_cast<size_t>(3 * buffers.shard_numel) * 4);
    return next_++;
  }
  Ticket all_reduce(const Operation&, void* data, int64_t numel, DType) override {
    add("reduce", numel, is_pinned(data));
    return next_++;
  }
  void sum(const Operation&, std::span<double> values) override {
    add("sum", static_cast<int64_t>(values.size()), true);
  }
  void wait(Ticket ticket) override { add("wait", ticket, true); }
  void barrier(const Operation&) override { add("barrier", 0, true); }
  void abort(const std::string& reason) noexcept override { calls.push_back(reason); }

  std::vector<std::string> calls;

 private:
  void add(const std::string& call, int64_t size, bool is_well) {
    calls.push_back(call + " " + std::to_string(size) + (is_well ? "" : " NOT PINNED"));
  }
  Ticket next_ = 0;
};

}  // namespace

TEST_CASE("random collectives through staging memory equal a serial computation") {
  const int world_size = GENERATE(1, 2, 3);
  const Plan plan = random_plan(7700 + static_cast<uint64_t>(world_size), world_size, 200);
  INFO("seed " << plan.seed << ", world size " << world_size);
  const LocalLayout layout{{world_size}, plan.max_gather_bytes(), plan.max_reduce_bytes()};
  const size_t bytes = LocalCommunicator::bytes(layout);
  const SharedRegion region = SharedRegion::create(2 * bytes);
  const auto texts = run_threads(world_size, [&](int rank) {
    LocalOptions options;
    options.layout = layout;
    options.rank = rank;
    LocalCommunicator gather(region.data(), options);
    LocalCommunicator reduce(region.data() + bytes, options);
    StagedCommunicator first(gather, {.stream = c10::cuda::getStreamFromPool().stream()});
    StagedCommunicator second(reduce, {.stream = c10::cuda::getStreamFromPool().stream()});
    return run_plan(plan, first, second, AllReduceOrder::rank);
  });
  for (const std::string& text : texts) {
    CHECK_THAT(text, StartsWith("ok "));
    CHECK(text == texts[0]);
  }
}

TEST_CASE("the host's side sees pinned memory, and waits before issuing returns") {
  Host host;
  at::Tensor memory = at::empty({1 << 16}, at::dtype(at::kFloat).device(at::kCUDA));
  auto* data = memory.data_ptr<float>();
  {
    StagedCommunicator staged(host, {});
    const std::array buffers{GatherBuffer{data, 30, DType::fp32},
                             GatherBuffer{data + 64, 3000, DType::bf16}};
    CHECK(staged.all_gather({1, "ALL_GATHER"}, buffers) == 0);
    const ReduceBuffers reduce{.input = data, .output = data + 32768, .shard_numel = 5000};
    CHECK(staged.reduce_scatter({1, "REDUCE_SCATTER"}, reduce) == 1);
    CHECK(staged.all_reduce({1, "ALL_REDUCE"}, data, 50, DType::fp32) == 2);
    staged.wait(0);
    CHECK_THROWS_AS(staged.wait(2), std::logic_error);
    std::array<double, 2> values{};
    staged.sum({1, "SUM"}, values);
    staged.barrier({1, "BARRIER"});
  }
  CHECK(host.calls == std::vector<std::string>{"gather 30", "gather 3000", "wait 0", "scatter 5000",
                                               "wait 1", "reduce 50", "wait 2", "sum 2",
                                               "barrier 0"});
}

TEST_CASE("a device failure ends the host's side for all ranks") {
  NoneCommunicator host;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  StagedCommunicator staged(host, {.stream = stream});
  std::array<float, 4> data{};
  std::string text;
  try {
    staged.all_reduce({37, "ALL_REDUCE", "block3", 1}, data.data(), 4, DType::fp32);
  } catch (const CommunicationError& error) {
    text = error.what();
  }
  CHECK_THAT(text, StartsWith("rank 0, step 37, ALL_REDUCE of block3 bucket 1: cudaEventRecord"));
  CHECK_THROWS_AS(host.barrier({38, "BARRIER"}), CommunicationError);
  try {
    staged.barrier({38, "BARRIER"});
  } catch (const CommunicationError& error) {
    CHECK(error.what() == text);
  }
}
