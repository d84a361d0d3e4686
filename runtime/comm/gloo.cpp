#include "runtime/comm/gloo.h"

#include <ATen/ops/from_blob.h>
#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <future>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/fault.h"
#include "runtime/comm/operation_text.h"
#include "runtime/comm/rank_sum.h"
#include "runtime/comm/scalar_type.h"

namespace shardlens::runtime {
namespace {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

constexpr std::chrono::milliseconds kSlice(50);  // an abort is noticed within this

constexpr std::chrono::milliseconds kPatience(1000);

// Returns the first line of an error. c10's texts go on with a C++ stack trace.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Silences c10d, which writes warnings and stack traces to standard error before it throws. The
// exceptions say the same, and a library should not print. A user who sets TORCH_CPP_LOG_LEVEL
// wants to see these lines.
void quiet_c10d() {
  constexpr int kFatal = 3;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = kFatal;
  } else {
    c10::initLogging();  // only Python does this by itself
  }
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "127.0.0.1"; }

at::Tensor borrow(const void* data, int64_t numel, c10::ScalarType type) {
  return at::from_blob(const_cast<void*>(data), {numel}, at::TensorOptions(type));
}

c10d::TCPStoreOptions store_options(const GlooStoreOptions& options) {
  c10d::TCPStoreOptions result;
  result.port = options.port;
  result.numWorkers = static_cast<size_t>(options.world_size);
  result.waitWorkers = false;  // the groups made from this store meet by themselves
  result.timeout = options.deadline;
  return result;
}

// Returns a socket that listens only on loopback; c10d itself would listen on every interface.
int listen_on_loopback(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int reuse = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  if (fd >= 0 && bind(fd, where, sizeof(address)) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const std::string error = std::generic_category().message(errno);
  if (fd >= 0) close(fd);
  throw std::runtime_error(error);
}

uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// Runs `make` with a deadline. A client of c10d's store waits without a deadline for a stopped
// server. So code that talks to the store runs on its own thread. If no answer comes, the thread
// is left behind: it shares no memory with us, and the process can then only end.
template <typename Make>
auto run_within(std::chrono::milliseconds deadline, Make make) {
  std::packaged_task<decltype(make())()> task(std::move(make));
  auto made = task.get_future();
  std::thread(std::move(task)).detach();
  if (made.wait_for(deadline + kPatience) != std::future_status::ready) {
    throw std::runtime_error("the store does not answer");
  }
  return made.get();
}

using Bytes = std::vector<uint8_t>;

class TcpStore final : public GlooStore {
  static Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

  template <typename Question>
  auto ask(Question question) const {
    try {
      return run_within(options_.deadline, std::move(question));
    } catch (const std::exception& error) {
      throw CommunicationError("rank " + std::to_string(options_.rank) +
                               " has lost the rendezvous store at " + options_.host + ":" +
                               std::to_string(port_) + ": " + first_line(error.what()));
    }
  }

 public:
  TcpStore(const GlooStoreOptions& options, const c10::intrusive_ptr<c10d::TCPStore>& store)
      : options_(options), port_(store->getPort()), store_(store) {
    if (!options.prefix.empty()) enter(options.prefix);
  }
  uint16_t port() const override { return port_; }
  std::unique_ptr<GlooStore> below(const std::string& prefix) const override {
    auto inner = std::make_unique<TcpStore>(*this);
    inner->enter(prefix);
    return inner;
  }
  const std::string& host() const { return options_.host; }
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

  void set(const std::string& key, const std::string& value) override {
    ask([store = store_, key, bytes = bytes_of(value)] { return store->set(key, bytes), true; });
  }
  std::optional<std::string> find(const std::string& key) override {
    return ask([store = store_, key]() -> std::optional<std::string> {
      if (!store->check({key})) return std::nullopt;
      const Bytes bytes = store->get(key);
      return std::string(bytes.begin(), bytes.end());
    });
  }
  std::string set_first(const std::string& key, const std::string& value) override {
    check(!value.empty(), [&] { return "store: no words for " + key; });
    return ask([store = store_, key, bytes = bytes_of(value)] {
      const Bytes first = store->compareSet(key, {}, bytes);
      return std::string(first.begin(), first.end());
    });
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return ask([store = store_, key, amount] { return store->add(key, amount); });
  }

 private:
  void enter(const std::string& prefix) {
    store_ = c10::make_intrusive<c10d::PrefixStore>(prefix, store_);
  }

  GlooStoreOptions options_;
  uint16_t port_;
  c10::intrusive_ptr<c10d::Store> store_;
};

using Group = c10d::ProcessGroupGloo;

/// Meets the other ranks of the set, which has its own part of the store.
c10::intrusive_ptr<Group> make_group(const std::string& host,
                                     const c10::intrusive_ptr<c10d::Store>& store,
                                     const GlooOptions& options) {
  auto settings = Group::Options::create(options.deadline);
  settings->devices = is_loopback(host) ? std::vector{Group::createDeviceForHostname("127.0.0.1")}
                                        : Group::Options::create_default(options.deadline)->devices;
  const planner::RankSet& ranks = options.ranks;
  const std::string prefix = options.prefix + "/" + std::to_string(ranks.first_of(options.rank));
  const auto prefixed = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
  return c10::make_intrusive<Group>(prefixed, ranks.index_of(options.rank), ranks.size, settings);
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<Group> group, const GlooOptions& options)
      : options_(options), group_(std::move(group)) {
    check(group_.defined(), "gloo: no group");
    check(group_->getRank() == rank() && group_->getSize() == world_size(),
          "gloo: the group has other ranks than the set");
  }
  ~GlooCommunicator() override;

  int rank() const override { return options_.ranks.index_of(options_.rank); }
  int world_size() const override { return options_.ranks.size; }
  Ticket all_gather(const Operation& operation, std::span<const GatherBuffer> buffers) override;
  Ticket reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) override;
  Ticket all_reduce(const Operation& operation, void* data, int64_t numel, DType dtype) override;
  void sum(const Operation& operation, std::span<double> values) override;
  void wait(Ticket ticket) override;
  void barrier(const Operation& operation) override;
  void abort(const std::string& reason) noexcept override;

 private:
  enum class Kind { plain, reduce_scatter, all_reduce };
  struct PendingOperation {
    Kind kind = Kind::plain;
    Operation operation;
    Works works;
    ReduceBuffers reduce;     // all_reduce: output only
    std::vector<float> wide;  // all_reduce of bf16 and fp16, in fp32
  };

  /// Runs `start`, which fills in works, and queues the operation.
  template <typename Start>
  Ticket issue(Kind kind, const Operation& operation, Start start);
  void finish(const Operation& operation, c10d::Work& work);
  void reduce_received(const PendingOperation& pending);
  void check_alive(const Operation& operation);
  [[noreturn]] void fail(const Operation& operation, const std::exception_ptr& error);
  [[noreturn]] void fail(const Operation& operation, const std::string& what,
                         Fault fault = Fault::connection);

  GlooOptions options_;
  c10::intrusive_ptr<Group> group_;
  std::deque<PendingOperation> pending_;
  Ticket next_issue_ = 0;
  Ticket next_wait_ = 0;
  AbortNote own_note_;
  Problem failure_;  // nothing: alive
};

// The group's destructor joins threads that are busy with the operations in flight. After an error
// of a peer they end within milliseconds (measured: dead peer 1 ms, stopped peer past its deadline
// 20 ms). After an abort while a peer is stopped, joining took the rest of the deadline (11.7 s of
// 12 s), and would delay the end of this process by that time. Then the group is leaked on
// purpose.
GlooCommunicator::~GlooCommunicator() {
  const auto last_moment = std::chrono::steady_clock::now() + kPatience;
  const auto in_flight = [](const PendingOperation& pending) {
    return std::any_of(pending.works.begin(), pending.works.end(),
                       [](const auto& work) { return !work->isCompleted(); });
  };
  while (std::any_of(pending_.begin(), pending_.end(), in_flight)) {
    if (std::chrono::steady_clock::now() > last_moment) {
      group_.release();
      new std::deque<PendingOperation>(
          std::move(pending_));  // holds buffers that are still written
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

template <typename Start>
Ticket GlooCommunicator::issue(Kind kind, const Operation& operation, Start start) {
  check_alive(operation);
  check(static_cast<Ticket>(pending_.size()) == next_issue_ - next_wait_,
        "gloo: the operations in flight do not match the tickets");
  PendingOperation& pending = pending_.emplace_back();
  pending.kind = kind;
  pending.operation = operation;
  try {
    start(pending);
  } catch (const std::exception& error) {
    fail(operation, first_line(error.what()));
  }
  return next_issue_++;
}

// Gathers by broadcasts, which work in place: c10d's own all-gather takes two temporaries of full
// size.
Ticket GlooCommunicator::all_gather(const Operation& operation,
                                    std::span<const GatherBuffer> buffers) {
  check_ranges(buffers, world_size());
  return issue(Kind::plain, operation, [&](PendingOperation& pending) {
    for (const GatherBuffer& buffer : buffers) {
      const auto whole = borrow(buffer.data, buffer.numel, scalar_type(buffer.dtype));
      const int64_t range = buffer.numel / world_size();
      for (int root = 0; root < world_size() && range > 0; ++root) {
        c10d::BroadcastOptions from;
        from.rootRank = root;
        std::vector<at::Tensor> part{whole.narrow(0, root * range, range)};
        pending.works.push_back(group_->broadcast(part, from));
      }
    }
  });
}

// Exchanges ranges and sums them here: c10d's own reduce-scatter does a full all-reduce and is
// about four times slower.
Ticket GlooCommunicator::reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) {
  check(buffers.receive != nullptr || buffers.shard_numel == 0,
        "gloo: a reduction has nowhere to receive");
  return issue(Kind::reduce_scatter, operation, [&](PendingOperation& pending) {
    pending.reduce = buffers;
    const int64_t numel = buffers.shard_numel * world_size();
    if (numel == 0) return;
    at::Tensor received = borrow(buffers.receive, numel, scalar_type(buffers.dtype));
    at::Tensor input = borrow(buffers.input, numel, scalar_type(buffers.dtype));
    std::vector<int64_t> equal_parts;
    pending.works.push_back(group_->alltoall_base(received, input, equal_parts, equal_parts));
  });
}

Ticket GlooCommunicator::all_reduce(const Operation& operation, void* data, int64_t numel,
                                    DType dtype) {
  return issue(Kind::all_reduce, operation, [&](PendingOperation& pending) {
    pending.reduce = {.output = data, .shard_numel = numel, .dtype = dtype};
    if (numel == 0) return;
    void* summed = data;
    if (dtype != DType::fp32) {  // Gloo would round every partial sum
      pending.wide.resize(static_cast<size_t>(numel));
      widen(data, pending.wide.data(), numel, dtype);
      summed = pending.wide.data();
    }
    std::vector<at::Tensor> tensors{borrow(summed, numel, at::kFloat)};
    pending.works.push_back(group_->allreduce(tensors));
  });
}

void GlooCommunicator::sum(const Operation& operation, std::span<double> values) {
  wait(issue(Kind::plain, operation, [&](PendingOperation& pending) {
    if (values.empty()) return;
    const auto numel = static_cast<int64_t>(values.size());
    std::vector<at::Tensor> tensors{borrow(values.data(), numel, at::kDouble)};
    pending.works.push_back(group_->allreduce(tensors));
  }));
}

void GlooCommunicator::barrier(const Operation& operation) {
  wait(issue(Kind::plain, operation,
             [&](PendingOperation& pending) { pending.works.push_back(group_->barrier()); }));
}

void GlooCommunicator::wait(Ticket ticket) {
  check(ticket == next_wait_ && ticket < next_issue_,
        "communicator: tickets are waited for in the order of issue");
  check(!pending_.empty(), "gloo: a wait for a ticket whose operation is gone");
  const PendingOperation& pending = pending_.front();
  check_alive(pending.operation);
  for (const auto& work : pending.works) finish(pending.operation, *work);
  reduce_received(pending);
  pending_.pop_front();
  ++next_wait_;
}

void GlooCommunicator::finish(const Operation& operation, c10d::Work& work) {
  for (;;) {
    try {
      work.wait(kSlice);
      return;
    } catch (const std::exception&) {
      // wait() also throws when the slice is over; work.exception() tells the two apart.
    }
    if (work.isCompleted()) {
      if (!work.exception()) return;
      fail(operation, work.exception());
    }
    check_alive(operation);
  }
}

void GlooCommunicator::fail(const Operation& operation, const std::exception_ptr& error) {
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    text = first_line(thrown.what());
  }
  const bool late = text.find("imed out") != text.npos || text.find("timeout") != text.npos;
  if (!late) fail(operation, text);
  fail(operation, "a peer did not arrive within " + to_text(options_.deadline) + ": " + text,
       Fault::hung);
}

void GlooCommunicator::reduce_received(const PendingOperation& pending) {
  const ReduceBuffers& reduce = pending.reduce;
  if (pending.kind == Kind::reduce_scatter) {
    const auto bytes = static_cast<size_t>(reduce.shard_numel * bytes_of(reduce.dtype));
    std::vector<const void*> sources;
    for (int peer = 0; peer < world_size(); ++peer) {
      const auto* received = static_cast<const std::byte*>(reduce.receive);
      sources.push_back(received + static_cast<size_t>(peer) * bytes);
    }
    mean_in_rank_order(sources, reduce.output, reduce.shard_numel, reduce.dtype);
  } else if (pending.kind == Kind::all_reduce) {
    const bool wide = reduce.dtype != DType::fp32;
    check(!wide || static_cast<int64_t>(pending.wide.size()) == reduce.shard_numel,
          "gloo: a sum is not as long as its output");
    const auto* summed = wide ? pending.wide.data() : static_cast<const float*>(reduce.output);
    divide_by_ranks(summed, reduce.output, reduce.shard_numel, reduce.dtype, world_size());
  }
}

void GlooCommunicator::abort(const std::string& reason) noexcept {
  own_note_.raise(reason);
  if (options_.board) options_.board->abort_note().raise(reason);
}

void GlooCommunicator::check_alive(const Operation& operation) {
  if (failure_) throw CommunicationError(*failure_);
  if (own_note_.is_raised()) fail(operation, "stopped: " + own_note_.reason());
  if (!options_.board) return;
  const AbortNote& note = options_.board->abort_note();
  if (note.is_raised()) fail(operation, "stopped: " + note.reason());
}

void GlooCommunicator::fail(const Operation& operation, const std::string& what, Fault fault) {
  failure_ = to_text(options_.rank, operation) + ": " + what;
  throw CommunicationError(*failure_, fault);
}

}  // namespace

std::unique_ptr<GlooStore> GlooStore::serve(const GlooStoreOptions& options) {
  quiet_c10d();
  try {
    c10d::TCPStoreOptions settings = store_options(options);
    settings.isServer = true;
    if (is_loopback(options.host)) {
      settings.masterListenFd = listen_on_loopback(options.port);
      settings.port = port_of(*settings.masterListenFd);
    }
    return std::make_unique<TcpStore>(options,
                                      c10::make_intrusive<c10d::TCPStore>(options.host, settings));
  } catch (const std::exception& error) {
    throw CommunicationError("rank " + std::to_string(options.rank) +
                             " could not serve the rendezvous store at " + options.host + ":" +
                             std::to_string(options.port) + ": " + first_line(error.what()));
  }
}

std::unique_ptr<GlooStore> GlooStore::connect(const GlooStoreOptions& options) {
  quiet_c10d();
  try {
    auto store = run_within(options.deadline, [options] {
      return c10::make_intrusive<c10d::TCPStore>(options.host, store_options(options));
    });
    return std::make_unique<TcpStore>(options, store);
  } catch (const std::exception& error) {
    throw CommunicationError("rank " + std::to_string(options.rank) +
                             " could not reach the rendezvous store at " + options.host + ":" +
                             std::to_string(options.port) + " within " + to_text(options.deadline) +
                             ": " + first_line(error.what()));
  }
}

std::unique_ptr<Communicator> make_gloo(GlooStore& store, const GlooOptions& options) {
  try {
    const auto& tcp = dynamic_cast<const TcpStore&>(store);
    auto group = run_within(options.deadline, [host = tcp.host(), store = tcp.store(), options] {
      return make_group(host, store, options);
    });
    return std::make_unique<GlooCommunicator>(std::move(group), options);
  } catch (const std::exception& error) {
    throw CommunicationError("rank " + std::to_string(options.rank) + " could not join the " +
                             options.prefix + " group of " + to_text(options.ranks, options.rank) +
                             " within " + to_text(options.deadline) + ": " +
                             first_line(error.what()));
  }
}

}  // namespace shardlens::runtime
