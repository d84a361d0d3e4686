// Events for tests of the recording's file: random ones, which follow no rule, and a plain sequence
// in which every event can be recognised by its number.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "profiler/file/writer.h"
#include "profiler/recording/profile.h"

namespace shardlens::tests {

/// Frees and declarations mostly name addresses that were allocated, but not always.
inline std::vector<profiler::Event> random_events(std::mt19937_64& engine, size_t count,
                                                  uint32_t labels = 100) {
  std::vector<profiler::Event> events;
  const auto below = [&](uint64_t limit) { return engine() % limit; };
  for (size_t i = 0; i < count; ++i) {
    profiler::Event event;
    const bool wild = below(20) == 0;
    const int64_t last_ns = i == 0 ? 0 : events[i - 1].time_ns;
    event.time_ns =
        wild ? static_cast<int64_t>(engine()) / 4 : last_ns + static_cast<int64_t>(below(9999));
    event.address = wild ? engine() : below(200) * 512;
    event.value = wild ? static_cast<int64_t>(engine()) : static_cast<int64_t>(below(1 << 20));
    event.action = wild ? static_cast<int32_t>(engine()) : static_cast<int32_t>(below(50)) - 1;
    event.label = static_cast<uint32_t>(below(labels));
    event.stream = static_cast<uint16_t>(wild ? below(65536) : below(3));
    event.kind = static_cast<profiler::EventKind>(below(profiler::kEventKinds));
    event.space = static_cast<profiler::Space>(below(profiler::kSpaces));
    event.category = static_cast<profiler::Category>(below(profiler::kCategories));
    events.push_back(event);
  }
  return events;
}

/// The event with this number: it has the number in `value` and is like no other.
inline profiler::Event numbered_event(int64_t number) {
  const auto mixed = static_cast<uint64_t>(number) * 0x9E37'79B9'7F4A'7C15U;
  return {.time_ns = number * 1000,
          .address = (mixed >> 40) << 9,
          .value = number,
          .action = static_cast<int32_t>(number % 97) - 1,
          .label = 0,
          .stream = static_cast<uint16_t>(number % 3),
          .kind = number % 2 == 0 ? profiler::EventKind::alloc : profiler::EventKind::free,
          .space = static_cast<profiler::Space>(number % profiler::kSpaces),
          .category = static_cast<profiler::Category>(number % profiler::kCategories)};
}

inline profiler::Header header_of_rank(int32_t rank) {
  profiler::Header header;
  header.rank = rank;
  return header;
}

/// Records all events, strings first, and closes. Returns what the writer counted.
inline profiler::WriterCounts write_profile(const std::string& path,
                                            const profiler::Profile& profile,
                                            profiler::WriterOptions options = {}) {
  profiler::Writer writer(path, profile.header, options);
  for (const std::string& text : profile.strings) writer.intern(text);
  for (const profiler::Event& event : profile.events) writer.append(event);
  writer.close();
  return writer.counts();
}

}  // namespace shardlens::tests
