#include "profiler/record/search/run_doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shardlens::profiler {

DoubtedRun doubted_run(const std::string& name, const VariantResult& result) {
  DoubtedRun run{.name = name, .doubts = result.doubts};
  for (std::string& doubt : time_doubts(result.time)) run.doubts.push_back(std::move(doubt));
  return run;
}

std::vector<SharedDoubt> shared_doubts(const std::vector<DoubtedRun>& runs) {
  std::vector<SharedDoubt> shared;
  for (const DoubtedRun& run : runs) {
    for (const std::string& doubt : run.doubts) {
      auto found = std::ranges::find(shared, doubt, &SharedDoubt::text);
      if (found == shared.end()) found = shared.insert(shared.end(), {.text = doubt, .runs = {}});
      found->runs.push_back(run.name);
    }
  }
  return shared;
}

std::string doubts_text(const std::vector<DoubtedRun>& runs) {
  std::string text;
  for (const SharedDoubt& doubt : shared_doubts(runs)) {
    const bool is_of_all = doubt.runs.size() == runs.size();
    text += fmt::format("  in doubt: {}{}\n", doubt.text,
                        is_of_all ? "" : fmt::format(" ({})", runs_text(doubt.runs)));
  }
  return text;
}

std::string runs_text(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i == 0 ? "" : "; ") + names[i];
  }
  if (names.size() <= kShown) return text;
  return text + fmt::format(" and {} more", names.size() - kShown);
}

}  // namespace shardlens::profiler
