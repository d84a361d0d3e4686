#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <cstddef>

#include "profiler/recorder/recorder.h"

namespace shardlens::profiler {

namespace {

// NVML comes with the driver, but its header comes with the toolkit, which nothing else here needs.
using NvmlDevice = void*;

struct NvmlMemory {
  unsigned version = sizeof(NvmlMemory) | 2U << 24;
  unsigned long long total = 0;
  unsigned long long reserved = 0;  // by the driver; cudaMemGetInfo leaves it out, too
  unsigned long long free = 0;
  unsigned long long used = 0;
};

/// The loaded NVML, which closes itself. Every function of NVML returns 0 if it succeeds.
class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    is_open_ = call("nvmlInit_v2") == 0;
  }
  ~Nvml() {
    if (is_open_) call("nvmlShutdown");
    if (library_ != nullptr) ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_open() const { return is_open_; }

  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    if (library_ == nullptr) return -1;
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    return function == nullptr ? -1 : function(arguments...);
  }

 private:
  void* library_;
  bool is_open_ = false;
};

}  // namespace

std::optional<int64_t> device_used_bytes(int device) {
  const Nvml nvml;
  std::array<char, 32> bus_id{};  // CUDA and NVML both name a GPU by it
  if (!nvml.is_open() ||
      cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), device) != cudaSuccess) {
    return std::nullopt;
  }
  NvmlDevice handle = nullptr;
  NvmlMemory memory;
  const char* name = bus_id.data();
  if (nvml.call("nvmlDeviceGetHandleByPciBusId_v2", name, &handle) != 0) return std::nullopt;
  if (nvml.call("nvmlDeviceGetMemoryInfo_v2", handle, &memory) != 0) return std::nullopt;
  return static_cast<int64_t>(memory.used);
}

}  // namespace shardlens::profiler
