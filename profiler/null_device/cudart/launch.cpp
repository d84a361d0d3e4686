// Defines the runtime's calls on kernels: those that the compiler's host code makes to register and
// launch one, and those that ask what a kernel needs of a multiprocessor. A launch is reported to
// the observer of kernels (known_memory.h), and does nothing.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "profiler/null_device/cudart/errors.h"
#include "profiler/null_device/driver/known_memory.h"

using shardlens::profiler::result;

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

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  shardlens_null_launched();
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
