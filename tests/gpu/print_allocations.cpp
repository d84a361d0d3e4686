// Prints what LibTorch's caching allocator is asked for in a rank's training steps, one event a
// line, to be compared with the same on another device or with another installation of LibTorch:
//
//     print_allocations [flags of shardlens train]
//
// Addresses are left out, and streams are numbered as they appear. The first line names the GPU.
// Rank 0 of --workers runs alone on a batch of its own and its collectives do nothing, so one GPU
// shows what a rank of any world allocates. Standard error names the LibTorch, and NVIDIA's own
// libraries that were loaded.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/gpus.h"
#include "planner/config/arguments.h"
#include "runtime/execute/device.h"
#include "runtime/execute/executor.h"
#include "runtime/train/batches.h"
#include "tests/support/idle_communicator.h"

using namespace shardlens;
using c10::cuda::CUDACachingAllocator::TraceEntry;

namespace {

std::vector<std::string>& lines() {
  static std::vector<std::string> lines;
  return lines;
}

const char* word_of(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::ALLOC:
      return "alloc";
    case TraceEntry::FREE_REQUESTED:
      return "free_requested";
    case TraceEntry::FREE_COMPLETED:
      return "free";
    case TraceEntry::SEGMENT_ALLOC:
      return "segment_alloc";
    case TraceEntry::SEGMENT_FREE:
      return "segment_free";
    case TraceEntry::SEGMENT_MAP:
      return "segment_map";
    case TraceEntry::SEGMENT_UNMAP:
      return "segment_unmap";
    default:
      return "other";
  }
}

void record_events() {
  static std::map<void*, size_t> streams;
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const TraceEntry& entry) {
    const auto stream = streams.emplace(entry.stream_, streams.size()).first;
    lines().push_back(
        fmt::format("{} {} stream {}", word_of(entry.action_), entry.size_, stream->second));
  });
}

/// The name as --device null:NAME takes it, or the driver's if that list lacks the GPU.
std::string gpu_name() {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return "unknown";
  std::string name = properties.name;
  name = name.substr(0, name.find(" (null device)"));
  const auto known = gpus();
  const auto found = std::ranges::find(known, std::string_view(name), &Gpu::display_name);
  return found == known.end() ? name : std::string(found->name);
}

void tell_libraries() {
  std::set<std::string> libraries;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::string path = line.substr(std::min(line.find('/'), line.size()));
    const bool is_nvidia = path.find("/nvidia/") != std::string::npos;
    if (is_nvidia || path.ends_with("/libtorch_cuda.so")) libraries.insert(path);
  }
  for (const std::string& library : libraries) fmt::print(stderr, "loaded {}\n", library);
}

void train(const planner::Config& config, const planner::Strategy& strategy, int64_t steps) {
  const models::ModelSpec spec = models::find_spec(config.model);
  const planner::Schedule schedule = build_schedule(spec, strategy, planner::Pass::train);
  runtime::keep_backward_on_this_thread();
  runtime::choose_attention(config.attention);
  const c10::Device device = runtime::open_device(planner::device_of(config), 0);
  const auto streams = runtime::make_streams(device);
  at::empty({1}, at::TensorOptions(device));  // the allocator's first use creates it
  record_events();
  runtime::RankState state(spec, schedule, 0, device);
  tests::IdleCommunicator idle;
  runtime::Executor executor(spec, state, *streams, {&idle, &idle, &idle, &idle},
                             runtime::executor_options(config));
  const models::Batch batch = runtime::synthetic_batch(spec, config.batch, 0, device);
  for (int64_t step = 0; step < steps; ++step) {
    lines().push_back(fmt::format("step {}", step));
    executor.run(schedule, step, [&] { return batch; });
  }
  c10::cuda::device_synchronize();
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const planner::Config config = planner::parse_arguments(words).config;
  if (config.steps < 1) throw std::invalid_argument("--steps is needed; give --steps 3");
  const Device device = planner::device_of(config);
  if (device.kind == DeviceKind::null) runtime::enter_null_device(device, words);
  train(config, planner::strategy_of(config), config.steps);
  tell_libraries();
  fmt::print("gpu {}\n", gpu_name());
  for (const std::string& line : lines()) fmt::print("{}\n", line);
  return 0;
} catch (const std::invalid_argument& error) {
  fmt::print(stderr, "print_allocations: {}\n", error.what());
  return 2;
} catch (const std::exception& error) {
  fmt::print(stderr, "print_allocations: {}\n", error.what());
  return 1;
}
