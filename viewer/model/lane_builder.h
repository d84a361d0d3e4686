// Makes a lane from a recording: in one pass over its events, as the reader decodes them, and one
// over the changes for the pyramid, since an allocation's category may become known later.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"
#include "profiler/report/address_map.h"
#include "profiler/report/report.h"
#include "viewer/model/lane.h"

namespace shardlens::viewer {

class LaneBuilder {
 public:
  /// Begins a lane of `space`; without one, of the rank's device, or of the host if `header.device`
  /// is the CPU.
  explicit LaneBuilder(const profiler::Header& header,
                       std::optional<profiler::Space> space = std::nullopt);

  /// Tells how many events will come, if that is known, so that no array is copied while it grows.
  void expect(int64_t events);
  void take(const profiler::Event& event);
  /// Makes the lane last until this time at least.
  void last_until(int64_t time_ns) { last_ns_ = std::max(last_ns_, time_ns); }
  /// Returns the analysis of the events taken, of all spaces.
  profiler::Analysis& analysis() { return analysis_; }
  /// Returns the lane. Call it once, after the last event. `info` has the facts that only the file
  /// knows; its space, end and counts are filled in here.
  Lane finish(LaneInfo info);

 private:
  void take_alloc(const profiler::Event& event);
  void take_free(const profiler::Event& event);
  void recategorise(const profiler::Event& event);
  void take_segment(const profiler::Event& event);
  void take_tensor(const profiler::Event& event);
  void use_segments_of(uint64_t from, uint64_t to, bool begins);
  void use_segments(uint64_t address, int64_t bytes, bool begins);
  void take_module(const profiler::Event& event);
  void take_failure(const profiler::Event& event);
  void explain_segments(const profiler::Event& event);
  void remove_segments(const profiler::Event& event);
  uint32_t begin_block(const profiler::Event& event, int64_t given_bytes);
  void begin_stretch(const profiler::Event& event);
  void begin_action(const profiler::Event& event);
  void end_action(const profiler::Event& event);
  void end_running();
  bool end_block_at(uint64_t address, int64_t time_ns, uint32_t free_label);
  void end_block(uint32_t block, int64_t time_ns);
  void append(int64_t time_ns, uint32_t block, bool is_free);
  void close_stretch(int64_t time_ns);

  profiler::Space space_;
  bool has_schedule_;
  profiler::Analysis analysis_;
  profiler::AddressMap live_;              // indices of blocks by address
  std::map<uint64_t, uint32_t> segments_;  // in a lane of segments, their blocks by address,
  std::map<uint64_t, int64_t> tensors_;    // and the bytes of tensors in them, by address
  std::map<uint64_t, size_t> uses_;        // and the uses that have not ended, by address
  std::vector<uint32_t> unexplained_;      // segments that were taken since the last allocation
  LaneData data_;
  profiler::Phase phase_ = profiler::Phase::starting;
  int32_t step_ = -1;
  std::vector<size_t> running_;  // indices of spans, the outermost first
  int64_t events_ = 0;
  int64_t unmatched_ = 0;
  int64_t steps_before_ = 0;
  int64_t last_ns_ = 0;
};

/// Makes a lane from a recording in memory.
Lane lane_of(const profiler::Profile& profile, std::optional<profiler::Space> space = std::nullopt);

/// Receives the part of a recording that has been read, from 0 to 1, and returns true to go on
/// reading.
using ReadProgress = std::function<bool(double part)>;

/// Other times for a lane than the recorded ones.
struct OtherTimes {
  std::function<int64_t(int64_t recorded_ns)> time_of;
  int64_t end_ns = 0;  // at which what the program asked for has ended, if that is later
  std::string notice;  // that says so, in the lane's header
};

/// Makes a lane from a file, block by block. Throws as Reader does, and std::runtime_error if
/// `tell` returns false.
Lane read_lane(const std::string& path, std::optional<profiler::Space> space = std::nullopt,
               const ReadProgress& tell = {}, const OtherTimes* other = nullptr);

}  // namespace shardlens::viewer
