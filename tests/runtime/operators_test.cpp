// What the planner says that LibTorch's operators take on the CPU, against what they take.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/AutogradState.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>

#include "tests/runtime/operator_cases.h"

using namespace shardlens;
using test::BlockLog;
using test::OperatorCase;

namespace {

/// Tells of this thread's blocks.
struct Reporter : c10::MemoryReportingInfoBase {
  explicit Reporter(BlockLog& log) : log(log) {}

  void reportMemoryUsage(void* address, int64_t bytes, size_t, size_t, c10::Device) override {
    const auto number = reinterpret_cast<uint64_t>(address);
    bytes > 0 ? log.take(number, bytes) : log.give_back(number);
  }
  bool memoryProfilingEnabled() const override { return true; }

  BlockLog& log;
};

std::vector<test::BlockEvent> libtorchs_events(const OperatorCase& operator_case) {
  BlockLog log;
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE,
                                  std::make_shared<Reporter>(log));
  test::RealApi api(at::kCPU, log);
  operator_case.real(api);
  return log.events();
}

/// Restores what is changed of LibTorch.
class OneThread {
 public:
  explicit OneThread(int threads) : before_(at::get_num_threads()) {
    at::set_num_threads(threads);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~OneThread() {
    at::set_num_threads(before_);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

void compare(const std::vector<OperatorCase>& cases, int threads) {
  const OneThread settings(threads);
  planner::meta::Context context;
  context.threads = threads;
  for (const OperatorCase& operator_case : cases) {
    INFO(operator_case.name << ", threads " << threads);
    const auto planners = test::meta_events(operator_case, context);
    auto libtorchs = libtorchs_events(operator_case);
    if (operator_case.takes_scratch) libtorchs = test::without_scratch(libtorchs, planners);
    CHECK(test::difference(libtorchs, planners) == "");
  }
}

}  // namespace

TEST_CASE("operators take on the CPU what the planner says") {
  for (const int threads : {1, 2}) compare(test::realistic_cases(c10::kCPU), threads);
}

TEST_CASE("operators of any shape take on the CPU what the planner says") {
  constexpr uint32_t kSeed = 20261121;
  for (const int threads : {1, 2}) compare(test::random_cases(c10::kCPU, kSeed, 60), threads);
}
