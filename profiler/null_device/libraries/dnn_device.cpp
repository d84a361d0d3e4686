#include "profiler/null_device/libraries/dnn_device.h"

#include <cuda.h>

#include <array>
#include <sstream>

namespace shardlens::profiler {

namespace {

struct Field {
  const char* name;
  CUdevice_attribute attribute;
};

/// Lists the fields that are attributes of the device. Clocks are unknown, so they are 0: cuDNN was
/// seen to make the same choices with any clock.
constexpr std::array kFields = {
    Field{"regsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    Field{"multiProcessorCount", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    Field{"warpSize", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    Field{"maxSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    Field{"maxSharedMemoryPerBlockOptin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    Field{"reservedSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
    Field{"maxRegistersPerSM", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    Field{"maxCtasPerSM", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    Field{"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    Field{"maxThreadsPerSM", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    Field{"pciDeviceId", CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    Field{"isTccDriver", CU_DEVICE_ATTRIBUTE_TCC_DRIVER},
    Field{"supportCoopLaunch", CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
    Field{"smClockRateKHz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    Field{"memClockRateKHz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    Field{"l2CacheSize", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
};

int attribute(CUdevice_attribute name) {
  int value = 0;
  cuDeviceGetAttribute(&value, name, 0);
  return value;
}

std::string three(CUdevice_attribute x, CUdevice_attribute y, CUdevice_attribute z) {
  std::ostringstream text;
  text << "[" << attribute(x) << ", " << attribute(y) << ", " << attribute(z) << "]";
  return text.str();
}

std::string grid() {
  return three(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
               CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
}

std::string block() {
  return three(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
               CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
}

}  // namespace

std::string device_properties_json() {
  std::array<char, 256> name{};
  if (cuDeviceGetName(name.data(), static_cast<int>(name.size()), 0) != CUDA_SUCCESS) return {};
  size_t memory_bytes = 0;
  cuDeviceTotalMem(&memory_bytes, 0);
  int driver = 0;
  cuDriverGetVersion(&driver);
  const int capability = 100 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                         10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  std::ostringstream json;
  json << R"({"maxGridSize": )" << grid() << R"(, "maxBlockSize": )" << block();
  for (const Field& field : kFields) {
    json << ", \"" << field.name << "\": " << attribute(field.attribute);
  }
  json << R"(, "smCountOrigin": 0, "oversizedSharedMemoryPerBlock": 0, "cudaDeviceId": 0)"
       << R"(, "totalGlobalMem": )" << memory_bytes << R"(, "deviceVer": )" << capability
       << R"(, "driverVer": )" << driver << R"(, "deviceName": ")" << name.data() << "\"}";
  return json.str();
}

}  // namespace shardlens::profiler
