#include "runtime/execute/device.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "base/check.h"
#include "base/process/installation.h"
#include "base/units.h"
#include "models/torch_rules.h"
#include "planner/config/choices.h"
#include "profiler/null_device/null_device.h"
#include "profiler/recorder/recorder.h"

// Returns LibTorch's version. No other call does; this call's header includes much else.
extern "C" uint64_t aoti_torch_abi_version();

namespace shardlens::runtime {

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

bool is_on_stubs() { return ::dlsym(RTLD_DEFAULT, profiler::kNullDeviceMark) != nullptr; }

[[noreturn]] void start_anew(const std::vector<std::string>& arguments) {
  const std::string path = own_program().string();
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  throw std::runtime_error(
      fmt::format("{} could not be restarted: {}", path, std::strerror(errno)));
}

void load_libtorch_cuda() {
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  throw std::runtime_error(fmt::format(
      "LibTorch's CUDA libraries cannot be loaded ({}); install its NVIDIA wheels (make gpu), or "
      "give --device cpu",
      ::dlerror()));
}

}  // namespace

void check_libtorch_version() {
  const uint64_t loaded = aoti_torch_abi_version();
  if (loaded == TORCH_ABI_VERSION) return;
  throw std::runtime_error(
      fmt::format("LibTorch {}.{}.{} was loaded, but this program was built for {}; run make build",
                  loaded >> 56, loaded >> 48 & 0xff, loaded >> 40 & 0xff, TORCH_VERSION));
}

int count_gpus() {
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    ::_exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

void enter_null_device(const Device& device, const std::vector<std::string>& arguments) {
  if (is_on_stubs()) return;
  if (std::getenv(profiler::kNullDeviceEntered) != nullptr) {
    throw std::runtime_error(
        "the null device's libraries were preloaded but belong to another "
        "build; run make build");
  }
  if (device.capacity_bytes > profiler::kMostNullBytes) {
    throw std::invalid_argument(fmt::format("--capacity {}: a null device has {} at most",
                                            bytes_text(device.capacity_bytes),
                                            bytes_text(profiler::kMostNullBytes)));
  }
  put_first("LD_PRELOAD", preload_of(support_folder("null_device")));
  ::setenv(profiler::kNullGpuVariable, device.gpu.c_str(), 1);
  ::setenv(profiler::kNullDeviceEntered, "1", 1);
  if (device.capacity_bytes > 0) {
    ::setenv(profiler::kNullCapacityVariable, std::to_string(device.capacity_bytes).c_str(), 1);
  }
  start_anew(arguments);
}

c10::Device open_device(const Device& device, int index) {
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  load_libtorch_cuda();
  const c10::Device opened(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  at::globalContext().lazyInitDevice(c10::kCUDA);
  c10::cuda::set_device(opened.index());
  // cuDNN's choice of kernels is unknown before launch, so its memory could not be predicted.
  at::globalContext().setSDPUseCuDNN(false);
  return opened;
}

GpuUuid gpu_uuid(const c10::Device& device) {
  cudaDeviceProp properties{};
  const cudaError_t asked = cudaGetDeviceProperties(&properties, device.index());
  if (asked != cudaSuccess) {
    throw std::runtime_error(fmt::format("GPU {} does not report its UUID: {}; see nvidia-smi",
                                         static_cast<int>(device.index()),
                                         cudaGetErrorString(asked)));
  }
  GpuUuid uuid;
  static_assert(sizeof properties.uuid == sizeof uuid);
  std::memcpy(uuid.data(), &properties.uuid, sizeof uuid);
  return uuid;
}

void take_workspaces(const c10::Device& device) {
  const bool are_kept =
      models::own_torch_rules().blas_workspaces != models::BlasWorkspaces::by_product;
  if (!device.is_cuda() || !are_kept) return;
  const profiler::Scope scope(profiler::Category::workspace, "cuBLAS");
  const at::Tensor matrix = at::zeros({16, 16}, at::TensorOptions(device));
  at::linear(matrix, matrix, matrix[0]);  // by cuBLASLt
  at::mm(matrix, matrix);
}

void describe_device(const c10::Device& device, profiler::Header& header) {
  header.libraries = fmt::format("LibTorch {}\n", TORCH_VERSION);
  if (!device.is_cuda()) return;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) return;
  int driver = 0;
  cudaDriverGetVersion(&driver);
  header.gpu = properties.name;
  header.capacity_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  header.libraries += fmt::format("CUDA runtime {}\nCUDA driver {}\n", CUDART_VERSION, driver);
}

void choose_attention(planner::AttentionChoice choice) {
  using enum planner::AttentionChoice;
  at::Context& context = at::globalContext();
  context.setSDPUseFlash(allows(choice, flash));
  context.setSDPUseMemEfficient(allows(choice, efficient));
  context.setSDPUseMath(allows(choice, math));
}

void keep_backward_on_this_thread() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

std::optional<MemoryPeak> memory_peak(const c10::Device& device) {
  if (!device.is_cuda()) return std::nullopt;
  const auto stats = allocator::getDeviceStats(device.index());
  // We use no block on a stream other than its own (streams.h), so the allocator never holds back
  // a freed block.
  check(stats.active_bytes[kAll].peak == stats.allocated_bytes[kAll].peak,
        "the allocator delayed a free");
  return MemoryPeak{.allocated_bytes = stats.allocated_bytes[kAll].peak,
                    .reserved_bytes = stats.reserved_bytes[kAll].peak};
}

int64_t allocation_retries(const c10::Device& device) {
  return device.is_cuda() ? allocator::getDeviceStats(device.index()).num_alloc_retries : 0;
}

void reset_memory_peak(const c10::Device& device) {
  if (device.is_cuda()) allocator::resetPeakStats(device.index());
}

}  // namespace shardlens::runtime
