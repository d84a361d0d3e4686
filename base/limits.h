// Limits shared by all readers of untrusted files: size, depth and number of values. A text beyond
// them is refused while it is read, before memory is taken for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardlens {

struct Limits {
  uint64_t bytes = 0;   // of the file
  uint64_t values = 0;  // numbers, texts, lists and maps together
  size_t depth = 0;     // of lists and maps in each other
};

/// Limits of files that a person writes: configurations in JSON, YAML and TOML.
constexpr Limits kWritten{.bytes = uint64_t{1} << 20, .values = 10'000, .depth = 32};

/// Limits of files that a program writes about a model, a run or a checkpoint: model files,
/// manifests, results, calibrations, sessions of the viewer.
constexpr Limits kDescription{.bytes = uint64_t{64} << 20, .values = 1 << 24, .depth = 100};

/// Limits of files that a program records: memory snapshots, the pickles of checkpoints,
/// safetensors headers, metrics.
constexpr Limits kRecord{.bytes = uint64_t{4} << 30, .values = uint64_t{1} << 28, .depth = 100};

/// The most dimensions of a tensor: PyTorch has no more.
constexpr size_t kMostDimensions = 64;

/// The largest image that is decoded: 8192 x 8192, above what cameras make for a training's folder.
constexpr int64_t kMostImagePixels = int64_t{1} << 26;
constexpr uint64_t kMostImageBytes = uint64_t{1} << 28;

}  // namespace shardlens
