// Defines the runtime's calls on device memory, and copies, and reports them to the checker
// (check_feed.h).
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "profiler/null_device/checks/check_feed.h"
#include "profiler/null_device/cudart/errors.h"
#include "profiler/null_device/driver/api_observer.h"
#include "profiler/null_device/driver/device_memory.h"
#include "profiler/null_device/driver/known_memory.h"
#include "profiler/null_device/driver/pinned.h"
#include "profiler/null_device/driver/work_feed.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

bool is_on_device(const void* address) {
  return DeviceMemory::is_device_address(reinterpret_cast<uint64_t>(address));
}

/// Returns null if no values are kept.
KnownMemory* known_memory() {
  static KnownMemory* const known = shardlens_null_known_memory();
  return known;
}

uint64_t number_of(const void* address) { return reinterpret_cast<uint64_t>(address); }

void copy_to_device(void* target, const void* source, size_t bytes) {
  KnownMemory* const known = known_memory();
  if (known == nullptr) return;
  if (bytes > kMostBytesOfRange) return known->forget(number_of(target), bytes);
  known->know(number_of(target), source, bytes);
}

/// Copies known values; else writes zeros, so that the host's old values never remain.
void copy_to_host(void* target, const void* source, size_t bytes) {
  KnownMemory* const known = known_memory();
  if (known != nullptr && known->read(target, number_of(source), bytes)) return;
  if (shardlens_null_answer(target, bytes)) return;
  if (!shardlens_null_clear_pinned(target, bytes)) std::memset(target, 0, bytes);
}

void copy_on_device(void* target, const void* source, size_t bytes) {
  KnownMemory* const known = known_memory();
  if (known == nullptr) return;
  if (bytes > kMostBytesOfRange || !known->knows(number_of(source), bytes)) {
    return known->forget(number_of(target), bytes);
  }
  std::vector<char> values(bytes);
  known->read(values.data(), number_of(source), bytes);
  known->know(number_of(target), values.data(), bytes);
}

cudaError_t copy(void* target, const void* source, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (is_on_device(target)) {
    (is_on_device(source) ? copy_on_device : copy_to_device)(target, source, bytes);
  } else if (is_on_device(source)) {
    copy_to_host(target, source, bytes);
  } else {
    std::memmove(target, source, bytes);
  }
  return cudaSuccess;
}

void set(void* target, int value, size_t bytes) {
  KnownMemory* const known = known_memory();
  if (known == nullptr) return;
  if (bytes > kMostBytesOfRange) return known->forget(number_of(target), bytes);
  const std::vector<char> values(bytes, static_cast<char>(value));
  known->know(number_of(target), values.data(), bytes);
}

bool is_pageable(const void* address) {
  cudaPointerAttributes attributes;
  cudaPointerGetAttributes(&attributes, address);
  return attributes.type == cudaMemoryTypeUnregistered;
}

void check_uses(void* target, const void* source, size_t bytes, cudaStream_t stream,
                const char* what) {
  check_feed->use(stream, source, bytes, false, what);
  check_feed->use(stream, target, bytes, true, what);
}

/// Reports to the checker a copy and when the host continues, which follows "API synchronization
/// behavior" in the runtime's manual. The host continues after the whole copy if it is to the host
/// or from pinned memory; when the stream has reached the copy if it is from pageable memory; and
/// at once if both places are on the device.
void check_copy(void* target, const void* source, size_t bytes) {
  const bool from_host = !is_on_device(source);
  const bool is_staged = from_host && is_pageable(source);
  if (is_staged) check_feed->stream_synchronized(nullptr);
  check_uses(target, source, bytes, nullptr, "cudaMemcpy");
  if (!is_staged && (from_host || !is_on_device(target))) check_feed->stream_synchronized(nullptr);
}

/// Reports an asynchronous copy to the checker. Only a copy into pageable memory blocks the host.
void check_copy_async(void* target, const void* source, size_t bytes, cudaStream_t stream) {
  check_uses(target, source, bytes, stream, "cudaMemcpyAsync");
  if (!is_on_device(target) && is_pageable(target)) check_feed->stream_synchronized(stream);
}

CopyKind kind_of(const void* target, const void* source) {
  if (is_on_device(target)) {
    return is_on_device(source) ? CopyKind::on_device : CopyKind::host_to_device;
  }
  return is_on_device(source) ? CopyKind::device_to_host : CopyKind::on_host;
}

/// An asynchronous copy from pageable memory returns at once up to this size: the driver keeps a
/// copy.
constexpr size_t kMostBytesKept = 64 << 10;

/// True if the host goes on only when the copy is done, by the rules that check_copy follows, or
/// when an asynchronous copy from pageable memory has been staged.
bool blocks(CopyKind kind, bool is_pageable, size_t bytes, bool is_async) {
  if (kind == CopyKind::on_device) return false;
  if (!is_async) return true;
  return is_pageable && (kind != CopyKind::host_to_device || bytes > kMostBytesKept);
}

void tell_copy(const void* target, const void* source, size_t bytes, const void* stream,
               bool is_async) {
  tell_work([&] {
    const CopyKind kind = kind_of(target, source);
    const void* const host = kind == CopyKind::host_to_device ? source : target;
    const bool is_staged = kind != CopyKind::on_device && is_pageable(host);
    return WorkRequest{.work = {.kind = WorkKind::copy,
                                .copy = {.bytes = static_cast<int64_t>(bytes),
                                         .kind = kind,
                                         .is_pageable = is_staged,
                                         .blocks = blocks(kind, is_staged, bytes, is_async)}},
                       .stream = stream};
  });
}

cudaError_t copy_async(void* target, const void* source, size_t bytes, cudaStream_t stream) {
  if (check_feed != nullptr) check_copy_async(target, source, bytes, stream);
  return copy(target, source, bytes);
}

cudaError_t allocate(void** address, size_t bytes) {
  CUdeviceptr allocated = 0;
  const CUresult error = bytes == 0 ? CUDA_SUCCESS : cuMemAlloc(&allocated, bytes);
  *address = reinterpret_cast<void*>(allocated);
  return result(error);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  tell_memory_call("cudaMalloc", bytes);
  return observe_call(api::kMalloc, cudaMalloc_v3020_params{address, bytes},
                      [&] { return allocate(address, bytes); });
}

cudaError_t cudaFree(void* address) {
  if (address != nullptr) tell_memory_call("cudaFree", 0);
  return observe_call(api::kFree, cudaFree_v3020_params{address}, [&] {
    return result(address == nullptr ? cuInit(0)
                                     : cuMemFree(reinterpret_cast<CUdeviceptr>(address)));
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return result(cuMemGetInfo(free_bytes, total_bytes));
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  if (check_feed != nullptr) check_copy(target, source, bytes);
  tell_copy(target, source, bytes, nullptr, false);
  return copy(target, source, bytes);
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  tell_copy(target, source, bytes, stream, true);
  return copy_async(target, source, bytes, stream);
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source,
                              size_t source_pitch, size_t width_bytes, size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  tell_copy(target, source, width_bytes * height, stream, true);
  for (size_t row = 0; row < height; ++row) {
    copy_async(static_cast<char*>(target) + row * target_pitch,
               static_cast<const char*>(source) + row * source_pitch, width_bytes, stream);
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  set(target, value, bytes);
  tell_work([&] {
    return WorkRequest{
        .work = {.kind = WorkKind::set, .copy = {.bytes = static_cast<int64_t>(bytes)}},
        .stream = stream};
  });
  if (check_feed != nullptr) check_feed->use(stream, target, bytes, true, "cudaMemset");
  return cudaSuccess;
}

/// Sets memory. On the device this does not block the host, like cudaMemsetAsync.
cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  return cudaMemsetAsync(target, value, bytes, nullptr);
}

cudaError_t cudaGetSymbolAddress(void** address, const void*) {
  // It is the address of a variable of a kernel's module: on the device, outside every allocation.
  *address = reinterpret_cast<void*>(DeviceMemory::kVariableAddress);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** address, size_t, cudaStream_t) {
  *address = nullptr;
  return result(cudaErrorNotSupported);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return result(cudaErrorNotSupported);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) {
  return result(cudaErrorNotSupported);
}

cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t, unsigned) {
  *address = nullptr;
  return result(cudaErrorNotSupported);
}

}  // extern "C"
