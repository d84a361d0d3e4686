// What ranks that another launcher has started have in place of a launcher's shared memory: a store
// in which they tell each other words by name, and a thread that keeps each one's board going.
//
// Every rank has a board of its own. The thread tells all others what this rank's line says, and
// carries the first reason to give up from the rank that had it to every other board, so that
// waits end there as they do under our own launcher. Who does not say anything anymore is known by
// that.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/board.h"
#include "runtime/comm/gloo.h"
#include "runtime/membership.h"
#include "runtime/wait_for_peer.h"

namespace shardlens::runtime {

class Meeting {
 public:
  /// Opens the store, or meets it where it is open. `board` is over memory of this rank alone and
  /// must outlive this. Throws CommunicationError.
  Meeting(const Membership& place, const Board& board, std::chrono::milliseconds deadline);
  /// Leaves as one that has failed, unless leave() was called.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  GlooStore& store() const { return *store_; }
  const Board& board() const { return board_; }

  /// For all ranks; each name is told once.
  void tell(const std::string& name, const std::string& words) { store_->set(name, words); }
  /// Waits until `peer` has told it, for so many deadlines. `what` for errors: rank 2 did not
  /// "open the run" in time.
  std::string hear(const std::string& name, int peer, const std::string& what,
                   int deadlines = 1) const;
  /// As hear(), of all: `name` is told by rank r as "name/r".
  void wait_for_all(const std::string& name, const std::string& what) const;

  /// After a failure, which whoever met it has raised on its board: the first one of all ranks,
  /// where the store still says it.
  Failure first_failure() const;

  /// Asks all ranks to stop after the same step, which no rank is past; from any thread. SIGTERM
  /// and SIGUSR1 do, too, once may_stop() was said; before that they end all ranks, as does a
  /// second one.
  void ask_to_stop();
  void may_stop() { may_stop_ = true; }
  /// At the end of each step, and before the first: whether this was the last one. `step`: steps
  /// done. Waits where the ranks are choosing. Throws CommunicationError.
  bool must_stop(int64_t step);

  /// Ranks that say nothing, by asking twice; takes half a second. The board then has everybody's
  /// line as it was told last.
  std::vector<int> silent_ranks() const;

  /// At the end, well or badly. The rank that has the store open waits until all have left, but not
  /// long for those that may be dead.
  void leave(bool is_well);

 private:
  void mirror();
  void take_signal(int signal);
  void choose_stop();
  void tell_line(int64_t beat);
  void carry_reason();
  std::vector<int64_t> ask_beats() const;

  static constexpr int64_t kNoStop = std::numeric_limits<int64_t>::max();

  Membership place_;
  Board board_;
  std::chrono::milliseconds deadline_;
  sigset_t signals_before_;  // blocked before there is any other thread
  std::unique_ptr<GlooStore> store_;
  std::unique_ptr<GlooStore> mirrored_;   // a connection of the thread's own
  std::optional<Failure> first_failure_;  // written by the thread, before is_told_
  std::atomic<bool> is_told_ = false;     // it is in the store, or that is gone
  std::atomic<bool> ends_ = false;
  std::atomic<bool> may_stop_ = false;
  std::atomic<bool> wants_stop_ = false;  // this rank was asked; the store is to know
  std::mutex stop_mutex_;                 // over the three below
  int64_t boundary_ = 0;                  // steps done when must_stop was last asked
  bool is_choosing_ = false;              // from the time that this rank's boundary was told
  int64_t stop_step_ = kNoStop;
  bool has_left_ = false;
  std::thread mirror_;  // uses all others
};

}  // namespace shardlens::runtime
