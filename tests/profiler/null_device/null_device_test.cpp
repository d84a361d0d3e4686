// Runs LibTorch's own CUDA code on the null device. ctest starts each case as its own process with
// the null device preloaded; those tagged [.process] are run by others in a process with another
// environment. Values on the device are ignored, except where a copy from it is tested.
#include "profiler/null_device/null_device.h"
#include "models/families.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/gpus.h"
#include "models/model.h"
#include "tests/profiler/null_device/case_process.h"
#include "tests/support/temporary_folder.h"

// ATen's own headers for these need those of cuSPARSE and NCCL, which the header wheels lack.
namespace at::cuda {
cudaDeviceProp* getCurrentDeviceProperties();
}
struct NcclUniqueId {
  char bytes[128];
};
extern "C" {
int ncclGetUniqueId(NcclUniqueId* id);
int ncclCommInitRank(void** communicator, int ranks, NcclUniqueId id, int rank);
int ncclCommUserRank(const void* communicator, int* rank);
int ncclAllReduce(const void* input, void* output, size_t count, int dtype, int operation,
                  void* communicator, cudaStream_t stream);
int ncclCommDestroy(void* communicator);
}

using namespace shardlens;
namespace allocator = c10::cuda::CUDACachingAllocator;
using Catch::Matchers::ContainsSubstring;
using tests::output_of_case;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

const at::TensorOptions kBytesOnDevice = at::dtype(at::kByte).device(at::kCUDA);

at::Tensor device_bytes(int64_t bytes) { return at::empty({bytes}, kBytesOnDevice); }

int64_t allocated_bytes() { return allocator::getDeviceStats(0).allocated_bytes[0].current; }
int64_t reserved_bytes() { return allocator::getDeviceStats(0).reserved_bytes[0].current; }

int64_t free_bytes() {
  size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  return static_cast<int64_t>(free);
}

std::string properties_text(const std::string& name, int major, int minor, int sm_count,
                            int64_t memory_bytes, int64_t l2_bytes, int64_t shared_per_sm_bytes,
                            int64_t shared_opt_in_bytes, int threads_per_sm) {
  std::ostringstream text;
  text << name << " " << major << "." << minor << " " << sm_count << " " << memory_bytes << " "
       << l2_bytes << " " << shared_per_sm_bytes << " " << shared_opt_in_bytes << " "
       << threads_per_sm << "\n";
  return text.str();
}

/// Allocations, frees and the allocator's requests to the driver, with sizes, as they happen.
std::vector<std::string>& traced() {
  static std::vector<std::string> events;
  return events;
}

bool& is_traced() {
  static bool traced = false;
  return traced;
}

void start_trace() {
  device_bytes(1);  // the first use creates the allocator
  if (std::exchange(is_traced(), true)) return;
  allocator::attachAllocatorTraceTracker([](const allocator::TraceEntry& entry) {
    traced().push_back(std::to_string(entry.action_) + " " + std::to_string(entry.size_));
  });
}

/// Runs forward and backward of a ViT's block on a batch. Backward runs on the calling thread: the
/// thread that autograd keeps for the device frees its last tensors after backward has returned, in
/// any order with the caller.
void step_block(const models::ModelSpec& spec, at::ScalarType dtype) {
  at::globalContext().setSDPUseCuDNN(false);  // as in training
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  const at::TensorOptions options = at::dtype(dtype).device(at::kCUDA);
  const std::vector<models::Forward> units = models::build_units(spec);
  at::Tensor x =
      at::empty({8, spec.as<models::VitSizes>().tokens(), spec.as<models::VitSizes>().width},
                options)
          .requires_grad_(true);
  std::vector<at::Tensor> leaves{x};
  for (const size_t unit : {1, 2}) {
    std::vector<at::Tensor> parameters;
    for (const int p : spec.units[unit].parameters) {
      const std::vector<int64_t>& shape = spec.parameters[static_cast<size_t>(p)].shape;
      parameters.push_back(at::empty(shape, options).requires_grad_(true));
    }
    leaves.insert(leaves.end(), parameters.begin(), parameters.end());
    x = units[unit](x, parameters);
  }
  const auto gradients = torch::autograd::grad({x}, leaves, {at::empty_like(x)});
  CHECK(gradients.size() == leaves.size());
}

std::vector<std::string> trace_of_step(at::ScalarType dtype) {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  traced().clear();
  step_block(spec, dtype);
  return traced();
}

}  // namespace

TEST_CASE("bind every symbol", "[.process]") {
  // These two are loaded on demand; the others are loaded with the program.
  CHECK(::dlopen("libtorch_cuda_linalg.so", RTLD_NOW) != nullptr);
  CHECK(::dlopen("libcaffe2_nvrtc.so", RTLD_NOW) != nullptr);
  std::cout << "> bound\n";
}

TEST_CASE("LibTorch finds every symbol that it imports") {
  CHECK(output_of_case("bind every symbol", "LD_BIND_NOW=1") == "bound\n");
}

TEST_CASE("no NVIDIA library is loaded, though the wheel's folders have some") {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> null_libraries;
  for (std::string line; std::getline(maps, line);) {
    const std::string path = line.substr(std::min(line.size(), line.find('/')));
    INFO(path);
    CHECK(path.find("/nvidia/") == std::string::npos);
    if (path.find("/null_device/") != std::string::npos) null_libraries.insert(path);
  }
  const std::string_view preloaded = std::getenv("LD_PRELOAD");
  CHECK(std::ssize(null_libraries) == std::ranges::count(preloaded, ':') + 1);
}

TEST_CASE("the caching allocator rounds as documented") {
  const int64_t capacity = free_bytes();
  at::Tensor one = device_bytes(1);  // blocks of 512 B, small ones out of 2 MiB
  CHECK(allocated_bytes() == 512);
  CHECK(reserved_bytes() == 2 * kMiB);
  at::Tensor large = device_bytes(10 * kMiB + 1);  // from 10 MiB on a segment of its own
  CHECK(allocated_bytes() == 512 + 10 * kMiB + 512);
  CHECK(reserved_bytes() == 14 * kMiB);
  at::Tensor middle = device_bytes(3 * kMiB);  // in between out of 20 MiB
  CHECK(allocated_bytes() == 512 + 10 * kMiB + 512 + 3 * kMiB);
  CHECK(reserved_bytes() == 34 * kMiB);
  at::Tensor second = device_bytes(3 * kMiB + 1);
  CHECK(reserved_bytes() == 34 * kMiB);
  CHECK(free_bytes() == capacity - 34 * kMiB);
  for (at::Tensor* tensor : {&one, &large, &middle, &second}) tensor->reset();
  CHECK(allocated_bytes() == 0);
  CHECK(reserved_bytes() == 34 * kMiB);
  allocator::emptyCache();
  CHECK(reserved_bytes() == 0);
  CHECK(free_bytes() == capacity);
}

TEST_CASE("memory ends where the GPU's does, with LibTorch's own error") {
  const int64_t capacity = find_gpu("h200").memory_bytes;
  CHECK_THROWS_AS(device_bytes(capacity + 1), c10::OutOfMemoryError);
  std::vector<at::Tensor> tensors;
  const auto fill = [&] {
    while (true) tensors.push_back(device_bytes(kGiB));
  };
  CHECK_THROWS_AS(fill(), c10::OutOfMemoryError);
  CHECK(static_cast<int64_t>(tensors.size()) == capacity / kGiB);
  tensors.pop_back();
  CHECK_NOTHROW(device_bytes(kGiB));
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("print the properties", "[.process]") {
  cudaDeviceProp p;
  REQUIRE(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
  std::cout << "> "
            << properties_text(p.name, p.major, p.minor, p.multiProcessorCount,
                               static_cast<int64_t>(p.totalGlobalMem), p.l2CacheSize,
                               static_cast<int64_t>(p.sharedMemPerMultiprocessor),
                               static_cast<int64_t>(p.sharedMemPerBlockOptin),
                               p.maxThreadsPerMultiProcessor);
  const cudaDeviceProp* seen = at::cuda::getCurrentDeviceProperties();  // LibTorch's copy
  CHECK(std::string(seen->name) == p.name);
  CHECK(seen->multiProcessorCount == p.multiProcessorCount);
  int sm_count = 0;
  CHECK(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  CHECK(sm_count == p.multiProcessorCount);
  CHECK(free_bytes() == static_cast<int64_t>(p.totalGlobalMem));
}

TEST_CASE("the GPU is the one that the environment names") {
  for (const Gpu& gpu : gpus()) {
    const ComputeCapability& c = gpu.capability;
    CHECK(output_of_case("print the properties",
                         profiler::kNullGpuVariable + ("=" + std::string(gpu.name))) ==
          properties_text(std::string(gpu.display_name) + " (null device)", c.major, c.minor,
                          gpu.sm_count, gpu.memory_bytes, gpu.l2_bytes,
                          c.shared_memory_per_sm_bytes, c.shared_memory_per_block_opt_in_bytes,
                          c.max_threads_per_sm));
  }
}

TEST_CASE("use operators that are compiled", "[.process]") {
  const at::Tensor x = at::empty({64}, at::dtype(at::kFloat).device(at::kCUDA));
  const at::Tensor n = at::empty({64}, at::dtype(at::kLong).device(at::kCUDA));
  for (const at::Tensor& y : {at::erfinv(x), at::special_i0e(x), at::sinc(x), at::gcd(n, n)}) {
    CHECK(y.sizes() == x.sizes());
  }
  x.erfinv_();  // as nn.init.trunc_normal_ does
}

TEST_CASE("kernels that LibTorch compiles run, and are not cached for the user's GPU") {
  const tests::TemporaryFolder cache;
  output_of_case("use operators that are compiled", "XDG_CACHE_HOME=" + cache.path());
  CHECK(std::filesystem::is_empty(cache.path()));
}

TEST_CASE("a Triton kernel is loaded and launched") {
  const at::Tensor data = device_bytes(64);
  const auto address = reinterpret_cast<CUdeviceptr>(data.data_ptr());
  CUdeviceptr seen = 0;
  CHECK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address) == CUDA_SUCCESS);
  CHECK(seen == address);
  CHECK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                              reinterpret_cast<CUdeviceptr>(&seen)) != CUDA_SUCCESS);

  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  REQUIRE(cuModuleLoadData(&module, "") == CUDA_SUCCESS);
  REQUIRE(cuModuleGetFunction(&kernel, module, "kernel") == CUDA_SUCCESS);
  int threads = 0;
  CHECK(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel) ==
        CUDA_SUCCESS);
  CHECK(threads == 1024);  // Triton refuses fewer than a launch asks for
  const CUlaunchConfig launch{};
  CHECK(cuLaunchKernelEx(&launch, kernel, nullptr, nullptr) == CUDA_SUCCESS);
}

TEST_CASE("use an impossible device", "[.process]") {
  int count = -1;
  const cudaError_t error = cudaGetDeviceCount(&count);
  CHECK(error == cudaErrorInitializationError);
  CHECK(count == 0);
  std::cout << "> " << cudaGetErrorString(error) << "\n";
  void* address = nullptr;
  CHECK(cudaMalloc(&address, 1) == cudaErrorInitializationError);
  CHECK(cudaHostAlloc(&address, 1, 0) == cudaErrorInitializationError);
  CHECK_THROWS_AS(device_bytes(1), c10::Error);
}

TEST_CASE("an unknown GPU leaves no device, and the error says why") {
  CHECK_THAT(
      output_of_case("use an impossible device", "SHARDLENS_NULL_GPU=rtx4091"),
      ContainsSubstring("SHARDLENS_NULL_GPU: GPU rtx4091: not known; did you mean rtx4090?"));
}

TEST_CASE("a capacity that cannot be leaves no device, and the error says why") {
  for (const std::string text :
       {"", "0", "-1", "1.5", "40GiB", " 1", "1099511627777", "99999999999999999999", "0x1000"}) {
    CHECK(output_of_case("use an impossible device", "SHARDLENS_NULL_CAPACITY=" + text) ==
          "SHARDLENS_NULL_CAPACITY: " + text +
              ": not a capacity; give whole bytes, from 1 to 1099511627776\n");
  }
}

TEST_CASE("use the last of three GPUs", "[.process]") {
  int count = 0, current = -1, elsewhere = -1;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 3);
  CHECK(cudaSetDevice(3) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);  // else LibTorch sees it
  REQUIRE(cudaSetDevice(2) == cudaSuccess);
  std::thread([&] { cudaGetDevice(&elsewhere); }).join();
  CHECK(elsewhere == 0);
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 2);
  const at::Tensor tensor = device_bytes(kMiB);
  CHECK(tensor.get_device() == 2);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, tensor.data_ptr()) == cudaSuccess);
  CHECK(attributes.device == 2);
  CHECK(allocated_bytes() == 0);
  CHECK(allocator::getDeviceStats(2).allocated_bytes[0].current == kMiB);
  std::cout << "> used\n";
}

TEST_CASE("with several GPUs each thread uses the one that it has set") {
  CHECK(output_of_case("use the last of three GPUs", "SHARDLENS_NULL_GPUS=3") == "used\n");
  for (const std::string text : {"", "0", "65", "8x"}) {
    CHECK(output_of_case("use an impossible device", "SHARDLENS_NULL_GPUS=" + text) ==
          "SHARDLENS_NULL_GPUS: " + text + ": not a number of GPUs, from 1 to 64\n");
  }
}

TEST_CASE("fill a device", "[.process]") {
  size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == total);
  cudaDeviceProp properties;
  REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK(properties.totalGlobalMem == total);
  std::vector<at::Tensor> tensors;
  const auto fill = [&] {
    while (true) tensors.push_back(device_bytes(20 * kMiB));
  };
  CHECK_THROWS_AS(fill(), c10::OutOfMemoryError);
  std::cout << "> " << total << " holds " << tensors.size() << "\n";
}

TEST_CASE("memory ends where the environment says") {
  for (const int64_t bytes : {int64_t{1}, 19 * kMiB, 100 * kMiB, kGiB + 12345, 1024 * kGiB}) {
    const std::string text = std::to_string(bytes);
    CHECK(output_of_case("fill a device", "SHARDLENS_NULL_CAPACITY=" + text) ==
          text + " holds " + std::to_string(bytes / (20 * kMiB)) + "\n");
  }
}

TEST_CASE("grow expandable segments", "[.process]") {
  const int64_t capacity = free_bytes();
  at::Tensor small = device_bytes(1);  // pages of 2 MiB for small blocks, 20 MiB for others
  CHECK(reserved_bytes() == 2 * kMiB);
  at::Tensor large = device_bytes(30 * kMiB);
  CHECK(reserved_bytes() == 42 * kMiB);
  at::Tensor next = device_bytes(15 * kMiB);  // 10 MiB are left of the pages there are
  CHECK(reserved_bytes() == 62 * kMiB);
  CHECK(static_cast<char*>(next.data_ptr()) == static_cast<char*>(large.data_ptr()) + 30 * kMiB);
  CHECK(free_bytes() == capacity - 62 * kMiB);
  CHECK_THROWS_AS(device_bytes(capacity), c10::OutOfMemoryError);
  small.reset();
  large.reset();
  next.reset();
  allocator::emptyCache();
  CHECK(reserved_bytes() == 0);
  CHECK(free_bytes() == capacity);
  std::cout << "> grown\n";
}

TEST_CASE("expandable segments grow page by page") {
  CHECK(output_of_case("grow expandable segments", "PYTORCH_ALLOC_CONF=expandable_segments:True") ==
        "grown\n");
}

TEST_CASE("print the trace of a block", "[.process]") {
  start_trace();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::string& event : trace_of_step(dtype)) std::cout << "> " << event << "\n";
  }
}

TEST_CASE("a block allocates the same in every process") {
  const std::string first = output_of_case("print the trace of a block", "A=1");
  const std::string second = output_of_case("print the trace of a block", "LONGER_VARIABLE=22");
  CHECK(std::ranges::count(first, '\n') > 200);
  CHECK(first == second);
}

TEST_CASE("a block's forward and backward allocate the same in every step") {
  start_trace();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    trace_of_step(dtype);  // workspaces and segments come with the first
    const int64_t before = allocated_bytes();
    const std::vector<std::string> step = trace_of_step(dtype);
    CHECK(step == trace_of_step(dtype));
    CHECK(allocated_bytes() == before);
    const std::string prefix = std::to_string(allocator::TraceEntry::ALLOC) + " ";
    const std::string freed = std::to_string(allocator::TraceEntry::FREE_COMPLETED) + " ";
    const auto starts = [&](const std::string& with) {
      return std::ranges::count_if(step, [&](const auto& e) { return e.starts_with(with); });
    };
    CHECK(starts(prefix) > 50);
    CHECK(starts(prefix) == starts(freed));
    // Activations of 8 images with 17 tokens of width 128.
    CHECK(
        std::ranges::count(step, prefix + std::to_string(8 * 17 * 128 * c10::elementSize(dtype))));
  }
}

TEST_CASE("streams of the pool are distinct, and events order them") {
  std::set<cudaStream_t> streams{c10::cuda::getDefaultCUDAStream().stream()};
  for (int i = 0; i < 4; ++i) {
    const bool high_priority = i % 2 == 0;
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(high_priority);
    CHECK(streams.insert(stream.stream()).second);
    c10::cuda::CUDAEvent event;
    event.record(stream);
    event.block(c10::cuda::getDefaultCUDAStream());
    CHECK(event.query());
    event.synchronize();
    CHECK(stream.query());
  }
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  at::Tensor tensor = device_bytes(1);
  tensor.record_stream(side);  // an event holds its memory until it is checked
  tensor.reset();
  CHECK(device_bytes(1).defined());
}

TEST_CASE("a handle that was destroyed or never made is refused") {
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  CHECK(cudaEventRecord(event, nullptr) == cudaSuccess);
  float time_ms = 0;
  CHECK(cudaEventElapsedTime(&time_ms, event, event) == cudaSuccess);
  CHECK(time_ms > 0);  // programs divide by it
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaEventRecord(event, nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaSuccess);
  int on_the_host = 0;
  CHECK(cudaFree(&on_the_host) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(&on_the_host) == cudaErrorInvalidValue);
  CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(nullptr, &graph) == cudaErrorIllegalState);
}

TEST_CASE("a graph is captured, with the streams that wait for it, and launched") {
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStream other = c10::cuda::getStreamFromPool();
  const auto is_capturing = [](const c10::cuda::CUDAStream& one) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamIsCapturing(one, &status) == cudaSuccess);
    return status == cudaStreamCaptureStatusActive;
  };
  const c10::cuda::CUDAStreamGuard guard(stream);
  const at::Tensor first = device_bytes(1);  // the allocator must exist before a capture
  at::Tensor kept;
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  kept = device_bytes(3 * kMiB).fill_(0);
  CHECK(is_capturing(stream));
  CHECK_FALSE(is_capturing(other));
  c10::cuda::CUDAEvent event;
  event.record(stream);
  event.block(other);
  CHECK(is_capturing(other));
  CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaGetLastError() == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaGetLastError() == cudaErrorStreamCaptureUnsupported);
  graph.capture_end();
  CHECK_FALSE(is_capturing(stream));
  CHECK_FALSE(is_capturing(other));

  graph.replay();
  kept.reset();
  const int64_t reserved = reserved_bytes();
  allocator::emptyCache();
  CHECK(reserved_bytes() == reserved);  // the pool belongs to the graph
  graph.reset();
  allocator::emptyCache();
  CHECK(reserved_bytes() < reserved);
}

TEST_CASE("pinned memory is host memory that the device knows") {
  at::Tensor pinned = at::empty({1000}, at::dtype(at::kFloat).pinned_memory(true));
  CHECK(pinned.is_pinned());
  CHECK_FALSE(at::empty({1000}, at::kFloat).is_pinned());
  pinned.fill_(3);
  CHECK(pinned.sum().item<float>() == 3000);
  const at::Tensor on_device = pinned.to(at::kCUDA, /*non_blocking=*/true);
  cudaPointerAttributes attributes;
  REQUIRE(cudaPointerGetAttributes(&attributes, on_device.data_ptr()) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  REQUIRE(cudaPointerGetAttributes(&attributes, pinned.data_ptr<float>() + 999) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
}

TEST_CASE("a copy from the device is zero, whatever was written there") {
  const at::Tensor on_device = at::ones({100}, at::kFloat).to(at::kCUDA);
  at::Tensor host = at::full({100}, 7.0F);
  host.copy_(on_device);
  CHECK(host.abs().sum().item<float>() == 0);
}

TEST_CASE("a stream of CUDA's own works as one of LibTorch's") {
  for (int i = 0; i < 5; ++i) {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(c10::cuda::getStreamFromExternal(stream, 0).stream() == stream);
  }
}

TEST_CASE("the driver knows what the runtime captures") {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  const auto status = [&] {
    CUstreamCaptureStatus found{};
    REQUIRE(cuStreamIsCapturing(stream, &found) == CUDA_SUCCESS);
    return found;
  };
  CHECK(status() == CU_STREAM_CAPTURE_STATUS_NONE);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(status() == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(status() == CU_STREAM_CAPTURE_STATUS_NONE);
  cudaGraphDestroy(graph);
}

TEST_CASE("copy there and back", "[.process]") {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 64) == cudaSuccess);
  const auto round_trip = [&](bool kernel_between) {
    const int there = 7;
    int back = 1;
    cudaMemcpy(memory, &there, sizeof there, cudaMemcpyHostToDevice);
    if (kernel_between) at::zeros({4}, at::kCUDA).add_(1);
    cudaMemcpy(&back, memory, sizeof back, cudaMemcpyDeviceToHost);
    return back;
  };
  std::cout << "> " << round_trip(false) << " " << round_trip(true) << "\n";
}

TEST_CASE("copies to the device can be read back until a kernel runs, if that is asked for") {
  CHECK(output_of_case("copy there and back", "SHARDLENS_NULL_KEEP_COPIES=0") == "0 0\n");
  CHECK(output_of_case("copy there and back", "SHARDLENS_NULL_KEEP_COPIES=1") == "7 0\n");
}

TEST_CASE("an NCCL communicator knows its rank, and its collectives return") {
  NcclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == 0);
  void* communicator = nullptr;
  REQUIRE(ncclCommInitRank(&communicator, 512, id, 3) == 0);
  int rank = 0;
  CHECK(ncclCommUserRank(communicator, &rank) == 0);
  CHECK(rank == 3);
  const at::Tensor data = device_bytes(1024);
  constexpr int kInt8 = 0, kSum = 0;
  CHECK(ncclAllReduce(data.data_ptr(), data.data_ptr(), 1024, kInt8, kSum, communicator, nullptr) ==
        0);
  void* none = nullptr;
  CHECK(ncclCommInitRank(&none, 2, id, 2) != 0);
  CHECK(ncclCommDestroy(communicator) == 0);
}
