#include "runtime/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/comm/gloo.h"
#include "runtime/comm/local.h"
#include "runtime/comm/none.h"

namespace shardlens::runtime {

namespace {

using planner::CommunicatorKind;

std::chrono::milliseconds deadline_of(const Job& job) {
  return std::chrono::milliseconds(static_cast<int64_t>(job.config.timeout_s * 1e3));
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
    options.port = wait_for_port(job, rank, board);
    return GlooStore::connect(options);
  }

  static uint16_t wait_for_port(const Job& job, int rank, const Board& board) {
    const auto give_up = std::chrono::steady_clock::now() + deadline_of(job);
    while (board.port() == 0) {
      if (board.abort_note().raised()) throw CommunicationError(board.abort_note().reason());
      if (std::chrono::steady_clock::now() > give_up) {
        throw CommunicationError("rank " + std::to_string(rank) +
                                 ", rendezvous: rank 0 did not open its store in time");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return board.port();
  }

  std::unique_ptr<GlooStore> store_;
  std::unique_ptr<Communicator> gather_;
  std::unique_ptr<Communicator> reduce_;
};

std::unique_ptr<Links> make_links(const Job& job, int rank, void* region, const Board& board) {
  switch (job.strategy.communicator) {
    case CommunicatorKind::none:
      return std::make_unique<NoLinks>();
    case CommunicatorKind::local:
      return std::make_unique<LocalLinks>(job, rank, static_cast<std::byte*>(region), board);
    case CommunicatorKind::gloo:
      return std::make_unique<GlooLinks>(job, rank, board);
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

std::unique_ptr<Links> join(const Job& job, int rank, void* region) {
  const Board board(region, job.strategy.world_size);
  board.join(rank, ::getpid());
  auto links = make_links(job, rank, region, board);
  links->channels().reduce->barrier({.step = 0, .kind = "BARRIER", .group = "rendezvous"});
  return links;
}

}  // namespace shardlens::runtime
