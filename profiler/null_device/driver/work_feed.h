// Tells an observer what a program asks of the null device: launches, products, copies, collectives
// and the order of streams. The pointer to the observer lives in the driver's library, which the
// others depend on; while it is null a request costs one branch:
//     tell_work([&] { return WorkRequest{.work = {.kind = WorkKind::set}, .stream = stream}; });
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "profiler/recording/work.h"

namespace shardlens::profiler {

/// A request as the stubs know it. Texts live as long as the process.
struct WorkRequest {
  Work work = {};              // without its name and its operator
  const char* name = nullptr;  // a kernel's is mangled
  const void* stream = nullptr;
  bool is_in_current_stream = false;  // `stream` is not known: it is PyTorch's current one
  const void* event = nullptr;
  const void* communicator = nullptr;
  int64_t about = -1;  // the graph that is launched
};

/// Receives requests on the thread that makes them. An observer is never destroyed.
class WorkObserver {
 public:
  virtual void note(const WorkRequest& request) = 0;
  /// Called before the first request that names the communicator.
  virtual void note_communicator(const void* communicator, int ranks, int rank) = 0;
  /// Returns the time between two events as it is predicted; nothing: that is not known.
  virtual std::optional<double> seconds_between(const void* start, const void* end) = 0;

 protected:
  ~WorkObserver() = default;
};

}  // namespace shardlens::profiler

extern "C" {
extern std::atomic<shardlens::profiler::WorkObserver*> shardlens_null_work_observer;

/// Returns the capture into a CUDA graph that a stream is part of; 0: none.
uint64_t shardlens_null_capture_of(const void* stream);

/// Is called, if it is set, on the thread that asks for the time between two events. It returns
/// false if that time is not to be predicted.
extern std::atomic<bool (*)()> shardlens_null_predicts_elapsed;
void shardlens_null_ask_for_elapsed(bool (*predicts)());
}

namespace shardlens::profiler {

inline WorkObserver* work_observer() {
  return shardlens_null_work_observer.load(std::memory_order_acquire);
}

template <class Make>
void tell_work(const Make& make) {
  if (WorkObserver* const observer = work_observer()) observer->note(make());
}

/// Tells of a call of a library whose work only PyTorch's operator describes.
inline void tell_library_call(const char* name) {
  tell_work([&] {
    return WorkRequest{
        .work = {.kind = WorkKind::library_call}, .name = name, .is_in_current_stream = true};
  });
}

/// Tells of memory that the driver gives or takes back; 0: as many bytes as it gave.
inline void tell_memory_call(const char* name, size_t bytes) {
  tell_work([&] {
    return WorkRequest{
        .work = {.kind = WorkKind::memory, .copy = {.bytes = static_cast<int64_t>(bytes)}},
        .name = name};
  });
}

}  // namespace shardlens::profiler
