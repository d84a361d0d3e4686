#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "profiler/record/advice/advice.h"

namespace shardlens::profiler {

namespace {

/// True if what a step makes of this should not be alive in the next one.
bool is_of_a_step(Category category) {
  return category == Category::activation || category == Category::other ||
         category == Category::input || category == Category::workspace;
}

std::vector<KeptMemory> kept_memory(const std::vector<NamedAllocation>& tensors, int64_t step_now) {
  std::map<std::string, std::map<int64_t, int64_t>, std::less<>> ages_of;  // bytes by age, by line
  for (const NamedAllocation& one : tensors) {
    const bool is_of_training = one.age_steps <= step_now;
    if (!is_of_a_step(one.category) || !is_of_training || one.age_steps == 0) continue;
    ages_of[one.label][one.age_steps] += one.given_bytes;
  }
  std::vector<KeptMemory> kept;
  for (const auto& [line, ages] : ages_of) {
    KeptMemory memory{.line = line};
    for (const auto& [age, bytes] : ages) memory.bytes += bytes;
    memory.is_of_last_step = ages.size() == 1 && ages.begin()->first == 1;
    kept.push_back(memory);
  }
  std::ranges::stable_sort(kept, std::greater(), &KeptMemory::bytes);
  return kept;
}

/// Returns "2.15.0" of "PyTorch 2.15.0+cu130", the first line of a recording's versions.
std::string pytorch_version(const std::string& libraries) {
  constexpr std::string_view kName = "PyTorch ";
  const size_t name = libraries.find(kName);
  if (name == std::string::npos) return {};
  const size_t begin = name + kName.size();
  return libraries.substr(begin, libraries.find_first_not_of("0123456789.", begin) - begin);
}

UnusedMemory unused_of(const ReservedParts& parts) {
  return {.private_pools = parts.private_pools.bytes,
          .other_streams = parts.other_streams.bytes,
          .fragments = parts.held.bytes + parts.whole.too_small};
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
      .pytorch = pytorch_version(report.header.libraries),
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
    evidence.rows = place_totals(tensors);
    evidence.kept = kept_memory(tensors, at.step);
  };
  if (verdict.is_out_of_memory && !report.out_of_memory.empty()) {
    const OutOfMemory& last = report.out_of_memory.back();
    take(last.at, last.given, last.tensors);
    evidence.reserved_bytes = last.blocks.reserved;
    evidence.asked_bytes = last.asked_bytes;
    evidence.unused = unused_of(last.reserved.parts);
  } else if (const SpaceReport* const space = report.main_space()) {
    take(space->peak_at, space->given, space->tensors);
    evidence.reserved_bytes = report.reserved_peak_bytes().value_or(0);
    if (report.reserved_peak) evidence.unused = unused_of(report.reserved_peak->parts);
  }
  return evidence;
}

}  // namespace shardlens::profiler
