// Defines the runtime's calls on the device.
#include <cuda_runtime_api.h>

#include <dlfcn.h>

#include "profiler/null_device/cudart/errors.h"

using shardlens::profiler::result;

namespace {

thread_local int current_device = 0;

cudaError_t find_device(int ordinal) {
  CUdevice device = 0;
  return result(cuDeviceGet(&device, ordinal));
}

int attribute(CUdevice_attribute name) {
  int value = 0;
  cuDeviceGetAttribute(&value, name, 0);
  return value;
}

size_t bytes_attribute(CUdevice_attribute name) { return static_cast<size_t>(attribute(name)); }

void fill_limits(cudaDeviceProp& p) {
  p.warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  p.regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  p.regsPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  p.maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  p.maxThreadsPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  p.maxBlocksPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  p.maxThreadsDim[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  p.maxThreadsDim[1] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  p.maxThreadsDim[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  p.maxGridSize[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  p.maxGridSize[1] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  p.maxGridSize[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
}

void fill_memory(cudaDeviceProp& p) {
  cuDeviceTotalMem(&p.totalGlobalMem, 0);
  p.l2CacheSize = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  p.sharedMemPerBlock = bytes_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  p.sharedMemPerBlockOptin = bytes_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  p.sharedMemPerMultiprocessor =
      bytes_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  p.reservedSharedMemPerBlock =
      bytes_attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  p.totalConstMem = bytes_attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  p.textureAlignment = bytes_attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  p.unifiedAddressing = attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  p.canMapHostMemory = attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  p.hostRegisterSupported = attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return result(cuDeviceGetCount(count)); }

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = find_device(device);
  if (error == cudaSuccess) current_device = device;
  return error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  if (const cudaError_t error = find_device(device); error != cudaSuccess) return error;
  cuDeviceGetName(properties->name, sizeof properties->name, device);
  cuDeviceGetUuid_v2(&properties->uuid, device);
  properties->pciBusID = device;
  properties->major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  properties->minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  properties->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  properties->concurrentKernels = attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
  properties->cooperativeLaunch = attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  properties->streamPrioritiesSupported =
      attribute(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
  fill_limits(*properties);
  fill_memory(*properties);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int device) {
  if (const cudaError_t error = find_device(device); error != cudaSuccess) return error;
  // The runtime and the driver number attributes alike.
  return result(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(name), 0));
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  return result(cuDeviceGetPCIBusId(text, size, device));
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) { return result(cuDriverGetVersion(version)); }

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  // This library links the driver, so it is loaded; `name` comes without the suffix of a version.
  static void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  *function = ::dlsym(driver, name);
  if (found != nullptr) {
    *found =
        *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}

}  // extern "C"
