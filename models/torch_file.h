// A state dict as torch.save writes it, for Python's torch.load(weights_only=True): a zip archive
// of stored entries with one pickle (protocol 2) of a plain dict of names to tensors. LibTorch's
// own torch::pickle_save wraps containers in a type that weights_only refuses.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>

#include "models/safetensors.h"

namespace shardlens::models {

/// What one archive holds without 64-bit extensions of the format, which are not written.
constexpr uint64_t kMostTorchFileBytes = uint64_t{4} << 30;

/// Tensors are F32. `out` is binary and at its beginning. Throws std::logic_error for other dtypes
/// and for more than kMostTorchFileBytes in all; whether `out` took it is the caller's to ask.
void write_torch_file(std::ostream& out, std::span<const SafetensorsTensor> tensors);

/// The same of one tensor, without a name.
void write_torch_tensor(std::ostream& out, const SafetensorsTensor& tensor);

/// The same of a value that holds no tensor, given as its pickle.
void write_torch_value(std::ostream& out, const std::string& pickle);

}  // namespace shardlens::models
