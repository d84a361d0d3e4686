// The events of a recording, gone through as often as need be: what is made of them need not keep
// them. A recording of a few kilobytes can have millions of events, so exporters take them so.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "profiler/profile.h"

namespace shardlens::profiler {

struct EventSource {
  using Take = std::function<void(std::span<const Event>)>;

  Header header;
  std::vector<std::string> strings;
  std::function<void(const Take&)> for_each;  // of all events from the first on, in parts
  std::function<Judgement()> judgement;       // complete when for_each has come to the end
};

/// Of a recording in memory, which must outlive it.
EventSource events_of(const Profile& profile);

/// Of a file, one part in memory at a time. Throws as Reader does.
EventSource events_in(const std::string& path);

}  // namespace shardlens::profiler
