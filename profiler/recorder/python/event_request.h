// Loads the library that tells when a recording's events happen (recording/event_times.h), once a
// program reads the time between two of them.
#pragma once

#include <string>

#include "profiler/recording/event_times.h"

namespace shardlens::profiler {

struct EventRequest {
  std::string library;    // its file
  std::string recording;  // whose trace is followed
  std::string gpu;        // "h100"
  std::string calibration;
};

/// Says what is to be loaded. Call it before the recording begins.
void set_event_request(const EventRequest& request);

/// Returns the times of the recording's events; null if they are not known.
EventTimes* follow_requested_events();

/// Returns why follow_requested_events() has returned null; "" if it never did.
const std::string& event_fault();

}  // namespace shardlens::profiler
