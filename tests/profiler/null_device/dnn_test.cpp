// Tests the stub of cuDNN by itself and in front of a libcudnn_graph that reports what it is asked
// (tests/support/programs/scripted_cudnn.cpp). Each case needs its own process: the stub keeps what
// it has found. NVIDIA's own cuDNN is tested by tests/profiler/record/cudnn_cases.py.
#include <dlfcn.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "profiler/null_device/libraries/dnn_graph.h"
#include "profiler/null_device/libraries/nvrtc.h"

// Not every machine has the headers of cuDNN, NVRTC or the driver.
extern "C" {
size_t cudnnGetVersion();
int cudnnGetProperty(int property, int* value);
int cudnnCreate(void** handle);
int cudnnDestroy(void* handle);
int cudnnSetStream(void* handle, void* stream);
int cudnnGetStream(void* handle, void** stream);
int cudnnBackendCreateDescriptor(int type, void** descriptor);
int cudnnBackendDestroyDescriptor(void* descriptor);
int cudnnBackendSetAttribute(void*, int attribute, int type, int64_t count, const void* values);
int cudnnBackendGetAttribute(void*, int attribute, int, int64_t, int64_t* count, void* values);
int cudnnBackendFinalize(void* descriptor);
int cudnnBackendExecute(void* handle, void* plan, void* values);
int nvrtcCompileProgram(void* program, int count, const char* const* options);
int cuInit(unsigned flags);
}

namespace {

constexpr int kNotSupported = 3000;

// Descriptors and attributes, as cudnn_graph.h numbers them.
constexpr int kEngine = 2, kEngineHeuristics = 4, kPlan = 5, kOperationGraph = 15;
constexpr int kGraphHandle = 800, kPlanHandle = 400, kPlanWorkspace = 402, kHeuristicsMode = 200;
constexpr int kHandleType = 0, kInt64Type = 3;

template <class Function>
Function* scripted(const char* name) {
  void* const library = ::dlopen(SHARDLENS_SCRIPTED_CUDNN, RTLD_LAZY | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

std::string text_of(const char* name) { return scripted<const char*()>(name)(); }

void find_cudnn() { REQUIRE(std::string(shardlens_null_cudnn(SHARDLENS_SCRIPTED_CUDNN)).empty()); }

void* finalised(int type, int attribute, int attribute_type) {
  void* descriptor = nullptr;
  REQUIRE(cudnnBackendCreateDescriptor(type, &descriptor) == 0);
  const int64_t value = 0;
  REQUIRE(cudnnBackendSetAttribute(descriptor, attribute, attribute_type, 1, &value) == 0);
  cudnnBackendFinalize(descriptor);
  return descriptor;
}

TEST_CASE("without NVIDIA's cuDNN no graph is supported") {
  void* descriptor = &descriptor;
  CHECK(cudnnBackendCreateDescriptor(kPlan, &descriptor) == kNotSupported);
  CHECK(descriptor == nullptr);
  CHECK(cudnnBackendFinalize(nullptr) == kNotSupported);
  CHECK(cudnnBackendExecute(nullptr, nullptr, nullptr) == kNotSupported);
  CHECK(std::string(shardlens_null_cudnn_fault()).empty());
}

TEST_CASE("handles of cuDNN know their stream, and the version its parts") {
  void* handle = nullptr;
  REQUIRE(cudnnCreate(&handle) == 0);
  int there = 0;
  CHECK(cudnnSetStream(handle, &there) == 0);
  void* stream = nullptr;
  CHECK(cudnnGetStream(handle, &stream) == 0);
  CHECK(stream == &there);
  CHECK(cudnnDestroy(handle) == 0);
  find_cudnn();
  std::array<int, 3> version{};
  for (int property = 0; property < 3; ++property) {
    CHECK(cudnnGetProperty(property, &version.at(static_cast<size_t>(property))) == 0);
  }
  CHECK(version == std::array{9, 26, 0});
  CHECK(cudnnGetVersion() == 92600);
}

TEST_CASE("cuDNN's graphs learn the device in place of a handle") {
  find_cudnn();
  const std::string before = text_of("scripted_cudnn_calls");
  CHECK(before == "38.2702 38! ");
  finalised(kOperationGraph, kGraphHandle, kHandleType);
  finalised(kEngineHeuristics, kHeuristicsMode, kInt64Type);
  void* const engine = finalised(kEngine, 1301, kInt64Type);
  void* const plan = finalised(kPlan, kPlanHandle, kHandleType);
  CHECK(text_of("scripted_cudnn_calls").substr(before.size()) ==
        "15! "                // the graph's handle is left out
        "4.200 4.204=38 4! "  // heuristics get the device when they are complete
        "2.1301 2.1307=38 2! "
        "5.407=38 5! ");  // a plan's handle is replaced
  int64_t count = 0;
  int64_t bytes = 0;
  CHECK(cudnnBackendGetAttribute(plan, kPlanWorkspace, kInt64Type, 1, &count, &bytes) == 0);
  CHECK(bytes == kPlanWorkspace);  // cuDNN's own answer
  CHECK(cudnnBackendExecute(nullptr, plan, nullptr) == 0);
  CHECK(cudnnBackendDestroyDescriptor(engine) == 0);
  CHECK(std::string(shardlens_null_cudnn_fault()).empty());
}

TEST_CASE("cuDNN learns the device that is named") {
  ::setenv("SHARDLENS_NULL_GPU", "a100-80", 1);
  find_cudnn();
  const auto device = nlohmann::json::parse(text_of("scripted_cudnn_device"));
  const std::set<std::string> expected = {"maxGridSize",
                                          "maxBlockSize",
                                          "regsPerBlock",
                                          "multiProcessorCount",
                                          "smCountOrigin",
                                          "warpSize",
                                          "maxSharedMemoryPerBlock",
                                          "maxSharedMemoryPerBlockOptin",
                                          "reservedSharedMemoryPerBlock",
                                          "oversizedSharedMemoryPerBlock",
                                          "maxRegistersPerSM",
                                          "maxCtasPerSM",
                                          "maxThreadsPerBlock",
                                          "maxThreadsPerSM",
                                          "pciDeviceId",
                                          "isTccDriver",
                                          "supportCoopLaunch",
                                          "totalGlobalMem",
                                          "smClockRateKHz",
                                          "memClockRateKHz",
                                          "l2CacheSize",
                                          "cudaDeviceId",
                                          "deviceVer",
                                          "driverVer",
                                          "deviceName"};
  std::set<std::string> found;
  for (const auto& [name, value] : device.items()) found.insert(name);
  CHECK(found == expected);
  CHECK(device.at("deviceVer") == 800);
  CHECK(device.at("multiProcessorCount") == 108);
  CHECK(device.at("maxSharedMemoryPerBlockOptin") == 166912);
  CHECK(device.at("maxThreadsPerSM") == 2048);
  CHECK(device.at("maxGridSize") == nlohmann::json{2147483647, 65535, 65535});
}

TEST_CASE("a cuDNN that cannot plan without a device is refused") {
  ::setenv("SCRIPTED_CUDNN_VERSION", "90700", 1);
  CHECK(std::string(shardlens_null_cudnn(SHARDLENS_SCRIPTED_CUDNN)).starts_with("cuDNN 90700 "));
  void* descriptor = nullptr;
  CHECK(cudnnBackendCreateDescriptor(kPlan, &descriptor) == kNotSupported);
}

TEST_CASE("a missing cuDNN is refused") {
  CHECK(std::string(shardlens_null_cudnn("/nowhere/libcudnn_graph.so.9")).starts_with("/nowhere/"));
  CHECK(cudnnBackendExecute(nullptr, nullptr, nullptr) == kNotSupported);
}

TEST_CASE("a plan that fails because something is missing here is a fault") {
  ::setenv("SCRIPTED_CUDNN_PLAN", "5001", 1);
  find_cudnn();
  finalised(kPlan, kPlanHandle, kHandleType);
  CHECK(std::string(shardlens_null_cudnn_fault()) ==
        "cuDNN gave up a kernel: 5001 SCRIPTED_STATUS: a reason");
}

TEST_CASE("a plan that a GPU would not support either is not a fault") {
  ::setenv("SCRIPTED_CUDNN_PLAN", "3000", 1);
  find_cudnn();
  finalised(kPlan, kPlanHandle, kHandleType);
  CHECK(std::string(shardlens_null_cudnn_fault()).empty());
}

TEST_CASE("cuDNN finds no device where others do, and really compiles") {
  constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
  constexpr int kInternalError = 11;
  find_cudnn();
  CHECK(cuInit(0) == 0);
  CHECK(scripted<int()>("scripted_cudnn_init")() == kNoDevice);
  const auto compile = scripted<int(const char*)>("scripted_cudnn_compile");
  CHECK(compile(SHARDLENS_NULL_NVRTC) == kInternalError);  // never as if it had compiled
  CHECK(std::string(shardlens_null_nvrtc(SHARDLENS_SCRIPTED_NVRTC)).empty());
  CHECK(compile(SHARDLENS_NULL_NVRTC) == 42);
  CHECK(nvrtcCompileProgram(nullptr, 0, nullptr) == 0);
}

}  // namespace
