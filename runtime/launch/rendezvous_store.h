// Connects ranks that another launcher has started, and that share no memory: a store in which
// they set and get words by name, and a thread that keeps each rank's board up to date.
//
// Every rank has its own board. The thread sends the rank's line to all other boards, and carries
// the first reason to give up from the rank that raised it to every other board, so that waits
// end there as they do under our own launcher. A rank whose line no longer changes counts as
// silent.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/board/board.h"
#include "runtime/comm/board/wait_for_peer.h"
#include "runtime/comm/gloo.h"
#include "runtime/comm/membership.h"

namespace shardlens::runtime {

class RendezvousStore {
 public:
  /// Opens the store, or connects to it if it is open, and waits until rank 0 has told this rank
  /// the name of the attempt; see [Note: hello]. `board` is over this rank's own memory and must
  /// outlive this. Throws CommunicationError.
  RendezvousStore(const Membership& place, const Board& board, std::chrono::milliseconds deadline);
  /// Leaves as a failed rank does, unless leave() was called.
  ~RendezvousStore();
  RendezvousStore(const RendezvousStore&) = delete;
  RendezvousStore& operator=(const RendezvousStore&) = delete;

  GlooStore& gloo() const { return *gloo_; }
  const Board& board() const { return board_; }

  /// Sets `name` to `words` for all ranks. Each name is set once.
  void set(const std::string& name, const std::string& words) { gloo_->set(name, words); }
  /// Waits until `peer` has set `name`, and returns its words. `what` says in errors what is
  /// missing: rank 2 did not "open the run" in time. A peer that has joined and then reports
  /// nothing for 3 s, or 30 beats, is not waited for any longer. Throws CommunicationError.
  std::string get(const std::string& name, int peer, const std::string& what) const;
  /// Waits as get() does, for all ranks: rank r sets `name` as "name/r".
  void wait_for_all(const std::string& name, const std::string& what) const;

  /// Waits until all ranks have joined this attempt, and returns the largest count of restarts
  /// that any of them has from its launcher.
  int most_restarts() const;

  /// Returns the first failure among all ranks, if the store still has it. Call it after some rank
  /// has raised a failure on its board.
  Failure first_failure() const;

  /// Asks all ranks to stop after the same step, which no rank has passed; callable from any
  /// thread. kStopSignals do so too, once may_stop() was called. Before that they end all
  /// ranks, as does a second signal.
  void ask_to_stop();
  void may_stop() { may_stop_ = true; }
  /// Returns true if the step just done was the last one. Each rank calls it at the end of each
  /// step, and before the first. `step` counts the steps done. Waits while the ranks are choosing.
  /// Throws CommunicationError.
  bool must_stop(int64_t step);

  /// Returns the silent ranks, found by asking twice; takes half a second. Afterwards the board has
  /// the latest line that every rank reported. If the store is gone, the rank that served it is
  /// silent, and the board has the line that it last reported.
  std::vector<int> silent_ranks() const;

  /// Returns the failure with the silent ranks in its text: it is then `lost`, and the first of
  /// them is to blame. `place_of` says in words what a rank was last doing. A failure that another
  /// rank has reported stays as it is.
  Failure with_silent(const Failure& failure,
                      const std::function<std::string(const RankStatus&)>& place_of) const;

  /// Leaves the store, after success or failure. The rank that serves the store waits until all
  /// have left, but not long for ranks that may be dead.
  void leave(bool is_well);

 private:
  /// Says when a peer that is waited for last reported.
  struct Pulse {
    int peer = 0;
    int64_t beat = 0;  // 0: it has not joined
    std::chrono::steady_clock::time_point last_change{}, next_look{};
  };

  void expect_alive(Pulse& pulse, const std::string& what) const;
  void mirror();
  bool welcome();
  void raise_lost_store(const std::string& what);
  void take_signal(int signal);
  void choose_stop();
  void set_line(int64_t beat);
  void carry_reason();
  void see_line(int rank, int64_t& beat, GlooStore& store) const;
  std::optional<int> lost_server() const;
  std::vector<int64_t> ask_beats() const;

  static constexpr int64_t kNoStop = std::numeric_limits<int64_t>::max();

  Membership place_;
  Board board_;
  std::chrono::milliseconds deadline_;
  sigset_t signals_before_;  // the mask from before these were blocked; no thread ran yet
  std::unique_ptr<GlooStore> meeting_;         // names that all attempts share
  std::string attempt_;                        // the prefix of this attempt's names
  std::unique_ptr<GlooStore> gloo_;            // this attempt's names
  std::unique_ptr<GlooStore> mirror_meeting_;  // both again, over the thread's own connection
  std::unique_ptr<GlooStore> mirrored_;
  std::vector<int> strangers_;            // on rank 0: ranks that have not joined yet
  std::optional<Failure> first_failure_;  // written by the thread, before is_told_
  std::atomic<bool> is_told_ = false;     // true if the store has the failure, or is gone
  std::atomic<bool> ends_ = false;
  std::atomic<bool> may_stop_ = false;
  std::atomic<bool> wants_stop_ = false;  // this rank was asked to stop; the store must learn that
  std::mutex stop_mutex_;                 // guards the three below
  int64_t boundary_ = 0;                  // steps done when must_stop was last called
  bool is_choosing_ = false;              // true once this rank has reported its boundary
  int64_t stop_step_ = kNoStop;
  bool has_left_ = false;
  std::thread mirror_;  // last: it uses all members above
};

}  // namespace shardlens::runtime
