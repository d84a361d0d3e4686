#include "runtime/restart_policy.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

using namespace shardlens::runtime;

namespace {

FailedAttempt at(int64_t from, int64_t reached, Fault fault = Fault::killed) {
  return {.from_step = from, .reached_step = reached, .fault = fault};
}

}  // namespace

TEST_CASE("no failure is forgiven unless the user says so") {
  const std::vector<FailedAttempt> one = {at(0, 10)};
  CHECK_FALSE(decide(0, one).restarts);
  CHECK(decide(0, one).why_not.empty());
  CHECK(decide(1, one).restarts);
  CHECK(decide(-1, one).restarts);
}

TEST_CASE("so many failures are forgiven, and not one more") {
  const std::vector<FailedAttempt> three = {at(0, 10), at(8, 12), at(12, 20)};
  CHECK(decide(3, three).restarts);
  CHECK_FALSE(decide(2, three).restarts);
  CHECK(decide(2, three).why_not == "this was failure 3 of --max-failures 2: no start follows");
}

TEST_CASE("what another start would not mend is not tried again") {
  for (const Fault fault :
       {Fault::wrong_use, Fault::out_of_memory, Fault::interrupted, Fault::overtaken}) {
    const std::vector<FailedAttempt> one = {at(0, 10, fault)};
    CHECK_FALSE(decide(-1, one).restarts);
    CHECK(decide(-1, one).why_not.empty());
  }
  for (const Fault fault : {Fault::failed, Fault::hung, Fault::connection, Fault::disk_full}) {
    const std::vector<FailedAttempt> one = {at(0, 10, fault)};
    CHECK(decide(-1, one).restarts);
  }
}

TEST_CASE("a run that comes to the same step again is given up") {
  std::vector<FailedAttempt> failures = {at(8, 10), at(8, 9)};
  CHECK(decide(-1, failures).restarts);
  failures.push_back(at(8, 10));
  CHECK_FALSE(decide(-1, failures).restarts);
  CHECK(decide(-1, failures).why_not.find("step 10 again") != std::string::npos);
  // From a newer checkpoint the same step is progress: there was less left to do.
  failures.back() = at(9, 10);
  CHECK(decide(-1, failures).restarts);
  failures.push_back(at(9, 10));
  CHECK_FALSE(decide(-1, failures).restarts);
}

TEST_CASE("pauses double up to a limit, and begin anew with every newer checkpoint") {
  std::vector<FailedAttempt> failures;
  std::chrono::milliseconds expected = kFirstPause;
  for (int i = 0; i < 100; ++i) {
    failures.push_back(at(0, i));
    CHECK(decide(-1, failures).pause == expected);
    CHECK(decide(-1, failures).pause == decide(-1, failures).pause);
    expected = std::min(2 * expected, kLongestPause);
  }
  CHECK(expected == kLongestPause);
  failures.push_back(at(50, 60));
  CHECK(decide(-1, failures).pause == kFirstPause);
}
