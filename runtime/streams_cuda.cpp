#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <vector>

#include "runtime/streams.h"

namespace shardlens::runtime {

namespace {

using c10::cuda::CUDAEvent;
using c10::cuda::CUDAStream;
using planner::Stream;

constexpr bool kHighPriority = true;

/// Main is CUDA's default stream, as in any PyTorch program. The others are taken from LibTorch's
/// pool with high priority, so that communication starts as soon as it can.
class CudaStreams final : public Streams {
 public:
  CudaStreams(const c10::Device& device, bool one_for_both)
      : streams_{c10::cuda::getDefaultCUDAStream(device.index()),
                 c10::cuda::getStreamFromPool(kHighPriority, device.index()),
                 c10::cuda::getStreamFromPool(kHighPriority, device.index())} {
    if (one_for_both) streams_[2] = streams_[1];
  }

  void begin(size_t actions) override {
    while (events_.size() < actions) events_.emplace_back();
    start_.record(on(Stream::main));
    for (const Stream stream : {Stream::gather, Stream::reduce}) start_.block(on(stream));
  }

  void select(Stream stream) override { c10::cuda::setCurrentCUDAStream(on(stream)); }

  // An event is recorded anew in every pass; a wait means its last record before the wait.
  void record(int action, Stream stream) override {
    events_[static_cast<size_t>(action)].record(on(stream));
  }

  void wait(Stream stream, int action) override {
    events_[static_cast<size_t>(action)].block(on(stream));
  }

  void* handle(Stream stream) const override { return on(stream).stream(); }

 private:
  const CUDAStream& on(Stream stream) const { return streams_[static_cast<size_t>(stream)]; }

  std::array<CUDAStream, 3> streams_;  // by planner::Stream
  CUDAEvent start_;
  std::vector<CUDAEvent> events_;  // by action; created on the first record
};

}  // namespace

std::unique_ptr<Streams> make_cuda_streams(const c10::Device& device, bool one_for_both) {
  return std::make_unique<CudaStreams>(device, one_for_both);
}

}  // namespace shardlens::runtime
