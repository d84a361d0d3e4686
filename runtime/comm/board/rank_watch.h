// Finds ranks that stand still where no other rank would notice: a rank that is stopped, and one
// that does nothing after another has ended. A rank that waits for a peer in a collective has its
// own deadline, which comes first.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/board/board.h"

namespace shardlens::runtime {

struct QuietRank {
  int rank = 0;
  std::string what;  // "was stopped for 60 s"
};

class RankWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Watches these ranks; `deadline` is the deadline of their own waits.
  RankWatch(const std::vector<int>& ranks, const Board& board, std::chrono::nanoseconds deadline);

  void set_stopped(int rank, bool stopped);
  void set_ended(int rank, bool well);

  /// Returns a rank that is stopped, if there is one.
  std::optional<int> stopped_rank() const;
  /// True if all ranks that have not ended are stopped.
  bool all_stopped() const;

  /// Returns a rank that has stood still for too long. Call it regularly. The time between two
  /// calls counts for 200 ms at most, so time in which this process was stopped does not count.
  std::optional<QuietRank> look(Time now);

 private:
  struct WatchedRank {
    int rank = 0;
    bool is_stopped = false;
    bool has_ended = false;
    RankStatus seen{};
    std::chrono::nanoseconds stopped_for{0};
    std::chrono::nanoseconds quiet_for{0};  // since it last did anything, or another ended
  };

  WatchedRank& watch_of(int rank);

  Board board_;
  std::chrono::nanoseconds deadline_;
  std::vector<WatchedRank> ranks_;
  bool one_has_ended_ = false;
  std::optional<Time> last_look_;
};

}  // namespace shardlens::runtime
