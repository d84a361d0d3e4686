// Defines the runtime's call for managed memory. That moves between host and device as it is used,
// so the device need not have room for all of the memory: here it is host memory.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "profiler/null_device/cudart/errors.h"

extern "C" cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  return shardlens::profiler::result(cuMemHostAlloc(address, bytes, 0));
}
