#include "profiler/exchange/write_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "profiler/writer.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kMostBlocks = 1024;  // that a writer accepts

/// Returns options with buffers for all events, so that none is lost while the disk is slow.
WriterOptions options_for(const Profile& profile) {
  WriterOptions options{.seals_old = false, .lost = profile.judgement.lost_events};
  const size_t blocks = profile.events.size() / options.block_events + 2;
  options.blocks = static_cast<uint32_t>(std::clamp<size_t>(blocks, options.blocks, kMostBlocks));
  return options;
}

}  // namespace

void write_recording(const Profile& profile, const std::string& path) {
  Writer writer(path, profile.header, options_for(profile));
  std::vector<uint32_t> labels;
  for (const std::string& text : profile.strings) labels.push_back(writer.intern(text));
  for (Event event : profile.events) {
    event.label = labels[event.label];
    writer.append(event);
  }
  writer.close();
  if (!writer.failure().empty()) throw std::runtime_error(writer.failure());
  const int64_t lost = writer.counts().lost - profile.judgement.lost_events;
  if (lost > 0) {
    throw std::runtime_error(
        fmt::format("{} events could not be written as fast as they were read", lost));
  }
}

}  // namespace shardlens::profiler
