#include "commands/recording_replay.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/torch_rules.h"
#include "planner/simulate/allocator/peak_bands.h"
#include "planner/simulate/allocator/recorded_requests.h"
#include "planner/simulate/allocator/replay.h"
#include "planner/simulate/allocator/settings.h"
#include "profiler/file/reader.h"
#include "profiler/recording/peak_bands.h"
#include "profiler/recording/profile.h"

namespace shardlens {

using profiler::PeakBands;
using profiler::ReplayedRun;
using profiler::Replays;

namespace {

planner::RecordedRequests requests_of(const std::string& path) {
  planner::RecordedRequests requests;
  profiler::Reader reader(path);
  std::vector<profiler::Event> events;
  while (reader.next(events)) {
    for (const profiler::Event& event : events) requests.take(event);
  }
  return requests;
}

/// A recording that the model of the allocator can follow.
class RecordingReplay {
 public:
  /// Reads the recording.
  RecordingReplay(const ReplayedRun& run, const models::TorchRules& rules)
      : RecordingReplay(run, rules, requests_of(run.path)) {}

  /// Returns why a replay says nothing of this recording; nothing: it goes as the program did.
  std::optional<std::string> problem() const {
    if (has_expandable_segments_) return "expandable segments are not replayed";
    const planner::ReplayResult again = replay_.run(recorded_settings(), addresses_);
    const bool is_alike = again.failed_event.has_value() == ran_out_ &&
                          (ran_out_ || again.retries == run_.retries) &&
                          again.peak_allocated_bytes == run_.allocated_peak_bytes &&
                          again.peak_reserved_bytes == run_.reserved_peak_bytes;
    if (is_alike) return std::nullopt;
    return "a replay of the recording does not lead to its peaks";
  }

  Replays with_addresses() const {
    Replays replays;
    replays.bands = bands_of(recorded_settings());
    if (is_tight()) {
      replays.bands_in_gpu = replays.bands;
    } else if (replays.bands->reserved.most_bytes > run_.limit_bytes) {
      replays.bands_in_gpu = bands_of(limited());
    }
    return replays;
  }

  int64_t unlimited_peak_bytes() const {
    return replay_.run(unlimited_, addresses_).peak_reserved_bytes;
  }

 private:
  RecordingReplay(const ReplayedRun& run, const models::TorchRules& rules,
                  planner::RecordedRequests requests)
      : run_(run),
        unlimited_(planner::with_rules({}, rules)),
        addresses_(requests.addresses()),
        has_expandable_segments_(requests.has_expandable_segments()),
        ran_out_(requests.ran_out()),
        replay_(std::move(requests).history(is_tight())) {}

  bool is_tight() const { return ran_out_ || run_.retries > 0; }
  planner::AllocatorSettings limited() const {
    planner::AllocatorSettings settings = unlimited_;
    settings.capacity_bytes = run_.limit_bytes;
    return settings;
  }
  planner::AllocatorSettings recorded_settings() const {
    return is_tight() ? limited() : unlimited_;
  }
  /// Returns the ranges over orders, that of the recording among them.
  PeakBands bands_of(const planner::AllocatorSettings& settings) const {
    PeakBands bands = planner::peaks_over_orders(replay_, settings);
    bands.allocated.include(run_.allocated_peak_bytes);
    bands.reserved.include(run_.reserved_peak_bytes);
    return bands;
  }

  const ReplayedRun& run_;
  planner::AllocatorSettings unlimited_;
  planner::SegmentAddresses addresses_;
  bool has_expandable_segments_;
  bool ran_out_;
  planner::Replay replay_;
};

}  // namespace

Replays replays_of(const ReplayedRun& run) {
  const auto& rules = models::nearest_torch_rules(run.torch);
  const bool addresses_decide = rules.free_block_order == models::FreeBlockOrder::address;
  Replays replays;
  if (!addresses_decide) {
    replays.bands = profiler::exact_bands(run.allocated_peak_bytes, run.reserved_peak_bytes);
    if (run.retries == 0) return replays;
  }
  const RecordingReplay replayed(run, rules);
  if (const auto problem = replayed.problem()) {
    if (!addresses_decide) return replays;
    return {.doubt = "how much of the peaks depends on the driver's addresses is not known: " +
                     *problem};
  }
  if (addresses_decide) replays = replayed.with_addresses();
  if (run.retries > 0) replays.unlimited_peak_bytes = replayed.unlimited_peak_bytes();
  return replays;
}

}  // namespace shardlens
