// NCCL's numbers, and the communicators of the process. A handle is never used again, so that a
// dead communicator is known for one. All threads may call.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

namespace shardlens::runtime {

/// ncclResult_t
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclInProgress = 7,
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

  // Where a communicator does not block, these two answer "in progress", and so does the first
  // poll: a caller's loop turns at least once.
  NcclResult create(void** handle, int ranks, int rank, bool is_blocking);
  NcclResult finalize(const void* handle);
  NcclResult poll(const void* handle, int* state);

  /// Destroyed or aborted.
  NcclResult end(const void* handle);

  /// A copy for a call that needs a working communicator; as NCCL, "invalid argument" where it is
  /// dead or still in progress, "invalid usage" where it is finalized.
  NcclResult find_usable(const void* handle, Communicator* found);

 private:
  NcclResult start(Communicator& communicator);
  Communicator* find_live(const void* handle);

  std::mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<Communicator>> all_;
};

}  // namespace shardlens::runtime
