#include "profiler/exchange/write_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "profiler/file/writer.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kMostBlocks = 1024;  // that a writer accepts
constexpr int kMostPauses = 5000;     // of a millisecond, until a writer has room for a text

/// Returns options with buffers for all events, so that none is lost while the disk is slow.
WriterOptions options_for(const Profile& profile) {
  WriterOptions options{.seals_old = false, .lost = profile.judgement.lost_events};
  const size_t blocks = profile.events.size() / options.block_events + 2;
  options.blocks = static_cast<uint32_t>(std::clamp<size_t>(blocks, options.blocks, kMostBlocks));
  return options;
}

/// Writes the strings and stacks of a profile.
class LabelWriter {
 public:
  LabelWriter(const Profile& profile, Writer& writer) : profile_(profile), writer_(writer) {}

  /// Returns the number of each label in the recording.
  std::vector<uint32_t> run() {
    std::vector<uint32_t> labels;
    for (uint32_t i = 0; i < profile_.strings.size(); ++i) {
      labels.push_back(text(i, frame(profile_.stacks.innermost_frame(i))));
    }
    return labels;
  }

 private:
  /// Returns the number of a frame in the recording, after writing all frames up to it. Frames are
  /// written only when a label needs one, so that strings keep their order.
  uint32_t frame(uint32_t index) {
    const std::vector<StackFrame>& frames = profile_.stacks.frames;
    while (frames_.size() <= index) {
      const StackFrame& next = frames[frames_.size()];
      const StackFrame written{.caller = frames_[next.caller],
                               .file = text(next.file, 0),
                               .function = text(next.function, 0),
                               .line = next.line};
      frames_.push_back(kept([&] { return writer_.frame(written); }));
    }
    return frames_[index];
  }

  uint32_t text(uint32_t id, uint32_t innermost) {
    const std::string& text = profile_.strings[id];
    if (text.empty()) return 0;
    return kept([&] { return writer_.intern(text, innermost); });
  }

  /// Waits while the writer's areas for texts and frames are full. Returns 0 if the recording has
  /// failed, or is full.
  template <class Give>
  uint32_t kept(Give give) {
    for (;;) {
      const uint32_t number = give();
      if (number != 0 || writer_.failure() || pauses_left_ == 0) return number;
      --pauses_left_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const Profile& profile_;
  Writer& writer_;
  std::vector<uint32_t> frames_ = {0};  // the numbers of the first frames
  int pauses_left_ = kMostPauses;
};

}  // namespace

void write_recording(const Profile& profile, const std::string& path) {
  Writer writer(path, profile.header, options_for(profile));
  const std::vector<uint32_t> labels = LabelWriter(profile, writer).run();
  for (Event event : profile.events) {
    event.label = labels[event.label];
    writer.append(event);
  }
  writer.close();
  if (const Problem failure = writer.failure()) throw std::runtime_error(*failure);
  const int64_t lost = writer.counts().lost - profile.judgement.lost_events;
  if (lost > 0) {
    throw std::runtime_error(
        fmt::format("{} events could not be written as fast as they were read", lost));
  }
}

}  // namespace shardlens::profiler
