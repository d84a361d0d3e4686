// Answers NVML's calls: one device without NVLink neighbours, fabric and other processes. LibTorch
// loads the library by its name, so no wheel says what it imports from it; without it, LibTorch
// 2.15 calls null pointers when an expandable segment grows. Each of these functions must exist, or
// LibTorch takes none.
#include <array>

extern "C" {

/// Lists values of nvmlReturn_t.
enum { kNvmlSuccess = 0, kNvmlNotSupported = 3 };

/// Mirrors nvmlGpuFabricInfoV_t; the state 0 says that there is no fabric.
struct NvmlFabricInfo {
  unsigned version;
  std::array<unsigned char, 16> cluster;
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
};

int nvmlInit_v2() { return kNvmlSuccess; }

int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
  static char only_device;
  *device = &only_device;
  return kNvmlSuccess;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return kNvmlNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNvmlNotSupported; }

int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return kNvmlSuccess;
}

int nvmlSystemGetCudaDriverVersion_v2(int*) { return kNvmlNotSupported; }

int nvmlDeviceGetGpuFabricInfoV(void*, NvmlFabricInfo* info) {
  *info = {.version = info->version,
           .cluster = {},
           .status = kNvmlSuccess,
           .clique = 0,
           .state = 0,
           .health = 0};
  return kNvmlSuccess;
}

}  // extern "C"
