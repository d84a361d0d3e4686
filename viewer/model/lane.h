// One rank's recording, opened: its arrays (in memory or mapped), its pyramid, and the recording's
// facts about itself. All code that draws or counts asks a Lane.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "base/input_file.h"
#include "profiler/recording/profile.h"
#include "viewer/model/lane_data.h"
#include "viewer/model/pyramid.h"

namespace shardlens::viewer {

/// The times of lanes: those that are predicted for the GPU, where a recording on a null device has
/// a trace of its work, or those that were recorded.
enum class Clock : uint8_t { predicted, recorded };
constexpr auto choice_words(Clock) { return words("predicted", "recorded"); }

/// Says about a rank what `profile report` does besides its memory over time, in its words.
struct LaneFindings {
  std::string growth;         // "grows by 65.13 MiB a step from step 2 on: ..."; empty: none
  std::string reserved;       // the parts of reserved memory when there was most, in rows
  std::string out_of_memory;  // the last request that failed, in rows; empty: none failed

  bool operator==(const LaneFindings&) const = default;
};

/// The facts about a lane that are stored once. The cache saves them as CBOR next to the arrays.
struct LaneInfo {
  profiler::Header header;
  std::vector<std::string> strings = {""};
  profiler::Stacks stacks = {};
  profiler::Space space{};  // device; host if the rank had none; or as asked
  int64_t end_ns = 0;
  int64_t events = 0;
  int64_t unmatched = 0;     // frees of and changes to unknown addresses
  int64_t steps_before = 0;  // steps that ran before the recording began
  LaneFindings findings = {};
  profiler::Judgement judgement;
};

/// One rank's recording. It can be moved; every span stays valid as long as the lane lives, also
/// after a move. Several threads may call its const functions at the same time.
class Lane {
 public:
  Lane() = default;
  Lane(LaneInfo info, LaneData data);
  /// The arrays of a lane; in the constructor below they lie in `file`.
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
    std::span<const BlockLabel> free_labels;  // ordered by block
    std::span<const BlockLabel> names;        // the same
    std::span<const ModuleChange> modules;
    std::span<const FailedRequest> failures;
    std::span<const SegmentUse> uses;
  };
  Lane(LaneInfo info, MappedFile file, const Sections& sections);

  const LaneInfo& info() const { return info_; }
  const Sections& arrays() const { return sections_; }
  const Pyramid& pyramid() const { return pyramid_; }
  int32_t rank() const { return info_.header.rank; }
  int64_t changes() const { return pyramid_.changes(); }

  /// Returns the highest moment of the recording, and of its steps from the third on (nothing if
  /// there are fewer): `profile report` calls them peak and step_peak.
  const Extent& peak() const { return peak_; }
  const std::optional<Extent>& step_peak() const { return step_peak_; }
  /// Returns the most bytes that LibTorch had reserved; 0 if that was not recorded.
  int64_t reserved_peak() const { return reserved_peak_; }

  /// Returns the first change at or after a time, in ns; changes() if there is none.
  int64_t change_at(double time_ns) const;
  int64_t time_of(int64_t change) const;  // kBeforeAll: 0
  /// Returns the first training step; null if there is none. Clocks count from its beginning.
  const Stretch* first_step() const;
  /// Returns the highest moment between two times; the state at the first time counts.
  Extent extent_between(double begin_ns, double end_ns) const;
  /// Returns the highest moment of the changes begin..end-1; the state before `begin` counts.
  Extent extent_of_changes(int64_t begin, int64_t end) const;
  /// Returns the most bytes that LibTorch had reserved between two times; nothing if the recording
  /// has no such samples.
  std::optional<int64_t> reserved_between(double begin_ns, double end_ns) const;

  /// Returns the indices of the blocks that are alive after a change, in order of birth.
  std::vector<uint32_t> alive_after(int64_t change) const;

  const Stretch* stretch_of_change(int64_t change) const;
  /// Returns the deepest action that was running at a time; null if none was.
  const Span* span_at(int64_t time_ns) const;

  std::string_view label(uint32_t string) const;
  std::string_view label(const Block& block) const { return label(block.label); }
  /// Returns the label of the call that freed a block; 0 if it was not recorded.
  uint32_t free_label(uint32_t block) const;
  /// Returns what a block holds, "layers.7.up.weight"; empty if that is not known.
  std::string_view name(uint32_t block) const;
  /// Returns the module that made an allocation, "layers.11.mlp"; empty if that is not known, or if
  /// the change frees.
  std::string_view module_of(int64_t change) const;
  /// Returns the index of the last allocation at or before a time; -1 if there is none.
  int64_t last_allocation(int64_t time_ns) const;
  /// Returns how much of a segment tensors use at a time; the lane must be of segments.
  int64_t used_bytes(uint32_t segment, int64_t time_ns) const;

 private:
  void finish();

  LaneInfo info_;
  std::unique_ptr<LaneData> data_;  // holds the arrays, or
  MappedFile file_;
  Sections sections_;
  Pyramid pyramid_;
  std::vector<int64_t> coarse_times_ns_;  // every kCoarse-th time: a search that stays in the cache
  Extent peak_;
  std::optional<Extent> step_peak_;
  int64_t reserved_peak_ = 0;
};

}  // namespace shardlens::viewer
