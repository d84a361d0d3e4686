// Reads what torch.save has written: a zip archive with a pickle and the storages of its tensors.
// The pickle is read as data: no function in it is called, and classes other than those of tensors
// and dicts are refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/document/document.h"
#include "runtime/checkpoint/interchange/saved_state.h"
#include "runtime/checkpoint/interchange/zip_reader.h"

namespace shardlens::runtime {

/// Holds a tensor of an archive. It has a single piece, the whole tensor, and its path is empty.
struct ArchiveTensor {
  SavedTensor tensor;
  std::shared_ptr<const void> memory;  // holds the data if they had to be reordered
};

class TorchArchive {
 public:
  /// Reads the archive. The bytes must outlive it. Throws std::runtime_error that says what is
  /// damaged or refused.
  explicit TorchArchive(std::span<const std::byte> bytes);

  Value root() const { return Value(document_); }
  /// Returns nothing if the value is not a tensor. Throws as the constructor does.
  std::optional<ArchiveTensor> tensor(Value value) const;

  uint64_t bytes() const { return bytes_; }
  uint64_t pickle_bytes() const { return pickle_bytes_; }

 private:
  struct Storage {
    std::string dtype;
    int64_t element_bytes = 0;
    std::span<const std::byte> data;
  };

  Storage storage(Value id) const;

  uint64_t bytes_ = 0;
  uint64_t pickle_bytes_ = 0;
  ZipEntries entries_;
  Document document_;
};

/// Adds all tensors and numbers of an archive's dicts, except those in a list or under a key that
/// is not text. Throws as TorchArchive does; the archive's bytes must outlive the state.
void add_archive(SavedState& state, const TorchArchive& archive);

}  // namespace shardlens::runtime
