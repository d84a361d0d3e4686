// Says what to change in a program so that it takes less memory. Each piece of advice is a row of
// one table (advice.cpp): which memory it is about, what must be true, and what rules it out. A
// rule looks at what the program does already, and is silent where it does not know: no advice is
// better than a wrong one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/program/growth.h"
#include "profiler/record/advice/program_uses.h"
#include "profiler/record/record_verdict.h"
#include "profiler/report/kept_places.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

/// Free memory that PyTorch had reserved at the moment that decides, by why it cannot be used.
struct UnusedMemory {
  int64_t private_pools = 0;  // of CUDA graphs
  int64_t other_streams = 0;
  int64_t fragments = 0;  // beside used blocks, or in pieces too small for what was asked

  int64_t sum() const { return private_pools + other_streams + fragments; }
};

/// The facts that rules look at, of one rank at the moment that decides: when memory ran out, or
/// before the cache was given back, else at its peak.
struct AdviceEvidence {
  ProgramUses uses = {};
  std::string pytorch = {};  // its version: "2.15.0"; empty: unknown
  int world_size = 1;
  bool is_short = false;  // the GPU is full or nearly full: what costs time may be worth it
  bool is_before_steps = false;
  bool is_in_doubt = false;  // allocator retries, or an out-of-memory
  CategoryBytes given{};
  std::optional<int64_t> steps_peak_bytes = {};  // allocated; empty: no step has begun
  std::vector<NamedAllocation> blocks = {};      // the largest first
  int64_t reserved_bytes = 0;
  int64_t asked_bytes = 0;  // that could not be allocated; 0: nothing failed
  std::optional<PinnedUse> pinned = {};
  std::vector<KeptPlace> kept = {};  // from earlier steps, the most first

  std::optional<Growth> growth = {};        // empty: none was found
  std::optional<UnusedMemory> unused = {};  // empty: no segment was recorded

  int64_t allocated_bytes() const;
  int64_t bytes_of(Category category) const { return given[static_cast<size_t>(category)]; }
  Category largest_category() const;
};

struct Advice {
  std::string rule = {};
  std::string text = {};  // one line: how much of what, then the change
  int64_t bytes = 0;      // that it is about, of which the program may need a part still
};

AdviceEvidence evidence_of(const RankReport& report, const RecordVerdict& verdict,
                           const ProgramUses& uses);

/// Returns the advice for a rank: mistakes first, which are named even if there is room, then what
/// trades time for memory, if the GPU is full.
std::vector<Advice> advice_for(const AdviceEvidence& evidence);

/// Adds the advice to rankR.json beside the recording, as `advice`.
void keep_advice(const std::string& recording, const std::vector<Advice>& advice);

/// Returns the names of all rules, in the table's order.
std::vector<std::string> advice_rules();

}  // namespace shardlens::profiler
