// What ends an attempt to train, by kinds that somebody acts on: the supervisor decides by them
// whether to start again, and events.jsonl counts them. Standard library only.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace shardlens::runtime {

enum class Fault : uint32_t {
  failed,         // none of the others
  killed,         // by a signal that was not ours
  hung,           // did not come, or did not go on, before a deadline
  connection,     // peers, or what they meet at, cannot be reached
  disk_full,      // or its quota is
  disk_failed,    // cannot be written for another reason
  damaged,        // a checkpoint that it goes on from is not as it was written
  overtaken,      // of an attempt that a newer one has taken the place of
  out_of_memory,  // of a device
  wrong_use,      // the user's to mend
  interrupted     // the user's wish
};

constexpr std::string_view to_string(Fault fault) {
  constexpr std::string_view kNames[] = {"failed",        "killed",      "hung",       "connection",
                                         "disk_full",     "disk_failed", "damaged",    "overtaken",
                                         "out_of_memory", "wrong_use",   "interrupted"};
  return kNames[static_cast<uint32_t>(fault)];
}

/// An error that knows its kind, and who is to blame: the number of a rank, or -1.
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

}  // namespace shardlens::runtime
