#include "runtime/launch/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/comm/board/wait_for_peer.h"
#include "runtime/comm/device/nccl.h"
#include "runtime/comm/device/staged.h"
#include "runtime/comm/gloo.h"
#include "runtime/comm/local.h"
#include "runtime/comm/none.h"
#include "runtime/launch/rendezvous_store.h"

namespace shardlens::runtime {

namespace {

using planner::Channel;
using planner::CommunicatorKind;
using planner::RankSet;
using planner::Stream;

/// Describes a channel: the part that is the same on every rank and transport.
struct Route {
  Channel channel;
  const char* name;  // for errors, and for Gloo's store
  Stream stream;     // of a device
  Communicator* Channels::*end;
};

constexpr std::array<Route, 4> kRoutes = {{
    {Channel::gather, "gather", Stream::gather, &Channels::gather},
    {Channel::reduce, "reduce", Stream::reduce, &Channels::reduce},
    {Channel::regather, "regather", Stream::gather, &Channels::regather},
    {Channel::replicate, "replicate", Stream::replicate, &Channels::replicate},
}};
static_assert(kRoutes.size() == Board::kNcclIds);

bool is_joined(const Job& job, Channel channel) {
  return std::ranges::count(job.train.channels(), channel) > 0;
}

/// Throws unless these two channels join all ranks: the world's sums and barriers run over them.
void check_world_is_covered(const Job& job) {
  int ranks = job.train.ranks_of(Channel::reduce).size;
  if (is_joined(job, Channel::replicate)) ranks *= job.train.ranks_of(Channel::replicate).size;
  check(ranks == job.strategy.world_size, [&] {
    return "rendezvous: the schedule's reductions join " + std::to_string(ranks) + " ranks of " +
           std::to_string(job.strategy.world_size);
  });
}

/// Holds what a rank needs to join.
struct Joiner {
  const Job& job;
  int rank;
  Board board;
  const Streams& streams;
  RendezvousStore* store = nullptr;  // for ranks that share no memory

  std::chrono::milliseconds deadline() const { return deadline_of(job.config); }
  bool is_solo() const { return job.config.solo_rank >= 0; }
  template <class IsTold>
  void wait_for(int peer, const std::string& what, const IsTold& is_told) const {
    wait_for_peer(board, rank, peer, what, deadline(), is_told);
  }
  CUstream_st* stream_of(const Route& route) const {
    return static_cast<CUstream_st*>(streams.handle(route.stream));
  }
};

/// Makes one rank's communicators, each of which joins more than one rank.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Communicator> connect(const Route& route, const RankSet& ranks) = 0;
};

LocalLayout local_layout(const Job& job, Channel channel) {
  LocalLayout layout{.ranks = job.train.ranks_of(channel)};
  for (const planner::Action& action : job.train.actions) {
    if (action.channel != channel) continue;
    const bool gathers = action.kind == planner::ActionKind::all_gather;
    int64_t& most = gathers ? layout.max_gather_bytes : layout.max_reduce_bytes;
    most = std::max(most, action.bytes);
  }
  return layout;
}

/// Makes local communicators. The region holds the board, then for each channel one area per set of
/// ranks, ordered by the sets' first ranks.
class LocalTransport final : public Transport {
 public:
  LocalTransport(const Joiner& joiner, std::byte* region)
      : joiner_(joiner), next_(region + Board::bytes(joiner.job.strategy.world_size)) {}

  /// Returns the bytes of one channel's areas.
  static size_t region_bytes(const Job& job, Channel channel) {
    const LocalLayout layout = local_layout(job, channel);
    if (layout.ranks.size == 1 || !is_joined(job, channel)) return 0;
    const int sets = job.strategy.world_size / layout.ranks.size;
    return static_cast<size_t>(sets) * LocalCommunicator::bytes(layout);
  }

  std::unique_ptr<Communicator> connect(const Route& route, const RankSet& ranks) override {
    const LocalOptions options{
        .layout = local_layout(joiner_.job, route.channel),
        .rank = joiner_.rank,
        .deadline = joiner_.deadline(),
        .describe = [&job = joiner_.job,
                     board = joiner_.board](int peer) { return describe(job, board.read(peer)); },
        .board = joiner_.board};
    const size_t area = sets_before(ranks) * LocalCommunicator::bytes(options.layout);
    std::byte* const channel =
        std::exchange(next_, next_ + region_bytes(joiner_.job, route.channel));
    return std::make_unique<LocalCommunicator>(channel + area, options);
  }

 private:
  size_t sets_before(const RankSet& ranks) const {
    const int first = ranks.first_of(joiner_.rank);
    const int span = ranks.size * ranks.stride;  // this many ranks hold `stride` sets
    return static_cast<size_t>(first / span * ranks.stride + first % span);
  }

  Joiner joiner_;
  std::byte* next_;  // the areas of the next channel
};

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(const Joiner& joiner)
      : joiner_(joiner), own_(joiner.store == nullptr ? meet(joiner) : nullptr) {}

  std::unique_ptr<Communicator> connect(const Route& route, const RankSet& ranks) override {
    GlooStore& store = own_ ? *own_ : joiner_.store->gloo();
    return make_gloo(store, {.prefix = route.name,
                             .rank = joiner_.rank,
                             .ranks = ranks,
                             .deadline = joiner_.deadline(),
                             .board = joiner_.board});
  }

 private:
  static std::unique_ptr<GlooStore> meet(const Joiner& joiner) {
    GlooStoreOptions options{.rank = joiner.rank,
                             .world_size = joiner.job.strategy.world_size,
                             .deadline = joiner.deadline()};
    if (joiner.rank == 0) {
      auto store = GlooStore::serve(options);
      joiner.board.set_port(store->port());
      return store;
    }
    joiner.wait_for(0, "open its store", [&] { return joiner.board.port() != 0; });
    options.port = joiner.board.port();
    return GlooStore::connect(options);
  }

  Joiner joiner_;
  std::unique_ptr<GlooStore> own_;  // null: the rendezvous store's
};

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(const Joiner& joiner) : joiner_(joiner) {}

  std::unique_ptr<Communicator> connect(const Route& route, const RankSet& ranks) override {
    return std::make_unique<NcclCommunicator>(NcclOptions{.name = route.name,
                                                          .id = agree_on_id(route, ranks),
                                                          .rank = joiner_.rank,
                                                          .ranks = ranks,
                                                          .stream = joiner_.stream_of(route),
                                                          .deadline = joiner_.deadline(),
                                                          .board = joiner_.board});
  }

 private:
  NcclUniqueId agree_on_id(const Route& route, const RankSet& ranks) const {
    if (joiner_.is_solo()) return new_nccl_id(nccl_api());
    const auto number = static_cast<int>(&route - kRoutes.data());
    const int first = ranks.first_of(joiner_.rank);
    NcclUniqueId id;
    if (joiner_.store != nullptr) return agree_in_store(route, first);
    if (joiner_.rank == first) {
      id = new_nccl_id(nccl_api());
      joiner_.board.set_nccl_id(first, number, id.bytes);
    } else {
      joiner_.wait_for(first, "make NCCL's id",
                       [&] { return joiner_.board.nccl_id(first, number, id.bytes); });
    }
    return id;
  }

  NcclUniqueId agree_in_store(const Route& route, int first) const {
    NcclUniqueId id;
    const std::string name = std::string("nccl/") + route.name + "/" + std::to_string(first);
    if (joiner_.rank == first) {
      id = new_nccl_id(nccl_api());
      joiner_.store->set(name, {reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()});
      return id;
    }
    const std::string told = joiner_.store->get(name, first, "make NCCL's id");
    if (told.size() != id.bytes.size()) throw CommunicationError(name + " is not an NCCL id");
    std::memcpy(id.bytes.data(), told.data(), told.size());
    return id;
  }

  Joiner joiner_;
};

/// Returns null if this rank has no peers.
std::unique_ptr<Transport> make_transport(const Joiner& joiner, std::byte* region) {
  // NCCL's stub stands in for the absent ranks of a solo rank; no other transport can.
  const CommunicatorKind kind = joiner.job.strategy.communicator;
  switch (joiner.is_solo() && kind != CommunicatorKind::nccl ? CommunicatorKind::none : kind) {
    case CommunicatorKind::none:
      return nullptr;
    case CommunicatorKind::local:
      return std::make_unique<LocalTransport>(joiner, region);
    case CommunicatorKind::gloo:
      return std::make_unique<GlooTransport>(joiner);
    case CommunicatorKind::nccl:
      return std::make_unique<NcclTransport>(joiner);
  }
  unreachable("communicator out of range");
}

class JoinedLinks final : public Links {
 public:
  JoinedLinks(const Joiner& joiner, std::unique_ptr<Transport> transport)
      : joiner_(joiner), transport_(std::move(transport)) {
    for (const Route& route : kRoutes) {
      if (is_joined(joiner.job, route.channel)) channels_.*route.end = open(route);
    }
  }

  Channels channels() const override { return channels_; }

 private:
  Communicator* open(const Route& route) {
    const RankSet ranks = joiner_.job.train.ranks_of(route.channel);
    if (shares_with_gather(route, ranks)) return channels_.gather;
    auto connected = connect(route, ranks);
    if (joiner_.job.strategy.staged) {
      connected = stage(route, *hosts_.emplace_back(std::move(connected)));
    }
    return communicators_.emplace_back(std::move(connected)).get();
  }

  /// True if one NCCL communicator serves gathers and reductions, which the user can ask for.
  bool shares_with_gather(const Route& route, const RankSet& ranks) const {
    const Job& job = joiner_.job;
    if (route.channel != Channel::reduce || channels_.gather == nullptr) return false;
    if (job.config.communicators > 1) return false;
    if (job.strategy.communicator != CommunicatorKind::nccl) return false;
    check(joiner_.streams.handle(Stream::gather) == joiner_.streams.handle(Stream::reduce),
          "rendezvous: one communicator, but two streams");
    return ranks == job.train.ranks_of(Channel::gather);
  }

  std::unique_ptr<Communicator> connect(const Route& route, const RankSet& ranks) {
    if (transport_ != nullptr && ranks.size > 1) return transport_->connect(route, ranks);
    return std::make_unique<NoneCommunicator>(joiner_.rank, ranks);
  }

  /// Lets a CPU communicator serve buffers on a device.
  std::unique_ptr<Communicator> stage(const Route& route, Communicator& host) const {
    const StagedOptions options{
        .rank = joiner_.rank, .stream = joiner_.stream_of(route), .deadline = joiner_.deadline()};
    return std::make_unique<StagedCommunicator>(host, options);
  }

  Joiner joiner_;
  std::unique_ptr<Transport> transport_;              // outlives what it connected
  std::vector<std::unique_ptr<Communicator>> hosts_;  // those below staged ones
  std::vector<std::unique_ptr<Communicator>> communicators_;
  Channels channels_;
};

}  // namespace

size_t region_bytes(const Job& job) {
  size_t bytes = Board::bytes(job.strategy.world_size);
  if (job.strategy.communicator != CommunicatorKind::local) return bytes;
  for (const Route& route : kRoutes) bytes += LocalTransport::region_bytes(job, route.channel);
  return bytes;
}

std::unique_ptr<Links> join(const Job& job, int rank, void* region, const Streams& streams,
                            RendezvousStore* store) {
  check_world_is_covered(job);
  const Joiner joiner{job, rank, Board(region, job.strategy.world_size), streams, store};
  joiner.board.join(rank, ::getpid());
  auto links = std::make_unique<JoinedLinks>(
      joiner, make_transport(joiner, static_cast<std::byte*>(region)));
  world_barrier(links->channels(), {.step = 0, .kind = "BARRIER", .group = "rendezvous"});
  return links;
}

}  // namespace shardlens::runtime
