// Waits, with a deadline and a name, for what a rank of this host writes on the board.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "runtime/comm/board/board.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// Waits until `is_told()`. Throws CommunicationError if a rank has given up, or if `rank` would
/// wait longer than the deadline for what `peer` should have done.
template <class IsTold>
void wait_for_peer(const Board& board, int rank, int peer, const std::string& what,
                   std::chrono::milliseconds deadline, const IsTold& is_told) {
  const auto last_moment = std::chrono::steady_clock::now() + deadline;
  const AbortNote& note = board.abort_note();
  while (!is_told()) {
    if (note.is_raised()) throw CommunicationError(note.reason(), note.fault(), note.rank());
    if (std::chrono::steady_clock::now() > last_moment) {
      throw CommunicationError("rank " + std::to_string(rank) + ", rendezvous: rank " +
                                   std::to_string(peer) + " did not " + what + " in time",
                               Fault::hung, peer);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace shardlens::runtime
