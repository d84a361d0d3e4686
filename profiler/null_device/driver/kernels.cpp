// Defines the driver's calls that ask what a kernel needs and what a context allows. Kernels are
// loaded and launched in modules.cpp.
#include <cuda.h>

#include "profiler/null_device/driver/driver.h"
#include "profiler/null_device/driver/work_feed.h"

std::atomic<uint64_t (*)(CUstream)> shardlens_null_captures{nullptr};
std::atomic<shardlens::profiler::WorkObserver*> shardlens_null_work_observer{nullptr};
std::atomic<bool (*)()> shardlens_null_predicts_elapsed{nullptr};

extern "C" {

void shardlens_null_ask_for_elapsed(bool (*predicts)()) {
  shardlens_null_predicts_elapsed.store(predicts);
}

uint64_t shardlens_null_capture_of(const void* stream) {
  const auto captures = shardlens_null_captures.load();
  return captures == nullptr ? 0 : captures(static_cast<CUstream>(const_cast<void*>(stream)));
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;  // devices do not differ
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = shardlens_null_capture_of(stream) != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
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
