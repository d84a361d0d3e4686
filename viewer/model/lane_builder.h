// Makes a lane of a recording: one pass over its events, as the reader decodes them, then one over
// the changes for the pyramid, since what an allocation is may become known after it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "profiler/profile.h"
#include "profiler/report/address_map.h"
#include "profiler/report/block_tracker.h"
#include "viewer/model/lane.h"

namespace shardlens::viewer {

class LaneBuilder {
 public:
  /// Of `space`; else of the rank's device, or of the host where `header.device` is the CPU.
  explicit LaneBuilder(const profiler::Header& header,
                       std::optional<profiler::Space> space = std::nullopt);

  /// How many events come, if that is known: then no array is copied while it grows.
  void expect(int64_t events);
  void take(const profiler::Event& event);
  /// Once, after the last event. `info` brings what only the file knows; its space, end and counts
  /// are filled in here.
  Lane finish(LaneInfo info);

 private:
  void take_alloc(const profiler::Event& event);
  void take_free(const profiler::Event& event);
  void recategorise(const profiler::Event& event);
  void take_segment(const profiler::Event& event);
  void begin_stretch(const profiler::Event& event);
  void begin_action(const profiler::Event& event);
  void end_action(const profiler::Event& event);
  bool end_block(uint64_t address, int64_t time_ns);
  void append(int64_t time_ns, uint32_t block, bool is_free);
  void close_stretch(int64_t time_ns);

  profiler::Space space_;
  profiler::BlockTracker tracker_;
  profiler::AddressMap live_;  // of blocks
  LaneData data_;
  profiler::Phase phase_ = profiler::Phase::starting;
  int32_t step_ = -1;
  std::vector<size_t> running_;  // of spans, the outermost first
  int64_t events_ = 0;
  int64_t unmatched_ = 0;
  int64_t steps_before_ = 0;
  int64_t last_ns_ = 0;
};

/// The whole of a recording that is in memory.
Lane lane_of(const profiler::Profile& profile, std::optional<profiler::Space> space = std::nullopt);

/// Told which part of a recording has been read, from 0 to 1; whether the rest is wanted.
using ReadPart = std::function<bool(double part)>;

/// Streams a file. Throws as Reader does, and std::runtime_error where the rest is not wanted.
Lane read_lane(const std::string& path, std::optional<profiler::Space> space = std::nullopt,
               const ReadPart& tell = {});

}  // namespace shardlens::viewer
