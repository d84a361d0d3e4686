#include "runtime/comm/device/nccl.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/comm/device/cuda_handles.h"
#include "runtime/comm/watchdog.h"

namespace shardlens::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kNap(50);
constexpr std::chrono::seconds kPatience(2);  // how long NCCL may take to end
constexpr size_t kSumDoubles = 64;            // fills one block of LibTorch's allocator

// Aborts a communicator within a time limit. An abort frees device memory, for which CUDA waits
// until the device is idle: if a kernel of another communicator hangs, until that one is aborted
// too. So the abort runs on its own thread, which shares no memory with us and is left behind if
// it does not return.
void abort_in_time(const NcclApi& api, NcclComm* comm, int device) noexcept try {
  std::packaged_task<void()> task([abort = api.comm_abort, comm, device] {
    cudaSetDevice(device);
    abort(comm);
  });
  const auto done = task.get_future();
  std::thread(std::move(task)).detach();
  done.wait_for(kPatience);
} catch (const std::exception&) {
  // The system is out of threads, and the process is about to end.
}

NcclResult gather(const NcclApi& api, NcclComm* comm, std::span<const GatherBuffer> buffers,
                  const NcclOptions& options) {
  const planner::RankSet& ranks = options.ranks;
  NcclResult result = api.group_start();
  for (const GatherBuffer& buffer : buffers) {
    if (buffer.numel == 0 || result != NcclResult::success) continue;
    const int64_t range = buffer.numel / ranks.size;
    const auto* own = static_cast<const std::byte*>(buffer.data) +
                      ranks.index_of(options.rank) * range * bytes_of(buffer.dtype);
    const NcclResult queued = api.all_gather(own, buffer.data, static_cast<size_t>(range),
                                             nccl_type(buffer.dtype), comm, options.stream);
    if (queued != NcclResult::in_progress) result = queued;
  }
  const NcclResult ended = api.group_end();
  return result == NcclResult::success ? ended : result;
}

c10::Allocator& initialised_allocator() {
  auto& of_libtorch = *c10::cuda::CUDACachingAllocator::get();
  if (!of_libtorch.initialized()) of_libtorch.init(c10::cuda::device_count());
  return of_libtorch;
}

/// Returns LibTorch's allocator, and starts it if no tensor has done so yet. LibTorch locks no
/// mutex while it starts, so if several threads call this at once, only one starts it.
c10::Allocator& allocator() {
  static c10::Allocator& of_libtorch = initialised_allocator();
  return of_libtorch;
}

}  // namespace

NcclType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return NcclType::fp32;
    case DType::bf16:
      return NcclType::bf16;
    case DType::fp16:
      return NcclType::fp16;
  }
  unreachable("NCCL: no such dtype");
}

/// Holds NCCL's communicator and the marks behind its operations.
///
/// [Note: two threads] Every call into NCCL holds the mutex, and no call takes long. But a launch
/// may block if the device's queue is full because of a hang. Then the watchdog aborts without the
/// mutex, since only an abort lets the launch return.
class NcclCommunicator::Link final : public WatchdogTarget {
 public:
  Link(const NcclApi* api, CUstream_st* stream) : api_(api), stream_(stream) {
    check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
    for (size_t i = 0; i < Watchdog::kMarks; ++i) marks_.emplace_back();
  }
  ~Link() override;

  NcclResult connect(const NcclOptions& options);
  /// Runs enqueue(api, comm) -> NcclResult under the mutex.
  template <class Enqueue>
  NcclResult call(Enqueue enqueue) {
    const std::scoped_lock lock(mutex_);
    NcclComm* comm = comm_.load();
    return comm == nullptr ? NcclResult::internal_error : enqueue(*api_, comm);
  }
  /// Returns the state of the last call.
  NcclResult progress();

  void record(size_t mark) { marks_[mark].record(stream_); }
  void enter_thread() override { cudaSetDevice(device_); }
  bool has_passed(size_t mark) override { return marks_[mark].has_passed(); }
  Problem error() override;
  void stop() noexcept override;

 private:
  bool finalize();

  const NcclApi* api_;
  CUstream_st* stream_;
  int device_ = 0;
  std::mutex mutex_;
  std::atomic<NcclComm*> comm_ = nullptr;  // null before the start and after the end
  std::vector<CudaEvent> marks_;           // [Watchdog::kMarks]
};

NcclCommunicator::Link::~Link() {
  NcclComm* comm = comm_.load();
  if (comm == nullptr) return;
  if (finalize()) {
    api_->comm_destroy(comm);
  } else {
    abort_in_time(*api_, comm, device_);
  }
}

/// Finalizes. Returns true if everything in flight has finished.
bool NcclCommunicator::Link::finalize() {
  const auto last_moment = Clock::now() + kPatience;
  NcclResult state = progress();
  if (state != NcclResult::success) return false;
  state = call([](const NcclApi& api, NcclComm* comm) { return api.comm_finalize(comm); });
  while (state == NcclResult::in_progress && Clock::now() < last_moment) {
    std::this_thread::sleep_for(kNap);
    state = progress();
  }
  return state == NcclResult::success;
}

NcclResult NcclCommunicator::Link::connect(const NcclOptions& options) {
  NcclConfig config;
  config.blocking = 0;
  const std::scoped_lock lock(mutex_);
  NcclComm* comm = nullptr;
  const planner::RankSet& ranks = options.ranks;
  const NcclResult result = api_->comm_init_rank_config(&comm, ranks.size, options.id,
                                                        ranks.index_of(options.rank), &config);
  comm_.store(comm);
  return result;
}

NcclResult NcclCommunicator::Link::progress() {
  return call([](const NcclApi& api, NcclComm* comm) {
    NcclResult state = NcclResult::success;
    const NcclResult asked = api.comm_get_async_error(comm, &state);
    return asked == NcclResult::success ? state : asked;
  });
}

Problem NcclCommunicator::Link::error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  NcclComm* comm = comm_.load();
  if (!lock.owns_lock() || comm == nullptr) return std::nullopt;
  NcclResult state = NcclResult::success;
  const NcclResult asked = api_->comm_get_async_error(comm, &state);
  if (asked != NcclResult::success) state = asked;
  const bool is_well = state == NcclResult::success || state == NcclResult::in_progress;
  return is_well ? Problem() : to_text(*api_, state);
}

void NcclCommunicator::Link::stop() noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  const auto last_moment = Clock::now() + kPatience;
  while (!lock.try_lock() && Clock::now() < last_moment) std::this_thread::sleep_for(kNap);
  NcclComm* comm = comm_.exchange(nullptr);
  if (comm != nullptr) abort_in_time(*api_, comm, device_);
}

/// Holds the memory through which a sum passes the device. Every sum is waited for, so one buffer
/// is enough.
struct NcclCommunicator::SumBuffers {
  explicit SumBuffers(CUstream_st* stream)
      : host(kSumDoubles * sizeof(double)),
        device(allocator().allocate(kSumDoubles * sizeof(double))) {
    // The block belongs to the current stream, which may still use it for its previous owner.
    CudaEvent free;
    free.record(c10::cuda::getCurrentCUDAStream().stream());
    free.make_wait(stream);
  }

  StagingMemory host;
  c10::DataPtr device;  // [kSumDoubles] fp64
};

NcclCommunicator::NcclCommunicator(const NcclOptions& options) : options_(options) {
  check(options_.rank >= 0, "NCCL: rank outside its world");
  check(options_.ranks.size >= 1 && options_.ranks.stride >= 1, "NCCL: a set without ranks");
  if (options_.api == nullptr) options_.api = &nccl_api();
  link_ = std::make_unique<Link>(options_.api, options_.stream);
  AbortNote* note = options_.board ? &options_.board->abort_note() : &own_note_;
  const WatchdogOptions watching{
      .rank = options_.rank, .deadline = options_.deadline, .note = note};
  watchdog_ = std::make_unique<Watchdog>(*link_, watching);
  const Operation operation{.step = 0, .kind = "INIT", .group = options_.name};
  hand_over(operation, [&] { return link_->connect(options_); });
  sums_ = std::make_unique<SumBuffers>(options_.stream);
}

// Freeing memory waits for the device, which may hang after a failure: then the memory is left
// behind.
NcclCommunicator::~NcclCommunicator() {
  if (!watchdog_->has_failed()) return;
  link_->stop();
  sums_.release();
}

template <class Call>
size_t NcclCommunicator::hand_over(const Operation& operation, Call call) {
  const size_t mark = watchdog_->begin(operation);
  last_step_ = operation.step;
  try {
    NcclResult result = call();
    while (result == NcclResult::in_progress) {
      watchdog_->check(operation);
      std::this_thread::sleep_for(kNap);
      result = link_->progress();
    }
    watchdog_->check(operation);
    if (result != NcclResult::success) watchdog_->fail(operation, to_text(*options_.api, result));
    link_->record(mark);
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::runtime_error& error) {
    watchdog_->fail(operation, error.what());
  }
  watchdog_->note_issue(mark);
  return mark;
}

template <class Enqueue>
Ticket NcclCommunicator::issue(const Operation& operation, Enqueue enqueue) {
  hand_over(operation, [&] { return link_->call(enqueue); });
  return next_issue_++;
}

Ticket NcclCommunicator::all_gather(const Operation& operation,
                                    std::span<const GatherBuffer> buffers) {
  check_ranges(buffers, world_size());
  return issue(operation, [&](const NcclApi& api, NcclComm* comm) {
    return gather(api, comm, buffers, options_);
  });
}

Ticket NcclCommunicator::reduce_scatter(const Operation& operation, const ReduceBuffers& buffers) {
  check(buffers.shard_numel >= 0, "reduce_scatter: a negative number of elements");
  const auto numel = static_cast<size_t>(buffers.shard_numel);
  return issue(operation, [&](const NcclApi& api, NcclComm* comm) {
    return api.reduce_scatter(buffers.input, buffers.output, numel, nccl_type(buffers.dtype),
                              NcclReduction::average, comm, options_.stream);
  });
}

Ticket NcclCommunicator::all_reduce(const Operation& operation, void* data, int64_t numel,
                                    DType dtype) {
  return issue(operation, [&](const NcclApi& api, NcclComm* comm) {
    return api.all_reduce(data, data, static_cast<size_t>(numel), nccl_type(dtype),
                          NcclReduction::average, comm, options_.stream);
  });
}

void NcclCommunicator::sum(const Operation& operation, std::span<double> values) {
  watchdog_->check(operation);
  while (!values.empty()) {
    const size_t some = std::min(values.size(), kSumDoubles);
    sum_some(operation, values.first(some));
    values = values.subspan(some);
  }
}

void NcclCommunicator::sum_some(const Operation& operation, std::span<double> values) {
  check(!values.empty() && values.size() <= kSumDoubles, "NCCL: a sum has no room on the device");
  void* device = sums_->device.get();
  std::byte* host = sums_->host.data();
  const auto copy = [&](void* target, const void* source) {
    return hand_over(operation, [&] {
      check_cuda(
          cudaMemcpyAsync(target, source, values.size_bytes(), cudaMemcpyDefault, options_.stream),
          "cudaMemcpyAsync");
      return NcclResult::success;
    });
  };
  std::ranges::copy(std::as_bytes(values), host);
  copy(device, host);
  hand_over(operation, [&] {
    return link_->call([&](const NcclApi& api, NcclComm* comm) {
      return api.all_reduce(device, device, values.size(), NcclType::fp64, NcclReduction::sum, comm,
                            options_.stream);
    });
  });
  const size_t mark = copy(host, device);
  try {
    while (!link_->has_passed(mark)) {
      watchdog_->check(operation);
      std::this_thread::sleep_for(kNap);
    }
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::runtime_error& error) {
    watchdog_->fail(operation, error.what());
  }
  watchdog_->check(operation);  // see [Note: one failure]
  std::copy_n(host, values.size_bytes(), std::as_writable_bytes(values).begin());
}

void NcclCommunicator::barrier(const Operation& operation) {
  double here = 1;
  sum(operation, {&here, 1});
}

void NcclCommunicator::wait(Ticket ticket) {
  check(ticket >= 0 && ticket < next_issue_, "NCCL: no such ticket");
  watchdog_->check({.step = last_step_, .kind = "WAIT"});
}

void NcclCommunicator::abort(const std::string& reason) noexcept {
  own_note_.raise(reason);
  if (options_.board) options_.board->abort_note().raise(reason);
}

}  // namespace shardlens::runtime
