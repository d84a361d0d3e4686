// Owns CUDA events and pinned memory, and frees them. For the .cpp files of device communicators;
// headers only forward-declare CUDA's types.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace shardlens::runtime {

inline void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + " failed: " + cudaGetErrorString(error));
}

/// Marks a place in a stream; the host can ask if the device has passed it.
class CudaEvent {
 public:
  CudaEvent() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cudaStream_t stream) {
    check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  void make_wait(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }
  /// True if the device has passed the place, or nothing was recorded yet. Throws
  /// std::runtime_error if earlier work on the device has failed.
  bool has_passed() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // else another caller's next check would see this error
      return false;
    }
    check_cuda(state, "work on the device");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Owns host memory that the device copies from and to while the host goes on.
class StagingMemory {
 public:
  StagingMemory() = default;
  explicit StagingMemory(size_t bytes) : size_bytes_(bytes) {
    check_cuda(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  }
  ~StagingMemory() { cudaFreeHost(data_); }
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(StagingMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size_bytes() const { return size_bytes_; }

 private:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace shardlens::runtime
