// Defines the runtime's calls of CUDA 12. Its header gives some of them other names (_v2).
#include <cuda_runtime_api.h>

#include "profiler/null_device/cudart/graphs.h"

extern "C" {

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     size_t*) {
  if (id != nullptr) *id = shardlens::profiler::capture_of(stream);
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, found);
}

}  // extern "C"

extern "C" cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t) {
  return cudaSuccess;
}

extern "C" cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) {
  return cudaSuccess;
}
