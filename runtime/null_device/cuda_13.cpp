// The runtime's calls as CUDA 13 has them.
#include <cuda_runtime_api.h>

extern "C" cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                cudaStreamCaptureStatus* status,
                                                unsigned long long*, cudaGraph_t*,
                                                const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                                size_t*) {
  return cudaStreamIsCapturing(stream, status);
}
