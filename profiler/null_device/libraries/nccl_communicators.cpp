#include "profiler/null_device/libraries/nccl_communicators.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace shardlens::profiler {

Communicators& Communicators::instance() {
  static Communicators& communicators = *new Communicators;  // outlives destructors of statics
  return communicators;
}

NcclIdBytes Communicators::new_id() {
  const std::scoped_lock lock(mutex_);
  const std::array<uint64_t, 2> words{static_cast<uint64_t>(::getpid()), ids_.size() + 1};
  NcclIdBytes id{};
  std::memcpy(id.bytes.data(), words.data(), sizeof words);
  ids_.try_emplace(id.bytes);
  return id;
}

/// Records that a rank uses an id. Returns true if that is allowed.
bool Communicators::use_id(const NcclIdBytes& id, int ranks, int rank) {
  const auto found = ids_.find(id.bytes);
  if (found == ids_.end()) return true;  // made by another process
  Users& users = found->second;
  if (users.seen.empty()) users.ranks = ranks;
  return users.ranks == ranks && users.seen.insert(rank).second;
}

StubNcclResult Communicators::start(StubCommunicator& communicator) {
  communicator.is_in_progress = !communicator.is_blocking;
  return communicator.is_in_progress ? kNcclInProgress : kNcclSuccess;
}

StubCommunicator* Communicators::find_live(const void* handle) {
  const auto found = all_.find(handle);
  return found == all_.end() || found->second->is_dead ? nullptr : found->second.get();
}

StubNcclResult Communicators::create(void** handle, int ranks, const NcclIdBytes& id, int rank,
                                     bool is_blocking) {
  if (handle == nullptr || ranks < 1 || rank < 0 || rank >= ranks) return kNcclInvalidArgument;
  const std::scoped_lock lock(mutex_);
  if (!use_id(id, ranks, rank)) return kNcclInvalidUsage;
  auto created =
      std::make_unique<StubCommunicator>(StubCommunicator{.index = static_cast<int>(all_.size()),
                                                          .ranks = ranks,
                                                          .rank = rank,
                                                          .is_blocking = is_blocking});
  StubCommunicator& communicator = *created;
  *handle = created.get();
  all_.emplace(created.get(), std::move(created));
  return start(communicator);
}

StubNcclResult Communicators::finalize(const void* handle) {
  const std::scoped_lock lock(mutex_);
  StubCommunicator* const found = find_live(handle);
  if (found == nullptr || found->is_in_progress || found->is_finalized) return kNcclInvalidArgument;
  found->is_finalized = true;
  return start(*found);
}

StubNcclResult Communicators::poll(const void* handle, int* state) {
  const std::scoped_lock lock(mutex_);
  StubCommunicator* const found = find_live(handle);
  if (found == nullptr || state == nullptr) return kNcclInvalidArgument;
  *state = std::exchange(found->is_in_progress, false) ? kNcclInProgress : kNcclSuccess;
  return kNcclSuccess;
}

StubNcclResult Communicators::end(const void* handle) {
  if (handle == nullptr) return kNcclSuccess;
  const std::scoped_lock lock(mutex_);
  StubCommunicator* const found = find_live(handle);
  if (found == nullptr) return kNcclInvalidArgument;
  found->is_dead = true;
  return kNcclSuccess;
}

StubNcclResult Communicators::find_usable(const void* handle, StubCommunicator* found) {
  const std::scoped_lock lock(mutex_);
  const StubCommunicator* const live = find_live(handle);
  if (live == nullptr || live->is_in_progress) return kNcclInvalidArgument;
  if (live->is_finalized) return kNcclInvalidUsage;
  *found = *live;
  return kNcclSuccess;
}

}  // namespace shardlens::profiler
