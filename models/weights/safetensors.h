// Reads and writes files in the safetensors format: named tensors as plain little-endian bytes,
// which Python reads without executing anything. Checkpoints, exported models and --init files are
// such files.
//
// The layout is: 8 bytes header length N, N bytes JSON {name: {dtype, shape, data_offsets}}, then
// the data. A file that opens is sound: every range lies in the file, is exactly as large as its
// shape and dtype say, and the ranges fill the data with no overlap and no hole.
//
// Nothing here knows LibTorch: a dtype is the format's own word ("F32", "BF16", ...), data is
// bytes. An opened file may be read from several threads. It is mapped, so do not truncate it
// meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"

namespace shardlens::models {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;       // empty for a scalar
  std::span<const std::byte> data;  // row-major; other writers need not align it to the dtype
};

using SafetensorsMetadata = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  /// Opens and checks a file. Throws std::invalid_argument if there is no such file, and
  /// std::runtime_error with path and reason if it is damaged.
  explicit SafetensorsFile(const std::string& path);

  /// Returns the tensors in the order of their data. The spans live as long as this object.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

  /// Returns nullptr if the file has no such tensor.
  const SafetensorsTensor* find(std::string_view name) const;

  /// Returns where in the file the data of one of its tensors begins.
  int64_t offset_bytes(const SafetensorsTensor& tensor) const {
    return tensor.data.data() - mapping_.bytes().data();
  }

 private:
  static MappedFile map_file(const std::string& path);
  void read_header(std::string_view header, std::span<const std::byte> data);

  MappedFile mapping_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_of_name_;
  SafetensorsMetadata metadata_;
};

/// The places of tensors in a file, for callers that write it in pieces.
struct SafetensorsLayout {
  std::string header;                   // what the file begins with
  std::vector<uint64_t> offsets_bytes;  // where each tensor's data begins, in the file
  uint64_t bytes = 0;                   // of the file
};

/// Lays out a file of tensors, whose data may be missing. Throws std::logic_error if names
/// repeat, or a dtype is unknown.
SafetensorsLayout lay_out_safetensors(std::span<const SafetensorsTensor> tensors,
                                      const SafetensorsMetadata& metadata = {});

/// Writes under a temporary name beside `path`, syncs and renames: `path` is never half a file.
/// Data goes largest element first, so that each tensor is aligned. Throws std::runtime_error if
/// the disk fails, and std::logic_error if names repeat or a size does not match its shape and
/// dtype.
void write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                       const SafetensorsMetadata& metadata = {});

}  // namespace shardlens::models
