// Defines NCCL's calls on communicators. Every rank of a null device is alone and never waits for
// another rank.
#include <climits>
#include <cstddef>

#include "profiler/null_device/libraries/nccl_communicators.h"

using shardlens::profiler::Communicators;
using shardlens::profiler::kNcclInvalidArgument;
using shardlens::profiler::kNcclSuccess;
using shardlens::profiler::StubCommunicator;

namespace {

constexpr int kVersion = 22809;  // 2.28.9, of PyTorch 2.11; 2.15 has 2.30.7 (.setup/pins)
constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr int kUndefined = INT_MIN;

using UniqueId = shardlens::profiler::NcclIdBytes;

/// Mirrors the beginning that all versions of ncclConfig_t share.
struct Config {
  size_t size_bytes;
  unsigned magic;
  unsigned version;
  int blocking;
};

int create(void** communicator, int ranks, const UniqueId& id, int rank, const Config* config) {
  Communicators& all = Communicators::instance();
  if (config == nullptr) return all.create(communicator, ranks, id, rank, true);
  const int blocking = config->blocking;
  const bool is_known = blocking == 0 || blocking == 1 || blocking == kUndefined;
  if (config->magic != kConfigMagic || !is_known) return kNcclInvalidArgument;
  return all.create(communicator, ranks, id, rank, blocking != 0);
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = kVersion;
  return kNcclSuccess;
}

int ncclGetUniqueId(UniqueId* id) {
  *id = Communicators::instance().new_id();
  return kNcclSuccess;
}

int ncclCommInitRank(void** communicator, int ranks, UniqueId id, int rank) {
  return create(communicator, ranks, id, rank, nullptr);
}

int ncclCommInitRankConfig(void** communicator, int ranks, UniqueId id, int rank, Config* config) {
  return create(communicator, ranks, id, rank, config);
}

int ncclCommInitRankScalable(void** communicator, int ranks, int rank, int, UniqueId* ids,
                             Config* config) {
  return create(communicator, ranks, *ids, rank, config);
}

int ncclCommInitAll(void** communicators, int count, const int*) {
  const UniqueId id = Communicators::instance().new_id();
  for (int rank = 0; rank < count; ++rank) {
    const int result = create(&communicators[rank], count, id, rank, nullptr);
    if (result != kNcclSuccess) return result;
  }
  return kNcclSuccess;
}

int ncclCommFinalize(void* communicator) {
  return Communicators::instance().finalize(communicator);
}

int ncclCommDestroy(void* communicator) { return Communicators::instance().end(communicator); }
int ncclCommAbort(void* communicator) { return Communicators::instance().end(communicator); }

int ncclCommGetAsyncError(const void* communicator, int* state) {
  return Communicators::instance().poll(communicator, state);
}

int ncclCommCount(const void* communicator, int* ranks) {
  StubCommunicator found;
  const int result = Communicators::instance().find_usable(communicator, &found);
  if (result == kNcclSuccess) *ranks = found.ranks;
  return result;
}

int ncclCommUserRank(const void* communicator, int* rank) {
  StubCommunicator found;
  const int result = Communicators::instance().find_usable(communicator, &found);
  if (result == kNcclSuccess) *rank = found.rank;
  return result;
}

}  // extern "C"
