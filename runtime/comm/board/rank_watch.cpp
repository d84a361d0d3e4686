#include "runtime/comm/board/rank_watch.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/comm/operation_text.h"

namespace shardlens::runtime {

namespace {

constexpr std::chrono::nanoseconds kMostALook = std::chrono::milliseconds(200);
/// Lets the ranks' own waits time out first, since their errors say more.
constexpr std::chrono::nanoseconds kHeadStart = std::chrono::seconds(2);

}  // namespace

RankWatch::RankWatch(const std::vector<int>& ranks, const Board& board,
                     std::chrono::nanoseconds deadline)
    : board_(board), deadline_(deadline) {
  for (const int rank : ranks) ranks_.push_back({.rank = rank});
}

RankWatch::WatchedRank& RankWatch::watch_of(int rank) {
  const auto found = std::ranges::find(ranks_, rank, &WatchedRank::rank);
  check(found != ranks_.end(), "rank watch: no such rank");
  return *found;
}

void RankWatch::set_stopped(int rank, bool stopped) {
  watch_of(rank).is_stopped = stopped;
  watch_of(rank).stopped_for = std::chrono::nanoseconds::zero();
}

void RankWatch::set_ended(int rank, bool well) {
  watch_of(rank).has_ended = true;
  one_has_ended_ = one_has_ended_ || well;
  for (WatchedRank& one : ranks_) one.quiet_for = std::chrono::nanoseconds::zero();
}

std::optional<int> RankWatch::stopped_rank() const {
  for (const WatchedRank& one : ranks_) {
    if (one.is_stopped && !one.has_ended) return one.rank;
  }
  return std::nullopt;
}

bool RankWatch::all_stopped() const {
  return std::ranges::all_of(
      ranks_, [](const WatchedRank& one) { return one.has_ended || one.is_stopped; });
}

std::optional<QuietRank> RankWatch::look(Time now) {
  const auto passed = last_look_ ? std::min<std::chrono::nanoseconds>(now - *last_look_, kMostALook)
                                 : std::chrono::nanoseconds::zero();
  last_look_ = now;
  for (WatchedRank& one : ranks_) {
    if (one.has_ended) continue;
    const RankStatus status = board_.read(one.rank);
    one.quiet_for = status == one.seen ? one.quiet_for + passed : std::chrono::nanoseconds::zero();
    one.seen = status;
    if (one.is_stopped) one.stopped_for += passed;
    if (one.stopped_for > deadline_ + kHeadStart) {
      return QuietRank{one.rank, "was stopped for " + to_text(deadline_)};
    }
    if (one_has_ended_ && one.quiet_for > deadline_ + kHeadStart) {
      return QuietRank{one.rank, "did not end within " + to_text(deadline_) + " of the others"};
    }
  }
  return std::nullopt;
}

}  // namespace shardlens::runtime
