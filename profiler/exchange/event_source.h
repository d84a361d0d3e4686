// Gives the events of a recording as many times as a caller needs them, so that no caller has to
// keep them. A recording of a few kilobytes can have millions of events, so exporters read them
// this way.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct EventSource {
  using EventReceiver = std::function<void(std::span<const Event>)>;

  Header header;
  std::vector<std::string> strings;
  Stacks stacks;
  std::function<void(const EventReceiver&)>
      for_each;                          // passes on all events from the first on, in parts
  std::function<Judgement()> judgement;  // complete once for_each has reached the end
};

/// Returns the events of a recording in memory, which must outlive the source.
EventSource events_of(const Profile& profile);

/// Returns the events of a file, of which one part at a time is in memory. Throws as Reader does.
EventSource events_in(const std::string& path);

}  // namespace shardlens::profiler
