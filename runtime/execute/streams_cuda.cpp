#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <utility>
#include <vector>

#include "runtime/execute/streams.h"

namespace shardlens::runtime {

namespace {

using c10::cuda::CUDAEvent;
using c10::cuda::CUDAStream;
using planner::Stream;

constexpr bool kHighPriority = true;

/// Runs a schedule's streams on CUDA. Main is CUDA's default stream, as in any PyTorch program. The
/// others come from LibTorch's pool with high priority, so that communication starts as soon as
/// possible.
class CudaStreams final : public Streams {
 public:
  CudaStreams(const c10::Device& device, bool one_for_both)
      : streams_{c10::cuda::getDefaultCUDAStream(device.index())} {
    while (streams_.size() < index(Stream::host)) {
      streams_.push_back(c10::cuda::getStreamFromPool(kHighPriority, device.index()));
    }
    if (one_for_both) streams_[index(Stream::reduce)] = cuda_stream(Stream::gather);
  }

  void begin(size_t actions) override {
    while (events_.size() < actions) events_.emplace_back();
    start_.record(cuda_stream(Stream::main));
    for (size_t side = 1; side < streams_.size(); ++side) start_.block(streams_[side]);
  }

  void select(Stream stream) override {
    used_[index(stream)] = true;
    c10::cuda::setCurrentCUDAStream(cuda_stream(stream));
  }

  // Records the action's event again in every pass; a wait means the last record before it.
  void record(int action, Stream stream) override {
    events_[static_cast<size_t>(action)].record(cuda_stream(stream));
  }

  void wait(Stream stream, int action) override {
    events_[static_cast<size_t>(action)].block(cuda_stream(stream));
  }

  void synchronize(int action) const override {
    events_[static_cast<size_t>(action)].synchronize();
  }

  void end() override {
    for (const Stream copies : {Stream::h2d, Stream::d2h}) {
      if (!std::exchange(used_[index(copies)], false)) continue;
      end_.record(cuda_stream(copies));
      end_.block(cuda_stream(Stream::main));
    }
  }

  void* handle(Stream stream) const override {
    return stream == Stream::host ? nullptr : cuda_stream(stream).stream();
  }

 private:
  static size_t index(Stream stream) { return static_cast<size_t>(stream); }
  const CUDAStream& cuda_stream(Stream stream) const { return streams_[index(stream)]; }

  std::vector<CUDAStream> streams_;             // by planner::Stream
  std::array<bool, planner::kStreams> used_{};  // in this pass
  CUDAEvent start_;
  CUDAEvent end_;
  std::vector<CUDAEvent> events_;  // indexed by action; created on the first record
};

}  // namespace

std::unique_ptr<Streams> make_cuda_streams(const c10::Device& device, bool one_for_both) {
  return std::make_unique<CudaStreams>(device, one_for_both);
}

}  // namespace shardlens::runtime
