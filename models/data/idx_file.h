// Opens the four IDX files of the MNIST family, plain or gzipped, reads their headers and compares
// them. Callers that want the pixels read on from there. The user can fix whatever is wrong, so
// every error is std::invalid_argument with one line: which file, what is wrong, how to fix it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace shardlens::models {

constexpr const char* kFashionMnist = "fashion-mnist";

/// Reads the content of a file from its beginning, plain or gzipped.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills `to` as far as there are bytes and returns how many; fewer than asked only at the end.
  virtual size_t read(std::span<uint8_t> to) = 0;
};

struct IdxFile {
  std::string path;
  std::unique_ptr<ByteSource> source;

  [[noreturn]] void refuse(std::string_view problem) const;
};

/// The two files of a split, each read up to the end of its header.
struct IdxSplit {
  IdxFile images;
  IdxFile labels;
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
};

/// The two splits of a data set; their images have the same size.
struct IdxFolder {
  IdxSplit train;
  IdxSplit test;
};

/// Opens both splits. `where` is "fashion-mnist" for the files of the package
/// dataset-fashion-mnist, or a folder with {train,t10k}-{images-idx3,labels-idx1}-ubyte, each with
/// or without ".gz" (plain wins).
IdxFolder open_idx_folder(const std::string& where);

}  // namespace shardlens::models
