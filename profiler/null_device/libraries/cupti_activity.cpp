// Records one kind of activity, MEMORY2.
#include "profiler/null_device/libraries/cupti_activity.h"

#include <cuda.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "profiler/null_device/libraries/cupti_tracer.h"

namespace shardlens::profiler {

namespace {

using Record = CUpti_ActivityMemory4;

bool is_aligned(const uint8_t* buffer) {
  return reinterpret_cast<uintptr_t>(buffer) % ACTIVITY_RECORD_ALIGNMENT == 0;
}

/// Fills the client's buffers. All threads may call; the client's functions are called under the
/// lock, on the thread that needs a buffer or has filled one.
class Buffers {
 public:
  void set_client(CUpti_BuffersCallbackRequestFunc request,
                  CUpti_BuffersCallbackCompleteFunc complete) {
    const std::scoped_lock lock(mutex_);
    request_ = request;
    complete_ = complete;
  }

  void add(const Record& record) {
    const std::scoped_lock lock(mutex_);
    if (!has_room() && !renew()) {
      ++dropped_;
      return;
    }
    ::new (buffer_ + used_bytes_) Record(record);
    used_bytes_ += sizeof(Record);
  }

  /// Hands back the buffer. Returns false if no client has registered.
  bool flush() {
    const std::scoped_lock lock(mutex_);
    if (complete_ == nullptr) return false;
    hand_back();
    return true;
  }

  /// Returns how many records were dropped. Takes no lock: a client may call this while it holds a
  /// lock that its own functions take.
  size_t take_dropped() { return dropped_.exchange(0); }

 private:
  bool has_room() const {
    if (buffer_ == nullptr || used_bytes_ + sizeof(Record) > size_bytes_) return false;
    return max_records_ == 0 || used_bytes_ / sizeof(Record) < max_records_;
  }

  bool renew() {
    if (request_ == nullptr) return false;
    hand_back();
    request_(&buffer_, &size_bytes_, &max_records_);
    if (buffer_ == nullptr) return false;
    if (is_aligned(buffer_) && has_room()) return true;
    hand_back();  // it is misaligned or too small
    return false;
  }

  void hand_back() {
    uint8_t* const buffer = std::exchange(buffer_, nullptr);
    const size_t used_bytes = std::exchange(used_bytes_, 0);
    if (buffer != nullptr) complete_(nullptr, 0, buffer, size_bytes_, used_bytes);
    size_bytes_ = 0;
    max_records_ = 0;
  }

  std::mutex mutex_;
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  uint8_t* buffer_ = nullptr;
  size_t size_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t max_records_ = 0;  // 0: as many as fit
  std::atomic<size_t> dropped_{0};
};

Buffers& buffers() {
  static Buffers& instance = *new Buffers;  // LibTorch frees memory in static destructors
  return instance;
}

void record(const MemoryChange& change, uint32_t correlation_id) {
  Record record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record.memoryOperationType = change.operation;
  record.memoryKind = change.kind;
  record.correlationId = correlation_id;
  record.address = change.address;
  record.bytes = change.bytes;
  record.timestamp = timestamp_ns();
  record.processId = static_cast<uint32_t>(::getpid());
  record.deviceId = 0;
  record.contextId = kContextId;
  record.streamId = CUPTI_INVALID_STREAM_ID;
  buffers().add(record);
}

/// Turns a kind on or off. MEMORY2 is the only kind that is recorded here.
CUptiResult switch_kind(CUpti_ActivityKind kind, bool on) {
  if (kind != CUPTI_ACTIVITY_KIND_MEMORY2) return CUPTI_ERROR_INVALID_KIND;
  if (on && !can_trace()) return CUPTI_ERROR_NOT_INITIALIZED;
  listen_to_memory(on ? &record : nullptr);
  return CUPTI_SUCCESS;
}

/// Returns the external ids that a thread has pushed, of one kind, or null if there is no such
/// kind.
std::vector<uint64_t>* external_ids(CUpti_ExternalCorrelationKind kind) {
  thread_local std::array<std::vector<uint64_t>, CUPTI_EXTERNAL_CORRELATION_KIND_SIZE> ids;
  const bool is_kind =
      kind > CUPTI_EXTERNAL_CORRELATION_KIND_INVALID && kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE;
  return is_kind ? &ids[kind] : nullptr;
}

}  // namespace

void stop_recording() {
  switch_kind(CUPTI_ACTIVITY_KIND_MEMORY2, false);
  buffers().flush();
  buffers().set_client(nullptr, nullptr);
}

}  // namespace shardlens::profiler

using namespace shardlens;
using namespace shardlens::profiler;

extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (request == nullptr || complete == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  buffers().set_client(request, complete);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) { return switch_kind(kind, true); }

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) { return switch_kind(kind, false); }

/// Flushes the buffer. Every record is complete as soon as it is made, so a forced flush
/// makes no difference.
CUptiResult cuptiActivityFlushAll(uint32_t) {
  return buffers().flush() ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes,
                                       CUpti_Activity** record) {
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  uint8_t* const next =
      *record == nullptr ? buffer : reinterpret_cast<uint8_t*>(*record) + sizeof(Record);
  if (next + sizeof(Record) > buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* const activity = reinterpret_cast<CUpti_Activity*>(next);
  if (activity->kind != CUPTI_ACTIVITY_KIND_MEMORY2) return CUPTI_ERROR_INVALID_KIND;
  *record = activity;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = buffers().take_dropped();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                   uint64_t id) {
  std::vector<uint64_t>* const ids = external_ids(kind);
  if (ids == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  ids->push_back(id);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t* last_id) {
  std::vector<uint64_t>* const ids = external_ids(kind);
  if (ids == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (ids->empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (last_id != nullptr) *last_id = ids->back();
  ids->pop_back();
  return CUPTI_SUCCESS;
}

// These calls would record, time or tune what the null device does not have, so they are refused.

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId, uint8_t) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId, uint8_t) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}

CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}

CUptiResult cuptiActivityEnableAllocationSource(uint8_t) { return CUPTI_ERROR_NOT_SUPPORTED; }

CUptiResult cuptiActivityFlushPeriod(uint32_t) { return CUPTI_ERROR_NOT_SUPPORTED; }

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return CUPTI_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
