#include "runtime/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "runtime/comm/gloo.h"
#include "runtime/comm/local.h"
#include "runtime/comm/nccl.h"
#include "runtime/comm/none.h"
#include "runtime/comm/staged.h"

namespace shardlens::runtime {

namespace {

using planner::CommunicatorKind;

std::chrono::milliseconds deadline_of(const Job& job) {
  return std::chrono::milliseconds(static_cast<int64_t>(job.config.timeout_s * 1e3));
}

/// Waits until rank 0 has told something on the board.
template <class IsTold>
void wait_for_rank_0(const Job& job, int rank, const Board& board, const std::string& what,
                     IsTold is_told) {
  const auto give_up = std::chrono::steady_clock::now() + deadline_of(job);
  while (!is_told()) {
    if (board.abort_note().raised()) throw CommunicationError(board.abort_note().reason());
    if (std::chrono::steady_clock::now() > give_up) {
      throw CommunicationError("rank " + std::to_string(rank) + ", rendezvous: rank 0 did not " +
                               what + " in time");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

LocalLayout local_layout(const Job& job, planner::Channel channel) {
  int64_t bytes = 0;
  for (const planner::Action& action : job.train.actions) {
    if (action.channel == channel) bytes = std::max(bytes, action.bytes);
  }
  const bool gathers = channel == planner::Channel::gather;
  return {.world_size = job.strategy.world_size,
          .max_gather_bytes = gathers ? bytes : 0,
          .max_reduce_bytes = gathers ? 0 : bytes};
}

class NoLinks final : public Links {
 public:
  NoLinks(int rank, int world_size) : gather_(rank, world_size), reduce_(rank, world_size) {}

  Channels channels() override { return {&gather_, &reduce_}; }

 private:
  NoneCommunicator gather_;
  NoneCommunicator reduce_;
};

/// The region holds the board, the gather channel's memory, then the reduce channel's.
class LocalLinks final : public Links {
 public:
  LocalLinks(const Job& job, int rank, std::byte* region, const Board& board)
      : gather_(region + Board::bytes(job.strategy.world_size),
                options(job, rank, board, planner::Channel::gather)),
        reduce_(region + Board::bytes(job.strategy.world_size) +
                    LocalCommunicator::bytes(local_layout(job, planner::Channel::gather)),
                options(job, rank, board, planner::Channel::reduce)) {}

  Channels channels() override { return {&gather_, &reduce_}; }

 private:
  static LocalOptions options(const Job& job, int rank, const Board& board,
                              planner::Channel channel) {
    return {.layout = local_layout(job, channel),
            .rank = rank,
            .deadline = deadline_of(job),
            .describe = [&job, board](int peer) { return describe(job, board.read(peer)); },
            .board = board};
  }

  LocalCommunicator gather_;
  LocalCommunicator reduce_;
};

class GlooLinks final : public Links {
 public:
  GlooLinks(const Job& job, int rank, const Board& board)
      : store_(meet(job, rank, board)),
        gather_(make_gloo(*store_, options(job, rank, board, "gather"))),
        reduce_(make_gloo(*store_, options(job, rank, board, "reduce"))) {}

  Channels channels() override { return {gather_.get(), reduce_.get()}; }

 private:
  static GlooOptions options(const Job& job, int rank, const Board& board, const char* prefix) {
    return {.prefix = prefix,
            .rank = rank,
            .world_size = job.strategy.world_size,
            .deadline = deadline_of(job),
            .board = board};
  }

  static std::unique_ptr<GlooStore> meet(const Job& job, int rank, const Board& board) {
    GlooStoreOptions options{
        .rank = rank, .world_size = job.strategy.world_size, .deadline = deadline_of(job)};
    if (rank == 0) {
      auto store = GlooStore::serve(options);
      board.set_port(store->port());
      return store;
    }
    wait_for_rank_0(job, rank, board, "open its store", [&] { return board.port() != 0; });
    options.port = board.port();
    return GlooStore::connect(options);
  }

  std::unique_ptr<GlooStore> store_;
  std::unique_ptr<Communicator> gather_;
  std::unique_ptr<Communicator> reduce_;
};

/// Two communicators, or one for both channels.
class NcclLinks final : public Links {
 public:
  NcclLinks(const Job& job, int rank, const Board& board, const DeviceStreams& streams)
      : gather_(options(job, rank, board, 0, "gather", streams.gather)) {
    if (job.config.communicators > 1) {
      reduce_.emplace(options(job, rank, board, 1, "reduce", streams.reduce));
    } else if (streams.gather != streams.reduce) {
      throw std::logic_error("rendezvous: one communicator, but two streams");
    }
  }

  Channels channels() override { return {&gather_, reduce_ ? &*reduce_ : &gather_}; }

 private:
  static NcclOptions options(const Job& job, int rank, const Board& board, int channel,
                             const char* name, void* stream) {
    return {.name = name,
            .id = agree_on_id(job, rank, board, channel),
            .rank = rank,
            .world_size = job.strategy.world_size,
            .stream = static_cast<CUstream_st*>(stream),
            .deadline = deadline_of(job),
            .board = board};
  }

  static NcclUniqueId agree_on_id(const Job& job, int rank, const Board& board, int channel) {
    if (job.strategy.world_size == 1) return {};
    if (job.config.solo_rank >= 0) return new_nccl_id(nccl_api());
    NcclUniqueId id;
    if (rank == 0) {
      id = new_nccl_id(nccl_api());
      board.set_nccl_id(channel, id.bytes);
    } else {
      wait_for_rank_0(job, rank, board, "make NCCL's id",
                      [&] { return board.nccl_id(channel, id.bytes); });
    }
    return id;
  }

  NcclCommunicator gather_;
  std::optional<NcclCommunicator> reduce_;
};

/// Communicators of the CPU for buffers on a device.
class StagedLinks final : public Links {
 public:
  StagedLinks(const Job& job, std::unique_ptr<Links> host, const DeviceStreams& streams)
      : host_(std::move(host)),
        gather_(*host_->channels().gather, options(job, streams.gather)),
        reduce_(*host_->channels().reduce, options(job, streams.reduce)) {}

  Channels channels() override { return {&gather_, &reduce_}; }

 private:
  static StagedOptions options(const Job& job, void* stream) {
    return {.stream = static_cast<CUstream_st*>(stream), .deadline = deadline_of(job)};
  }

  std::unique_ptr<Links> host_;
  StagedCommunicator gather_;
  StagedCommunicator reduce_;
};

std::unique_ptr<Links> make_links(const Job& job, int rank, void* region, const Board& board,
                                  const DeviceStreams& streams) {
  // NCCL's stub plays the absent ranks of a solo rank; no other transport could.
  const bool is_solo = job.config.solo_rank >= 0;
  const CommunicatorKind kind = job.strategy.communicator;
  switch (is_solo && kind != CommunicatorKind::nccl ? CommunicatorKind::none : kind) {
    case CommunicatorKind::none:
      return std::make_unique<NoLinks>(rank, job.strategy.world_size);
    case CommunicatorKind::local:
      return std::make_unique<LocalLinks>(job, rank, static_cast<std::byte*>(region), board);
    case CommunicatorKind::gloo:
      return std::make_unique<GlooLinks>(job, rank, board);
    case CommunicatorKind::nccl:
      return std::make_unique<NcclLinks>(job, rank, board, streams);
  }
  throw std::logic_error("communicator out of range");
}

}  // namespace

size_t region_bytes(const Job& job) {
  size_t bytes = Board::bytes(job.strategy.world_size);
  if (job.strategy.communicator != CommunicatorKind::local) return bytes;
  for (const auto channel : {planner::Channel::gather, planner::Channel::reduce}) {
    bytes += LocalCommunicator::bytes(local_layout(job, channel));
  }
  return bytes;
}

std::unique_ptr<Links> join(const Job& job, int rank, void* region, DeviceStreams streams) {
  const Board board(region, job.strategy.world_size);
  board.join(rank, ::getpid());
  auto links = make_links(job, rank, region, board, streams);
  if (job.strategy.staged) links = std::make_unique<StagedLinks>(job, std::move(links), streams);
  links->channels().reduce->barrier({.step = 0, .kind = "BARRIER", .group = "rendezvous"});
  return links;
}

}  // namespace shardlens::runtime
