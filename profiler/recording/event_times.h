// Tells when the events that a program records would happen on a GPU, while its trace of work is
// made. The planner knows how, in a library of its own (planner/time/tasks/event_library.cpp),
// which the recorder loads into a program that reads the time between two events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardlens::profiler {

/// One thread at a time may use it. It is never destroyed.
class EventTimes {
 public:
  /// Adds a block of the trace, which follows all before it. Returns false if it cannot be read;
  /// no later event has a time then.
  virtual bool follow(std::span<const std::byte> payload, uint32_t items) = 0;

  /// Returns when an event happens, in seconds since the trace began, by the item that records it;
  /// below zero: that is not known.
  virtual double seconds_of(int64_t item) = 0;

 protected:
  ~EventTimes() = default;
};

}  // namespace shardlens::profiler

extern "C" {

/// Returns the times of a recording's events on the GPU of this name, with the trace of work so far
/// read from its file, and the times of a calibration if that is not empty. Returns null, and sets
/// `why` to a text that is valid until the next call, if they cannot be told.
shardlens::profiler::EventTimes* shardlens_event_times(const char* recording, const char* gpu,
                                                       const char* calibration, const char** why);
}
