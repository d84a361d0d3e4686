#include "runtime/comm/local.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "runtime/comm/operation_text.h"
#include "runtime/comm/rank_sum.h"

namespace shardlens::runtime {
namespace {

constexpr size_t kCacheLine = 64;
constexpr int64_t kMinAreaBytes = 4096;  // room for sum() in any layout
constexpr size_t kUsualBuffers = 64;     // of one gather

size_t area_bytes_of(const LocalLayout& layout) {
  const int64_t most = std::max({layout.max_gather_bytes, layout.max_reduce_bytes, kMinAreaBytes});
  return (static_cast<size_t>(most) + kCacheLine - 1) / kCacheLine * kCacheLine;
}

size_t range_bytes(const GatherBuffer& buffer, int world_size) {
  return static_cast<size_t>(buffer.numel / world_size * bytes_of(buffer.dtype));
}

size_t range_bytes(const ReduceBuffers& buffers) {
  check(buffers.shard_numel >= 0, "reduce_scatter: a negative number of elements");
  return static_cast<size_t>(buffers.shard_numel * bytes_of(buffers.dtype));
}

void copy_bytes(void* target, const void* source, size_t bytes) {
  if (bytes != 0) std::memcpy(target, source, bytes);
}

}  // namespace

struct alignas(64) LocalCommunicator::Header {
  uint64_t area_bytes;  // written by the first rank, compared by the others
  uint64_t world_size;
  uint64_t first_rank;  // plus 1, since 0 means not written
  AbortNote note;
};

struct LocalCommunicator::Counters {
  FutexWord published;
  FutexWord consumed;
};

size_t LocalCommunicator::bytes(const LocalLayout& layout) {
  static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 64 + sizeof(AbortNote));
  static_assert(std::is_trivially_copyable_v<Counters> && sizeof(Counters) == 2 * kCacheLine,
                "two cache lines of their own");
  static_assert(std::atomic_ref<uint64_t>::is_always_lock_free,
                "a lock must hold between processes");
  check(layout.ranks.size >= 1, "local communicator: a set without ranks");
  const auto world_size = static_cast<size_t>(layout.ranks.size);
  return sizeof(Header) + world_size * (sizeof(Counters) + kDepth * area_bytes_of(layout));
}

LocalCommunicator::LocalCommunicator(void* memory, LocalOptions options)
    : options_(std::move(options)),
      index_(options_.layout.ranks.index_of(options_.rank)),
      header_(static_cast<Header*>(memory)),
      area_bytes_(area_bytes_of(options_.layout)),
      sources_(static_cast<size_t>(std::max(options_.layout.ranks.size, 1))) {
  check(options_.rank >= 0, "local communicator: rank outside its world");
  check(reinterpret_cast<uintptr_t>(memory) % kCacheLine == 0,
        "local communicator: memory is not aligned to 64 bytes");
  counters_ = reinterpret_cast<Counters*>(static_cast<std::byte*>(memory) + sizeof(Header));
  areas_ = reinterpret_cast<std::byte*>(counters_ + world_size());
  note_ = options_.board ? &options_.board->abort_note() : &header_->note;
  for (PendingOperation& pending : pending_) pending.gathers.reserve(kUsualBuffers);
  const auto agree = [](uint64_t& field, uint64_t mine) {
    uint64_t theirs = 0;
    const bool first = std::atomic_ref<uint64_t>(field).compare_exchange_strong(theirs, mine);
    check(first || theirs == mine,
          "local communicator: ranks disagree on the layout, or belong to two sets");
  };
  agree(header_->area_bytes, area_bytes_);
  agree(header_->world_size, static_cast<uint64_t>(world_size()));
  const int first_rank = options_.layout.ranks.first_of(options_.rank);
  agree(header_->first_rank, static_cast<uint64_t>(first_rank) + 1);
}

std::byte* LocalCommunicator::staging(Ticket ticket, int rank) const {
  const auto area = static_cast<size_t>(ticket % kDepth * world_size() + rank);
  return areas_ + area * area_bytes_;
}

Ticket LocalCommunicator::all_gather(const Operation& operation,
                                     std::span<const GatherBuffer> buffers) {
  check_ranges(buffers, world_size());
  size_t staged_bytes = 0;
  for (const GatherBuffer& buffer : buffers) staged_bytes += range_bytes(buffer, world_size());
  PendingOperation& pending = begin(Kind::gather, operation, static_cast<int64_t>(staged_bytes));
  pending.gathers.assign(buffers.begin(), buffers.end());
  std::byte* target = staging(next_issue_, rank());
  for (const GatherBuffer& buffer : buffers) {
    const size_t bytes = range_bytes(buffer, world_size());
    copy_bytes(target, static_cast<std::byte*>(buffer.data) + static_cast<size_t>(rank()) * bytes,
               bytes);
    target += bytes;
  }
  check(target == staging(next_issue_, rank()) + staged_bytes,
        "all_gather: the bytes staged are not those counted");
  return publish_staged();
}

Ticket LocalCommunicator::reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) {
  const size_t bytes = range_bytes(buffers);
  const auto before = static_cast<size_t>(rank()) * bytes;
  const size_t all = static_cast<size_t>(world_size()) * bytes;
  begin(Kind::reduce_scatter, operation, static_cast<int64_t>(all)).reduce = buffers;
  // This rank's own range is not staged: only this rank needs it, and already has it.
  const auto* input = static_cast<const std::byte*>(buffers.input);
  std::byte* target = staging(next_issue_, rank());
  copy_bytes(target, input, before);
  const size_t after = before + bytes;
  if (after < all) copy_bytes(target + after, input + after, all - after);
  return publish_staged();
}

// Stages all elements, and every rank reads all of them. With two ranks this moves as many bytes as
// a reduce-scatter and a gather would, with one meeting instead of two; with more ranks it moves
// more.
Ticket LocalCommunicator::all_reduce(const Operation& operation, void* data, int64_t numel,
                                     DType dtype) {
  check(numel >= 0, "all_reduce: a negative number of elements");
  const int64_t bytes = numel * bytes_of(dtype);
  PendingOperation& pending = begin(Kind::all_reduce, operation, bytes);
  pending.reduce = {.input = data, .output = data, .shard_numel = numel, .dtype = dtype};
  copy_bytes(staging(next_issue_, rank()), data, static_cast<size_t>(bytes));
  return publish_staged();
}

void LocalCommunicator::sum(const Operation& operation, std::span<double> values) {
  begin(Kind::sum, operation, static_cast<int64_t>(values.size_bytes())).values = values;
  copy_bytes(staging(next_issue_, rank()), values.data(), values.size_bytes());
  wait(publish_staged());
}

void LocalCommunicator::barrier(const Operation& operation) {
  begin(Kind::barrier, operation, 0);
  wait(publish_staged());
}

LocalCommunicator::PendingOperation& LocalCommunicator::begin(Kind kind, const Operation& operation,
                                                              int64_t staged_bytes) {
  check_alive(operation);
  check(staged_bytes <= static_cast<int64_t>(area_bytes_), [&] {
    return to_text(options_.rank, operation) + ": " + std::to_string(staged_bytes) +
           " bytes do not fit a staging area of " + std::to_string(area_bytes_);
  });
  if (next_issue_ - next_complete_ == kDepth) complete();
  wait_for_peers(operation, &Counters::consumed, next_issue_ - kDepth + 1);
  PendingOperation& pending = pending_[static_cast<size_t>(next_issue_ % kDepth)];
  pending.kind = kind;
  pending.operation = operation;
  return pending;
}

Ticket LocalCommunicator::publish_staged() {
  check(next_issue_ - next_complete_ < kDepth,
        "local communicator: an operation is staged over one that is in flight");
  const Ticket ticket = next_issue_++;
  publish(counters_[rank()].published, static_cast<uint32_t>(next_issue_));
  return ticket;
}

void LocalCommunicator::wait(Ticket ticket) {
  check(ticket == next_wait_ && ticket < next_issue_,
        "communicator: tickets are waited for in the order of issue");
  if (ticket == next_complete_) complete();
  ++next_wait_;
  check(next_wait_ <= next_complete_ && next_complete_ <= next_issue_,
        "local communicator: an operation is waited for before it is complete");
}

void LocalCommunicator::complete() {
  check(next_complete_ < next_issue_ && next_issue_ - next_complete_ <= kDepth,
        "local communicator: an operation is completed that was not issued");
  const PendingOperation& pending = pending_[static_cast<size_t>(next_complete_ % kDepth)];
  check_alive(pending.operation);
  wait_for_peers(pending.operation, &Counters::published, next_complete_ + 1);
  switch (pending.kind) {
    case Kind::gather:
      copy_gathered(pending);
      break;
    case Kind::reduce_scatter:
    case Kind::all_reduce:
      reduce_staged(pending);
      break;
    case Kind::sum:
      add_staged(pending);
      break;
    case Kind::barrier:
      break;
  }
  ++next_complete_;
  publish(counters_[rank()].consumed, static_cast<uint32_t>(next_complete_));
}

void LocalCommunicator::copy_gathered(const PendingOperation& pending) {
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank()) continue;
    const std::byte* source = staging(next_complete_, peer);
    for (const GatherBuffer& buffer : pending.gathers) {
      const size_t bytes = range_bytes(buffer, world_size());
      copy_bytes(static_cast<std::byte*>(buffer.data) + static_cast<size_t>(peer) * bytes, source,
                 bytes);
      source += bytes;
    }
  }
}

void LocalCommunicator::reduce_staged(const PendingOperation& pending) {
  const ReduceBuffers& reduce = pending.reduce;
  const size_t offset =
      pending.kind == Kind::reduce_scatter ? static_cast<size_t>(rank()) * range_bytes(reduce) : 0;
  for (int peer = 0; peer < world_size(); ++peer) {
    const std::byte* source = peer == rank() ? static_cast<const std::byte*>(reduce.input)
                                             : staging(next_complete_, peer);
    sources_[static_cast<size_t>(peer)] = source + offset;
  }
  mean_in_rank_order(sources_, reduce.output, reduce.shard_numel, reduce.dtype);
}

void LocalCommunicator::add_staged(const PendingOperation& pending) {
  for (size_t i = 0; i < pending.values.size(); ++i) {
    double total = 0;
    for (int peer = 0; peer < world_size(); ++peer) {
      total += reinterpret_cast<const double*>(staging(next_complete_, peer))[i];
    }
    pending.values[i] = total;
  }
}

void LocalCommunicator::wait_for_peers(const Operation& operation, FutexWord Counters::*counter,
                                       Ticket target) {
  if (target <= 0) return;
  std::chrono::nanoseconds left = options_.deadline;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank()) continue;
    const WaitResult result =
        wait_for(counters_[peer].*counter, static_cast<uint32_t>(target), left, *note_);
    if (result == WaitResult::reached) continue;
    if (result == WaitResult::aborted) check_alive(operation);
    const int lost = options_.layout.ranks.member(options_.rank, peer);
    std::string what = to_text(options_.rank, operation) + ": rank " + std::to_string(lost) +
                       " did not arrive within " + to_text(options_.deadline);
    if (options_.describe) what += "; last seen in " + options_.describe(lost);
    note_->raise(what, Fault::hung, lost);
    fail(what);
  }
}

void LocalCommunicator::check_alive(const Operation& operation) {
  if (failure_) throw CommunicationError(*failure_);
  if (note_->is_raised()) fail(to_text(options_.rank, operation) + ": stopped: " + note_->reason());
}

void LocalCommunicator::fail(const std::string& what) {
  failure_ = what;
  throw CommunicationError(*failure_);
}

}  // namespace shardlens::runtime
