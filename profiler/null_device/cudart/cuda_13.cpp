// Defines the runtime's calls of CUDA 13.
#include <cuda_runtime_api.h>

#include "profiler/null_device/cudart/graphs.h"

extern "C" cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                cudaStreamCaptureStatus* status,
                                                unsigned long long* id, cudaGraph_t*,
                                                const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                                size_t*) {
  if (id != nullptr) *id = shardlens::profiler::capture_of(stream);
  return cudaStreamIsCapturing(stream, status);
}

extern "C" cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned,
                                            cudaStream_t) {
  return cudaSuccess;
}

extern "C" cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return cudaSuccess;
}
