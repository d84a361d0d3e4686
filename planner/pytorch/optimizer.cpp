#include "planner/pytorch/optimizer.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace shardlens::planner {

namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kIndexBytes = 8;

}  // namespace

PytorchOptimizer::Block PytorchOptimizer::take(int64_t bytes) const {
  return bytes == 0 ? nullptr : std::make_shared<meta::Storage>(memory_, bytes);
}

int64_t PytorchOptimizer::bytes_of(const ShardedParameter& parameter) const {
  return parameter.numel * kFloatBytes;
}

/// Makes both moments. Step counts are on the device only if the fused kernel reads them.
void PytorchOptimizer::make_state() {
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.has_gradient) continue;
    if (options_.loop == PytorchLoop::fused) state_.push_back(take(kFloatBytes));
    for (int moment = 0; moment < 2; ++moment) state_.push_back(take(bytes_of(parameter)));
  }
}

/// Takes the square roots of all second moments at once.
void PytorchOptimizer::step_foreach() {
  std::vector<Block> roots;
  for (const ShardedParameter& parameter : parameters_) {
    if (parameter.has_gradient) roots.push_back(take(bytes_of(parameter)));
  }
  while (!roots.empty()) roots.pop_back();
}

/// Steps one parameter after the other. A denominator lives until the next one takes its name.
void PytorchOptimizer::step_single() {
  Block denominator;
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.has_gradient) continue;
    Block root = take(bytes_of(parameter));
    Block next = take(bytes_of(parameter));
    root = nullptr;
    denominator = std::move(next);
  }
}

void PytorchOptimizer::step() {
  {
    const TimelineScope scope(timeline_, profiler::Category::optimizer_state, "state");
    if (state_.empty()) make_state();
  }
  if (options_.loop == PytorchLoop::fused) return;
  const TimelineScope scope(timeline_, profiler::Category::workspace, "optimizer step");
  return options_.loop == PytorchLoop::foreach ? step_foreach() : step_single();
}

/// Computes the norm of each gradient from partial norms of its chunks, then the norm of all,
/// summed over the ranks if there are several.
void PytorchOptimizer::clip() {
  constexpr int64_t kChunk = 65536;
  const TimelineScope scope(timeline_, profiler::Category::workspace, "clip");
  int64_t count = 0, chunks = 0, most_chunks = 0;
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.has_gradient) continue;
    ++count;
    chunks += ceil_div(parameter.numel, kChunk);
    most_chunks = std::max(most_chunks, ceil_div(parameter.numel, kChunk));
  }
  std::vector<Block> norms;
  {
    const bool is_packed = options_.torch->norm_packs_parts;
    const meta::Holder starts(is_packed ? take((count + 1) * kIndexBytes) : nullptr);
    const meta::Holder parts(take((is_packed ? chunks : count * most_chunks) * kFloatBytes));
    for (int64_t i = 0; i < count; ++i) norms.push_back(take(kFloatBytes));
  }
  Block total;
  {
    const meta::Holder stacked(take(count * kFloatBytes));
    const meta::Holder reduced([&]() -> Block {
      if (options_.shards == 1) return nullptr;
      Block powers = take(count * kFloatBytes);
      const meta::Holder sums(take(count * kFloatBytes));
      Block roots = take(count * kFloatBytes);
      powers = nullptr;
      return roots;
    }());
    total = take(kFloatBytes);
  }
  while (!norms.empty()) norms.pop_back();
  Block factor = [&] {
    const meta::Holder sum(take(kFloatBytes));
    const meta::Holder inverse(take(kFloatBytes));
    return take(kFloatBytes);
  }();
  const meta::Holder clamped(take(kFloatBytes));
  factor = nullptr;
}

}  // namespace shardlens::planner
