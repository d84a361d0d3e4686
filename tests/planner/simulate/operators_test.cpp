// Compares what the planner says that LibTorch's operators take on the CPU with what they take.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/AutogradState.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <random>

#include "base/units.h"
#include "planner/simulate/meta/product_scratch.h"
#include "tests/planner/simulate/operator_cases.h"
#include "tests/support/sample.h"

using namespace shardlens;
using tests::BlockLog;
using tests::OperatorCase;

namespace {

/// Reports this thread's blocks.
struct Reporter : c10::MemoryReportingInfoBase {
  explicit Reporter(BlockLog& log) : log(log) {}

  void reportMemoryUsage(void* address, int64_t bytes, size_t, size_t, c10::Device) override {
    const auto number = reinterpret_cast<uint64_t>(address);
    bytes > 0 ? log.take(number, bytes) : log.give_back(number);
  }
  bool memoryProfilingEnabled() const override { return true; }

  BlockLog& log;
};

std::vector<tests::BlockEvent> libtorchs_events(const OperatorCase& operator_case) {
  BlockLog log;
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE,
                                  std::make_shared<Reporter>(log));
  tests::RealApi api(at::kCPU, log);
  operator_case.real(api);
  return log.events();
}

/// Restores the settings of LibTorch that it changes.
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

/// Packs as this machine does. Without AVX-512 the planner predicts no scratch memory.
planner::meta::Processor processor_without_scratch() {
  const planner::meta::Processor here = planner::meta::this_processor();
  return {.amx_bf16 = here.amx_bf16, .amx_fp16 = here.amx_fp16};
}

void compare(const std::vector<OperatorCase>& cases, int threads) {
  const OneThread settings(threads);
  planner::meta::Context context;
  context.threads = threads;
  context.processor = processor_without_scratch();
  for (const OperatorCase& operator_case : cases) {
    INFO(operator_case.name << ", threads " << threads);
    const auto planners = tests::meta_events(operator_case, context);
    auto libtorchs = libtorchs_events(operator_case);
    if (operator_case.takes_scratch) libtorchs = tests::without_scratch(libtorchs, planners);
    CHECK(tests::difference(libtorchs, planners) == "");
  }
}

/// Taken at once, beside the result.
int64_t taken_by_product(at::ScalarType type, const planner::meta::ProductSizes& sizes) {
  const auto [rows, inner, columns, transposed] = sizes;
  const at::Tensor first =
      transposed ? at::zeros({inner, rows}, type).t() : at::zeros({rows, inner}, type);
  const at::Tensor second = at::zeros({inner, columns}, type);
  at::Tensor result = at::empty({rows, columns}, type);
  BlockLog log;
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE,
                                    std::make_shared<Reporter>(log));
    at::mm_out(result, first, second);
  }
  int64_t bytes = 0;
  for (const tests::BlockEvent& event : log.events()) bytes += event.bytes;
  return bytes;
}

}  // namespace

TEST_CASE("operators take on the CPU what the planner says") {
  for (const int threads : {1, 2}) compare(tests::realistic_cases(c10::kCPU), threads);
}

TEST_CASE("operators of any shape take on the CPU what the planner says") {
  constexpr uint32_t kSeed = 20261121;
  for (const int threads : {1, 2}) compare(tests::random_cases(c10::kCPU, kSeed, 60), threads);
}

TEST_CASE("products in reduced precision take no more than the planner says") {
  const auto seed = std::random_device{}();
  std::mt19937_64 engine(seed);
  const auto draw = [&] {  // many are multiples of a power of two, as in models
    const auto size = static_cast<int64_t>(engine() % (engine() % 2 ? 300 : 2500)) + 1;
    return round_up(size, int64_t{1} << engine() % 8);
  };
  for (const int threads : {1, 2}) {
    const OneThread settings(threads);
    planner::meta::Context context;
    context.threads = threads;
    context.processor = planner::meta::this_processor();
    for (int i = 0; i < tests::sampled(40); ++i) {
      const planner::meta::ProductSizes sizes{draw(), draw(), draw(), engine() % 2 == 0};
      const bool is_bf16 = engine() % 2 == 0;
      INFO("seed " << seed << ", threads " << threads << (is_bf16 ? ", bf16 " : ", fp16 ")
                   << sizes.rows << " x " << sizes.inner << " x " << sizes.columns
                   << (sizes.transposed ? ", transposed" : ""));
      const auto type = is_bf16 ? planner::meta::Type::bf16 : planner::meta::Type::fp16;
      CHECK(taken_by_product(is_bf16 ? at::kBFloat16 : at::kHalf, sizes) <=
            planner::meta::product_scratch_bytes(context, type, sizes));
    }
  }
}
