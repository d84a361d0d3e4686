// Defines the runtime's calls on errors.
#include "profiler/null_device/cudart/errors.h"

#include <cuda_runtime_api.h>

#include <utility>

namespace shardlens::profiler {

namespace {

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

}  // namespace

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error() = error;
  return error;
}

cudaError_t result(CUresult error) {
  switch (error) {
    case CUDA_SUCCESS:
      return cudaSuccess;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return result(cudaErrorMemoryAllocation);
    case CUDA_ERROR_INVALID_VALUE:
      return result(cudaErrorInvalidValue);
    case CUDA_ERROR_INVALID_DEVICE:
      return result(cudaErrorInvalidDevice);
    case CUDA_ERROR_NOT_SUPPORTED:
      return result(cudaErrorNotSupported);
    case CUDA_ERROR_NOT_INITIALIZED:
      return result(cudaErrorInitializationError);
    default:
      return result(cudaErrorUnknown);
  }
}

}  // namespace shardlens::profiler

using shardlens::profiler::last_error;

extern "C" {

cudaError_t cudaPeekAtLastError() { return last_error(); }

cudaError_t cudaGetLastError() { return std::exchange(last_error(), cudaSuccess); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorInitializationError:
      return "cudaErrorInitializationError";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  CUresult as_driver = CUDA_ERROR_UNKNOWN;
  switch (error) {
    case cudaSuccess:
      as_driver = CUDA_SUCCESS;
      break;
    case cudaErrorMemoryAllocation:
      as_driver = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    case cudaErrorInvalidValue:
      as_driver = CUDA_ERROR_INVALID_VALUE;
      break;
    case cudaErrorNotSupported:
      as_driver = CUDA_ERROR_NOT_SUPPORTED;
      break;
    case cudaErrorInitializationError:
      as_driver = CUDA_ERROR_NOT_INITIALIZED;
      break;
    case cudaErrorInvalidResourceHandle:
      return "a stream or event that does not exist";
    case cudaErrorInvalidDevice:
      return "there is no null device of that number; record --gpus-per-node N, or "
             "SHARDLENS_NULL_GPUS, "
             "says how many there are";
    default:
      break;
  }
  const char* text = "";
  cuGetErrorString(as_driver, &text);
  return text;
}

}  // extern "C"
