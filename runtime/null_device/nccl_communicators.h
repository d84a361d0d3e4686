// NCCL's numbers, and the communicators of the process. A handle is never used again, so that a
// dead communicator is known for one. Of an id that was made here it is known which ranks have used
// it: none may do so twice, and all must mean as many ranks. All threads may call.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

namespace shardlens::runtime {

/// ncclResult_t
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclInProgress = 7,
};

/// ncclUniqueId
struct NcclIdBytes {
  std::array<char, 128> bytes;
};

struct Communicator {
  int index = 0;  // by order of creation
  int ranks = 0;
  int rank = 0;
  bool is_blocking = true;
  bool is_in_progress = false;  // until a poll has said so
  bool is_finalized = false;
  bool is_dead = false;
};

class Communicators {
 public:
  static Communicators& instance();

  /// Another one at every call, in any process of this machine.
  NcclIdBytes new_id();

  // Where a communicator does not block, these two answer "in progress", and so does the first
  // poll: a caller's loop turns at least once.
  NcclResult create(void** handle, int ranks, const NcclIdBytes& id, int rank, bool is_blocking);
  NcclResult finalize(const void* handle);
  NcclResult poll(const void* handle, int* state);

  /// Destroyed or aborted.
  NcclResult end(const void* handle);

  /// A copy for a call that needs a working communicator; as NCCL, "invalid argument" where it is
  /// dead or still in progress, "invalid usage" where it is finalized.
  NcclResult find_usable(const void* handle, Communicator* found);

 private:
  /// Whoever has used one id.
  struct Users {
    int ranks = 0;  // of their communicator
    std::set<int> seen;
  };

  bool use_id(const NcclIdBytes& id, int ranks, int rank);
  NcclResult start(Communicator& communicator);
  Communicator* find_live(const void* handle);

  std::mutex mutex_;
  std::map<std::array<char, 128>, Users> ids_;  // those made here
  std::unordered_map<const void*, std::unique_ptr<Communicator>> all_;
};

}  // namespace shardlens::runtime
