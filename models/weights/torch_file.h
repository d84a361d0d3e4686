// Writes a state dict as torch.save does, for Python's torch.load(weights_only=True): a zip archive
// of stored entries with one pickle (protocol 2) of a plain dict of names to tensors. LibTorch's
// own torch::pickle_save wraps containers in a type that weights_only refuses.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>

#include "models/weights/safetensors.h"

namespace shardlens::models {

/// The most bytes that one archive holds without the format's 64-bit extensions, which are not
/// written.
constexpr uint64_t kMostTorchFileBytes = uint64_t{4} << 30;

/// Writes F32 tensors to `out`, a binary stream at its beginning. Throws std::logic_error for other
/// dtypes and for more than kMostTorchFileBytes in all. The caller checks that `out` took all.
void write_torch_file(std::ostream& out, std::span<const SafetensorsTensor> tensors);

/// Writes one tensor in the same way, without a name.
void write_torch_tensor(std::ostream& out, const SafetensorsTensor& tensor);

/// Writes a value that holds no tensor in the same way; it is given as its pickle.
void write_torch_value(std::ostream& out, const std::string& pickle);

}  // namespace shardlens::models
