// Defines NCCL's numbers, and the communicators of the process. A handle is never reused, so that a
// dead communicator can be recognised. For each id that was made here, the ranks that used it are
// kept: none may use it twice, and all must name the same number of ranks. All threads may call.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

namespace shardlens::profiler {

/// Lists values of ncclResult_t.
enum StubNcclResult : int {
  kNcclSuccess = 0,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclInProgress = 7,
};

/// Holds the bytes of an ncclUniqueId.
struct NcclIdBytes {
  std::array<char, 128> bytes;
};

struct StubCommunicator {
  int index = 0;  // by order of creation
  int ranks = 0;
  int rank = 0;
  bool is_blocking = true;
  bool is_in_progress = false;  // until a poll has reported it
  bool is_finalized = false;
  bool is_dead = false;
};

class Communicators {
 public:
  static Communicators& instance();

  /// Returns a new id at every call, different from those of other processes on this machine.
  NcclIdBytes new_id();

  // The first two answer "in progress" for a communicator that does not block, and so does the
  // first poll, so that a caller's loop runs at least once.
  StubNcclResult create(void** handle, int ranks, const NcclIdBytes& id, int rank,
                        bool is_blocking);
  StubNcclResult finalize(const void* handle);
  StubNcclResult poll(const void* handle, int* state);

  /// Ends a communicator that is destroyed or aborted.
  StubNcclResult end(const void* handle);

  /// Copies a communicator for a call that needs a working one. Like NCCL, it answers "invalid
  /// argument" if the communicator is dead or still in progress, "invalid usage" if it is
  /// finalized.
  StubNcclResult find_usable(const void* handle, StubCommunicator* found);

 private:
  /// Holds the ranks that have used one id.
  struct Users {
    int ranks = 0;  // of their communicator
    std::set<int> seen;
  };

  bool use_id(const NcclIdBytes& id, int ranks, int rank);
  StubNcclResult start(StubCommunicator& communicator);
  StubCommunicator* find_live(const void* handle);

  std::mutex mutex_;
  std::map<std::array<char, 128>, Users> ids_;  // those made here
  std::unordered_map<const void*, std::unique_ptr<StubCommunicator>> all_;
};

}  // namespace shardlens::profiler
