// Uses CUPTI on the null device as a profiler does, and compares it with what LibTorch's allocator
// says about its own segments, and with the runtime's answers. ctest starts each case as its own
// process with the null device preloaded.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/profiler/null_device/case_process.h"

using namespace shardlens;
using tests::output_of_case;
namespace allocator = c10::cuda::CUDACachingAllocator;

namespace {

/// Memory that was taken (true) or freed.
struct Change {
  bool is_taken = false;
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool operator==(const Change&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Change& change) {
  return out << (change.is_taken ? "+" : "-") << change.address << ":" << change.bytes;
}

/// Merges consecutive neighbours: how many calls a range takes is up to the allocator.
std::vector<Change> joined(const std::vector<Change>& changes) {
  std::vector<Change> result;
  for (const Change& next : changes) {
    Change* const last = result.empty() ? nullptr : &result.back();
    if (last != nullptr && last->is_taken == next.is_taken &&
        last->address + last->bytes == next.address) {
      last->bytes += next.bytes;
    } else {
      result.push_back(next);
    }
  }
  return result;
}

/// A subscriber with a function, for the lifetime of this object.
class Subscription {
 public:
  using Function =
      std::function<void(CUpti_CallbackDomain, CUpti_CallbackId, const CUpti_CallbackData&)>;
  explicit Subscription(Function function) : function_(std::move(function)) {
    REQUIRE(cuptiSubscribe(&handle_, call, this) == CUPTI_SUCCESS);
  }
  ~Subscription() { cuptiUnsubscribe(handle_); }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

  CUpti_SubscriberHandle handle() const { return handle_; }
  void enable(CUpti_CallbackDomain domain) const {
    REQUIRE(cuptiEnableDomain(1, handle_, domain) == CUPTI_SUCCESS);
  }

 private:
  static void call(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    static_cast<Subscription*>(self)->function_(domain, id,
                                                *static_cast<const CUpti_CallbackData*>(data));
  }

  Function function_;
  CUpti_SubscriberHandle handle_ = nullptr;
};

template <class Parameters>
const Parameters& parameters_of(const CUpti_CallbackData& data) {
  return *static_cast<const Parameters*>(data.functionParams);
}

/// The memory in the driver's calls, as a profiler would see it.
class DriverLog {
 public:
  void see(CUpti_CallbackId id, const CUpti_CallbackData& data) {
    if (data.callbackSite != CUPTI_API_EXIT) return;
    if (*static_cast<CUresult*>(data.functionReturnValue) != CUDA_SUCCESS) return;
    const std::scoped_lock lock(mutex_);
    switch (id) {
      case CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2: {
        const auto& parameters = parameters_of<cuMemAlloc_v2_params>(data);
        take(memory, *parameters.dptr, parameters.bytesize);
        break;
      }
      case CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2:
        give_back(memory, parameters_of<cuMemFree_v2_params>(data).dptr);
        break;
      case CUPTI_DRIVER_TRACE_CBID_cuMemMap: {
        const auto& parameters = parameters_of<cuMemMap_params>(data);
        CHECK(created_.at(parameters.handle) == parameters.size);
        take(memory, parameters.ptr, parameters.size);
        break;
      }
      case CUPTI_DRIVER_TRACE_CBID_cuMemUnmap:
        give_back(memory, parameters_of<cuMemUnmap_params>(data).ptr);
        break;
      case CUPTI_DRIVER_TRACE_CBID_cuMemCreate: {
        const auto& parameters = parameters_of<cuMemCreate_params>(data);
        created_.emplace(*parameters.handle, parameters.size);
        break;
      }
      case CUPTI_DRIVER_TRACE_CBID_cuMemRelease:
        CHECK(created_.erase(parameters_of<cuMemRelease_params>(data).handle) == 1);
        break;
      case CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc: {
        const auto& parameters = parameters_of<cuMemHostAlloc_params>(data);
        take(pinned, reinterpret_cast<uint64_t>(*parameters.pp), parameters.bytesize);
        break;
      }
      case CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost:
        give_back(pinned, reinterpret_cast<uint64_t>(parameters_of<cuMemFreeHost_params>(data).p));
        break;
      default:
        break;
    }
  }

  size_t live_handles() const { return created_.size(); }

  std::vector<Change> memory;
  std::vector<Change> pinned;

 private:
  void take(std::vector<Change>& log, uint64_t address, uint64_t bytes) {
    log.push_back({true, address, bytes});
    live_[address] = bytes;
  }
  void give_back(std::vector<Change>& log, uint64_t address) {
    log.push_back({false, address, live_.at(address)});
    live_.erase(address);
  }

  std::mutex mutex_;
  std::map<uint64_t, uint64_t> live_;     // address -> bytes
  std::map<uint64_t, uint64_t> created_;  // handle -> bytes
};

Subscription::Function log_sink(DriverLog& log) {
  return [&log](CUpti_CallbackDomain, CUpti_CallbackId id, const CUpti_CallbackData& data) {
    log.see(id, data);
  };
}

/// The allocator's report of its segments, from the first call on.
std::vector<Change>& allocator_segments() {
  static std::vector<Change>& segments = *new std::vector<Change>;
  static const bool attached = [] {
    at::empty({1}, at::kCUDA);  // the first use creates the allocator
    allocator::emptyCache();
    using Entry = allocator::TraceEntry;
    allocator::attachAllocatorTraceTracker([](const Entry& entry) {
      const bool is_taken =
          entry.action_ == Entry::SEGMENT_ALLOC || entry.action_ == Entry::SEGMENT_MAP;
      const bool is_given_back =
          entry.action_ == Entry::SEGMENT_FREE || entry.action_ == Entry::SEGMENT_UNMAP;
      if (is_taken || is_given_back) segments.push_back({is_taken, entry.addr_, entry.size_});
    });
    return true;
  }();
  CHECK(attached);
  return segments;
}

/// Tensors of all sizes come and go, and sometimes the allocator frees what it can.
void use_memory() {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  std::vector<at::Tensor> live;
  for (int i = 0; i < 300; ++i) {
    const auto bytes = static_cast<int64_t>(random() % (uint64_t{1} << (random() % 27)));
    live.push_back(at::empty({bytes + 1}, at::dtype(at::kByte).device(at::kCUDA)));
    if (random() % 2 == 0) live.erase(live.begin() + static_cast<long>(random() % live.size()));
    if (random() % 50 == 0) allocator::emptyCache();
  }
  live.clear();
  allocator::emptyCache();
}

/// Records of MEMORY2 in buffers of a chosen size.
class Records {
 public:
  explicit Records(size_t buffer_bytes) {
    current() = this;
    buffer_bytes_ = buffer_bytes;
    REQUIRE(cuptiActivityRegisterCallbacks(request, complete) == CUPTI_SUCCESS);
    REQUIRE(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2) == CUPTI_SUCCESS);
  }
  ~Records() {
    cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMORY2);
    cuptiActivityFlushAll(0);
  }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  std::vector<CUpti_ActivityMemory4> all;
  int buffers = 0;

 private:
  static Records*& current() {
    static Records* records = nullptr;
    return records;
  }
  static void request(uint8_t** buffer, size_t* bytes, size_t* max_records) {
    *bytes = current()->buffer_bytes_;
    *buffer = *bytes == 0 ? nullptr : static_cast<uint8_t*>(std::malloc(*bytes));
    *max_records = 0;
  }
  static void complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
    ++current()->buffers;
    CUpti_Activity* record = nullptr;
    CUptiResult result = CUPTI_SUCCESS;
    while ((result = cuptiActivityGetNextRecord(buffer, valid_bytes, &record)) == CUPTI_SUCCESS) {
      current()->all.push_back(*reinterpret_cast<CUpti_ActivityMemory4*>(record));
    }
    CHECK(result == CUPTI_ERROR_MAX_LIMIT_REACHED);
    std::free(buffer);
  }

  size_t buffer_bytes_ = 0;
};

std::vector<Change> changes_of(const std::vector<CUpti_ActivityMemory4>& records,
                               CUpti_ActivityMemoryKind kind) {
  std::vector<Change> changes;
  for (const CUpti_ActivityMemory4& record : records) {
    if (record.memoryKind != kind) continue;
    const bool is_taken =
        record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
    changes.push_back({is_taken, record.address, record.bytes});
  }
  return changes;
}

size_t dropped_records() {
  size_t dropped = 0;
  REQUIRE(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS);
  return dropped;
}

void allocate_and_free(size_t bytes) {
  void* address = nullptr;
  REQUIRE(cudaMalloc(&address, bytes) == cudaSuccess);
  REQUIRE(cudaFree(address) == cudaSuccess);
}

}  // namespace

TEST_CASE("a subscriber sees the segments that the allocator takes and gives back") {
  const std::vector<Change>& segments = allocator_segments();
  const size_t before = segments.size();
  DriverLog log;
  const Subscription subscription(log_sink(log));
  subscription.enable(CUPTI_CB_DOMAIN_DRIVER_API);
  use_memory();
  CHECK(log.memory.size() > 20);
  CHECK(log.memory ==
        std::vector<Change>(segments.begin() + static_cast<long>(before), segments.end()));
}

TEST_CASE("use expandable segments", "[.process]") {
  const std::vector<Change>& segments = allocator_segments();
  DriverLog log;
  const Subscription subscription(log_sink(log));
  subscription.enable(CUPTI_CB_DOMAIN_DRIVER_API);
  use_memory();
  CHECK(log.memory.size() > 20);
  CHECK(joined(log.memory) == joined(segments));
  CHECK(log.live_handles() == 0);
  std::cout << "> seen\n";
}

TEST_CASE("a subscriber sees expandable segments grow and shrink") {
  CHECK(output_of_case("use expandable segments", "PYTORCH_ALLOC_CONF=expandable_segments:True") ==
        "seen\n");
}

TEST_CASE("a subscriber sees the pinned memory that LibTorch takes") {
  DriverLog log;
  const Subscription subscription(log_sink(log));
  subscription.enable(CUPTI_CB_DOMAIN_DRIVER_API);
  const at::Tensor pinned = at::empty({1000}, at::dtype(at::kFloat).pinned_memory(true));
  // LibTorch takes powers of two.
  CHECK(log.pinned ==
        std::vector<Change>{{true, reinterpret_cast<uint64_t>(pinned.data_ptr()), 4096}});
}

TEST_CASE("the runtime's calls enclose the driver's, and each entry has its exit") {
  std::vector<std::string> seen;
  std::map<uint32_t, int> by_correlation;
  const Subscription subscription(
      [&](CUpti_CallbackDomain domain, CUpti_CallbackId id, const CUpti_CallbackData& data) {
        const bool is_entry = data.callbackSite == CUPTI_API_ENTER;
        seen.push_back((is_entry ? "> " : "< ") + std::string(data.functionName));
        ++by_correlation[data.correlationId];
        CHECK(data.contextUid == 1);
        CHECK((data.functionReturnValue == nullptr) == is_entry);
        // The exit finds what the entry left there.
        if (is_entry) *data.correlationData = uint64_t{domain} << 32 | id;
        CHECK(*data.correlationData == (uint64_t{domain} << 32 | id));
        const char* name = nullptr;
        CHECK(cuptiGetCallbackName(domain, id, &name) == CUPTI_SUCCESS);
        CHECK(std::string(name).starts_with(data.functionName));
      });
  REQUIRE(cuptiEnableAllDomains(1, subscription.handle()) == CUPTI_SUCCESS);
  allocate_and_free(1);
  void* address = nullptr;
  REQUIRE(cudaHostAlloc(&address, 5000, 0) == cudaSuccess);
  REQUIRE(cudaFreeHost(address) == cudaSuccess);
  CHECK(seen == std::vector<std::string>{
                    "> cudaMalloc", "> cuMemAlloc_v2", "< cuMemAlloc_v2", "< cudaMalloc",
                    "> cudaFree", "> cuMemFree_v2", "< cuMemFree_v2", "< cudaFree",
                    "> cudaHostAlloc", "> cuMemHostAlloc", "< cuMemHostAlloc", "< cudaHostAlloc",
                    "> cudaFreeHost", "> cuMemFreeHost", "< cuMemFreeHost", "< cudaFreeHost"});
  CHECK(by_correlation.size() == 4);  // one a call of the runtime
  for (const auto& [id, calls] : by_correlation) CHECK(calls == 4);
}

TEST_CASE("a subscriber sees what failed, with its error") {
  std::vector<int> errors;
  std::vector<uint64_t> asked;
  const Subscription subscription(
      [&](CUpti_CallbackDomain domain, CUpti_CallbackId, const CUpti_CallbackData& data) {
        if (data.callbackSite != CUPTI_API_EXIT) return;
        errors.push_back(*static_cast<int*>(data.functionReturnValue));
        if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
          asked.push_back(parameters_of<cuMemAlloc_v2_params>(data).bytesize);
        }
      });
  subscription.enable(CUPTI_CB_DOMAIN_DRIVER_API);
  subscription.enable(CUPTI_CB_DOMAIN_RUNTIME_API);
  constexpr size_t kTooMuch = size_t{1} << 45;
  void* address = nullptr;
  CHECK(cudaMalloc(&address, kTooMuch) == cudaErrorMemoryAllocation);
  CHECK(errors == std::vector<int>{CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation});
  CHECK(asked == std::vector<uint64_t>{kTooMuch});
  cudaGetLastError();
}

TEST_CASE("only what is enabled calls back") {
  std::vector<CUpti_CallbackId> seen;
  const Subscription subscription([&](CUpti_CallbackDomain, CUpti_CallbackId id,
                                      const CUpti_CallbackData&) { seen.push_back(id); });
  allocate_and_free(1);
  CHECK(seen.empty());
  constexpr CUpti_CallbackId kFree = CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2;
  const auto enable = [&](uint32_t on) {
    return cuptiEnableCallback(on, subscription.handle(), CUPTI_CB_DOMAIN_DRIVER_API, kFree);
  };
  REQUIRE(enable(1) == CUPTI_SUCCESS);
  uint32_t is_on = 0;
  REQUIRE(cuptiGetCallbackState(&is_on, subscription.handle(), CUPTI_CB_DOMAIN_DRIVER_API, kFree) ==
          CUPTI_SUCCESS);
  CHECK(is_on == 1);
  allocate_and_free(1);
  CHECK(seen == std::vector<CUpti_CallbackId>{kFree, kFree});
  REQUIRE(enable(0) == CUPTI_SUCCESS);
  allocate_and_free(1);
  CHECK(seen.size() == 2);
}

TEST_CASE("a second subscriber is refused, and learns who the first is") {
  const auto callback = [](void* count, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {
    ++*static_cast<int*>(count);
  };
  int calls = 0;
  CUpti_SubscriberHandle first = nullptr, second = nullptr;
  std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> old_name{};
  CUpti_SubscriberParams params{};  // CUDA 13.2's has more members than 13.0's
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "the first";
  params.oldSubscriberName = old_name.data();
  params.oldSubscriberSize = old_name.size();
  REQUIRE(cuptiSubscribe_v2(&first, callback, &calls, &params) == CUPTI_SUCCESS);
  REQUIRE(cuptiEnableDomain(1, first, CUPTI_CB_DOMAIN_RUNTIME_API) == CUPTI_SUCCESS);
  constexpr CUptiResult kRefused = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  CHECK(cuptiSubscribe(&second, callback, &calls) == kRefused);
  CHECK(cuptiSubscribe_v2(&second, callback, &calls, &params) == kRefused);
  CHECK(std::string(old_name.data()) == "CUPTI for the first");
  allocate_and_free(1);
  CHECK(calls == 4);
  REQUIRE(cuptiUnsubscribe(first) == CUPTI_SUCCESS);
  allocate_and_free(1);
  CHECK(calls == 4);
  CHECK(cuptiUnsubscribe(first) == CUPTI_ERROR_INVALID_PARAMETER);
  CHECK(cuptiEnableDomain(1, first, CUPTI_CB_DOMAIN_RUNTIME_API) == CUPTI_ERROR_INVALID_PARAMETER);
  REQUIRE(cuptiSubscribe(&second, callback, &calls) == CUPTI_SUCCESS);
  allocate_and_free(1);
  CHECK(calls == 4);  // nothing is enabled
  CHECK(cuptiUnsubscribe(second) == CUPTI_SUCCESS);
}

TEST_CASE("records of memory are what the callbacks say") {
  uint64_t before = 0, after = 0;
  REQUIRE(cuptiGetTimestamp(&before) == CUPTI_SUCCESS);
  DriverLog log;
  const Subscription subscription(log_sink(log));
  subscription.enable(CUPTI_CB_DOMAIN_DRIVER_API);
  Records records(1000);  // 7 records a buffer
  use_memory();
  const at::Tensor pinned = at::empty({100'000}, at::dtype(at::kByte).pinned_memory(true));
  REQUIRE(cuptiActivityFlushAll(0) == CUPTI_SUCCESS);
  REQUIRE(cuptiGetTimestamp(&after) == CUPTI_SUCCESS);
  CHECK(log.memory.size() > 20);
  CHECK(changes_of(records.all, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE) == log.memory);
  CHECK(changes_of(records.all, CUPTI_ACTIVITY_MEMORY_KIND_PINNED) == log.pinned);
  CHECK(records.all.size() == log.memory.size() + log.pinned.size());
  CHECK(records.buffers == static_cast<int>((records.all.size() + 6) / 7));
  CHECK(dropped_records() == 0);
  for (const CUpti_ActivityMemory4& record : records.all) {
    CHECK(record.kind == CUPTI_ACTIVITY_KIND_MEMORY2);
    CHECK(record.processId == static_cast<uint32_t>(::getpid()));
    CHECK(record.contextId == 1);
    CHECK(record.correlationId > 0);
    CHECK((before <= record.timestamp && record.timestamp <= after));
    before = record.timestamp;  // one thread: in order
  }
}

TEST_CASE("records need no subscriber, end when switched off, and are counted where lost") {
  Records records(1 << 20);
  allocate_and_free(3);
  REQUIRE(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMORY2) == CUPTI_SUCCESS);
  allocate_and_free(4);
  REQUIRE(cuptiActivityFlushAll(0) == CUPTI_SUCCESS);
  REQUIRE(records.all.size() == 2);
  CHECK(records.all[0].bytes == 3);
  CHECK(records.all[1].bytes == 3);
  CHECK(records.all[1].address == records.all[0].address);
  Records none(0);
  allocate_and_free(5);
  CHECK(dropped_records() == 2);
  CHECK(dropped_records() == 0);
  CHECK(none.all.empty());
}

TEST_CASE("threads are seen at once, each with its own pairs") {
  std::mutex mutex;
  std::map<std::thread::id, std::vector<std::string>> open;
  int calls = 0;
  const Subscription subscription(
      [&](CUpti_CallbackDomain, CUpti_CallbackId, const CUpti_CallbackData& data) {
        const std::scoped_lock lock(mutex);
        std::vector<std::string>& stack = open[std::this_thread::get_id()];
        if (data.callbackSite == CUPTI_API_ENTER) {
          stack.emplace_back(data.functionName);
          return;
        }
        CHECK((!stack.empty() && stack.back() == data.functionName));
        stack.pop_back();
        ++calls;
      });
  subscription.enable(CUPTI_CB_DOMAIN_DRIVER_API);
  subscription.enable(CUPTI_CB_DOMAIN_RUNTIME_API);
  Records records(4096);
  constexpr int kThreads = 4, kRounds = 200;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kRounds; ++i) {
        void* address = nullptr;
        cudaMalloc(&address, 1);
        cudaFree(address);
      }
    });
  }
  threads.clear();
  REQUIRE(cuptiActivityFlushAll(0) == CUPTI_SUCCESS);
  CHECK(calls == kThreads * kRounds * 4);
  CHECK(records.all.size() == kThreads * kRounds * 2);
  for (const auto& [thread, stack] : open) CHECK(stack.empty());
}

TEST_CASE("after the end CUPTI is as at the start") {
  int calls = 0;
  const Subscription subscription(
      [&](CUpti_CallbackDomain, CUpti_CallbackId, const CUpti_CallbackData&) { ++calls; });
  subscription.enable(CUPTI_CB_DOMAIN_DRIVER_API);
  REQUIRE(cuptiActivityRegisterTimestampCallback([] { return uint64_t{77}; }) == CUPTI_SUCCESS);
  Records records(4096);
  allocate_and_free(1);
  REQUIRE(cuptiFinalize() == CUPTI_SUCCESS);
  allocate_and_free(1);
  CHECK(calls == 4);
  REQUIRE(records.all.size() == 2);
  CHECK(records.all[0].timestamp == 77);
  uint64_t now = 0;
  REQUIRE(cuptiGetTimestamp(&now) == CUPTI_SUCCESS);
  CHECK(now != 77);
  CHECK(cuptiActivityFlushAll(0) == CUPTI_ERROR_INVALID_OPERATION);  // no client is registered
}

TEST_CASE("what the null device cannot tell is refused") {
  CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_ERROR_INVALID_KIND);
  CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY_POOL) == CUPTI_ERROR_INVALID_KIND);
  CHECK(cuptiActivityRegisterCallbacks(nullptr, nullptr) == CUPTI_ERROR_INVALID_PARAMETER);
  CHECK(cuptiActivityFlushPeriod(100) == CUPTI_ERROR_NOT_SUPPORTED);
  CHECK(cuptiActivityEnableAllocationSource(1) == CUPTI_ERROR_NOT_SUPPORTED);
  const Subscription subscription(
      [](CUpti_CallbackDomain, CUpti_CallbackId, const CUpti_CallbackData&) {});
  const auto enable = [&](CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    return cuptiEnableCallback(1, subscription.handle(), domain, id);
  };
  CHECK(enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_LOADED) ==
        CUPTI_ERROR_NOT_SUPPORTED);
  CHECK(enable(CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR) == CUPTI_SUCCESS);
  CHECK(enable(CUPTI_CB_DOMAIN_DRIVER_API, 0) == CUPTI_ERROR_INVALID_PARAMETER);
  CHECK(enable(CUPTI_CB_DOMAIN_RUNTIME_API, 100'000) == CUPTI_ERROR_INVALID_PARAMETER);
  CHECK(enable(CUPTI_CB_DOMAIN_INVALID, 1) == CUPTI_ERROR_INVALID_PARAMETER);
  const char* text = nullptr;
  REQUIRE(cuptiGetResultString(CUPTI_ERROR_NOT_SUPPORTED, &text) == CUPTI_SUCCESS);
  CHECK(std::string(text) == "CUPTI_ERROR_NOT_SUPPORTED");
}
