// How ranks with a device meet, on the null device: ranks are threads here, each with streams of
// its own, and NCCL is the stub library.
#include "runtime/rendezvous.h"

#include <c10/cuda/CUDAStream.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "models/spec.h"
#include "runtime/comm/nccl.h"
#include "runtime/comm/shared_region.h"
#include "runtime/comm/staged.h"
#include "tests/runtime/comm/ranks.h"

using namespace shardlens;
using namespace shardlens::runtime;

namespace {

Job job_of(planner::Config config) {
  config.device = "null:h200";
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

DeviceStreams two_streams() {
  return {.gather = c10::cuda::getStreamFromPool().stream(),
          .reduce = c10::cuda::getStreamFromPool().stream()};
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
  const auto links = join(job, 5, region.data(), two_streams());
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
  DeviceStreams streams = two_streams();
  CHECK_THROWS_AS(join(job, 5, region.data(), streams), std::logic_error);
  streams.reduce = streams.gather;
  const auto links = join(job, 5, region.data(), streams);
  CHECK(links->channels().gather == links->channels().reduce);
}

TEST_CASE("ranks learn NCCL's ids from rank 0") {
  const Job job = job_of(workers(3));
  const SharedRegion region = region_of(job);
  const auto texts = shardlens::runtime::tests::run_threads(3, [&](int rank) {
    const auto links = join(job, rank, region.data(), two_streams());
    return std::string(both_are<NcclCommunicator>(links->channels()) ? "ok" : "not NCCL");
  });
  for (const std::string& text : texts) CHECK(text == "ok");
}

TEST_CASE("a rank whose rank 0 never comes says so") {
  planner::Config config = workers(2);
  config.timeout_s = 0.2;
  const Job job = job_of(config);
  const SharedRegion region = region_of(job);
  const auto texts = shardlens::runtime::tests::run_threads(
      1, [&](int) { return join(job, 1, region.data(), two_streams()) ? "joined" : ""; });
  CHECK(texts[0] == "rank 1, rendezvous: rank 0 did not make NCCL's id in time");
}

TEST_CASE("ranks that share a device meet on the CPU, and are staged") {
  planner::Config config = workers(2);
  config.communicator = "local";
  const Job job = job_of(config);
  REQUIRE(job.strategy.staged);
  const SharedRegion region = region_of(job);
  const auto texts = shardlens::runtime::tests::run_threads(2, [&](int rank) {
    const auto links = join(job, rank, region.data(), two_streams());
    const Channels channels = links->channels();
    double value = rank + 1;
    channels.reduce->sum({.step = 1, .kind = "SUM"}, {&value, 1});
    if (!both_are<StagedCommunicator>(channels)) return std::string("not staged");
    return value == 3 ? std::string("ok") : "sum " + std::to_string(value);
  });
  for (const std::string& text : texts) CHECK(text == "ok");
}
