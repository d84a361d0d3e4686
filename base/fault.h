// Says what is wrong: in words, where a function or a field holds a problem or nothing, and by the
// kind of failure that ended an attempt to train. The supervisor decides by the kind whether to
// start again, and events.jsonl counts the kinds.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/choice.h"

namespace shardlens {

/// Says what is wrong, in a clause; nothing: all is well.
using Problem = std::optional<std::string>;

enum class Fault : uint32_t {
  failed,         // none of the others
  killed,         // by a signal that we did not send
  hung,           // did not arrive or make progress before a deadline
  connection,     // peers, or their meeting place, cannot be reached
  lost,           // a rank no longer responds: it was killed or stopped, or its host is gone
  disk_full,      // or its quota is used up
  disk_failed,    // the disk cannot be written for another reason
  damaged,        // a checkpoint that it goes on from is not as it was written
  overtaken,      // a newer attempt has taken the place of this one
  out_of_memory,  // a device's memory
  wrong_use,      // the user must fix it
  interrupted     // the user asked for it
};

constexpr auto choice_words(Fault) {
  return words("failed", "killed", "hung", "connection", "lost", "disk_full", "disk_failed",
               "damaged", "overtaken", "out_of_memory", "wrong_use", "interrupted");
}

/// Reports an error with its kind, and the rank that is to blame, or -1.
class Failure : public std::runtime_error {
 public:
  Failure(Fault fault, const std::string& what, int rank = -1)
      : std::runtime_error(what), fault_(fault), rank_(rank) {}

  Fault fault() const { return fault_; }
  int rank() const { return rank_; }

 private:
  Fault fault_;
  int rank_;
};

}  // namespace shardlens
