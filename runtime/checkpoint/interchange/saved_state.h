// Holds what a PyTorch program has saved: nested dicts of tensors and numbers, as plain data, for
// every kind of file. Tensors may be in pieces, one for each rank that saved them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shardlens::runtime {

/// Holds a piece of a tensor: a box of its elements.
struct SavedPiece {
  std::vector<int64_t> begin;  // where the box begins, by dimension
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // row-major, unaligned
};

struct SavedTensor {
  std::vector<std::string> path;  // keys from the outermost dict on
  std::string dtype;              // in safetensors' words
  std::vector<int64_t> shape;
  std::vector<SavedPiece> pieces;
};

struct SavedNumber {
  std::vector<std::string> path;
  double value = 0;
};

struct SavedState {
  std::vector<SavedTensor> tensors;
  std::vector<SavedNumber> numbers;
  std::vector<std::shared_ptr<const void>> memory;  // owns the bytes of the pieces
};

/// Reads a DCP folder, a torch.save file, a safetensors file, or a folder of safetensors files.
/// Pickles are read as data, and refused if they ask for more. Throws std::invalid_argument if the
/// path holds none of these, std::runtime_error if it is damaged or refused; both name the path.
SavedState read_saved_state(const std::filesystem::path& source);

}  // namespace shardlens::runtime
