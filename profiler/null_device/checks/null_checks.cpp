#include "profiler/null_device/checks/null_checks.h"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "profiler/null_device/checks/check_feed.h"
#include "profiler/null_device/checks/race_checker.h"
#include "profiler/null_device/driver/device_memory.h"
#include "profiler/null_device/null_device.h"

namespace shardlens::profiler {

namespace {

uint64_t number(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

AddressRange range(const void* address, size_t bytes) {
  return {number(address), number(address) + bytes};
}

/// True if uses of the address are checked. Variables of kernels' modules are not checked, because
/// all share one address.
bool is_checked(const void* address) {
  return DeviceMemory::is_device_address(number(address)) &&
         number(address) < DeviceMemory::kVariableAddress;
}

class Checks final : public CheckFeed {
 public:
  void use(void* stream, const void* address, size_t bytes, bool writes,
           const char* what) override {
    if (!is_checked(address)) return;
    const std::scoped_lock lock(mutex_);
    races_.use(number(stream), range(address, bytes), writes, what);
  }
  void note_allocation(void* stream, const void* address, size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    races_.allocate(number(stream), range(address, bytes));
  }
  void note_free(void*, const void* address, size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    races_.free(range(address, bytes));
  }
  std::vector<std::string> take_findings() override {
    const std::scoped_lock lock(mutex_);
    return races_.take_findings();
  }
  std::vector<NcclCall> take_nccl_calls() override {
    const std::scoped_lock lock(mutex_);
    return std::exchange(nccl_calls_, {});
  }

  void stream_created(void* stream, bool is_blocking) override {
    const std::scoped_lock lock(mutex_);
    races_.order().create(number(stream), is_blocking);
  }
  void event_recorded(void* event, void* stream) override {
    const std::scoped_lock lock(mutex_);
    races_.order().record(number(event), number(stream));
  }
  void event_destroyed(void* event) override {
    const std::scoped_lock lock(mutex_);
    races_.order().forget(number(event));
  }
  void stream_waits(void* stream, void* event) override {
    const std::scoped_lock lock(mutex_);
    races_.order().wait(number(stream), number(event));
  }
  void stream_synchronized(void* stream) override {
    const std::scoped_lock lock(mutex_);
    races_.order().synchronize_stream(number(stream));
  }
  void event_synchronized(void* event) override {
    const std::scoped_lock lock(mutex_);
    races_.order().synchronize_event(number(event));
  }
  void device_synchronized() override {
    const std::scoped_lock lock(mutex_);
    races_.order().synchronize_device();
  }
  void memory_given(const void* address, size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    races_.give(range(address, bytes));
  }
  void memory_taken_back(const void* address, size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    races_.take_back(range(address, bytes));
  }
  void nccl_called(const NcclCall& call) override {
    const std::scoped_lock lock(mutex_);
    if (nccl_calls_.size() < kMaxNcclCalls) {
      nccl_calls_.push_back(call);
    } else {
      races_.report("NCCL calls beyond " + std::to_string(kMaxNcclCalls) +
                    " that nobody took are not recorded");
    }
  }
  void report(const std::string& finding) override {
    const std::scoped_lock lock(mutex_);
    races_.report(finding);
  }

 private:
  static constexpr size_t kMaxNcclCalls = 100000;

  std::mutex mutex_;
  RaceChecker races_;
  std::vector<NcclCall> nccl_calls_;
};

CheckFeed* make_checks() {
  const char* value = std::getenv(kNullCheckVariable);
  if (value == nullptr || std::string_view(value) != "1") return nullptr;
  return new Checks;  // never destroyed: LibTorch frees memory in destructors of static objects
}

}  // namespace

}  // namespace shardlens::profiler

extern "C" {

shardlens::profiler::CheckFeed* shardlens_null_check_feed() {
  static shardlens::profiler::CheckFeed* const checks = shardlens::profiler::make_checks();
  return checks;
}

shardlens::profiler::NullChecks* shardlens_null_checks() { return shardlens_null_check_feed(); }

}  // extern "C"
