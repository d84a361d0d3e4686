#include "models/data/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <vector>

#include "base/input_file.h"

namespace shardlens::models {
namespace {

constexpr std::string_view kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";
constexpr uint32_t kImagesMagic = 0x00000803;  // unsigned bytes, three dimensions
constexpr uint32_t kLabelsMagic = 0x00000801;  // unsigned bytes, one dimension
constexpr uint64_t kMostPixels = uint64_t{1} << 32;
constexpr size_t kChunkBytes = size_t{1} << 14;

[[noreturn]] void refuse(const std::string& path, std::string_view problem) {
  throw std::invalid_argument(path + ": " + std::string(problem) +
                              "; install the package dataset-fashion-mnist and use --data "
                              "fashion-mnist, or give a folder of IDX files with --data DIR");
}

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(const std::string& path) : path_(path), file_(path) {
    if (!file_.is_open()) refuse(path_, "cannot be opened (" + *file_.problem() + ")");
  }

  size_t read(std::span<uint8_t> to) override {
    const size_t count = std::min<uint64_t>(to.size(), file_.bytes() - at_);
    const auto offset_bytes = static_cast<int64_t>(at_);
    if (!file_.read_at(offset_bytes, std::as_writable_bytes(to.first(count)))) {
      refuse(path_, "cannot be read");
    }
    at_ += count;
    return count;
  }

 private:
  std::string path_;
  InputFile file_;
  uint64_t at_ = 0;
};

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(const std::string& path) : path_(path), file_(path), input_(kChunkBytes) {
    constexpr int kGzipOnly = 16;
    if (::inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  // Asking for one byte beyond the data drives inflate to the trailer, where it compares CRC and
  // length; so a caller that expects the end and asks for more has checked the whole stream.
  size_t read(std::span<uint8_t> to) override {
    stream_.next_out = to.data();
    stream_.avail_out = static_cast<uInt>(to.size());
    while (stream_.avail_out > 0 && !at_end_) {
      if (stream_.avail_in == 0) refill();
      inflate_some();
    }
    return to.size() - stream_.avail_out;
  }

 private:
  void refill() {
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(file_.read(input_));
    if (stream_.avail_in == 0) refuse(path_, "is truncated (the gzip stream ends early)");
  }

  void inflate_some() {
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      at_end_ = true;
      std::array<uint8_t, 1> beyond{};
      if (stream_.avail_in > 0 || file_.read(beyond) > 0) {
        refuse(path_, "is damaged (bytes follow the gzip stream)");
      }
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      const std::string reason = stream_.msg != nullptr ? stream_.msg : "not a gzip stream";
      refuse(path_, "is damaged (" + reason + ")");
    }
  }

  std::string path_;
  PlainSource file_;
  std::vector<uint8_t> input_;
  z_stream stream_{};
  bool at_end_ = false;
};

IdxFile open_idx(const std::string& folder, const std::string& stem) {
  const std::string plain = (std::filesystem::path(folder) / stem).string();
  const std::string gzipped = plain + ".gz";
  std::error_code unreadable;  // then the file counts as missing
  if (std::filesystem::is_regular_file(plain, unreadable)) {
    return {plain, std::make_unique<PlainSource>(plain)};
  }
  if (std::filesystem::is_regular_file(gzipped, unreadable)) {
    return {gzipped, std::make_unique<GzipSource>(gzipped)};
  }
  refuse(plain, "is missing, and so is its .gz");
}

uint32_t read_word(IdxFile& file) {
  std::array<uint8_t, 4> bytes{};
  if (file.source->read(bytes) < bytes.size()) file.refuse("is truncated (no whole header)");
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void require_magic(IdxFile& file, uint32_t magic, std::string_view kind) {
  if (read_word(file) != magic) {
    file.refuse("is not an IDX file of " + std::string(kind) + " (wrong first four bytes)");
  }
}

// Opens the two files of a split and leaves both behind their headers.
IdxSplit open_split(const std::string& folder, const std::string& split) {
  IdxSplit files{open_idx(folder, split + "-images-idx3-ubyte"),
                 open_idx(folder, split + "-labels-idx1-ubyte")};
  require_magic(files.images, kImagesMagic, "images");
  const uint64_t count = read_word(files.images);
  const uint64_t height = read_word(files.images);
  const uint64_t width = read_word(files.images);
  if (count == 0 || height == 0 || width == 0) files.images.refuse("holds no pixels");
  if (count * height > kMostPixels || count * height * width > kMostPixels) {
    files.images.refuse("claims more than 4 GiB of pixels");
  }
  require_magic(files.labels, kLabelsMagic, "labels");
  const uint64_t labels = read_word(files.labels);
  if (labels != count) {
    files.labels.refuse("has " + std::to_string(labels) + " labels for " + std::to_string(count) +
                        " images");
  }
  files.count = static_cast<int64_t>(count);
  files.height = static_cast<int64_t>(height);
  files.width = static_cast<int64_t>(width);
  return files;
}

std::string folder_of(const std::string& where) {
  if (where == kFashionMnist) return std::string(kFashionMnistFolder);
  std::error_code unreadable;
  if (!std::filesystem::is_directory(where, unreadable)) {
    refuse("data '" + where + "'", "is not a folder");
  }
  return where;
}

std::string size_text(const IdxSplit& split) {
  return std::to_string(split.height) + "x" + std::to_string(split.width);
}

}  // namespace

void IdxFile::refuse(std::string_view problem) const { models::refuse(path, problem); }

IdxFolder open_idx_folder(const std::string& where) {
  const std::string folder = folder_of(where);
  IdxFolder files{open_split(folder, "train"), open_split(folder, "t10k")};
  if (files.train.height == files.test.height && files.train.width == files.test.width) {
    return files;
  }
  refuse(folder, "train images are " + size_text(files.train) + " but test images " +
                     size_text(files.test));
}

}  // namespace shardlens::models
