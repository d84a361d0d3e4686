#include "profiler/exchange/event_source.h"

#include <limits>
#include <memory>

#include "profiler/reader.h"

namespace shardlens::profiler {

EventSource events_of(const Profile& profile) {
  return {.header = profile.header,
          .strings = profile.strings,
          .for_each = [&profile](const EventSource::Take& take) { take(profile.events); },
          .judgement = [&profile] { return profile.judgement; }};
}

EventSource events_in(const std::string& path) {
  const auto reader = std::make_shared<Reader>(path);
  return {.header = reader->header(),
          .strings = reader->strings(),
          .for_each = [reader](const EventSource::Take& take) {
            reader->start_at(std::numeric_limits<int64_t>::min());  // the beginning
            std::vector<Event> events;
            while (reader->next(events)) take(events);
          },
          .judgement = [reader] { return reader->judgement(); }};
}

}  // namespace shardlens::profiler
