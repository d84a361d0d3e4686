#include "runtime/launch/restart_policy.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <string>
#include <vector>

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;

namespace {

FailedAttempt attempt_at(int64_t from, int64_t reached, Fault fault = Fault::killed, int rank = 0) {
  return {.from_step = from, .reached_step = reached, .fault = fault, .rank = rank};
}

FailedAttempt attempt_before_begin(int64_t from, Fault fault, int rank = -1) {
  return {.from_step = from, .fault = fault, .rank = rank, .has_begun = false};
}

RestartDecision decide(int64_t max_failures, std::span<const FailedAttempt> failures,
                       int64_t give_up_after = 10) {
  return shardlens::runtime::decide({.max_failures = max_failures, .give_up_after = give_up_after},
                                    failures);
}

}  // namespace

TEST_CASE("no failure is forgiven unless the user says so") {
  const std::vector<FailedAttempt> one = {attempt_at(0, 10)};
  CHECK_FALSE(decide(0, one).restarts);
  CHECK(decide(0, one).why_not.empty());
  CHECK(decide(1, one).restarts);
  CHECK(decide(-1, one).restarts);
}

TEST_CASE("exactly N failures are forgiven") {
  const std::vector<FailedAttempt> three = {attempt_at(0, 10), attempt_at(8, 12),
                                            attempt_at(12, 20)};
  CHECK(decide(3, three).restarts);
  CHECK_FALSE(decide(2, three).restarts);
  CHECK(decide(2, three).why_not == "this was failure 3 of --max-failures 2: not restarted");
}

TEST_CASE("a failure that another start would not fix is not tried again") {
  for (const Fault fault :
       {Fault::wrong_use, Fault::out_of_memory, Fault::interrupted, Fault::overtaken}) {
    const std::vector<FailedAttempt> one = {attempt_at(0, 10, fault)};
    CHECK_FALSE(decide(-1, one).restarts);
    CHECK(decide(-1, one).why_not.empty());
  }
  for (const Fault fault : {Fault::failed, Fault::hung, Fault::connection, Fault::disk_full}) {
    const std::vector<FailedAttempt> one = {attempt_at(0, 10, fault)};
    CHECK(decide(-1, one).restarts);
  }
}

TEST_CASE("one cause at one step, N times in a row, ends the run and is named") {
  std::vector<FailedAttempt> failures = {attempt_at(8, 10, Fault::failed, 2),
                                         attempt_at(8, 10, Fault::failed, 2)};
  CHECK(decide(-1, failures, 3).restarts);
  failures.push_back(attempt_at(8, 10, Fault::failed, 2));
  CHECK(decide(-1, failures, 4).restarts);
  CHECK_FALSE(decide(-1, failures, 3).restarts);
  CHECK(decide(-1, failures, 3).why_not ==
        "no progress: failed at step 10 (rank 2) each time, 3 times in a row from the checkpoint "
        "of step 8 without a newer checkpoint, which is --give-up-after 3; not restarted: fix "
        "the cause, then run the same command to resume");
  // From a newer checkpoint the same step is progress: there was less left to do.
  failures.push_back(attempt_at(9, 10, Fault::failed, 2));
  CHECK(decide(-1, failures, 3).restarts);
}

TEST_CASE("another rank, fault or step is another cause") {
  const FailedAttempt first = attempt_at(0, 10, Fault::killed, 1);
  for (const FailedAttempt& other :
       {attempt_at(0, 10, Fault::killed, 0), attempt_at(0, 10, Fault::hung, 1),
        attempt_at(0, 11, Fault::killed, 1), attempt_before_begin(0, Fault::killed, 1)}) {
    CHECK(decide(-1, std::vector{first, other}, 2).restarts);
    CHECK(decide(-1, std::vector{first, other, first}, 2).restarts);
    CHECK_FALSE(decide(-1, std::vector{other, first, first}, 2).restarts);
  }
}

TEST_CASE("temporary outside failures are waited for, as often as failures are forgiven") {
  for (const FailedAttempt& outside :
       {attempt_before_begin(20, Fault::disk_full), attempt_at(20, 25, Fault::disk_full),
        attempt_before_begin(20, Fault::connection), attempt_before_begin(20, Fault::hung)}) {
    std::vector<FailedAttempt> failures = {attempt_at(20, 25)};
    for (int i = 0; i < 49; ++i) {
      failures.push_back(outside);
      CHECK(decide(50, failures, 2).restarts);
      CHECK(decide(-1, failures, 2).restarts);
    }
    failures.push_back(outside);
    CHECK_FALSE(decide(50, failures, 2).restarts);
    // It neither ends a row nor counts in one.
    failures.push_back(attempt_at(20, 25));
    CHECK_FALSE(decide(-1, failures, 2).restarts);
    CHECK(decide(-1, failures, 3).restarts);
  }
}

TEST_CASE("an error that comes before the first step each time ends the run, too") {
  const std::vector<FailedAttempt> failures(3, attempt_before_begin(0, Fault::failed, 0));
  CHECK(decide(-1, failures, 4).restarts);
  CHECK_THAT(decide(-1, failures, 3).why_not,
             ContainsSubstring("failed before its first step (rank 0) each time, 3 times in a row "
                               "from the start"));
}

TEST_CASE("kills of any ranks at one step do not end a run that forgives them") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < 1000; ++run) {
    std::vector<FailedAttempt> failures;
    for (int i = 0; i < 50; ++i) {
      // The rank that was killed before is not killed again at once: no cause recurs in a row.
      const int last = failures.empty() ? 0 : failures.back().rank;
      failures.push_back(
          attempt_at(5, 7, Fault::killed, static_cast<int>((last + 1 + random() % 3) % 4)));
      REQUIRE(decide(50, failures, 2).restarts);
    }
  }
}

TEST_CASE("pauses double up to a limit, and start over with every newer checkpoint") {
  std::vector<FailedAttempt> failures;
  std::chrono::milliseconds expected = kFirstPause;
  for (int i = 0; i < 100; ++i) {
    failures.push_back(attempt_at(0, i));
    CHECK(decide(-1, failures).pause == expected);
    expected = std::min(2 * expected, kLongestPause);
  }
  CHECK(expected == kLongestPause);
  failures.push_back(attempt_at(50, 60));
  CHECK(decide(-1, failures).pause == kFirstPause);
}
