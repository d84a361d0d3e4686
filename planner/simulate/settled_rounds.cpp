#include "planner/simulate/settled_rounds.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {

namespace {

constexpr size_t kLongestPeriod = 4;
constexpr size_t kVisits = 2 * kLongestPeriod + 1;  // that are remembered

}  // namespace

size_t SettledRounds::period() const {
  const size_t last = visits_.size() - 1;
  const auto layout = [&](size_t ago) -> const auto& { return visits_[last - ago].state.layout; };
  for (size_t period = 1; 2 * period <= last; ++period) {
    if (layout(0) == layout(period) && layout(0) == layout(2 * period)) return period;
  }
  return 0;
}

bool SettledRounds::is_steady() const {
  return visits_.size() == kVisits && std::ranges::all_of(visits_, [&](const Visit& visit) {
           return visit.state.totals == visits_.front().state.totals;
         });
}

int64_t SettledRounds::leave_out(int64_t rounds, size_t period) {
  const int64_t retries = visits_.back().retries - visits_[visits_.size() - 1 - period].retries;
  check(rounds >= 0 && retries >= 0, "a negative number of rounds or retries");
  retries_left_out_ += rounds * retries / static_cast<int64_t>(period);
  return rounds;
}

int64_t SettledRounds::arrive(MemoryState state, int64_t left, int64_t retries) {
  check(left >= 0, "a round begins behind the last one");
  check(visits_.empty() || retries >= visits_.back().retries, "retries are counted backwards");
  if (visits_.size() == kVisits) visits_.erase(visits_.begin());
  visits_.push_back({std::move(state), retries});
  if (const size_t period = this->period(); period > 0) {
    const auto rounds = static_cast<int64_t>(period);
    return leave_out(left / rounds * rounds, period);
  }
  return is_steady() ? leave_out(left, kVisits - 1) : 0;
}

}  // namespace shardlens::planner
