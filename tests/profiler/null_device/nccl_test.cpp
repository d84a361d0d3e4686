// Tests the NCCL communicator on the null device: with the stub library, where every call returns
// at once, and with a table of calls that misbehave as the real library can. Values on the device
// mean nothing here; the tests look at the calls, and at what is thrown when.
#include "runtime/comm/device/nccl.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/board/shared_region.h"

using namespace shardlens;
using namespace shardlens::profiler;
using namespace shardlens::runtime;
using Catch::Matchers::StartsWith;
using shardlens::DType;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;
using Calls = std::vector<std::string>;

const Operation kGather{37, "ALL_GATHER", "block3", -1};
const Operation kReduction{37, "REDUCE_SCATTER", "block3", 1};

/// An NCCL that logs its calls and answers as a test sets it. Plain functions cannot belong to an
/// object, so there is only one.
struct Fake {
  std::mutex mutex;
  Calls calls;                                           // except queries of errors
  std::atomic<NcclResult> answer = NcclResult::success;  // of calls that enqueue
  std::atomic<NcclResult> state = NcclResult::success;   // the communicator's
  std::atomic<int> questions_until_done = 0;             // in progress until then
  std::atomic<bool> abort_hangs = false;

  NcclResult log(const std::string& call, NcclResult result = NcclResult::success) {
    const std::scoped_lock lock(mutex);
    calls.push_back(call);
    return result;
  }
  void reset() {
    answer = NcclResult::success;
    state = NcclResult::success;
    questions_until_done = 0;
    abort_hangs = false;
    take();
  }
  Calls take() {
    const std::scoped_lock lock(mutex);
    return std::exchange(calls, {});
  }
};

Fake& fake() {
  static Fake& instance = *new Fake;  // an abort that hangs may run until after the program's end
  return instance;
}

/// "16 of type 7" and, if input and output are parts of one buffer, how far apart they are.
std::string text_of(const void* input, const void* output, size_t numel, NcclType type) {
  const auto apart = static_cast<const char*>(input) - static_cast<const char*>(output);
  return std::to_string(numel) + " of type " + std::to_string(static_cast<int>(type)) +
         (std::abs(apart) < 4096 ? ", " + std::to_string(apart) + " apart" : "");
}

NcclResult state_of_fake(NcclComm*, NcclResult* state) {
  *state =
      fake().questions_until_done.fetch_sub(1) > 0 ? NcclResult::in_progress : fake().state.load();
  return NcclResult::success;
}

NcclResult abort_fake(NcclComm*) {
  fake().log("abort");
  while (fake().abort_hangs) std::this_thread::sleep_for(10ms);
  return NcclResult::success;
}

NcclApi fake_api() {
  NcclApi api = load_nccl();
  api.comm_init_rank_config = [](NcclComm** comm, int ranks, NcclUniqueId id, int rank,
                                 NcclConfig* config) {
    *comm = reinterpret_cast<NcclComm*>(&fake());
    return fake().log("init " + std::to_string(rank) + " of " + std::to_string(ranks) + ", id " +
                          std::to_string(static_cast<int>(id.bytes[127])) + ", blocking " +
                          std::to_string(config->blocking),
                      fake().answer);
  };
  api.comm_get_async_error = state_of_fake;
  api.comm_finalize = [](NcclComm*) {
    fake().state = fake().answer.load();
    return fake().log("finalize", fake().answer);
  };
  api.comm_destroy = [](NcclComm*) { return fake().log("destroy"); };
  api.comm_abort = abort_fake;
  api.all_gather = [](const void* in, void* out, size_t n, NcclType type, NcclComm*, CUstream_st*) {
    return fake().log("gather " + text_of(in, out, n, type));
  };
  api.reduce_scatter = [](const void* in, void* out, size_t n, NcclType type, NcclReduction op,
                          NcclComm*, CUstream_st*) {
    return fake().log("scatter " + text_of(in, out, n, type) + ", reduction " +
                          std::to_string(static_cast<int>(op)),
                      fake().answer);
  };
  api.all_reduce = [](const void* in, void* out, size_t n, NcclType type, NcclReduction op,
                      NcclComm*, CUstream_st*) {
    return fake().log("reduce " + text_of(in, out, n, type) + ", reduction " +
                          std::to_string(static_cast<int>(op)),
                      fake().answer);
  };
  api.group_start = [] { return fake().log("["); };
  api.group_end = [] { return fake().log("]", fake().answer); };
  return api;
}

/// A GPU's memory and stream, and one rank of four on the fake.
struct World {
  World() { fake().reset(); }

  NcclApi api = fake_api();
  at::Tensor memory = at::empty({1 << 20}, at::dtype(at::kByte).device(at::kCUDA));
  SharedRegion region = SharedRegion::create(Board::bytes(4));
  Board board = Board::initialise(region.data(), 4);
  c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();

  std::unique_ptr<NcclCommunicator> rank_3(std::chrono::nanoseconds deadline = 60s) {
    NcclOptions options{.name = "reduce",
                        .rank = 3,
                        .ranks = {4},
                        .stream = stream.stream(),
                        .deadline = deadline,
                        .board = board,
                        .api = &api};
    options.id.bytes.fill(std::byte{9});
    return std::make_unique<NcclCommunicator>(options);
  }

  ReduceBuffers reduction(int64_t shard_numel) {
    auto* bytes = memory.data_ptr<uint8_t>();
    return {.input = bytes, .output = bytes + (1 << 19), .shard_numel = shard_numel};
  }
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "no error";
}

/// The error of the first call that has one.
std::string failure_of(Communicator& communicator) {
  const auto last_moment = Clock::now() + 20s;
  std::string text = "no error";
  while (text == "no error" && Clock::now() < last_moment) {
    std::this_thread::sleep_for(1ms);
    text = error_of([&] { communicator.wait(0); });
  }
  return text;
}

int64_t allocated_bytes() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].current;
}

}  // namespace

TEST_CASE("NCCL runs the collectives in place, as means, without waiting") {
  World world;
  {
    const auto rank_3 = world.rank_3();
    CHECK(fake().take() == Calls{"init 3 of 4, id 9, blocking 0"});
    auto* bytes = world.memory.data_ptr<uint8_t>();
    const std::array buffers{GatherBuffer{bytes, 64, DType::fp32}, GatherBuffer{bytes, 0},
                             GatherBuffer{bytes + 512, 80, DType::bf16}};
    CHECK(rank_3->all_gather(kGather, buffers) == 0);
    CHECK(fake().take() ==
          Calls{"[", "gather 16 of type 7, 192 apart", "gather 20 of type 9, 120 apart", "]"});
    CHECK(rank_3->reduce_scatter(kReduction, world.reduction(24)) == 1);
    CHECK(rank_3->all_reduce(kReduction, bytes, 7, DType::fp16) == 2);
    rank_3->wait(2);
    rank_3->wait(0);
    CHECK(fake().take() ==
          Calls{"scatter 24 of type 7, reduction 4", "reduce 7 of type 6, 0 apart, reduction 4"});
  }
  CHECK(fake().take() == Calls{"finalize", "destroy"});
}

TEST_CASE("a sum passes through the device in parts, and a barrier is a sum") {
  World world;
  const auto rank_3 = world.rank_3();
  fake().take();
  std::vector<double> values(100, 1);
  rank_3->sum({1, "SUM"}, values);
  CHECK(fake().take() == Calls{"reduce 64 of type 8, 0 apart, reduction 0",
                               "reduce 36 of type 8, 0 apart, reduction 0"});
  CHECK(std::accumulate(values.begin(), values.end(), 0.0) == 0);  // the null device's zeros
  rank_3->barrier({1, "BARRIER"});
  CHECK(fake().take() == Calls{"reduce 1 of type 8, 0 apart, reduction 0"});
}

TEST_CASE("a call in progress is polled until it is done") {
  World world;
  fake().answer = NcclResult::in_progress;
  fake().questions_until_done = 20;
  const auto rank_3 = world.rank_3();
  CHECK(fake().questions_until_done < 0);
  fake().questions_until_done = 20;
  rank_3->reduce_scatter(kReduction, world.reduction(8));
  CHECK(fake().questions_until_done < 0);
  rank_3->wait(0);
  fake().answer = NcclResult::success;
}

TEST_CASE("meeting ends at the deadline, with an abort") {
  World world;
  fake().answer = NcclResult::in_progress;
  fake().state = NcclResult::in_progress;
  const auto start = Clock::now();
  CHECK(error_of([&] { world.rank_3(200ms); }) ==
        "rank 3, step 0, INIT of reduce: not finished within 0.2 s");
  CHECK(Clock::now() - start < 10s);
  CHECK(fake().take() == Calls{"init 3 of 4, id 9, blocking 0", "abort"});
  CHECK(world.board.abort_note().reason() ==
        "rank 3, step 0, INIT of reduce: not finished within 0.2 s");
}

TEST_CASE("an operation that hangs is reported to all ranks, and aborted once") {
  World world;
  const auto rank_3 = world.rank_3(200ms);
  fake().take();
  fake().answer = NcclResult::in_progress;
  fake().state = NcclResult::in_progress;
  const std::string text =
      "rank 3, step 37, REDUCE_SCATTER of block3 bucket 1: not finished "
      "within 0.2 s";
  CHECK(error_of([&] { rank_3->reduce_scatter(kReduction, world.reduction(8)); }) == text);
  CHECK(world.board.abort_note().reason() == text);
  fake().answer = NcclResult::success;
  fake().state = NcclResult::success;
  CHECK(error_of([&] { rank_3->all_gather(kGather, {}); }) == text);
  CHECK(error_of([&] { rank_3->barrier(kGather); }) == text);
  std::this_thread::sleep_for(100ms);
  CHECK(fake().take() == Calls{"scatter 8 of type 7, reduction 4", "abort"});
}

TEST_CASE("an error that comes later is found without a call") {
  World world;
  const auto rank_3 = world.rank_3();
  rank_3->reduce_scatter(kReduction, world.reduction(8));
  fake().take();
  fake().state = NcclResult{6};  // ncclRemoteError
  CHECK_THAT(failure_of(*rank_3), StartsWith("rank 3: NCCL: "));
  CHECK_THAT(world.board.abort_note().reason(), StartsWith("rank 3: NCCL: "));
  std::this_thread::sleep_for(100ms);
  CHECK(fake().take() == Calls{"abort"});
}

TEST_CASE("an error of the call itself is thrown by it") {
  World world;
  const auto rank_3 = world.rank_3();
  fake().answer = NcclResult{4};  // ncclInvalidArgument
  CHECK_THAT(error_of([&] { rank_3->reduce_scatter(kReduction, world.reduction(8)); }),
             StartsWith("rank 3, step 37, REDUCE_SCATTER of block3 bucket 1: NCCL: "));
}

TEST_CASE("an abort from any thread ends a call in progress") {
  World world;
  const auto rank_3 = world.rank_3();
  REQUIRE(rank_3->reduce_scatter(kReduction, world.reduction(8)) == 0);
  fake().answer = NcclResult::in_progress;
  fake().state = NcclResult::in_progress;
  const bool by_peer = GENERATE(false, true);
  std::thread other([&] {
    std::this_thread::sleep_for(100ms);
    by_peer ? world.board.abort_note().raise("rank 1 was killed") : rank_3->abort("enough");
  });
  CHECK(error_of([&] { rank_3->reduce_scatter(kReduction, world.reduction(8)); }) ==
        std::string("rank 3, step 37, REDUCE_SCATTER of block3 bucket 1: stopped: ") +
            (by_peer ? "rank 1 was killed" : "enough"));
  other.join();
  CHECK_THAT(error_of([&] { rank_3->wait(0); }) + error_of([&] { rank_3->barrier(kGather); }),
             StartsWith("rank 3, step 37, REDUCE_SCATTER"));
  fake().answer = NcclResult::success;
  fake().state = NcclResult::success;
}

TEST_CASE("a communicator ends in time even if NCCL does not") {
  World world;
  auto rank_3 = world.rank_3();
  const bool fails_before = GENERATE(false, true);
  fake().abort_hangs = true;
  fake().take();
  if (fails_before) {
    rank_3->abort("enough");
    CHECK(error_of([&] { rank_3->barrier(kGather); }) != "no error");
  } else {
    fake().answer = NcclResult::in_progress;  // of finalize
  }
  const auto start = Clock::now();
  rank_3.reset();
  CHECK(Clock::now() - start < 10s);
  fake().abort_hangs = false;
}

TEST_CASE("a rank of many on the stub library meets no other and returns at once") {
  World world;
  NcclOptions options{.name = "gather",
                      .id = new_nccl_id(nccl_api()),
                      .rank = 300,
                      .ranks = {512},
                      .stream = world.stream.stream()};
  const int64_t before = allocated_bytes();
  {
    NcclCommunicator rank_300(options);
    CHECK(allocated_bytes() == before + 512);
    const GatherBuffer buffer{world.memory.data_ptr(), 512 * 16, DType::bf16};
    for (Ticket i = 0; i < 2000; ++i) {
      REQUIRE(rank_300.all_gather(kGather, {&buffer, 1}) == i);
      rank_300.wait(i);
    }
    rank_300.barrier({0, "BARRIER"});
    CHECK_THROWS_AS(rank_300.wait(2000), std::logic_error);
    const GatherBuffer uneven{world.memory.data_ptr(), 511, DType::bf16};
    CHECK_THROWS_AS(rank_300.all_gather(kGather, {&uneven, 1}), std::logic_error);
  }
  CHECK(allocated_bytes() == before);
  options.rank = -1;
  CHECK_THROWS_AS(NcclCommunicator(options), std::logic_error);
}

TEST_CASE("in a part of the world NCCL has the index, and errors the rank") {
  World world;
  const NcclOptions options{.name = "replicate",
                            .rank = 3,
                            .ranks = {.size = 2, .stride = 2},
                            .stream = world.stream.stream(),
                            .board = world.board,
                            .api = &world.api};
  NcclCommunicator rank_3(options);
  CHECK(rank_3.rank() == 1);
  CHECK(rank_3.world_size() == 2);
  CHECK(fake().take() == Calls{"init 1 of 2, id 0, blocking 0"});
  const GatherBuffer buffer{world.memory.data_ptr<uint8_t>(), 64, DType::fp32};
  rank_3.all_gather(kGather, {&buffer, 1});
  CHECK(fake().take() == Calls{"[", "gather 32 of type 7, 128 apart", "]"});
  fake().answer = NcclResult{4};  // ncclInvalidArgument
  CHECK_THAT(error_of([&] { rank_3.reduce_scatter(kReduction, world.reduction(8)); }),
             StartsWith("rank 3, step 37, REDUCE_SCATTER of block3 bucket 1: NCCL: "));
}

TEST_CASE("the stub library refuses an id that is used twice, or for other ranks") {
  World world;
  NcclOptions options{.name = "gather",
                      .id = new_nccl_id(nccl_api()),
                      .rank = 0,
                      .ranks = {2},
                      .stream = world.stream.stream()};
  const auto error = [&] { return error_of([&] { NcclCommunicator meets(options); }); };
  CHECK(error() == "no error");
  CHECK_THAT(error(), StartsWith("rank 0, step 0, INIT of gather: NCCL: "));
  options.rank = 1;
  options.ranks = {3};
  CHECK_THAT(error(), StartsWith("rank 1, step 0, INIT of gather: NCCL: "));
  options.ranks = {2};
  CHECK(error() == "no error");
  CHECK(new_nccl_id(nccl_api()).bytes != options.id.bytes);
}
