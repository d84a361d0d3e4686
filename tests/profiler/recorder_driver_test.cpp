// Tests what the driver watch makes of CUPTI's callbacks and refusals, on a scripted CUPTI. The
// test with LibTorch and a driver that accounts for its memory is
// tests/profiler/null_device/driver_watch_test.cpp.
#include "profiler/recorder/driver.h"

#include <cuda.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "tests/support/process.h"
#include "tests/support/programs/scripted_cupti.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using profiler::DriverChange;
using profiler::DriverWatch;
using tests::scripted_cupti;

namespace {

struct LoggedChange {
  bool given = false;
  bool is_pinned_host = false;
  uint64_t address = 0;
  int64_t bytes = 0;
  bool operator==(const LoggedChange&) const = default;
};

std::ostream& operator<<(std::ostream& out, const LoggedChange& told) {
  return out << (told.given ? "+" : "-") << (told.is_pinned_host ? "pinned " : "") << told.address
             << ":" << told.bytes;
}

using Log = std::vector<LoggedChange>;

DriverWatch::Sink log_sink(Log& log) {
  return [&log](const DriverChange& change) {
    log.push_back({change.given, change.is_pinned_host, change.address, change.bytes});
  };
}

template <class Parameters>
void call(CUpti_CallbackId id, const Parameters& parameters, CUresult result = CUDA_SUCCESS,
          const std::function<void()>& during = {}) {
  const auto& cupti = scripted_cupti();
  REQUIRE(cupti.callback != nullptr);
  CHECK(cupti.enabled.contains(id));
  tests::driver_call(cupti.callback, cupti.data, id, &parameters, result, during);
}

void allocate(CUdeviceptr address, size_t bytes, CUresult result = CUDA_SUCCESS) {
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, bytes}, result);
}

void give_back(CUdeviceptr address, CUresult result = CUDA_SUCCESS,
               const std::function<void()>& during = {}) {
  call(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{address}, result, during);
}

void create(CUmemGenericAllocationHandle handle, size_t bytes, CUmemLocationType where) {
  CUmemAllocationProp properties{};
  properties.location.type = where;
  call(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, cuMemCreate_params{&handle, bytes, &properties, 0});
}

void retain(CUmemGenericAllocationHandle handle) {
  call(CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle,
       cuMemRetainAllocationHandle_params{&handle, nullptr});
}

void release(CUmemGenericAllocationHandle handle) {
  call(CUPTI_DRIVER_TRACE_CBID_cuMemRelease, cuMemRelease_params{handle});
}

Problem reason() {
  return DriverWatch([](const DriverChange&) {}).unavailable_reason();
}

/// The output of print_driver_watch, started with these variables.
std::string printed(std::vector<std::string> variables) {
  std::vector<std::string> command = {"/usr/bin/env", "-u", "LD_LIBRARY_PATH", "-u", "LD_PRELOAD"};
  command.insert(command.end(), variables.begin(), variables.end());
  command.emplace_back(SHARDLENS_PRINT_DRIVER_WATCH);
  const tests::ProcessEnd ended = tests::run(command);
  INFO(ended.out << ended.err);
  REQUIRE(ended.exit_code == 0);
  REQUIRE(ended.out.ends_with('\n'));
  CHECK(ended.out.find('\n') == ended.out.size() - 1);
  return ended.out.substr(0, ended.out.size() - 1);
}

bool has_driver() { return std::filesystem::exists("/proc/driver/nvidia/version"); }

}  // namespace

TEST_CASE("every way to ask the driver for device memory is reported, with its bytes") {
  Log log;
  const DriverWatch watch(log_sink(log));
  REQUIRE(watch.is_watching());
  CHECK(watch.not_watched().empty());
  CHECK(scripted_cupti().subscriber == "shardlens");
  CUdeviceptr at = 4096;
  size_t pitch = 512;
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&at, 1});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2,
       cuMemAllocPitch_v2_params{&at, &pitch, 500, 3, 4});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged, cuMemAllocManaged_params{&at, 3, 0});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, cuMemAllocAsync_params{&at, 4, nullptr});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz, cuMemAllocAsync_ptsz_params{&at, 5, nullptr});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync,
       cuMemAllocFromPoolAsync_params{&at, 6, nullptr, nullptr});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz,
       cuMemAllocFromPoolAsync_ptsz_params{&at, 7, nullptr, nullptr});
  create(4096, 8, CU_MEM_LOCATION_TYPE_DEVICE);
  Log expected;
  for (const int64_t bytes : {1, 512 * 3, 3, 4, 5, 6, 7, 8}) {
    expected.push_back({.given = true, .address = 4096, .bytes = bytes});
  }
  CHECK(log == expected);
}

TEST_CASE("every way to ask the driver for pinned host memory is reported as such") {
  Log log;
  const DriverWatch watch(log_sink(log));
  int memory = 0;
  void* at = &memory;
  call(CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, cuMemHostAlloc_params{&at, 1, 0});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc_v2, cuMemHostAlloc_params{&at, 2, 0});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2, cuMemAllocHost_v2_params{&at, 3});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost, cuMemFreeHost_params{at});
  create(7, 4, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  release(7);
  const auto address = reinterpret_cast<uint64_t>(at);
  CHECK(log == Log{{true, true, address, 1},
                   {true, true, address, 2},
                   {true, true, address, 3},
                   {false, true, address, 3},
                   {true, true, 7, 4},
                   {false, true, 7, 4}});
}

TEST_CASE("memory that is freed is reported once, with the bytes of its allocation") {
  Log log;
  const DriverWatch watch(log_sink(log));
  for (const CUdeviceptr at : {10, 20, 30}) allocate(at, at * 100);
  log.clear();
  give_back(10);
  call(CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync, cuMemFreeAsync_params{20, nullptr});
  call(CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz, cuMemFreeAsync_ptsz_params{30, nullptr});
  CHECK(log == Log{{false, false, 10, 1000}, {false, false, 20, 2000}, {false, false, 30, 3000}});
}

TEST_CASE("memory allocated before the watch is freed with no bytes, if at all") {
  Log log;
  const DriverWatch watch(log_sink(log));
  give_back(0);  // what the runtime's cudaFree(nullptr) may become
  give_back(10, CUDA_ERROR_INVALID_VALUE);
  CHECK(log.empty());
  give_back(10);
  CHECK(log == Log{{false, false, 10, 0}});
}

TEST_CASE("an allocation that the driver refuses is not reported") {
  Log log;
  const DriverWatch watch(log_sink(log));
  allocate(10, 1000, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(log.empty());
}

TEST_CASE("a handle's memory is freed with its last release") {
  Log log;
  const DriverWatch watch(log_sink(log));
  create(7, 4096, CU_MEM_LOCATION_TYPE_DEVICE);
  retain(7);
  retain(8);  // a peer's, imported
  release(7);
  CHECK(log == Log{{true, false, 7, 4096}});
  release(7);
  CHECK(log == Log{{true, false, 7, 4096}, {false, false, 7, 4096}});
}

TEST_CASE("an address handed out again before its free has returned is reported in order") {
  Log log;
  const DriverWatch watch(log_sink(log));
  allocate(10, 1);
  give_back(10, CUDA_SUCCESS, [] { std::jthread([] { allocate(10, 2); }); });
  give_back(10);
  CHECK(log == Log{{true, false, 10, 1},
                   {false, false, 10, 1},
                   {true, false, 10, 2},
                   {false, false, 10, 2}});
}

TEST_CASE("the program itself may have asked") {
  std::string library;
  const DriverWatch watch([&](const DriverChange& change) { library = change.library; });
  allocate(10, 1);
  CHECK(library == "recorder_tests");
}

TEST_CASE("functions that a CUPTI cannot watch are left out and named") {
  scripted_cupti().refuses = [](CUpti_CallbackId id) {
    return id == CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc_v2;
  };
  Log log;
  const DriverWatch watch(log_sink(log));
  CHECK(watch.is_watching());
  CHECK(watch.not_watched() == std::vector<std::string>{"cuMemHostAlloc_v2"});
  allocate(10, 1);
  CHECK(log.size() == 1);
  scripted_cupti() = {};
}

TEST_CASE("if CUPTI cannot be used, a line gives the reason") {
  scripted_cupti().version = 120900;
  CHECK(reason() == "CUPTI unavailable: version 12.9.0, but 13.0.1 or a later 13 is needed");
  scripted_cupti().version = 130000;
  CHECK(reason() == "CUPTI unavailable: version 13.0.0, but 13.0.1 or a later 13 is needed");
  scripted_cupti().version = 140000;
  CHECK(reason() == "CUPTI unavailable: version 14.0.0, but 13.0.1 or a later 13 is needed");
  scripted_cupti().version = 130400;
  CHECK_FALSE(reason());

  scripted_cupti().subscribing = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  scripted_cupti().other_subscriber = "Nsight Systems";
  CHECK(reason() ==
        "CUPTI unavailable: \"Nsight Systems\" is attached to it, and it serves one at a time: "
        "CUPTI_ERROR_SCRIPTED (39)");
  scripted_cupti().subscribing = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  CHECK(reason() == "CUPTI unavailable: it refuses a subscriber: CUPTI_ERROR_SCRIPTED (35)");
  scripted_cupti() = {};
  scripted_cupti().refuses = [](CUpti_CallbackId) { return true; };
  CHECK(reason() == "CUPTI unavailable: it watches none of the driver's allocation calls");
  CHECK(scripted_cupti().callback == nullptr);
  scripted_cupti() = {};
}

TEST_CASE("a callback that is running when the watch ends reports nothing", "[threads]") {
  std::atomic<int> calls = 0;
  std::atomic<bool> stop = false;
  std::jthread caller;
  {
    const DriverWatch watch([&](const DriverChange&) { ++calls; });
    // Like CUPTI's callbacks on other threads, it runs for a while after the end.
    caller =
        std::jthread([&stop, callback = scripted_cupti().callback, data = scripted_cupti().data] {
          while (!stop) {
            CUdeviceptr at = 10;
            const cuMemAlloc_v2_params parameters{&at, 1};
            tests::driver_call(callback, data, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &parameters,
                               CUDA_SUCCESS, {});
          }
        });
    REQUIRE(tests::wait_until([&] { return calls > 100; }));
  }
  const int told = calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(calls == told);
  stop = true;
}

TEST_CASE("if CUPTI cannot be loaded, a process says why it is not watched") {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("libcupti.so.13"), "");
  CHECK(printed({"LD_LIBRARY_PATH=" + folder.path()}) ==
        "CUPTI unavailable: " + folder.file("libcupti.so.13") + ": file too short");
}

TEST_CASE("without a driver a process says why it is not watched") {
  if (has_driver()) SKIP("this machine has NVIDIA's driver");
  CHECK(printed({"LD_LIBRARY_PATH=" SHARDLENS_CUDA_LIBRARIES}) ==
        "CUPTI unavailable: there is no GPU, or its driver is missing: libcuda.so.1 is not found");
}

TEST_CASE("on an invalid null device a process is not watched") {
  const std::string preload = "LD_PRELOAD=" SHARDLENS_NULL_PRELOAD;
  CHECK(printed({preload}) == "watching");
  CHECK(printed({preload, "SHARDLENS_NULL_GPU=nonesuch"}) ==
        "CUPTI unavailable: there is no GPU, or its driver is too old: "
        "CUPTI_ERROR_NOT_INITIALIZED (15)");
}
