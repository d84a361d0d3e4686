// Compares what the recorder's driver layer reports about LibTorch's real allocators on the null
// device with their own statistics. ctest starts each case as its own process with the stubs
// preloaded.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "profiler/recorder/driver.h"
#include "tests/profiler/null_device/case_process.h"

using namespace shardlens;
using profiler::DriverChange;
using profiler::DriverWatch;
using tests::output_of_case;
namespace allocator = c10::cuda::CUDACachingAllocator;

namespace {

constexpr int64_t kPageBytes = int64_t{2} << 20;

/// The knowledge of a recorder that only sees the changes.
class Ledger {
 public:
  DriverWatch::Sink sink() {
    return [this](const DriverChange& change) { add(change); };
  }

  int64_t bytes_of(const std::string& library, bool is_pinned_host = false) const {
    const std::scoped_lock lock(mutex_);
    const auto found = bytes_.find({library, is_pinned_host});
    return found == bytes_.end() ? 0 : found->second;
  }
  int changes() const {
    const std::scoped_lock lock(mutex_);
    return changes_;
  }
  std::set<std::string> libraries() const {
    const std::scoped_lock lock(mutex_);
    std::set<std::string> names;
    for (const auto& [account, bytes] : bytes_) names.insert(account.first);
    return names;
  }

 private:
  void add(const DriverChange& change) {
    const std::scoped_lock lock(mutex_);
    ++changes_;
    bytes_[{std::string(change.library), change.is_pinned_host}] +=
        change.given ? change.bytes : -change.bytes;
  }

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, bool>, int64_t> bytes_;  // live, by library and whether pinned
  int changes_ = 0;
};

int64_t reserved_bytes() {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator::getDeviceStats(0).reserved_bytes.at(kAll).current;
}

/// Tensors of all sizes come and go. After each one, the watch and the allocator must agree.
void use_memory(const Ledger& ledger) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  std::vector<at::Tensor> live;
  int64_t peak_bytes = 0;
  for (int i = 0; i < 300; ++i) {
    const auto bytes = static_cast<int64_t>(random() % (uint64_t{1} << (random() % 27)));
    live.push_back(at::empty({bytes + 1}, at::dtype(at::kByte).device(at::kCUDA)));
    if (random() % 2 == 0) live.erase(live.begin() + static_cast<long>(random() % live.size()));
    if (random() % 50 == 0) allocator::emptyCache();
    REQUIRE(ledger.bytes_of("libc10_cuda.so") == reserved_bytes());
    peak_bytes = std::max(peak_bytes, reserved_bytes());
  }
  CHECK(peak_bytes > 10 * kPageBytes);
  live.clear();
  allocator::emptyCache();
  CHECK(reserved_bytes() == 0);
  CHECK(ledger.bytes_of("libc10_cuda.so") == 0);
}

std::string name_of_program() {
  return std::filesystem::read_symlink("/proc/self/exe").filename().string();
}

}  // namespace

TEST_CASE("the watch reports the segments of LibTorch's allocator, and nothing else") {
  Ledger ledger;
  const DriverWatch watch(ledger.sink());
  REQUIRE_FALSE(watch.unavailable_reason());
  CHECK(watch.not_watched().empty());
  use_memory(ledger);
  CHECK(ledger.changes() > 20);
  CHECK(ledger.libraries() == std::set<std::string>{"libc10_cuda.so"});
}

TEST_CASE("watch expandable segments", "[.process]") {
  Ledger ledger;
  const DriverWatch watch(ledger.sink());
  use_memory(ledger);
  for (const std::string& library : ledger.libraries()) std::cout << "> " << library << "\n";
}

TEST_CASE("the watch reports the device memory of expandable segments") {
  CHECK(output_of_case("watch expandable segments",
                       "PYTORCH_ALLOC_CONF=expandable_segments:True") == "libc10_cuda.so\n");
}

TEST_CASE("the watch reports the pinned memory that LibTorch holds") {
  Ledger ledger;
  const DriverWatch watch(ledger.sink());
  const auto pinned = at::dtype(at::kFloat).pinned_memory(true);
  std::vector<at::Tensor> tensors;
  for (const int64_t elements : {1, 1000, 100'000}) {
    tensors.push_back(at::empty({elements}, pinned));
  }
  const auto held = [&] {
    const auto stats = at::getHostAllocator(at::kCUDA)->get_stats();
    return stats.allocated_bytes.current;
  };
  std::string library;
  for (const std::string& each : ledger.libraries()) {
    if (ledger.bytes_of(each, true) > 0) library = each;
  }
  CHECK(library == "libtorch_cuda.so");
  CHECK(held() > 0);
  CHECK(ledger.bytes_of(library, true) == held());
  tensors.clear();
  at::getHostAllocator(at::kCUDA)->empty_cache();
  CHECK(ledger.bytes_of(library, true) == 0);
}

TEST_CASE("memory that a program asks for itself is reported as the program's") {
  Ledger ledger;
  const DriverWatch watch(ledger.sink());
  void* device = nullptr;
  void* pinned = nullptr;
  REQUIRE(cudaMalloc(&device, 1000) == cudaSuccess);
  REQUIRE(cudaHostAlloc(&pinned, 3000, 0) == cudaSuccess);
  CHECK(ledger.changes() == 2);
  CHECK(ledger.bytes_of(name_of_program()) == 1000);
  CHECK(ledger.bytes_of(name_of_program(), true) == 3000);
  REQUIRE(cudaFree(device) == cudaSuccess);
  REQUIRE(cudaFreeHost(pinned) == cudaSuccess);
  CHECK(ledger.changes() == 4);
  CHECK(ledger.bytes_of(name_of_program()) == 0);
  CHECK(ledger.bytes_of(name_of_program(), true) == 0);
}

TEST_CASE("memory that the null device refuses is not reported") {
  Ledger ledger;
  const DriverWatch watch(ledger.sink());
  void* address = nullptr;
  CHECK(cudaMalloc(&address, size_t{1} << 45) == cudaErrorMemoryAllocation);
  cudaGetLastError();
  CHECK(ledger.changes() == 0);
}

TEST_CASE("a second watch names the first, until that is gone") {
  Ledger first, second;
  void* address = nullptr;
  {
    const DriverWatch watch(first.sink());
    REQUIRE(watch.is_watching());
    const DriverWatch other(second.sink());
    CHECK_FALSE(other.is_watching());
    CHECK(other.unavailable_reason() ==
          "CUPTI unavailable: \"CUPTI for shardlens\" is attached to it, and it serves one at a "
          "time: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)");
    REQUIRE(cudaMalloc(&address, 1000) == cudaSuccess);
    CHECK(first.changes() == 1);
    CHECK(second.changes() == 0);
  }
  REQUIRE(cudaMalloc(&address, 1000) == cudaSuccess);
  CHECK(first.changes() == 1);
  const DriverWatch again(second.sink());
  CHECK(again.is_watching());
  REQUIRE(cudaFree(address) == cudaSuccess);
  CHECK(first.changes() == 1);
  CHECK(second.changes() == 1);
  CHECK(second.bytes_of(name_of_program()) == 0);
}
