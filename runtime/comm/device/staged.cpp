#include "runtime/comm/device/staged.h"

#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/comm/device/cuda_handles.h"
#include "runtime/comm/operation_text.h"

namespace shardlens::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kAlignment = 64;
constexpr std::chrono::microseconds kCopyNap(20);

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t bytes_of(int64_t numel, DType dtype) { return static_cast<size_t>(numel * bytes_of(dtype)); }

}  // namespace

struct StagedCommunicator::Staging {
  StagingMemory pinned;
  std::vector<std::byte> receive;  // only the host communicator uses it
  std::vector<GatherBuffer> gathers;
  CudaEvent copied;  // behind the last copy
};

StagedCommunicator::StagedCommunicator(Communicator& host, const StagedOptions& options)
    : host_(host), options_(options), staging_(std::make_unique<Staging>()) {}

// The device may still copy from the staging memory; after a failure that is left behind on
// purpose.
StagedCommunicator::~StagedCommunicator() {
  try {
    finish_copies({.step = 0, .kind = "END"});
  } catch (const std::exception&) {
    staging_.release();
  }
}

Ticket StagedCommunicator::all_gather(const Operation& operation,
                                      std::span<const GatherBuffer> buffers) {
  check_ranges(buffers, world_size());
  size_t bytes = 0;
  for (const GatherBuffer& buffer : buffers) bytes += aligned(bytes_of(buffer.numel, buffer.dtype));
  std::byte* at = stage(operation, bytes);
  staging_->gathers.assign(buffers.begin(), buffers.end());
  for (GatherBuffer& staged : staging_->gathers) {
    const size_t range = bytes_of(staged.numel / world_size(), staged.dtype);
    const size_t own = static_cast<size_t>(rank()) * range;
    copy(operation, at + own, static_cast<const std::byte*>(staged.data) + own, range);
    staged.data = at;
    at += aligned(bytes_of(staged.numel, staged.dtype));
  }
  check(at == staging_->pinned.data() + bytes, "staged: the bytes staged are not those counted");
  finish_copies(operation);
  host_.wait(host_.all_gather(operation, staging_->gathers));
  for (size_t i = 0; i < buffers.size(); ++i) {
    copy(operation, buffers[i].data, staging_->gathers[i].data,
         bytes_of(buffers[i].numel, buffers[i].dtype));
  }
  return next_issue_++;
}

Ticket StagedCommunicator::reduce_scatter(const Operation& operation,
                                          const ReduceBuffers& buffers) {
  const size_t shard = bytes_of(buffers.shard_numel, buffers.dtype);
  const size_t whole = static_cast<size_t>(world_size()) * shard;
  std::byte* input = stage(operation, aligned(whole) + shard);
  if (staging_->receive.size() < whole) staging_->receive.resize(whole);
  ReduceBuffers staged = buffers;
  staged.input = input;
  staged.output = input + aligned(whole);
  staged.receive = staging_->receive.data();
  copy(operation, input, buffers.input, whole);
  finish_copies(operation);
  host_.wait(host_.reduce_scatter(operation, staged));
  copy(operation, buffers.output, staged.output, shard);
  return next_issue_++;
}

Ticket StagedCommunicator::all_reduce(const Operation& operation, void* data, int64_t numel,
                                      DType dtype) {
  const size_t bytes = bytes_of(numel, dtype);
  std::byte* staged = stage(operation, bytes);
  copy(operation, staged, data, bytes);
  finish_copies(operation);
  host_.wait(host_.all_reduce(operation, staged, numel, dtype));
  copy(operation, data, staged, bytes);
  return next_issue_++;
}

void StagedCommunicator::sum(const Operation& operation, std::span<double> values) {
  check_alive();
  host_.sum(operation, values);
}

void StagedCommunicator::barrier(const Operation& operation) {
  check_alive();
  host_.barrier(operation);
}

void StagedCommunicator::wait(Ticket ticket) {
  check(ticket == next_wait_ && ticket < next_issue_,
        "communicator: tickets are waited for in the order of issue");
  check_alive();
  ++next_wait_;
}

std::byte* StagedCommunicator::stage(const Operation& operation, size_t bytes) {
  check_alive();
  finish_copies(operation);
  try {
    if (staging_->pinned.size_bytes() < bytes) staging_->pinned = StagingMemory(bytes);
  } catch (const std::runtime_error& error) {
    fail(operation, error.what());
  }
  check(staging_->pinned.size_bytes() >= bytes, "staged: its memory is smaller than what it holds");
  return staging_->pinned.data();
}

void StagedCommunicator::copy(const Operation& operation, void* target, const void* source,
                              size_t bytes) {
  if (bytes == 0) return;
  try {
    check_cuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, options_.stream),
               "cudaMemcpyAsync");
    staging_->copied.record(options_.stream);
  } catch (const std::runtime_error& error) {
    fail(operation, error.what());
  }
}

void StagedCommunicator::finish_copies(const Operation& operation) {
  const auto last_moment = Clock::now() + options_.deadline;
  try {
    while (!staging_->copied.has_passed()) {
      if (Clock::now() > last_moment) break;
      std::this_thread::sleep_for(kCopyNap);
    }
    if (staging_->copied.has_passed()) return;
  } catch (const std::runtime_error& error) {
    fail(operation, error.what());
  }
  fail(operation, "the device did not get this far within " + to_text(options_.deadline));
}

void StagedCommunicator::check_alive() const {
  if (failure_) throw CommunicationError(*failure_);
}

void StagedCommunicator::fail(const Operation& operation, const std::string& what) {
  failure_ = to_text(options_.rank, operation) + ": " + what;
  host_.abort(*failure_);
  throw CommunicationError(*failure_);
}

}  // namespace shardlens::runtime
