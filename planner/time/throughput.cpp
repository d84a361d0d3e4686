#include "planner/time/throughput.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace shardlens::planner {

namespace {

using profiler::NumberType;
using profiler::OperatorCall;
using profiler::OperatorInput;
using profiler::Work;
using profiler::WorkKind;
using profiler::WorkTrace;

bool is_batch_of_indices(const OperatorInput& input) {
  return input.type == NumberType::int64 && input.tensors == 1 && input.sizes.size() == 2;
}

/// The tokens that a call looks up; nothing if it looks up something else.
std::optional<Throughput> looked_up(std::string_view name, const OperatorCall& call) {
  if (name != "aten::embedding" && name != "aten::index_select") return std::nullopt;
  const auto indices = std::ranges::find_if(call.inputs, is_batch_of_indices);
  if (indices == call.inputs.end()) return std::nullopt;
  const auto samples = static_cast<double>(indices->sizes[0]);
  return Throughput{samples, samples * static_cast<double>(indices->sizes[1])};
}

/// The images that a convolution reads, if they have the channels of a picture.
std::optional<Throughput> convolved(std::string_view name, const OperatorCall& call) {
  if (name.find("convolution") == std::string_view::npos || call.inputs.empty()) {
    return std::nullopt;
  }
  const OperatorInput& image = call.inputs.front();
  if (image.tensors != 1 || image.sizes.size() != 4 || image.sizes[1] > 4) return std::nullopt;
  return Throughput{.samples = static_cast<double>(image.sizes[0])};
}

}  // namespace

Throughput throughput_of(const WorkTrace& trace, size_t begin, size_t end) {
  // A step may look up several things for each token, so one kind of call counts: that of the most
  // tokens. It is called once a microbatch.
  Throughput sum;
  uint32_t counted = 0;
  for (size_t i = begin; i < end; ++i) {
    const Work& work = trace.work_of(trace.items[i]);
    if (work.call == 0 || work.kind > WorkKind::library_call) continue;
    const OperatorCall& call = trace.calls[work.call];
    if (call.in_backward) continue;
    const std::string_view name = trace.strings[call.name];
    auto found = looked_up(name, call);
    if (!found) found = convolved(name, call);
    if (!found) continue;
    const bool is_larger = found->tokens > sum.tokens || counted == 0;
    if (work.call == counted) {
      sum.samples += found->samples;
      sum.tokens += found->tokens;
    } else if (is_larger) {
      sum = *found;
      counted = work.call;
    }
  }
  return sum;
}

}  // namespace shardlens::planner
