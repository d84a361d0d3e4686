#include "profiler/record/next_steps.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardlens::profiler {

namespace {

/// True if a gate would compare this recording with another one.
bool is_comparable(const JudgedRank& rank) {
  return rank.verdict.exit_code != kNotRecorded && !rank.verdict.is_out_of_memory;
}

bool has_advice(const JudgedRank& rank) { return !rank.advice.empty(); }

}  // namespace

std::string next_steps(const std::string& out, const std::vector<JudgedRank>& ranks) {
  std::string text = "\nnext\n";
  // Ranks are mostly alike: the first with advice stands for the others.
  const auto advised = std::ranges::find_if(ranks, has_advice);
  if (advised != ranks.end()) {
    for (const Advice& advice : advised->advice) text += fmt::format("  {}\n", advice.text);
  }
  text += fmt::format("  shardlens view {}: see in a window what was alive at any moment\n", out);
  if (!std::ranges::all_of(ranks, is_comparable)) return text;
  return text + fmt::format(
                    "  shardlens gate {} AFTER --fail-above 2%: check whether a later recording, "
                    "AFTER, takes more\n",
                    out);
}

}  // namespace shardlens::profiler
