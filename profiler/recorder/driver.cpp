#include "profiler/recorder/driver.h"

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "profiler/recorder/caller.h"

namespace shardlens::profiler {

namespace {

constexpr const char* kLibrary = "libcupti.so.13";
constexpr uint32_t kMajorVersion = 13;
constexpr uint32_t kFirstVersion = 130001;  // 13.0.0 crashes

// --- the driver's calls --------------------------------------------------------------------------

struct Memory {
  uint64_t address = 0;  // or a handle
  int64_t bytes = 0;
  bool is_pinned_host = false;
};

enum class Effect { gives, takes_back, retains };

/// A function of the driver, with the reader of the parameters that CUPTI hands on.
struct Call {
  CUpti_CallbackId id;
  const char* name;
  Effect effect;
  Memory (*read)(const void* parameters);
};

template <class Parameters>
const Parameters& as(const void* parameters) {
  return *static_cast<const Parameters*>(parameters);
}

template <class Parameters>
Memory read_given(const void* parameters) {
  const auto& call = as<Parameters>(parameters);
  return {.address = *call.dptr, .bytes = static_cast<int64_t>(call.bytesize)};
}

Memory read_given_in_rows(const void* parameters) {
  const auto& call = as<cuMemAllocPitch_v2_params>(parameters);
  return {.address = *call.dptr, .bytes = static_cast<int64_t>(*call.pPitch * call.Height)};
}

template <class Parameters>
Memory read_given_pinned(const void* parameters) {
  const auto& call = as<Parameters>(parameters);
  return {.address = reinterpret_cast<uint64_t>(*call.pp),
          .bytes = static_cast<int64_t>(call.bytesize),
          .is_pinned_host = true};
}

Memory read_created(const void* parameters) {
  const auto& call = as<cuMemCreate_params>(parameters);
  return {.address = *call.handle,
          .bytes = static_cast<int64_t>(call.size),
          .is_pinned_host = call.prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE};
}

template <class Parameters>
Memory read_freed(const void* parameters) {
  return {.address = as<Parameters>(parameters).dptr};
}

Memory read_freed_pinned(const void* parameters) {
  return {.address = reinterpret_cast<uint64_t>(as<cuMemFreeHost_params>(parameters).p),
          .is_pinned_host = true};
}

Memory read_released(const void* parameters) {
  return {.address = as<cuMemRelease_params>(parameters).handle};
}

Memory read_retained(const void* parameters) {
  return {.address = *as<cuMemRetainAllocationHandle_params>(parameters).handle};
}

/// The watched functions of the driver. The runtime's functions are not watched, since they call
/// these and would count twice. The parameters of cuMemHostAlloc_v2 are those of the first version.
constexpr std::array kCalls = std::to_array<Call>({
    {CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, "cuMemAlloc_v2", Effect::gives,
     read_given<cuMemAlloc_v2_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2, "cuMemAllocPitch_v2", Effect::gives,
     read_given_in_rows},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged, "cuMemAllocManaged", Effect::gives,
     read_given<cuMemAllocManaged_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, "cuMemAllocAsync", Effect::gives,
     read_given<cuMemAllocAsync_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz, "cuMemAllocAsync_ptsz", Effect::gives,
     read_given<cuMemAllocAsync_ptsz_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", Effect::gives,
     read_given<cuMemAllocFromPoolAsync_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync_ptsz",
     Effect::gives, read_given<cuMemAllocFromPoolAsync_ptsz_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, "cuMemHostAlloc", Effect::gives,
     read_given_pinned<cuMemHostAlloc_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc_v2, "cuMemHostAlloc_v2", Effect::gives,
     read_given_pinned<cuMemHostAlloc_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2, "cuMemAllocHost_v2", Effect::gives,
     read_given_pinned<cuMemAllocHost_v2_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemCreate, "cuMemCreate", Effect::gives, read_created},
    {CUPTI_DRIVER_TRACE_CBID_cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle",
     Effect::retains, read_retained},
    {CUPTI_DRIVER_TRACE_CBID_cuMemRelease, "cuMemRelease", Effect::takes_back, read_released},
    {CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, "cuMemFree_v2", Effect::takes_back,
     read_freed<cuMemFree_v2_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync, "cuMemFreeAsync", Effect::takes_back,
     read_freed<cuMemFreeAsync_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz, "cuMemFreeAsync_ptsz", Effect::takes_back,
     read_freed<cuMemFreeAsync_ptsz_params>},
    {CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost, "cuMemFreeHost", Effect::takes_back, read_freed_pinned},
});

// --- CUPTI ---------------------------------------------------------------------------------------

/// The functions of CUPTI that are used. The library is never unloaded, since it has threads of its
/// own.
struct Cupti {
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiGetResultString) get_result_string;
  decltype(&cuptiSubscribe_v2) subscribe;
  decltype(&cuptiUnsubscribe) unsubscribe;
  decltype(&cuptiEnableCallback) enable_callback;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(fmt::format("{} has no {}", kLibrary, name));
}

/// Throws std::runtime_error if there is no driver. CUPTI 13.2 does not return then: it calls
/// itself until the stack is full.
void expect_driver() {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr) return;
  throw std::runtime_error("there is no GPU, or its driver is missing: libcuda.so.1 is not found");
}

/// Loads CUPTI. Throws std::runtime_error with the reason if none can be used.
Cupti load_cupti() {
  // If LibTorch has mapped a CUPTI, the soname finds that one.
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    throw std::runtime_error(reason == nullptr ? kLibrary : reason);
  }
  expect_driver();
  Cupti cupti{};
  find(library, "cuptiGetVersion", cupti.get_version);
  uint32_t version = 0;
  cupti.get_version(&version);
  if (version / 10000 != kMajorVersion || version < kFirstVersion) {
    throw std::runtime_error(fmt::format("version {}.{}.{}, but 13.0.1 or a later 13 is needed",
                                         version / 10000, version / 100 % 100, version % 100));
  }
  find(library, "cuptiGetResultString", cupti.get_result_string);
  find(library, "cuptiSubscribe_v2", cupti.subscribe);
  find(library, "cuptiUnsubscribe", cupti.unsubscribe);
  find(library, "cuptiEnableCallback", cupti.enable_callback);
  return cupti;
}

std::string words_of(const Cupti& cupti, CUptiResult result) {
  const char* text = nullptr;
  cupti.get_result_string(result, &text);
  return fmt::format("{} ({})", text == nullptr ? "an error" : text, static_cast<int>(result));
}

/// Returns the reason of a failed subscription. CUPTI says 999, "unknown", if the driver finds no
/// GPU, and 15 if it is too old.
std::string refusal(const Cupti& cupti, CUptiResult result, const char* other_subscriber) {
  const std::string words = words_of(cupti, result);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    return fmt::format("\"{}\" is attached to it, and it serves one at a time: {}",
                       other_subscriber, words);
  }
  if (result == CUPTI_ERROR_UNKNOWN || result == CUPTI_ERROR_NOT_INITIALIZED) {
    return "there is no GPU, or its driver is too old: " + words;
  }
  return "it refuses a subscriber: " + words;
}

}  // namespace

// --- what is live --------------------------------------------------------------------------------

class DriverWatch::Account {
 public:
  explicit Account(Sink sink) : sink_(std::move(sink)) {}

  /// Receives CUPTI's callbacks. `account` is an Account.
  static void call_back(void* account, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                        const void* data) noexcept {
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
    const auto* const call = std::ranges::find(kCalls, id, &Call::id);
    if (call == kCalls.end()) return;
    auto& self = *static_cast<Account*>(account);
    const auto& callback = *static_cast<const CUpti_CallbackData*>(data);
    callback.callbackSite == CUPTI_API_ENTER ? self.enter(*call, callback)
                                             : self.exit(*call, callback);
  }

  void close() {
    const std::scoped_lock lock(mutex_);
    sink_ = nullptr;
    live_.clear();
  }

 private:
  struct Block {
    int64_t bytes = 0;
    bool is_pinned_host = false;
    int references = 1;
  };

  /// Reports a release of known memory before the driver executes it: another thread may be given
  /// its address before this call has returned. The driver refuses a release only if the context is
  /// lost, and all memory with it.
  void enter(const Call& call, const CUpti_CallbackData& data) {
    if (call.effect != Effect::takes_back) return;
    const uint64_t address = call.read(data.functionParams).address;
    *data.correlationData = address == 0 || take_back(address);
  }

  void exit(const Call& call, const CUpti_CallbackData& data) {
    if (*static_cast<const CUresult*>(data.functionReturnValue) != CUDA_SUCCESS) return;
    const bool is_settled = call.effect == Effect::takes_back && *data.correlationData != 0;
    if (is_settled) return;
    const Memory memory = call.read(data.functionParams);
    if (call.effect == Effect::retains) {
      retain(memory.address);
    } else {
      tell(call.effect == Effect::gives, memory);
    }
  }

  /// Releases one reference to the memory. Returns true if live memory has this address or handle.
  bool take_back(uint64_t address) {
    const std::string_view library = caller_of_driver();
    const std::scoped_lock lock(mutex_);
    const auto found = live_.find(address);
    if (found == live_.end()) return false;
    if (--found->second.references > 0) return true;
    const Block block = found->second;
    live_.erase(found);
    if (sink_) sink_({false, block.is_pinned_host, address, block.bytes, library});
    return true;
  }

  /// Adds a reference: NCCL retains a handle again before it releases memory, and then releases it
  /// twice.
  void retain(uint64_t handle) {
    const std::scoped_lock lock(mutex_);
    const auto found = live_.find(handle);
    if (found != live_.end()) ++found->second.references;
  }

  void tell(bool is_given, const Memory& memory) {
    const std::string_view library = caller_of_driver();
    const std::scoped_lock lock(mutex_);
    if (!sink_) return;
    if (is_given)
      live_.insert_or_assign(memory.address, Block{memory.bytes, memory.is_pinned_host});
    sink_({is_given, memory.is_pinned_host, memory.address, memory.bytes, library});
  }

  std::mutex mutex_;
  Sink sink_;                                 // empty once closed
  std::unordered_map<uint64_t, Block> live_;  // by address or handle
};

/// Lets CUPTI call an account back while it lives.
class DriverWatch::Subscription {
 public:
  /// Subscribes to all of kCalls. Throws std::runtime_error with the reason if CUPTI cannot be
  /// used.
  Subscription(Account& account, std::vector<std::string>& not_watched) : cupti_(load_cupti()) {
    std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> other{};
    CUpti_SubscriberParams parameters{};
    parameters.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    parameters.subscriberName = "shardlens";
    parameters.oldSubscriberName = other.data();
    parameters.oldSubscriberSize = other.size();
    const CUptiResult result =
        cupti_.subscribe(&handle_, &Account::call_back, &account, &parameters);
    if (result != CUPTI_SUCCESS) throw std::runtime_error(refusal(cupti_, result, other.data()));
    for (const Call& call : kCalls) {
      if (cupti_.enable_callback(1, handle_, CUPTI_CB_DOMAIN_DRIVER_API, call.id) !=
          CUPTI_SUCCESS) {
        not_watched.emplace_back(call.name);
      }
    }
  }
  ~Subscription() { cupti_.unsubscribe(handle_); }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

 private:
  const Cupti cupti_;
  CUpti_SubscriberHandle handle_ = nullptr;
};

namespace {

/// Makes an account that is kept forever: another thread may be in a callback that began before the
/// watch ended.
template <class Account, class Sink>
Account& keep_new(Sink sink) {
  static std::mutex& mutex = *new std::mutex;
  static std::deque<Account>& all = *new std::deque<Account>;
  const std::scoped_lock lock(mutex);
  return all.emplace_back(std::move(sink));
}

}  // namespace

DriverWatch::DriverWatch(Sink sink) : account_(keep_new<Account>(std::move(sink))) {
  prepare_caller();
  try {
    subscription_ = std::make_unique<Subscription>(account_, not_watched_);
  } catch (const std::runtime_error& reason) {
    unavailable_ = std::string("CUPTI unavailable: ") + reason.what();
  }
  if (not_watched_.size() == kCalls.size()) {
    subscription_.reset();
    unavailable_ = "CUPTI unavailable: it watches none of the driver's allocation calls";
  }
}

DriverWatch::~DriverWatch() {
  subscription_.reset();
  account_.close();
}

}  // namespace shardlens::profiler
