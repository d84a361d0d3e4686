// Tests the null device's checks under LibTorch's own CUDA code. Cases tagged [checks] run with
// SHARDLENS_NULL_CHECK=1, each in its own process.
#include "profiler/null_device/checks/null_checks.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <string>
#include <vector>

struct NullUniqueId {
  char bytes[128];
};
/// The beginning of NCCL's configuration, as its header initialises it.
struct NcclConfig {
  size_t size_bytes = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 22809;
  int blocking = 1;
};
extern "C" {
int ncclCommInitRankConfig(void** communicator, int ranks, NullUniqueId id, int rank,
                           NcclConfig* config);
int ncclCommFinalize(void* communicator);
int ncclCommDestroy(void* communicator);
int ncclCommAbort(void* communicator);
int ncclCommGetAsyncError(const void* communicator, int* state);
int ncclAllGather(const void* input, void* output, size_t count, int dtype, void* communicator,
                  void* stream);
int ncclReduceScatter(const void* input, void* output, size_t count, int dtype, int reduction,
                      void* communicator, void* stream);
int ncclBroadcast(const void* input, void* output, size_t count, int dtype, int root,
                  void* communicator, void* stream);
int ncclAllReduce(const void* input, void* output, size_t count, int dtype, int reduction,
                  void* communicator, void* stream);
int ncclReduce(const void* input, void* output, size_t count, int dtype, int reduction, int root,
               void* communicator, void* stream);
int ncclAlltoAll(const void* input, void* output, size_t count, int dtype, void* communicator,
                 void* stream);
int ncclSend(const void* input, size_t count, int dtype, int peer, void* communicator,
             void* stream);
int ncclRecv(void* output, size_t count, int dtype, int peer, void* communicator, void* stream);
int ncclGroupStart();
int ncclGroupEnd();
}

using namespace shardlens;
using namespace shardlens::profiler;
namespace allocator = c10::cuda::CUDACachingAllocator;
using c10::cuda::CUDAStream;
using Catch::Matchers::ContainsSubstring;
using Lines = std::vector<std::string>;

namespace {

constexpr int kFloat = 7, kBfloat16 = 9, kSum = 0, kAverage = 4;
constexpr int kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7;
constexpr int64_t kCount = 1024;  // 4096 bytes

NullChecks& checks() {
  NullChecks* const found = find_null_checks();
  REQUIRE(found != nullptr);
  return *found;
}

at::Tensor device_floats(int64_t count) {
  return at::empty({count}, at::dtype(at::kFloat).device(at::kCUDA));
}

CUDAStream main_stream() { return c10::cuda::getDefaultCUDAStream(); }

void copy_in(CUDAStream stream, at::Tensor target, const at::Tensor& source) {
  const c10::cuda::CUDAStreamGuard guard(stream);
  target.copy_(source, /*non_blocking=*/true);
}

/// The blocks that the caching allocator hands out from here on.
void feed_blocks() {
  device_floats(1);  // the first use creates the allocator
  allocator::attachAllocatorTraceTracker([](const allocator::TraceEntry& entry) {
    const auto* const address = reinterpret_cast<const void*>(entry.addr_);
    if (entry.action_ == allocator::TraceEntry::ALLOC) {
      checks().note_allocation(entry.stream_, address, entry.size_);
    } else if (entry.action_ == allocator::TraceEntry::FREE_COMPLETED) {
      checks().note_free(entry.stream_, address, entry.size_);
    }
  });
}

void* communicator_of(int ranks, int rank) {
  NcclConfig config;
  void* communicator = nullptr;
  REQUIRE(ncclCommInitRankConfig(&communicator, ranks, {}, rank, &config) == kSuccess);
  return communicator;
}

}  // namespace

TEST_CASE("nothing is checked unless the environment says so") {
  CHECK(find_null_checks() == nullptr);
}

TEST_CASE("a copy in one stream and a copy in another race without an event", "[checks]") {
  const CUDAStream side = c10::cuda::getStreamFromPool();
  const at::Tensor a = device_floats(kCount), b = device_floats(kCount), c = device_floats(kCount);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);  // the sections share the process
  copy_in(main_stream(), b, a);
  SECTION("no event") {
    copy_in(side, c, b);
    const Lines findings = checks().take_findings();
    REQUIRE(findings.size() == 1);
    CHECK_THAT(findings[0], ContainsSubstring("reads 0x"));
    CHECK_THAT(findings[0], ContainsSubstring(" + 4096 bytes, not ordered after cudaMemcpyAsync "
                                              "(stream 0) which writes it"));
  }
  SECTION("an event") {
    c10::cuda::CUDAEvent event;
    event.record(main_stream());
    event.block(side);
    copy_in(side, c, b);
    CHECK(checks().take_findings().empty());
  }
  SECTION("the host waits") {
    main_stream().synchronize();
    copy_in(side, c, b);
    CHECK(checks().take_findings().empty());
  }
}

TEST_CASE("a copy to pageable memory blocks the host, one to pinned memory does not", "[checks]") {
  const CUDAStream side = c10::cuda::getStreamFromPool();
  const at::Tensor on_device = device_floats(kCount), other = device_floats(kCount);
  const auto copy_out_and_go_on = [&](at::Tensor host) {
    copy_in(side, on_device, other);
    copy_in(side, host, on_device);
    copy_in(main_stream(), other, on_device);
    return checks().take_findings();
  };
  const at::TensorOptions floats = at::dtype(at::kFloat);
  CHECK(copy_out_and_go_on(at::empty({kCount}, floats)) == Lines{});
  main_stream().synchronize();
  const Lines findings = copy_out_and_go_on(at::empty({kCount}, floats.pinned_memory(true)));
  REQUIRE(findings.size() == 2);
  CHECK_THAT(findings[0], ContainsSubstring("cudaMemcpyAsync (stream 0) reads"));
  CHECK_THAT(findings[1], ContainsSubstring("cudaMemcpyAsync (stream 0) writes"));
}

TEST_CASE("memory used in another stream and not recorded there races when reused", "[checks]") {
  feed_blocks();
  const CUDAStream side = c10::cuda::getStreamFromPool();
  const at::Tensor target = device_floats(kCount);
  for (const bool is_recorded : {true, false}) {
    CAPTURE(is_recorded);
    at::Tensor block = device_floats(kCount);
    const void* const address = block.data_ptr();
    c10::cuda::CUDAEvent allocated;
    allocated.record(main_stream());
    allocated.block(side);
    copy_in(side, target, block);
    if (is_recorded) block.record_stream(side);
    block.reset();
    const at::Tensor again = device_floats(kCount);
    REQUIRE(again.data_ptr() == address);
    const Lines findings = checks().take_findings();
    REQUIRE(findings.size() == (is_recorded ? 0 : 1));
    if (is_recorded) continue;
    CHECK_THAT(findings[0], ContainsSubstring("race: allocation (stream 0) writes"));
  }
}

TEST_CASE("use of memory that was freed or is not the driver's is found", "[checks]") {
  feed_blocks();
  at::Tensor block = device_floats(kCount);
  void* const address = block.data_ptr();
  checks().use(nullptr, address, 4096, false, "FORWARD attention2");
  CHECK(checks().take_findings().empty());
  block.reset();
  checks().use(nullptr, address, 4096, false, "FORWARD attention2");
  CHECK_THAT(checks().take_findings().at(0),
             ContainsSubstring("use of freed memory: FORWARD attention2 (stream 0) reads"));
  allocator::emptyCache();
  CHECK(cudaMemsetAsync(address, 0, 1, nullptr) == cudaSuccess);
  CHECK_THAT(checks().take_findings().at(0),
             ContainsSubstring("use of unknown memory: cudaMemset (stream 0) writes"));
  int on_the_host = 0;
  checks().use(nullptr, &on_the_host, 4, true, "H2D");
  CHECK(checks().take_findings().empty());
}

TEST_CASE("LibTorch's own work in one stream has no finding", "[checks]") {
  feed_blocks();
  const at::Tensor x = at::empty({64, 128}, at::dtype(at::kFloat).device(at::kCUDA));
  const at::Tensor w = at::empty({128, 128}, x.options()).requires_grad_(true);
  for (int step = 0; step < 3; ++step) {
    at::gelu(at::matmul(x, w)).sum().backward();
    CHECK(w.grad().cpu().numel() == w.numel());
    w.mutable_grad().reset();
  }
  allocator::emptyCache();
  CHECK(checks().take_findings() == Lines{});
}

TEST_CASE("an NCCL call is recorded, and its memory accesses are ordered", "[checks]") {
  const CUDAStream side = c10::cuda::getStreamFromPool();
  void* const first = communicator_of(2, 0);
  void* const communicator = communicator_of(4, 3);
  at::Tensor data = device_floats(4 * kCount);
  copy_in(main_stream(), data, at::zeros({4 * kCount}, at::kFloat));
  float* const shard = data.data_ptr<float>() + 3 * kCount;
  CHECK(ncclAllGather(shard, data.data_ptr(), kCount, kFloat, communicator, side.stream()) ==
        kSuccess);
  const std::vector<NcclCall> calls = checks().take_nccl_calls();
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].function == "ncclAllGather");
  CHECK(calls[0].communicator == 1);
  CHECK(calls[0].ranks == 4);
  CHECK(calls[0].rank == 3);
  CHECK(calls[0].count == kCount);
  CHECK(calls[0].dtype == kFloat);
  CHECK(calls[0].reduction == -1);
  CHECK(calls[0].stream == side.stream());
  CHECK_FALSE(calls[0].in_group);
  const Lines findings = checks().take_findings();
  REQUIRE(findings.size() == 2);  // its read and its write
  CHECK_THAT(findings[0], ContainsSubstring(" + 4096 bytes, not ordered after cudaMemcpyAsync"));
  CHECK_THAT(findings[1], ContainsSubstring(" + 16384 bytes, not ordered after cudaMemcpyAsync"));
  CHECK(ncclCommDestroy(first) == kSuccess);
}

TEST_CASE("a collective accesses the bytes that its count, data type and ranks imply", "[checks]") {
  struct Collective {
    const char* name;
    size_t input_count, output_count;  // for 1000 elements
    std::function<int(const void*, void*, size_t)> call;
  };
  void* const c = communicator_of(4, 2);
  const std::vector<Collective> collectives = {
      {"all-gather", 1000, 4000,
       [&](auto* in, auto* out, size_t n) {
         return ncclAllGather(in, out, n, kBfloat16, c, nullptr);
       }},
      {"reduce-scatter", 4000, 1000,
       [&](auto* in, auto* out, size_t n) {
         return ncclReduceScatter(in, out, n, kBfloat16, kSum, c, nullptr);
       }},
      {"all-reduce", 1000, 1000,
       [&](auto* in, auto* out, size_t n) {
         return ncclAllReduce(in, out, n, kBfloat16, kSum, c, nullptr);
       }},
      {"all-to-all", 4000, 4000,
       [&](auto* in, auto* out, size_t n) {
         return ncclAlltoAll(in, out, n, kBfloat16, c, nullptr);
       }},
      {"broadcast here", 1000, 1000,
       [&](auto* in, auto* out, size_t n) {
         return ncclBroadcast(in, out, n, kBfloat16, 2, c, nullptr);
       }},
      {"broadcast from there", 0, 1000,
       [&](auto* in, auto* out, size_t n) {
         return ncclBroadcast(in, out, n, kBfloat16, 0, c, nullptr);
       }},
      {"reduce to there", 1000, 0,
       [&](auto* in, auto* out, size_t n) {
         return ncclReduce(in, out, n, kBfloat16, kSum, 0, c, nullptr);
       }},
      {"send", 1000, 0,
       [&](auto* in, auto*, size_t n) { return ncclSend(in, n, kBfloat16, 0, c, nullptr); }},
      {"receive", 0, 1000,
       [&](auto*, auto* out, size_t n) { return ncclRecv(out, n, kBfloat16, 0, c, nullptr); }},
  };
  for (const Collective& collective : collectives) {
    CAPTURE(collective.name);
    void *input = nullptr, *output = nullptr;  // exactly as large; a bfloat16 has 2 bytes
    REQUIRE(cudaMalloc(&input, 2 * collective.input_count) == cudaSuccess);
    REQUIRE(cudaMalloc(&output, 2 * collective.output_count) == cudaSuccess);
    CHECK(collective.call(input, output, 1000) == kSuccess);
    CHECK(checks().take_findings() == Lines{});
    CHECK(collective.call(input, output, 1001) == kSuccess);
    const size_t touched = (collective.input_count > 0 ? 1 : 0) + (collective.output_count > 0);
    CHECK(checks().take_findings().size() == touched);
  }
}

TEST_CASE("only NCCL's own in-place layout is right", "[checks]") {
  void* const communicator = communicator_of(4, 1);
  const at::Tensor data = device_floats(4 * kCount);
  float* const all = data.data_ptr<float>();
  const auto reduce_scatter = [&](float* shard) {
    return ncclReduceScatter(all, shard, kCount, kFloat, kAverage, communicator, nullptr);
  };
  CHECK(ncclAllGather(all + kCount, all, kCount, kFloat, communicator, nullptr) == kSuccess);
  CHECK(reduce_scatter(all + kCount) == kSuccess);
  CHECK(checks().take_findings().empty());
  CHECK(ncclAllGather(all, all, kCount, kFloat, communicator, nullptr) == kSuccess);
  CHECK(reduce_scatter(all + kCount + 1) == kSuccess);
  const Lines findings = checks().take_findings();
  REQUIRE(findings.size() == 2);
  CHECK_THAT(findings[0], ContainsSubstring("wrong in-place layout: ncclAllGather of 1024 elements "
                                            "by rank 1 of 4"));
  CHECK_THAT(findings[1], ContainsSubstring("wrong in-place layout: ncclReduceScatter"));
}

TEST_CASE("the calls of a group start when it ends, unordered", "[checks]") {
  void* const communicator = communicator_of(2, 0);
  const at::Tensor data = device_floats(4 * kCount);
  float* const all = data.data_ptr<float>();
  const auto gather_two = [&](float* second) {
    CHECK(ncclGroupStart() == kSuccess);
    CHECK(ncclAllGather(all, all, kCount, kFloat, communicator, nullptr) == kSuccess);
    CHECK(ncclAllGather(second, second, kCount, kFloat, communicator, nullptr) == kSuccess);
    CHECK(checks().take_nccl_calls().empty());
    CHECK(ncclGroupEnd() == kSuccess);
  };
  gather_two(all + 2 * kCount);
  const std::vector<NcclCall> calls = checks().take_nccl_calls();
  REQUIRE(calls.size() == 2);
  CHECK(calls[1].in_group);
  CHECK(checks().take_findings().empty());
  gather_two(all + kCount);
  CHECK_THAT(checks().take_findings().at(0),
             ContainsSubstring("ncclAllGather and ncclAllGather of one group overlap"));
  checks().take_nccl_calls();
  CHECK(ncclGroupStart() == kSuccess);
  CHECK(ncclAllGather(all, all, kCount, kFloat, communicator, nullptr) == kSuccess);
  CHECK(ncclAllGather(all, all, kCount, 12, communicator, nullptr) == kInvalidArgument);
  CHECK(ncclGroupEnd() == kInvalidArgument);  // no call of the group runs
  CHECK(checks().take_nccl_calls().empty());
  CHECK(ncclGroupEnd() == kInvalidUsage);
}

TEST_CASE("NCCL refuses what it would refuse") {
  NcclConfig config;
  config.blocking = 0;
  void* communicator = nullptr;
  for (const int rank : {-1, 2}) {
    CHECK(ncclCommInitRankConfig(&communicator, 2, {}, rank, &config) == kInvalidArgument);
  }
  NcclConfig not_initialized{.magic = 0};
  CHECK(ncclCommInitRankConfig(&communicator, 2, {}, 0, &not_initialized) == kInvalidArgument);
  const auto broadcast = [&](int dtype, int root) {
    return ncclBroadcast(nullptr, nullptr, 0, dtype, root, communicator, nullptr);
  };
  const auto poll = [&] {
    int state = -1;
    CHECK(ncclCommGetAsyncError(communicator, &state) == kSuccess);
    return state;
  };
  REQUIRE(ncclCommInitRankConfig(&communicator, 2, {}, 1, &config) == kInProgress);
  CHECK(broadcast(kBfloat16, 0) == kInvalidArgument);  // not defined yet
  CHECK(poll() == kInProgress);
  CHECK(poll() == kSuccess);
  CHECK(broadcast(kBfloat16, 0) == kSuccess);
  for (const int root : {-1, 2}) CHECK(broadcast(kBfloat16, root) == kInvalidArgument);
  for (const int dtype : {-1, 12}) CHECK(broadcast(dtype, 0) == kInvalidArgument);
  for (const int reduction : {-1, 5}) {
    CHECK(ncclReduceScatter(nullptr, nullptr, 0, kFloat, reduction, communicator, nullptr) ==
          kInvalidArgument);
  }
  CHECK(ncclReduceScatter(nullptr, nullptr, 0, kFloat, kSum, communicator, nullptr) == kSuccess);
  CHECK(ncclCommFinalize(communicator) == kInProgress);
  CHECK(poll() == kInProgress);
  CHECK(poll() == kSuccess);
  CHECK(broadcast(kBfloat16, 0) == kInvalidUsage);
  CHECK(ncclCommDestroy(communicator) == kSuccess);
  CHECK(broadcast(kBfloat16, 0) == kInvalidArgument);
  CHECK(ncclCommAbort(communicator) == kInvalidArgument);
}
