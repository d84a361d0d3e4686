// Checkpoints of a small model whose state only depends on the step, written as any number of ranks
// would: each element by one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "models/families.h"
#include "models/spec.h"
#include "runtime/checkpoint/checkpoint_writer.h"

namespace shardlens::tests {

inline models::ModelSpec small_spec() {
  return models::make_spec("small",
                           models::MlpSizes{.inputs = 12, .width = 10, .layers = 1, .classes = 3});
}

inline runtime::FileLayout small_layout() {
  const models::ModelSpec spec = small_spec();
  std::vector<std::vector<std::string>> moments(spec.parameters.size(), {"exp_avg", "exp_avg_sq"});
  moments.back().clear();                  // frozen
  constexpr int64_t kMostFileBytes = 600;  // several files of each kind
  return runtime::checkpoint_layout(spec, moments, kMostFileBytes);
}

/// All tensors of a step, one after the other.
inline std::vector<float> small_state(const runtime::FileLayout& layout, int64_t step) {
  std::vector<float> values;
  for (const auto& tensors : layout.parameters) {
    for (const runtime::PlacedTensor& tensor : tensors) {
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        values.push_back(static_cast<float>(step) + 1e-3F * static_cast<float>(values.size()));
      }
    }
  }
  return values;
}

/// The rank has the `rank`-th equal part of every tensor.
inline std::vector<runtime::FileRange> small_ranges(const runtime::FileLayout& layout,
                                                    const std::vector<float>& state, int rank,
                                                    int world_size) {
  std::vector<runtime::FileRange> ranges;
  size_t tensor_begin = 0;
  for (const auto& tensors : layout.parameters) {
    for (const runtime::PlacedTensor& tensor : tensors) {
      const int64_t begin = tensor.numel() * rank / world_size;
      const int64_t end = tensor.numel() * (rank + 1) / world_size;
      const std::span part(state.data() + tensor_begin + begin, static_cast<size_t>(end - begin));
      ranges.push_back(
          {tensor.file, tensor.offset_bytes + begin * int64_t{sizeof(float)}, std::as_bytes(part)});
      tensor_begin += static_cast<size_t>(tensor.numel());
    }
  }
  return ranges;
}

inline runtime::CheckpointState small_position(int64_t step) {
  return {.step = step, .epoch = step / 2, .configuration = R"({"model":"small"})"};
}

inline void write_small_checkpoint(const runtime::CheckpointWriterOptions& options, int64_t step,
                                   runtime::CheckpointState position) {
  const runtime::FileLayout layout = small_layout();
  const std::vector<float> state = small_state(layout, step);
  const runtime::CheckpointShare share{
      .ranges = small_ranges(layout, state, options.rank, options.world_size),
      .progress = {.logged = {.sum = 0.5 * static_cast<double>(options.rank), .batches = 1}}};
  write_checkpoint(options, layout, share, std::move(position));
}

inline void write_small_checkpoint(const runtime::CheckpointWriterOptions& options, int64_t step) {
  write_small_checkpoint(options, step, small_position(step));
}

}  // namespace shardlens::tests
