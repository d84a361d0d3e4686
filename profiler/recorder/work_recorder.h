// Makes the trace of work of a program on the null device: it observes what the stubs are asked
// for, adds the operator of PyTorch that asks, and hands the trace to the writer in blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/file/writer.h"
#include "profiler/null_device/driver/work_feed.h"
#include "profiler/recorder/recorder.h"
#include "profiler/recorder/stream_numbers.h"
#include "profiler/recording/event_times.h"

namespace shardlens::profiler {

class WorkRecorder final : public WorkObserver {
 public:
  /// `start_ns` is the time of steady_ns() at which the recording began. `follow_events` returns
  /// null if times of events are not known.
  WorkRecorder(Writer& writer, StreamNumbers& streams, int64_t start_ns,
               EventTimes* (*follow_events)())
      : writer_(writer), streams_(streams), start_ns_(start_ns), follow_events_(follow_events) {}

  /// Begins to observe the null device; returns false if the process has none.
  bool start();
  void step(int64_t step);
  /// Lets no recorder observe the null device, in this process or in one that was forked.
  static void leave();
  /// Ends the trace. The object must live on, since another thread may still call it.
  void finish();

  void trace_collective(const TracedCollective& collective);
  void await_collectives();

  void note(const WorkRequest& request) override;
  void note_communicator(const void* communicator, int ranks, int rank) override;
  /// The first call asks for the times of events, which waits for the disk.
  std::optional<double> seconds_between(const void* start, const void* end) override;

  /// Returns how often seconds_between() has returned a time.
  int64_t predictions() const { return predictions_; }

 private:
  using CaptureOf = uint64_t(const void* stream);

  int64_t now_ns() const;
  void add(const WorkRequest& request, int64_t time_ns);
  const void* key_of(const TracedCollective& collective);
  uint32_t name_of(const char* name);
  uint16_t number_of_thread();
  int64_t about_of(const WorkRequest& request);
  void hand_over();
  EventTimes* event_times();
  std::optional<double> seconds_of(const void* event);

  Writer& writer_;
  StreamNumbers& streams_;
  const int64_t start_ns_;
  EventTimes* (*const follow_events_)();
  CaptureOf* capture_of_ = nullptr;
  bool has_finished_ = false;

  std::mutex mutex_;  // for all below
  WorkEncoder encoder_;
  std::unordered_map<const char*, uint32_t> names_;
  std::unordered_map<const void*, uint32_t> communicators_;
  std::unordered_map<const void*, int64_t> recorded_;  // the item that last recorded an event
  uint16_t threads_ = 0;
  // Streams and communicators of process groups that never call NCCL: their places stand for both.
  std::set<std::string> groups_;
  std::map<const void*, const void*> pending_;  // the event of the last collective by its stream
  bool reads_events_ = false;                   // a time between two was asked for
  EventTimes* events_ = nullptr;                // has each block that was handed over
  std::atomic<int64_t> predictions_ = 0;
};

/// Notes the ranks in the world of a process group, by PyTorch's name for it.
void note_group(const std::string& name, std::vector<int32_t> world_ranks);

}  // namespace shardlens::profiler
