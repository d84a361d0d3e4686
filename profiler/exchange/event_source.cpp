#include "profiler/exchange/event_source.h"

#include <limits>
#include <memory>
#include <optional>

#include "profiler/file/reader.h"

namespace shardlens::profiler {

EventSource events_of(const Profile& profile) {
  return {.header = profile.header,
          .strings = profile.strings,
          .stacks = profile.stacks,
          .for_each = [&profile](const EventSource::EventReceiver& take) { take(profile.events); },
          .judgement = [&profile] { return profile.judgement; }};
}

EventSource events_in(const std::string& path) {
  struct File {
    explicit File(const std::string& path) : reader(path) {}
    Reader reader;
    std::optional<Judgement> judgement;  // after the first complete reading
  };
  const auto file = std::make_shared<File>(path);
  return {.header = file->reader.header(),
          .strings = file->reader.strings(),
          .stacks = file->reader.stacks(),
          .for_each =
              [file](const EventSource::EventReceiver& take) {
                file->reader.start_at(std::numeric_limits<int64_t>::min());  // the beginning
                std::vector<Event> events;
                while (file->reader.next(events)) take(events);
                if (!file->judgement) file->judgement = file->reader.judgement();
              },
          .judgement = [file] { return file->judgement.value_or(file->reader.judgement()); }};
}

}  // namespace shardlens::profiler
