// Defines the driver's calls on the device, its context and its errors.
#include "profiler/null_device/driver/driver.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "profiler/null_device/driver/api_observer.h"
#include "profiler/null_device/libraries/cudnn_caller.h"
#include "profiler/null_device/null_device.h"

namespace shardlens::profiler {

namespace {

int64_t whole_number(const char* variable, int64_t fallback, const char* what, int64_t most,
                     int64_t least = 1) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return fallback;
  int64_t number = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  if (error != std::errc{} || rest != end || number < least || number > most) {
    throw std::invalid_argument(std::string(variable) + ": " + text + ": not a " + what +
                                ", from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

int64_t capacity_bytes(const Gpu& gpu) {
  return whole_number(kNullCapacityVariable, gpu.memory_bytes, "capacity; give whole bytes",
                      kMostNullBytes);
}

int64_t beside_bytes() {
  return whole_number(kNullBesideVariable, 0, "size beside PyTorch; give whole bytes",
                      kMostNullBytes, 0);
}

bool counts_nccl() { return whole_number(kNullNcclVariable, 0, "flag; give 0 or 1", 1, 0) == 1; }

int gpu_count() {
  return static_cast<int>(whole_number(kNullGpusVariable, 1, "number of GPUs", kMaxNullGpus));
}

const Gpu& named_gpu() {
  const char* const name = std::getenv(kNullGpuVariable);
  try {
    return find_gpu(name == nullptr ? kNullGpuDefault : name);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string(kNullGpuVariable) + ": " + error.what());
  }
}

NullDevice from_environment() {
  try {
    const Gpu& gpu = named_gpu();
    const int64_t bytes = capacity_bytes(gpu);
    return {.gpu = &gpu,
            .capacity_bytes = bytes,
            .beside_bytes = beside_bytes(),
            .counts_nccl = counts_nccl(),
            .count = gpu_count(),
            .error = ""};
  } catch (const std::invalid_argument& error) {
    return {.gpu = nullptr, .capacity_bytes = 0, .count = 0, .error = error.what()};
  }
}

int attribute(const Gpu& gpu, CUdevice_attribute name) {
  const ComputeCapability& capability = gpu.capability;
  switch (name) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return capability.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return capability.minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return gpu.sm_count;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return static_cast<int>(gpu.l2_bytes);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return static_cast<int>(capability.shared_memory_per_sm_bytes);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return static_cast<int>(capability.shared_memory_per_block_opt_in_bytes);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return capability.max_threads_per_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return capability.max_blocks_per_sm;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return static_cast<int>(capability.shared_memory_per_sm_bytes -
                              capability.shared_memory_per_block_opt_in_bytes);
    // These are the same for every compute capability from 7.0 on.
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return 1;
    default:
      return 0;  // a feature that the device does not have
  }
}

std::atomic<int> set_gpus{0};  // 0: not set

int gpus_there() {
  const int set = set_gpus.load();
  return set != 0 && null_device().gpu != nullptr ? set : null_device().count;
}

}  // namespace

const NullDevice& null_device() {
  static const NullDevice device = from_environment();
  return device;
}

}  // namespace shardlens::profiler

std::atomic<shardlens::profiler::ApiObserver*> shardlens_null_api_observer{nullptr};

void shardlens_null_set_gpus(int count) {
  if (count >= 1 && count <= shardlens::profiler::kMaxNullGpus)
    shardlens::profiler::set_gpus = count;
}

using shardlens::profiler::gpus_there;
using shardlens::profiler::is_in_cudnn;
using shardlens::profiler::null_device;

extern "C" {

// NVIDIA's own cuDNN finds no device, and plans for the one that is described to it (dnn_graph.h).
CUresult cuInit(unsigned) {
  if (is_in_cudnn(__builtin_return_address(0))) return CUDA_ERROR_NO_DEVICE;
  return null_device().gpu == nullptr ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  if (const CUresult error = cuInit(0); error != CUDA_SUCCESS) return error;
  return ordinal >= 0 && ordinal < gpus_there() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int* count) {
  *count = gpus_there();
  return cuInit(0);
}

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  if (null_device().gpu == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string text = std::string(null_device().gpu->display_name) + " (null device)";
  name[text.copy(name, static_cast<size_t>(size) - 1)] = '\0';
  return CUDA_SUCCESS;
}

// The UUID ends with the GPU's number, which is also its PCI bus.
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  static constexpr std::array<char, sizeof uuid->bytes> kUuid{"null device"};
  std::memcpy(uuid->bytes, kUuid.data(), kUuid.size());
  uuid->bytes[kUuid.size() - 1] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  const int length = std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device);
  return length < size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* bus_id) {
  unsigned domain = 0, bus = 0, slot = 0;
  if (std::sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3 || domain != 0 || slot != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return cuDeviceGet(device, static_cast<int>(bus));
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute name, CUdevice) {
  if (null_device().gpu == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *value = shardlens::profiler::attribute(*null_device().gpu, name);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return cuCtxGetCurrent(context); }

CUresult cuCtxGetCurrent(CUcontext* context) {
  static int the_context = 0;
  *context = reinterpret_cast<CUcontext>(&the_context);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  switch (error) {
    case CUDA_SUCCESS:
      *text = "no error";
      break;
    case CUDA_ERROR_OUT_OF_MEMORY:
      *text = "out of memory";
      break;
    case CUDA_ERROR_INVALID_VALUE:
      *text = "invalid argument";
      break;
    case CUDA_ERROR_NOT_SUPPORTED:
      *text = "not supported on the null device";
      break;
    case CUDA_ERROR_NO_DEVICE:
      *text = "no CUDA-capable device is detected";
      break;
    case CUDA_ERROR_NOT_INITIALIZED:
      *text = null_device().error.c_str();
      break;
    default:
      *text = "error of the null device";
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
