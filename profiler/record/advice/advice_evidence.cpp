#include <algorithm>
#include <numeric>

#include "profiler/record/advice/advice.h"
#include "profiler/recording/events.h"

namespace shardlens::profiler {

namespace {

UnusedMemory unused_of(const ReservedParts& parts) {
  return {.private_pools = parts.private_pools.bytes,
          .other_streams = parts.other_streams.bytes,
          .fragments = parts.held.bytes + parts.whole.too_small};
}

/// Returns the request that decides, if the driver refused one; else null.
const OutOfMemory* refused_request(const RankReport& report, const RecordVerdict& verdict) {
  if (verdict.is_out_of_memory) {
    return report.out_of_memory.empty() ? nullptr : &report.out_of_memory.back();
  }
  return verdict.exit_code == kFitsWithRetries ? report.retry() : nullptr;
}

}  // namespace

int64_t AdviceEvidence::allocated_bytes() const {
  return std::accumulate(given.begin(), given.end(), int64_t{0});
}

Category AdviceEvidence::largest_category() const {
  return static_cast<Category>(std::ranges::max_element(given) - given.begin());
}

AdviceEvidence evidence_of(const RankReport& report, const RecordVerdict& verdict,
                           const ProgramUses& uses) {
  AdviceEvidence evidence{
      .uses = uses,
      .pytorch = pytorch_version(report.header),
      .world_size = report.header.world_size,
      .is_short = verdict.is_nearly_full || verdict.exit_code == kDoesNotFit ||
                  verdict.exit_code == kFitsWithRetries,
      .is_in_doubt = verdict.is_out_of_memory || verdict.exit_code == kFitsWithRetries,
      .pinned = report.pinned_use,
      .growth = report.growth};
  const auto take = [&](const Moment& at, const CategoryBytes& given,
                        const std::vector<NamedAllocation>& tensors) {
    evidence.is_before_steps = at.phase == Phase::starting;
    evidence.given = given;
    evidence.blocks = tensors;
    evidence.kept = kept_places(tensors);
  };
  if (const OutOfMemory* const refused = refused_request(report, verdict)) {
    take(refused->at, refused->given, refused->tensors);
    evidence.reserved_bytes = refused->blocks.reserved;
    evidence.asked_bytes = refused->asked_bytes;
    evidence.unused = unused_of(refused->reserved.parts);
  } else if (const SpaceReport* const space = report.main_space()) {
    take(space->peak_at, space->given, space->tensors);
    evidence.steps_peak_bytes = space->phase_peaks[static_cast<size_t>(Phase::training)];
    evidence.reserved_bytes = report.reserved_peak_bytes().value_or(0);
    if (report.reserved_peak) evidence.unused = unused_of(report.reserved_peak->parts);
  }
  return evidence;
}

}  // namespace shardlens::profiler
