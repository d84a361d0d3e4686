// One rank's recording, opened: its arrays (in memory or mapped), its pyramid, and what the
// recording says about itself. Everything that draws or counts asks a Lane.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "input/input_file.h"
#include "profiler/profile.h"
#include "viewer/model/lane_data.h"
#include "viewer/model/pyramid.h"

namespace shardlens::viewer {

/// What is said once of a lane. Saved as JSON beside the arrays.
struct LaneInfo {
  profiler::Header header;
  std::vector<std::string> strings = {""};
  profiler::Space space{};  // device, or host where the rank had no device
  int64_t end_ns = 0;
  int64_t events = 0;
  int64_t unmatched = 0;     // frees and changes of addresses that nothing had allocated
  int64_t steps_before = 0;  // that ran before the recording began
  profiler::Judgement judgement;
};

/// Moves freely. Every span stays valid as long as the lane, also when it is moved. All questions
/// may be asked by several threads at a time.
class Lane {
 public:
  Lane() = default;
  Lane(LaneInfo info, LaneData data);
  /// `sections` lie in `file`.
  struct Sections {
    std::span<const int64_t> times_ns;
    std::span<const uint32_t> words;
    std::span<const Block> blocks;
    std::span<const Extent> nodes;
    std::span<const CategoryBytes> checkpoints;
    std::span<const uint64_t> alive_begins;
    std::span<const uint32_t> alive_blocks;
    std::span<const Stretch> stretches;
    std::span<const Span> spans;
    std::span<const ReservedSample> reserved;
  };
  Lane(LaneInfo info, input::MappedFile file, const Sections& sections);

  const LaneInfo& info() const { return info_; }
  const Sections& arrays() const { return sections_; }
  const Pyramid& pyramid() const { return pyramid_; }
  int32_t rank() const { return info_.header.rank; }
  int64_t changes() const { return pyramid_.changes(); }

  /// The highest moment of the recording, and of its steps from the third on (nothing where it has
  /// fewer): `profile report` calls them peak and step_peak.
  const Extent& peak() const { return peak_; }
  const std::optional<Extent>& step_peak() const { return step_peak_; }

  /// The first change at or after a time.
  int64_t change_at(double time_ns) const;
  int64_t time_of(int64_t change) const;  // kBeforeAll: 0
  /// The highest moment between two times, what was alive at the first included.
  Extent between(double begin_ns, double end_ns) const;
  /// The same by changes: what was alive before `begin` included.
  Extent between_changes(int64_t begin, int64_t end) const;
  /// The most that LibTorch had reserved between two times; nothing where that was not recorded.
  std::optional<int64_t> reserved_between(double begin_ns, double end_ns) const;

  /// Indices of the blocks that are alive after a change, in order of birth.
  std::vector<uint32_t> alive_after(int64_t change) const;

  const Stretch* stretch_at(int64_t time_ns) const;
  const Stretch* stretch_of_change(int64_t change) const;
  /// The deepest action that was running; nothing outside of all.
  const Span* span_at(int64_t time_ns) const;

  std::string_view label(const Block& block) const;

 private:
  void finish();

  LaneInfo info_;
  std::unique_ptr<LaneData> data_;  // or
  input::MappedFile file_;
  Sections sections_;
  Pyramid pyramid_;
  std::vector<int64_t> coarse_times_ns_;  // every kCoarse-th: a search that stays in the cache
  Extent peak_;
  std::optional<Extent> step_peak_;
};

}  // namespace shardlens::viewer
