// Compares two recordings: what grew or shrank at the peak, in every step and phase, and which
// places hold more or less there. B is compared with A, so a growth is positive.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/compare/matching.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

struct Pair {
  int64_t a_bytes = 0;
  int64_t b_bytes = 0;

  int64_t growth_bytes() const { return b_bytes - a_bytes; }
  /// Returns the growth in percent of A; infinite if A is 0 and B is not.
  double growth_percent() const;
};

/// Returns "+9.99 %", with as many decimals; "from nothing" for an infinite growth.
std::string growth_percent_text(double percent, int decimals);

struct StepDiff {
  int64_t step = 0;
  Pair peak;
};

/// The facts about one of two recordings that tell whether they can be compared.
struct Side {
  int32_t rank = 0;
  int32_t world_size = 1;
  std::string device;
  std::string gpu;
  int64_t capacity_bytes = 0;
  int64_t steps = 0;  // of training
  int64_t first_step = 0;
  int64_t last_step = 0;
  bool ran_out_of_memory = false;
  bool has_shards = false;
  std::string levers{};  // with which it was recorded; "": the program as it is
  Judgement judgement;
  std::optional<PeakBands> bands{};  // over orders of the driver's addresses

  bool is_on_gpu() const { return device == "cuda"; }
};

struct RankDiff {
  Side a{};
  Side b{};
  Pair peak{};
  std::optional<Pair> reserved{};              // where both recorded segments
  std::array<Pair, kCategories> categories{};  // at each side's own peak
  std::array<std::optional<Pair>, kPhases> phases{};
  std::vector<StepDiff> steps{};  // the steps that both have
  Matching at_peak{};             // of the blocks alive at each side's own peak

  /// Returns a category's name for people. It speaks of shards if one of the two runs has any.
  std::string_view name_of(Category category) const;
  /// Returns the growth of the peak in percent of A's; infinite if A has none and B has one.
  double growth_percent() const;
  /// True if a gate compares replays. On GPUs each run has addresses of its own, so both are
  /// compared as the same order of addresses has them, where that makes a difference.
  bool compares_replays() const;
  double gated_allocated_percent() const;
  double gated_reserved_percent() const;  // -infinity where one of them lacks segments
  /// Returns the growth of the allocated peak or of the reserved one, whichever is greater.
  double gated_growth_percent() const;
};

struct RunDiff {
  std::vector<RankDiff> ranks;
  std::vector<int32_t> only_a;  // ranks without a partner
  std::vector<int32_t> only_b;

  /// Returns the pair whose peak grew most, in percent. `ranks` must not be empty.
  const RankDiff& worst_pair() const;
  /// Returns the pair of which a peak, allocated or reserved, grew most, in percent.
  const RankDiff& worst_gated_pair() const;
};

RankDiff diff_ranks(const RankReport& a, const RankReport& b);

/// Compares recordings of the same rank; a single recording on each side is a pair whatever its
/// rank. Throws std::invalid_argument if no rank has a partner.
RunDiff diff_runs(const std::vector<RankReport>& a, const std::vector<RankReport>& b);

/// Returns one line: by how much the peak grew, and what grew or shrank most at it.
std::string verdict(const RankDiff& diff);

/// Returns the comparison as text for people: the pair that grew most in full, every other pair in
/// one line.
std::string diff_text(const RunDiff& diff);

/// Returns {"schema":"shardlens.profile_diff/2", ...} with a newline at the end.
std::string diff_json(const RunDiff& diff);

}  // namespace shardlens::profiler
