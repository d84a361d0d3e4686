// Defines the runtime's calls on kernels: those that the compiler's host code makes to register and
// launch one, and those that ask what a kernel needs of a multiprocessor. A launch is reported to
// the observers of kernels (known_memory.h) and of work (work_feed.h), and does nothing.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "profiler/null_device/cudart/errors.h"
#include "profiler/null_device/driver/known_memory.h"
#include "profiler/null_device/driver/work_feed.h"
#include "profiler/null_device/null_device.h"

using shardlens::profiler::result;
using shardlens::profiler::tell_work;
using shardlens::profiler::WorkKind;
using shardlens::profiler::WorkRequest;

namespace {

struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

LaunchConfiguration& pushed_configuration() {
  thread_local LaunchConfiguration configuration;
  return configuration;
}

/// Holds the mangled names of the kernels that libraries register when they are loaded, by the host
/// function that stands for each. A PyTorch registers tens of thousands.
class KernelNames {
 public:
  void add(const void* function, const char* name) {
    const std::scoped_lock lock(mutex_);
    names_.emplace(function, name);
  }
  const char* find(const void* function) {
    const std::scoped_lock lock(mutex_);
    const auto found = names_.find(function);
    return found == names_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, const char*> names_;
};

/// Returns the names, or null if no trace of work is wanted.
KernelNames* kernel_names() {
  static KernelNames* const names = [] {
    const char* const wanted = std::getenv(shardlens::profiler::kNullWorkVariable);
    const bool is_wanted = wanted != nullptr && std::string_view(wanted) == "1";
    return is_wanted ? new KernelNames : nullptr;
  }();
  return names;
}

void tell_launch(const void* function, dim3 grid, dim3 block, size_t shared_bytes,
                 cudaStream_t stream) {
  tell_work([&] {
    KernelNames* const names = kernel_names();
    return WorkRequest{.work = {.kind = WorkKind::kernel,
                                .launch = {.grid = {grid.x, grid.y, grid.z},
                                           .block = {block.x, block.y, block.z},
                                           .shared_bytes = static_cast<uint32_t>(shared_bytes)}},
                       .name = names == nullptr ? nullptr : names->find(function),
                       .stream = stream};
  });
}

int attribute(cudaDeviceAttr name) {
  int value = 0;
  cudaDeviceGetAttribute(&value, name, 0);
  return value;
}

}  // namespace

extern "C" {

// These are the compiler's own interface, which no header declares.
void** __cudaRegisterFatBinary(void*) {
  static void* the_module = nullptr;
  return &the_module;
}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  if (KernelNames* const names = kernel_names()) names->add(function, name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  pushed_configuration() = {grid, block, shared_bytes, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       cudaStream_t* stream) {
  shardlens_null_launched();
  *grid = pushed_configuration().grid;
  *block = pushed_configuration().block;
  *shared_bytes = pushed_configuration().shared_bytes;
  *stream = pushed_configuration().stream;
  return cudaSuccess;
}

// A launch that is written with <<<>>> pops its configuration, then makes one of these two calls:
// the first up to CUDA 12, the second from 13 on.

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**,
                             size_t shared_bytes, cudaStream_t stream) {
  tell_launch(function, grid, block, shared_bytes, stream);
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* launch, const void* function, void**) {
  shardlens_null_launched();
  tell_launch(function, launch->gridDim, launch->blockDim, launch->dynamicSmemBytes,
              launch->stream);
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

/// Returns the version of the wheel's newest machine code that runs on this GPU: LibTorch for CUDA
/// 13 has code for 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0, and CUB refuses every other version. It has
/// none for Volta (7.0): the code for Turing stands in, which takes as much memory.
int code_version() {
  constexpr std::array kCode = {75, 80, 86, 90, 100, 120};
  const int version = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                      attribute(cudaDevAttrComputeCapabilityMinor);
  const auto newer = std::ranges::upper_bound(kCode, version);
  return newer == kCode.begin() ? kCode.front() : *std::prev(newer);
}

/// Returns a kernel's attributes. The code is never read, so every kernel takes as many registers
/// as let a multiprocessor be full.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->numRegs = 32;
  attributes->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
  attributes->binaryVersion = code_version();
  attributes->ptxVersion = attributes->binaryVersion;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                   int block_threads,
                                                                   size_t shared_bytes, unsigned) {
  if (block_threads <= 0) return result(cudaErrorInvalidValue);
  const int per_block = std::max(
      1, static_cast<int>(shared_bytes) + attribute(cudaDevAttrReservedSharedMemoryPerBlock));
  *blocks = std::min({attribute(cudaDevAttrMaxBlocksPerMultiprocessor),
                      attribute(cudaDevAttrMaxThreadsPerMultiProcessor) / block_threads,
                      attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / per_block});
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads,
                                                                shared_bytes, 0);
}

}  // extern "C"
