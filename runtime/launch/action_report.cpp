#include "runtime/launch/action_report.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>

namespace shardlens::runtime {

void write_actions(const Job& job, const Board& board, int rank,
                   const std::filesystem::path& path) {
  const std::vector<RankAction> actions = board.last_actions(rank);
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream out(path);
  out << fmt::format("rank {}, attempt {}: its last {} actions; in ms before the end\n", rank,
                     job.attempt.fence.generation(), actions.size());
  for (const RankAction& action : actions) {
    const double before_ms = static_cast<double>(now.count() - action.time_ns) / 1e6;
    out << fmt::format("{:12.3f}  {}\n", -before_ms, describe(job, action.status));
  }
}

}  // namespace shardlens::runtime
