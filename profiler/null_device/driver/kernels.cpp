// Defines the driver's calls that ask what a kernel needs and what a context allows. Kernels are
// loaded and launched in modules.cpp.
#include <cuda.h>

#include "profiler/null_device/driver/driver.h"

std::atomic<bool (*)(CUstream)> shardlens_null_is_captured{nullptr};

extern "C" {

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;  // devices do not differ
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const auto is_captured = shardlens_null_is_captured.load();
  *status = is_captured != nullptr && is_captured(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                          : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute name, CUfunction) {
  switch (name) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;  // few enough that a multiprocessor can be full of threads
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* value, CUlimit) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }

}  // extern "C"
