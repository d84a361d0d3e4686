// The four IDX files of the MNIST family, plain or gzipped: opened, their headers read and
// compared. Who wants the pixels reads on from there; whatever is wrong is for the user to mend, so
// every error is std::invalid_argument with one line: what file, what is wrong, how to mend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace shardlens::planner {

constexpr const char* kFashionMnist = "fashion-mnist";

/// A file's content from its beginning, whatever it is packed in.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills `to` as far as there are bytes and returns how many; less only at the end.
  virtual size_t read(std::span<uint8_t> to) = 0;
};

struct IdxFile {
  std::string path;
  std::unique_ptr<ByteSource> source;

  [[noreturn]] void refuse(std::string_view problem) const;
};

/// Both files of a split, read until behind their headers.
struct IdxSplit {
  IdxFile images;
  IdxFile labels;
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
};

/// Both splits have images of the same size.
struct IdxFolder {
  IdxSplit train;
  IdxSplit test;
};

/// `where`: "fashion-mnist" for the files of the package dataset-fashion-mnist, or a folder with
/// {train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without ".gz" (plain wins).
IdxFolder open_idx_folder(const std::string& where);

}  // namespace shardlens::planner
