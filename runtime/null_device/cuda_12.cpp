// The runtime's calls as CUDA 12 has them. Its header gives some of them other names (_v2).
#include <cuda_runtime_api.h>

extern "C" {

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**,
                                     size_t*) {
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, found);
}

}  // extern "C"
