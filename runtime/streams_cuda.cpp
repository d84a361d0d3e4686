#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

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
      : streams_{c10::cuda::getDefaultCUDAStream(device.index())} {
    while (streams_.size() < planner::kStreams) {
      streams_.push_back(c10::cuda::getStreamFromPool(kHighPriority, device.index()));
    }
    if (one_for_both) streams_[index(Stream::reduce)] = on(Stream::gather);
  }

  void begin(size_t actions) override {
    while (events_.size() < actions) events_.emplace_back();
    start_.record(on(Stream::main));
    for (size_t side = 1; side < streams_.size(); ++side) start_.block(streams_[side]);
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
  static size_t index(Stream stream) { return static_cast<size_t>(stream); }
  const CUDAStream& on(Stream stream) const { return streams_[index(stream)]; }

  std::vector<CUDAStream> streams_;  // by planner::Stream
  CUDAEvent start_;
  std::vector<CUDAEvent> events_;  // by action; created on the first record
};

}  // namespace

std::unique_ptr<Streams> make_cuda_streams(const c10::Device& device, bool one_for_both) {
  return std::make_unique<CudaStreams>(device, one_for_both);
}

}  // namespace shardlens::runtime
