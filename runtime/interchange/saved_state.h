// What a PyTorch program has saved: nested dicts of tensors and numbers, as plain data, whatever
// kind of file they lie in. Tensors may lie in pieces, one a rank that saved them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shardlens::runtime {

/// A box of a tensor.
struct SavedPiece {
  std::vector<int64_t> begin;  // where the box begins, by dimension
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // row-major, aligned to nothing
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
  std::vector<std::shared_ptr<const void>> memory;  // what the pieces lie in
};

/// A DCP folder, a file of torch.save's, a safetensors file, or a folder of such. Pickles are read
/// as data, and refused where they ask for more. Throws std::invalid_argument where there is
/// nothing of that kind, std::runtime_error where it is damaged or refused; both name the path.
SavedState read_saved_state(const std::filesystem::path& source);

}  // namespace shardlens::runtime
