// A table of the rules by which versions of PyTorch take memory, with a row for each minor version.
// No version is compared anywhere else: code that allocates, or predicts what is allocated, asks a
// row. docs/add_pytorch_version.md describes how a row is added.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace shardlens::models {

/// Says where PyTorch keeps the scratch memory that it lends to cuBLAS and cuBLASLt.
enum class BlasWorkspaces : uint8_t {
  separate,    // each thread that multiplies keeps one, and cuBLASLt another one
  shared,      // each thread keeps one, which cuBLASLt uses as well
  by_product,  // none is kept: each product takes one and gives it back
};

/// Says which of several equally large free blocks the allocator takes.
enum class FreeBlockOrder : uint8_t {
  address,      // the one with the lowest address, which is up to the driver
  block_age,    // the one made first; if one is cut, the part handed out is new, the rest is not
  segment_age,  // the one in the segment taken first, then the lowest
};

/// The count of numbers that a block of CUB's UniqueByKey takes at once, as compiled for a GPU.
struct UniqueTiles {
  int64_t a100, hopper, blackwell;
};

struct TorchRules {
  std::string_view version;  // major and minor: "2.15" stands for 2.15.0 and 2.15.1
  BlasWorkspaces blas_workspaces;
  /// Blackwell's workspace for cuBLAS has 32 MiB, as Hopper's has in every version.
  bool large_blackwell_workspace;
  FreeBlockOrder free_block_order;
  /// The bytes that a memory fraction allows are rounded to the nearest number, not down.
  bool rounds_memory_fraction;
  /// Backward of an embedding sorts by as many digits as the number of the largest row has, not by
  /// all eight of a 64-bit number.
  bool sorts_used_digits;
  UniqueTiles unique_tiles;
  /// Memory-efficient attention takes fewer key heads than query heads.
  bool efficient_takes_groups;
  /// Memory-efficient attention keeps the seed of its dropout on the GPU, even without dropout.
  bool efficient_keeps_seed;
};

/// Returns all rows, the oldest version first.
std::span<const TorchRules> torch_rules();

/// Returns the row of a version such as "2.15", "2.15.0" or "2.15.0+cu132"; null for one without a
/// row.
const TorchRules* find_torch_rules(std::string_view version);

/// Returns the same row. Throws std::invalid_argument for a version without one.
const TorchRules& torch_rules(std::string_view version);

/// Returns the same row, or the nearest version's for a version without one.
const TorchRules& nearest_torch_rules(std::string_view version);

/// Returns the row of the LibTorch that this program was built with, or the nearest one's.
const TorchRules& own_torch_rules();

}  // namespace shardlens::models
