// Tests how ranks with a device meet, on the null device: ranks are threads here, each with its own
// streams, and NCCL is the stub library.
#include "runtime/launch/rendezvous.h"

#include <ATen/ATen.h>
#include <c10/core/Device.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/spec.h"
#include "profiler/null_device/checks/null_checks.h"
#include "runtime/comm/board/shared_region.h"
#include "runtime/comm/device/nccl.h"
#include "runtime/comm/device/staged.h"
#include "tests/runtime/comm/channel_steps.h"
#include "tests/runtime/comm/ranks.h"

using namespace shardlens;
using namespace shardlens::profiler;
using namespace shardlens::runtime;

namespace {

Job job_of(planner::Config config) {
  config.device = device_named("null:h200");
  Job job;
  job.config = config;
  job.strategy = planner::strategy_of(config);
  job.spec = models::find_spec(config.model);
  job.train = build_schedule(job.spec, job.strategy, planner::Pass::train);
  return job;
}

planner::Config solo_rank_5_of_8() {
  planner::Config config;
  config.world = 8;
  config.solo_rank = 5;
  return config;
}

planner::Config workers(int64_t count) {
  planner::Config config;
  config.workers = count;
  return config;
}

SharedRegion region_of(const Job& job) {
  SharedRegion region = SharedRegion::create(region_bytes(job));
  Board::initialise(region.data(), job.strategy.world_size);
  return region;
}

std::unique_ptr<Streams> streams_of_device(bool one_for_both = false) {
  return make_streams(c10::Device(c10::kCUDA, 0), one_for_both);
}

/// Eight ranks as two replicas of four shards, two of which keep a group after forward.
constexpr tests::Grid kGrid{8, 4, 2};

Job job_over_parts(planner::Config config) {
  Job job = job_of(std::move(config));
  job.train = tests::schedule_over(kGrid);
  return job;
}

using NcclIdBytes = std::array<std::byte, Board::kNcclIdBytes>;

/// "1/4 1/4 1/2 1/2": index and size in every channel; an empty text for one that is not NCCL's.
std::string places_by_nccl(const Channels& channels) {
  std::string text;
  for (const Communicator* one :
       {channels.gather, channels.reduce, channels.regather, channels.replicate}) {
    if (dynamic_cast<const NcclCommunicator*>(one) == nullptr) return "";
    text += (text.empty() ? "" : " ") + std::to_string(one->rank()) + "/" +
            std::to_string(one->world_size());
  }
  return text;
}

template <class Kind>
bool both_are(const Channels& channels) {
  return dynamic_cast<const Kind*>(channels.gather) != nullptr &&
         dynamic_cast<const Kind*>(channels.reduce) != nullptr;
}

}  // namespace

TEST_CASE("a solo rank on a device has NCCL's communicators and meets nobody") {
  const Job job = job_of(solo_rank_5_of_8());
  const SharedRegion region = region_of(job);
  const auto streams = streams_of_device();
  const auto links = join(job, 5, region.data(), *streams);
  CHECK(both_are<NcclCommunicator>(links->channels()));
  CHECK(links->channels().gather != links->channels().reduce);
  CHECK(links->channels().gather->rank() == 5);
  CHECK(links->channels().reduce->world_size() == 8);
}

TEST_CASE("one communicator can serve both channels, on one stream") {
  planner::Config config = solo_rank_5_of_8();
  config.communicators = 1;
  const Job job = job_of(config);
  const SharedRegion region = region_of(job);
  CHECK_THROWS_AS(join(job, 5, region.data(), *streams_of_device()), std::logic_error);
  const auto streams = streams_of_device(true);
  const auto links = join(job, 5, region.data(), *streams);
  CHECK(links->channels().gather == links->channels().reduce);
}

TEST_CASE("ranks learn NCCL's ids from rank 0") {
  const Job job = job_of(workers(3));
  const SharedRegion region = region_of(job);
  const auto texts = tests::run_threads(3, [&](int rank) {
    const auto streams = streams_of_device();
    const auto links = join(job, rank, region.data(), *streams);
    return std::string(both_are<NcclCommunicator>(links->channels()) ? "ok" : "not NCCL");
  });
  for (const std::string& text : texts) CHECK(text == "ok");
}

TEST_CASE("a rank says so if rank 0 never comes") {
  planner::Config config = workers(2);
  config.timeout_s = 0.2;
  const Job job = job_of(config);
  const SharedRegion region = region_of(job);
  const auto texts = tests::run_threads(
      1, [&](int) { return join(job, 1, region.data(), *streams_of_device()) ? "joined" : ""; });
  CHECK(texts[0] == "rank 1, rendezvous: rank 0 did not make NCCL's id in time");
}

TEST_CASE("ranks that share a device meet on the CPU, and are staged") {
  planner::Config config = workers(2);
  config.communicator = planner::CommunicatorChoice::local;
  const Job job = job_of(config);
  REQUIRE(job.strategy.staged);
  const SharedRegion region = region_of(job);
  const auto texts = tests::run_threads(2, [&](int rank) {
    const auto streams = streams_of_device();
    const auto links = join(job, rank, region.data(), *streams);
    const Channels channels = links->channels();
    double value = rank + 1;
    channels.reduce->sum({.step = 1, .kind = "SUM"}, {&value, 1});
    if (!both_are<StagedCommunicator>(channels)) return std::string("not staged");
    return value == 3 ? std::string("ok") : "sum " + std::to_string(value);
  });
  for (const std::string& text : texts) CHECK(text == "ok");
}

// The stub refuses an id that a rank uses twice, or for another number of ranks.
TEST_CASE("each set of ranks has its own NCCL id, from its first rank") {
  const Job job = job_over_parts(workers(kGrid.world_size));
  const SharedRegion region = region_of(job);
  const auto texts = tests::run_threads(kGrid.world_size, [&](int rank) {
    const auto streams = streams_of_device();
    const auto links = join(job, rank, region.data(), *streams);
    return places_by_nccl(links->channels());
  });
  CHECK(texts[0] == "0/4 0/4 0/2 0/2");
  CHECK(texts[3] == "3/4 3/4 1/2 0/2");
  CHECK(texts[6] == "2/4 2/4 0/2 1/2");
  const Board board(region.data(), kGrid.world_size);
  std::set<NcclIdBytes> ids;
  std::vector<std::string> tellers;
  for (int number = 0; number < Board::kNcclIds; ++number) {
    std::string& those = tellers.emplace_back();
    for (int rank = 0; rank < kGrid.world_size; ++rank) {
      NcclIdBytes id{};
      if (!board.nccl_id(rank, number, id)) continue;
      ids.insert(id);
      those += std::to_string(rank);
    }
  }
  CHECK(tellers == std::vector<std::string>{"04", "04", "0246", "0123"});
  CHECK(ids.size() == 12);
}

TEST_CASE("a solo rank takes its place in every set, by NCCL's stub") {
  const Job job = job_over_parts(solo_rank_5_of_8());
  const SharedRegion region = region_of(job);
  const auto streams = streams_of_device();
  const auto links = join(job, 5, region.data(), *streams);
  CHECK(places_by_nccl(links->channels()) == "1/4 1/4 1/2 1/2");
}

TEST_CASE("one communicator serves gathers and reductions, but only for its own ranks") {
  planner::Config config = solo_rank_5_of_8();
  config.communicators = 1;
  const Job job = job_over_parts(config);
  const SharedRegion region = region_of(job);
  const auto streams = streams_of_device(true);
  const auto links = join(job, 5, region.data(), *streams);
  const Channels channels = links->channels();
  CHECK(channels.gather == channels.reduce);
  CHECK(channels.regather != channels.gather);
  CHECK(channels.replicate != channels.gather);
  CHECK(places_by_nccl(channels) == "1/4 1/4 1/2 1/2");
}

TEST_CASE("a set's collectives go to NCCL over its ranks, on the channel's stream", "[checks]") {
  const Job job = job_over_parts(solo_rank_5_of_8());
  const SharedRegion region = region_of(job);
  const auto streams = streams_of_device();
  const auto links = join(job, 5, region.data(), *streams);
  find_null_checks()->take_nccl_calls();
  const at::Tensor memory = at::empty({4096}, at::dtype(at::kFloat).device(c10::kCUDA, 0));
  const GatherBuffer buffer{memory.data_ptr(), 64, DType::fp32};
  const Channels channels = links->channels();
  const Operation operation{.step = 1, .kind = "TEST"};
  channels.gather->all_gather(operation, {&buffer, 1});
  channels.regather->all_gather(operation, {&buffer, 1});
  channels.reduce->all_reduce(operation, memory.data_ptr(), 5, DType::fp32);
  channels.replicate->all_reduce(operation, memory.data_ptr(), 7, DType::fp32);
  const auto calls = find_null_checks()->take_nccl_calls();
  REQUIRE(calls.size() == 4);
  std::set<int> communicators;
  std::string text;
  for (const NcclCall& call : calls) {
    communicators.insert(call.communicator);
    text += std::to_string(call.count) + " by " + std::to_string(call.rank) + "/" +
            std::to_string(call.ranks) + "; ";
  }
  CHECK(text == "16 by 1/4; 32 by 1/2; 5 by 1/4; 7 by 1/2; ");
  CHECK(communicators.size() == 4);
  CHECK(calls[0].stream == streams->handle(planner::Stream::gather));
  CHECK(calls[1].stream == streams->handle(planner::Stream::gather));
  CHECK(calls[2].stream == streams->handle(planner::Stream::reduce));
  CHECK(calls[3].stream == streams->handle(planner::Stream::replicate));
}

TEST_CASE("a rank names the first rank of its set if that never comes") {
  planner::Config config = workers(kGrid.world_size);
  config.timeout_s = 0.5;
  const Job job = job_over_parts(config);
  const SharedRegion region = region_of(job);
  const auto texts = tests::run_threads(
      1, [&](int) { return join(job, 6, region.data(), *streams_of_device()) ? "joined" : ""; });
  CHECK(texts[0] == "rank 6, rendezvous: rank 4 did not make NCCL's id in time");
}

// The null device really copies between host addresses, so values on the host are visible.
TEST_CASE("staged ranks over parts of the world get the values of the whole") {
  planner::Config config = workers(kGrid.world_size);
  config.communicator = planner::CommunicatorChoice::local;
  const Job job = job_over_parts(config);
  REQUIRE(job.strategy.staged);
  const SharedRegion region = region_of(job);
  const uint64_t seed = 71;
  INFO("seed " << seed);
  const auto texts = tests::run_threads(kGrid.world_size, [&](int rank) {
    const auto streams = streams_of_device();
    const auto links = join(job, rank, region.data(), *streams);
    return tests::run_steps(kGrid, rank, links->channels(), seed, 10);
  });
  for (const std::string& text : texts) CHECK(text == "ok");
}
