// A run reports what is wrong with its setup before it trains.
#include "runtime/launch/setup_checks.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <filesystem>

#include "planner/config/arguments.h"
#include "runtime/comm/board/shared_region.h"
#include "tests/runtime/comm/ranks.h"
#include "tests/support/process.h"
#include "tests/support/thread_ranks.h"

using namespace shardlens;
using namespace shardlens::runtime;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

GpuUuid gpu(int number) {
  GpuUuid uuid{};
  uuid[0] = std::byte{0xab};
  uuid.back() = static_cast<std::byte>(number);
  return uuid;
}

/// The message for each rank if rank r is on the r-th of these GPUs.
std::vector<std::string> meet_on(const std::vector<int>& gpus) {
  const auto world_size = static_cast<int>(gpus.size());
  const SharedRegion region = SharedRegion::create(Board::bytes(world_size));
  const Board board = Board::initialise(region.data(), world_size);
  return tests::run_threads(world_size, [&](int rank) -> std::string {
    expect_own_gpu(board, rank, gpu(gpus[static_cast<size_t>(rank)]), 10s);
    return "met";
  });
}

Job job_with(const std::vector<std::string>& flags) {
  planner::Config config = planner::parse_arguments(flags).config;
  config.device = device_named("cpu");
  Job job;
  job.config = config;
  job.strategy = planner::strategy_of(config);
  job.spec = models::find_spec(config.model);
  job.train = build_schedule(job.spec, job.strategy, planner::Pass::train);
  job.found_data.train_samples = 100;
  return job;
}

/// The message if rank 1 has other flags than the rest.
std::string refusal_with(std::vector<std::string> of_rank_1) {
  const std::vector<std::string> flags = {"--workers", "3", "--model", "simple-model"};
  const Job job = job_with(flags);
  of_rank_1.insert(of_rank_1.begin(), flags.begin(), flags.end());
  const Job other = job_with(of_rank_1);
  try {
    tests::run_ranks(job.train, [&](int rank, Channels channels) {
      expect_same_job(rank == 1 ? other : job, rank, channels);
    });
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

std::string root_warning(const std::vector<std::string>& flags) {
  const std::vector<std::string> warnings = warnings_about(job_with(flags));
  return warnings.empty() ? "" : warnings.front();
}

}  // namespace

TEST_CASE("two ranks on one GPU are refused, and named", "[setup]") {
  CHECK(meet_on({0, 1, 2}) == std::vector<std::string>{"met", "met", "met"});
  const std::vector<std::string> told = meet_on({0, 1, 0});
  CHECK(told[0] == "met");
  CHECK(told[1] == "met");
  CHECK_THAT(told[2], ContainsSubstring("ranks 0 and 2 are on the same GPU") &&
                          ContainsSubstring("(GPU-ab000000-0000-0000-0000-000000000000)") &&
                          ContainsSubstring("CUDA_VISIBLE_DEVICES") && !ContainsSubstring("\n"));
}

TEST_CASE("the others stop waiting for a rank that never says where it is", "[setup]") {
  const SharedRegion region = SharedRegion::create(Board::bytes(2));
  const Board board = Board::initialise(region.data(), 2);
  CHECK_THROWS_MATCHES(expect_own_gpu(board, 1, gpu(1), 50ms), CommunicationError,
                       MessageMatches(ContainsSubstring("rank 0 did not open its GPU in time")));
}

TEST_CASE("only NCCL on real GPUs needs one for each rank", "[setup]") {
  Job job;
  job.strategy.communicator = planner::CommunicatorKind::nccl;
  job.device.kind = DeviceKind::cuda;
  CHECK(needs_own_gpu(job));
  job.device.kind = DeviceKind::null;
  CHECK_FALSE(needs_own_gpu(job));
  job.device.kind = DeviceKind::cuda;
  job.strategy.communicator = planner::CommunicatorKind::gloo;
  CHECK_FALSE(needs_own_gpu(job));
}

TEST_CASE("ranks with other flags or another model are refused", "[setup]") {
  CHECK(refusal_with({}) == "accepted");
  CHECK(refusal_with({"--threads", "2", "--name", "mine", "--timeout", "9"}) == "accepted");
  CHECK_THAT(refusal_with({"--batch", "63"}),
             ContainsSubstring("was started with --batch 6") && ContainsSubstring("others with"));
  CHECK_THAT(refusal_with({"--lr", "0.1"}), ContainsSubstring("--lr"));
  CHECK_THAT(refusal_with({"--param-dtype", "bf16"}), ContainsSubstring("--param-dtype"));
  CHECK_THAT(refusal_with({"--model", "vit-tutorial"}), ContainsSubstring("--model"));
  CHECK_THAT(refusal_with({"--freeze", "layer1.*"}), ContainsSubstring("--freeze"));
}

TEST_CASE("most of a model in one group gives a warning", "[setup]") {
  CHECK_THAT(root_warning({"--workers", "2", "--wrap", "root"}),
             ContainsSubstring("group root holds 1006090 of 1006090 ") &&
                 ContainsSubstring("(100 %) in 22 units") &&
                 ContainsSubstring("give --wrap block"));
  CHECK_THAT(root_warning({"--workers", "2", "--wrap", "size:700000"}), ContainsSubstring("%)"));
  CHECK(root_warning({"--workers", "2"}).empty());
  CHECK(root_warning({"--workers", "2", "--model", "simple-model"}).empty());
  CHECK(root_warning({"--workers", "2", "--model", "llama-1b"}).empty());
  // Nothing is gathered.
  CHECK(root_warning({"--workers", "2", "--wrap", "root", "--strategy", "ddp"}).empty());
  CHECK(root_warning({"--workers", "1", "--wrap", "root"}).empty());
}

TEST_CASE("more ranks than samples gives a warning", "[setup]") {
  Job job = job_with({"--workers", "4"});
  job.found_data.train_samples = 4;
  CHECK(warnings_about(job).empty());
  job.found_data.train_samples = 3;
  REQUIRE(warnings_about(job).size() == 1);
  CHECK_THAT(warnings_about(job).front(), ContainsSubstring("3 training samples for 4 ranks"));
}

TEST_CASE("a run that keeps its weights gathered is told so if memory runs out", "[setup][null]") {
  const tests::TemporaryFolder folder;
  const auto told = [&](const std::string& reshard) {
    const tests::ProcessEnd ended = tests::run({SHARDLENS_TRAIN,
                                                "--device",
                                                "null:h200",
                                                "--capacity",
                                                "1GiB",
                                                "--model",
                                                "vit-l16",
                                                "--world",
                                                "8",
                                                "--solo-rank",
                                                "0",
                                                "--batch",
                                                "8",
                                                "--steps",
                                                "2",
                                                "--anyway",
                                                "--reshard-after-forward",
                                                reshard,
                                                "--storage",
                                                folder.file("runs"),
                                                "--name",
                                                reshard});
    CHECK(ended.exit_code == 1);
    return ended.err;
  };
  CHECK_THAT(told("false"), ContainsSubstring("more ranks, --reshard-after-forward true, or"));
  CHECK_THAT(told("true"), ContainsSubstring("more ranks, or --param-dtype bf16"));
}

TEST_CASE("a warning is printed and the run goes on", "[setup][train]") {
  const tests::TemporaryFolder folder;
  const tests::ProcessEnd ended = tests::run(
      {SHARDLENS_TRAIN, "--device", "cpu", "--data", "synthetic", "--steps", "1", "--batch", "2",
       "--workers", "2", "--wrap", "root", "--storage", folder.file("runs")});
  CHECK(ended.exit_code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("warning: group root holds"));
}
