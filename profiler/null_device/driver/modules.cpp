// Defines the driver's calls that load modules and launch their kernels. Every module has every
// kernel, and a launch does nothing. If a module describes a kernel's parameters
// (kernel_parameters.h), the observer of kernels learns which device memory a launch is given.
#include <cuda.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "profiler/null_device/driver/device_memory.h"
#include "profiler/null_device/driver/kernel_parameters.h"
#include "profiler/null_device/driver/known_memory.h"

namespace shardlens::profiler {

namespace {

using Kernels = std::map<std::string, ParameterSizes>;

/// Stands for a kernel whose parameters are not known.
int unknown_kernel = 0;

/// Appends the device addresses among the words of an argument, which may be a structure.
void append_addresses(std::vector<uint64_t>& addresses, const void* argument, size_t bytes) {
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(argument) + at, sizeof word);
    if (DeviceMemory::is_device_address(word)) addresses.push_back(word);
  }
}

/// Holds the loaded modules. A CUmodule points to a `Kernels`, a CUfunction to a kernel's parameter
/// sizes in it. All threads may call.
class Modules {
 public:
  CUmodule load(Kernels kernels) {
    const std::lock_guard lock(mutex_);
    auto loaded = std::make_unique<Kernels>(std::move(kernels));
    const auto module = reinterpret_cast<CUmodule>(loaded.get());
    for (const auto& [_, sizes] : *loaded) functions_[function_of(sizes)] = sizes;
    modules_[module] = std::move(loaded);
    return module;
  }

  void unload(CUmodule module) {
    const std::lock_guard lock(mutex_);
    const auto found = modules_.find(module);
    if (found == modules_.end()) return;
    for (const auto& [_, sizes] : *found->second) functions_.erase(function_of(sizes));
    modules_.erase(found);
  }

  CUfunction find(CUmodule module, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = modules_.find(module);
    if (found == modules_.end()) return reinterpret_cast<CUfunction>(&unknown_kernel);
    const auto kernel = found->second->find(name);
    return kernel == found->second->end() ? reinterpret_cast<CUfunction>(&unknown_kernel)
                                          : function_of(kernel->second);
  }

  /// Returns the device addresses that a launch is given, or nothing if they cannot be known.
  std::optional<std::vector<uint64_t>> addresses_given(CUfunction function, void** arguments) {
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(function);
    if (found == functions_.end()) return std::nullopt;
    const ParameterSizes& sizes = found->second;
    if (arguments == nullptr && !sizes.empty()) return std::nullopt;
    std::vector<uint64_t> addresses;
    for (size_t i = 0; i < sizes.size(); ++i) append_addresses(addresses, arguments[i], sizes[i]);
    return addresses;
  }

 private:
  static CUfunction function_of(const ParameterSizes& sizes) {
    return reinterpret_cast<CUfunction>(const_cast<ParameterSizes*>(&sizes));
  }

  std::mutex mutex_;
  std::unordered_map<CUmodule, std::unique_ptr<Kernels>> modules_;
  std::unordered_map<CUfunction, ParameterSizes> functions_;
};

/// Returns the loaded modules, which are never destroyed: a program's last launches may come late.
Modules& modules() {
  static auto& all = *new Modules;
  return all;
}

CUresult load(CUmodule* module, const void* image, size_t bytes) {
  *module = modules().load(parameters_of_kernels({static_cast<const std::byte*>(image), bytes}));
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, void** arguments) {
  if (shardlens_null_known_memory() == nullptr) return CUDA_SUCCESS;
  const auto addresses = modules().addresses_given(function, arguments);
  if (addresses) {
    shardlens_null_launched_with(addresses->data(), addresses->size());
  } else {
    shardlens_null_launched();
  }
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace shardlens::profiler

using namespace shardlens;
using namespace shardlens::profiler;

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return load(module, image, bytes_of_elf(image));
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  return load(module, image.data(), image.size());
}

CUresult cuModuleUnload(CUmodule module) {
  modules().unload(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  *function = modules().find(module, name);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream, void** arguments, void**) {
  return launch(function, arguments);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction function, void** arguments, void**) {
  return launch(function, arguments);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, unsigned, CUstream, void** arguments) {
  return launch(function, arguments);
}

/// Writes the address that a kernel reaches through the descriptor where a launch looks for it.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void* address,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  *map = {};
  map->opaque[0] = reinterpret_cast<cuuint64_t>(address);
  return CUDA_SUCCESS;
}

}  // extern "C"
