// Defines the runtime's call for managed memory, which moves between host and device where it is
// used, so that the device need not have room for all of it: here it is the host's.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "profiler/null_device/cudart/errors.h"

extern "C" cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  return shardlens::profiler::result(cuMemHostAlloc(address, bytes, 0));
}
