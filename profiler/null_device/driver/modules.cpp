// Defines the driver's calls that load modules and launch their kernels. Every module has every
// kernel, and a launch does nothing. If a module describes a kernel's parameters
// (kernel_parameters.h), the observer of kernels learns which device memory a launch is given. The
// observer of work (work_feed.h) learns of each launch.
#include <cuda.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/null_device/driver/device_memory.h"
#include "profiler/null_device/driver/kernel_parameters.h"
#include "profiler/null_device/driver/known_memory.h"
#include "profiler/null_device/driver/work_feed.h"

namespace shardlens::profiler {

namespace {

using KernelSizes = std::map<std::string, ParameterSizes>;

/// A kernel of a module. Its sizes are unknown if the module does not describe its parameters, and
/// so is its name if it comes from elsewhere.
struct Kernel {
  const char* name = nullptr;
  std::optional<ParameterSizes> sizes;
};

/// Appends the device addresses among the words of an argument, which may be a structure.
void append_addresses(std::vector<uint64_t>& addresses, const void* argument, size_t bytes) {
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(argument) + at, sizeof word);
    if (DeviceMemory::is_device_address(word)) addresses.push_back(word);
  }
}

/// Holds the loaded modules. A CUmodule points to a `Module`, a CUfunction to a kernel. Both are
/// kept when a module is unloaded: they are few and small, and their names outlive them. All
/// threads may call.
class Modules {
 public:
  CUmodule load(KernelSizes described) {
    const std::lock_guard lock(mutex_);
    auto loaded = std::make_unique<Module>(Module{std::move(described), {}});
    const auto module = reinterpret_cast<CUmodule>(loaded.get());
    modules_[module] = std::move(loaded);
    return module;
  }

  CUfunction find(CUmodule module, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto loaded = modules_.find(module);
    Module& of = loaded == modules_.end() ? unknown_ : *loaded->second;
    const auto [found, is_new] = of.kernels.try_emplace(name);
    Kernel& kernel = found->second;
    const auto function = reinterpret_cast<CUfunction>(&kernel);
    if (!is_new) return function;
    kernel.name = found->first.c_str();
    const auto sizes = of.described.find(name);
    if (sizes != of.described.end()) kernel.sizes = sizes->second;
    kernels_[function] = &kernel;
    return function;
  }

  const Kernel& kernel(CUfunction function) {
    static const Kernel kUnknown;
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(function);
    return found == kernels_.end() ? kUnknown : *found->second;
  }

 private:
  struct Module {
    KernelSizes described;
    std::map<std::string, Kernel> kernels;
  };

  std::mutex mutex_;
  std::unordered_map<CUmodule, std::unique_ptr<Module>> modules_;
  std::unordered_map<CUfunction, const Kernel*> kernels_;
  Module unknown_;  // stands for a module that was not loaded here
};

/// Returns the device addresses that a launch is given, or nothing if they cannot be known.
std::optional<std::vector<uint64_t>> addresses_given(const Kernel& kernel, void** arguments) {
  if (!kernel.sizes || (arguments == nullptr && !kernel.sizes->empty())) return std::nullopt;
  std::vector<uint64_t> addresses;
  for (size_t i = 0; i < kernel.sizes->size(); ++i) {
    append_addresses(addresses, arguments[i], (*kernel.sizes)[i]);
  }
  return addresses;
}

/// Returns the loaded modules, which are never destroyed: a program's last launches may come late.
Modules& modules() {
  static auto& all = *new Modules;
  return all;
}

CUresult load(CUmodule* module, const void* image, size_t bytes) {
  *module = modules().load(parameters_of_kernels({static_cast<const std::byte*>(image), bytes}));
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, const Launch& launch, CUstream stream, void** arguments) {
  const Kernel& kernel = modules().kernel(function);
  tell_work([&] {
    return WorkRequest{.work = {.kind = WorkKind::kernel, .launch = launch},
                       .name = kernel.name,
                       .stream = stream};
  });
  if (shardlens_null_known_memory() == nullptr) return CUDA_SUCCESS;
  const auto addresses = addresses_given(kernel, arguments);
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

CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  *function = modules().find(module, name);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** arguments, void**) {
  return launch(function,
                {.grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .shared_bytes = shared_bytes},
                stream, arguments);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void** extra) {
  return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                        config->blockDimX, config->blockDimY, config->blockDimZ,
                        config->sharedMemBytes, config->hStream, arguments, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void** arguments) {
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                        stream, arguments, nullptr);
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
