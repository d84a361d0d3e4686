// Answers NVML's calls from the driver's: the GPUs that CUDA has, in its order, without NVLink
// neighbours, fabric, MIG and processes, never busy. Python programs and Ray call it through
// ctypes, and call no other functions than these. LibTorch opens it by name, so no wheel lists the
// functions that it needs; if one of them is missing here, LibTorch uses none.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "profiler/null_device/null_device.h"

namespace {

/// Lists values of nvmlReturn_t.
enum { kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kTooSmall = 7 };

/// Mirrors nvmlGpuFabricInfoV_t; the state 0 says that there is no fabric.
struct FabricInfo {
  unsigned version;
  std::array<unsigned char, 16> cluster;
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
};

/// Mirrors nvmlMemory_t.
struct Memory {
  unsigned long long total, free, used;
};

/// Mirrors nvmlMemory_v2_t.
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

/// Mirrors nvmlPciInfo_t.
struct PciInfo {
  std::array<char, 16> legacy_bus_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

/// Mirrors nvmlUtilization_t.
struct Utilization {
  unsigned gpu, memory;
};

/// Holds what handles point to: the element of each GPU.
std::array<char, shardlens::profiler::kMaxNullGpus> handles;

int gpu_of(const void* handle) {
  return static_cast<int>(static_cast<const char*>(handle) - handles.data());
}

int gpus_there() {
  int count = 0;
  return cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

/// Gives the handle of a GPU, or returns `error` for any other number.
int give_handle(int gpu, void** handle, int error) {
  if (gpu < 0 || gpu >= gpus_there()) return error;
  *handle = &handles[static_cast<size_t>(gpu)];
  return kSuccess;
}

int give_text(const std::string& text, char* buffer, unsigned size) {
  if (text.size() >= size) return kTooSmall;
  std::memcpy(buffer, text.c_str(), text.size() + 1);
  return kSuccess;
}

/// Returns "GPU-" and the driver's UUID in groups of 8, 4, 4, 4 and 12 digits.
std::string uuid_text(int gpu) {
  CUuuid uuid{};
  cuDeviceGetUuid_v2(&uuid, gpu);
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits.data();
  }
  return text;
}

Memory memory_there() {
  size_t free = 0, total = 0;
  cuMemGetInfo(&free, &total);
  return {.total = total, .free = free, .used = total - free};
}

}  // namespace

extern "C" {

int nvmlInit() { return kSuccess; }
int nvmlInit_v2() { return kSuccess; }
int nvmlInitWithFlags(unsigned) { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlSystemGetCudaDriverVersion_v2(int*) { return kNotSupported; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus_there());
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  const unsigned most = shardlens::profiler::kMaxNullGpus;
  return give_handle(static_cast<int>(std::min(index, most)), device, kInvalidArgument);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  CUdevice gpu = 0;
  if (cuDeviceGetByPCIBusId(&gpu, bus_id) != CUDA_SUCCESS) return kNotFound;
  return give_handle(gpu, device, kNotFound);
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  int gpu = 0;
  while (gpu < gpus_there() && uuid_text(gpu) != uuid) ++gpu;
  return give_handle(gpu, device, kNotFound);
}

int nvmlDeviceGetIndex(const void* device, unsigned* index) {
  *index = static_cast<unsigned>(gpu_of(device));
  return kSuccess;
}

int nvmlDeviceGetName(const void* device, char* name, unsigned size) {
  std::array<char, 256> text{};
  cuDeviceGetName(text.data(), static_cast<int>(text.size()), gpu_of(device));
  return give_text(text.data(), name, size);
}

int nvmlDeviceGetUUID(const void* device, char* uuid, unsigned size) {
  return give_text(uuid_text(gpu_of(device)), uuid, size);
}

int nvmlDeviceGetPciInfo_v3(const void* device, PciInfo* info) {
  *info = {};
  info->bus = static_cast<unsigned>(gpu_of(device));
  std::array<char, 16> text{};
  cuDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), gpu_of(device));
  info->legacy_bus_id = text;
  const std::string with_long_domain = "0000" + std::string(text.data());
  return give_text(with_long_domain, info->bus_id.data(),
                   static_cast<unsigned>(info->bus_id.size()));
}

int nvmlDeviceGetMemoryInfo(const void*, Memory* memory) {
  *memory = memory_there();
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo_v2(const void*, MemoryV2* memory) {
  const Memory there = memory_there();
  *memory = {.version = memory->version,
             .total = there.total,
             .reserved = 0,
             .free = there.free,
             .used = there.used};
  return kSuccess;
}

int nvmlDeviceGetCudaComputeCapability(const void* device, int* major, int* minor) {
  const int gpu = gpu_of(device);
  cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu);
  cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu);
  return kSuccess;
}

int nvmlDeviceGetUtilizationRates(const void*, Utilization* rates) {
  *rates = {.gpu = 0, .memory = 0};
  return kSuccess;
}

int nvmlDeviceGetMigMode(const void*, unsigned*, unsigned*) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemoteDeviceType(const void*, unsigned, int*) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const void*, unsigned, void*) { return kNotSupported; }

int nvmlDeviceGetComputeRunningProcesses(const void*, unsigned* count, void*) {
  *count = 0;
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const void* device, unsigned* count, void* processes) {
  return nvmlDeviceGetComputeRunningProcesses(device, count, processes);
}

int nvmlDeviceGetGpuFabricInfoV(const void*, FabricInfo* info) {
  *info = {.version = info->version,
           .cluster = {},
           .status = kSuccess,
           .clique = 0,
           .state = 0,
           .health = 0};
  return kSuccess;
}

}  // extern "C"
