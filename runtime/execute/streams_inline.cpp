#include <c10/core/Device.h>

#include "runtime/execute/streams.h"

namespace shardlens::runtime {

namespace {

/// Orders streams on the CPU, where work is finished when the call that does it returns.
class InlineStreams final : public Streams {
 public:
  void begin(size_t) override {}
  void select(planner::Stream) override {}
  void record(int, planner::Stream) override {}
  void wait(planner::Stream, int) override {}
  void synchronize(int) const override {}
  void end() override {}
  void* handle(planner::Stream) const override { return nullptr; }
};

}  // namespace

std::unique_ptr<Streams> make_inline_streams() { return std::make_unique<InlineStreams>(); }

std::unique_ptr<Streams> make_streams(const c10::Device& device, bool one_for_both) {
  return device.is_cuda() ? make_cuda_streams(device, one_for_both) : make_inline_streams();
}

}  // namespace shardlens::runtime
