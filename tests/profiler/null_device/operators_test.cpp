// Compares what the planner says that LibTorch's operators take on CUDA with what its CUDA code
// takes on the null device, for each GPU in its own process.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <iostream>
#include <string>

#include "base/gpus.h"
#include "profiler/null_device/null_device.h"
#include "tests/planner/simulate/operator_cases.h"
#include "tests/profiler/null_device/case_process.h"

using namespace shardlens;
using c10::cuda::CUDACachingAllocator::TraceEntry;
using tests::BlockLog;
using tests::OperatorCase;

namespace {

constexpr uint32_t kSeed = 20261121;
constexpr int kRounds = 60;  // for all operators

BlockLog*& current_log() {
  static BlockLog* log = nullptr;
  return log;
}

void follow_allocator() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  at::globalContext().setSDPUseCuDNN(false);
  // Workspaces that LibTorch keeps are taken once and for all.
  const at::Tensor square = at::empty({8, 8}, at::device(at::kCUDA));
  at::linear(square, square, square[0]);
  at::mm(square, square);
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const TraceEntry& entry) {
    BlockLog* const log = current_log();
    if (log == nullptr) return;
    if (entry.action_ == TraceEntry::ALLOC) {
      log->take(entry.addr_, static_cast<int64_t>(entry.size_));
    }
    if (entry.action_ == TraceEntry::FREE_COMPLETED) log->give_back(entry.addr_);
  });
}

const Gpu& this_gpu() {
  cudaDeviceProp properties{};
  REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  std::string name = properties.name;
  name = name.substr(0, name.find(" (null device)"));
  return *std::ranges::find(gpus(), std::string_view(name), &Gpu::display_name);
}

std::vector<tests::BlockEvent> libtorchs_events(const OperatorCase& operator_case) {
  BlockLog log;
  current_log() = &log;
  tests::RealApi api(at::kCUDA, log);
  operator_case.real(api);
  current_log() = nullptr;
  return log.events();
}

}  // namespace

TEST_CASE("follow operators on one GPU", "[.]") {
  follow_allocator();
  planner::meta::Context context;
  context.gpu = &this_gpu();
  std::vector<OperatorCase> cases = tests::realistic_cases(c10::kCUDA);
  for (OperatorCase& drawn : tests::random_cases(c10::kCUDA, kSeed, kRounds)) {
    cases.push_back(std::move(drawn));
  }
  for (const OperatorCase& operator_case : cases) {
    const std::string difference = tests::difference(libtorchs_events(operator_case),
                                                     tests::meta_events(operator_case, context));
    if (difference.empty()) continue;
    std::cout << "> " << context.gpu->name << ": " << operator_case.name << ": " << difference
              << "\n";
  }
  std::cout << "> " << cases.size() << " cases on " << context.gpu->name << std::endl;
}

TEST_CASE("operators take on every GPU what the planner says") {
  const size_t cases = tests::realistic_cases(c10::kCUDA).size() +
                       tests::random_cases(c10::kCUDA, kSeed, kRounds).size();
  // The largest cases do not fit the smallest GPUs.
  ::setenv(profiler::kNullCapacityVariable, "85899345920", 1);
  for (const Gpu& gpu : gpus()) {
    const std::string name(gpu.name);
    const std::string told =
        tests::output_of_case("follow operators on one GPU", "SHARDLENS_NULL_GPU=" + name);
    std::cout << told;  // which operators differ, for tests/versions/new_version
    CHECK(told.ends_with(std::to_string(cases) + " cases on " + name + "\n"));
    CHECK(std::ranges::count(told, '\n') == 1);
  }
}
