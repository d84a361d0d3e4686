#include "models/data/dataset.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "models/data/idx_file.h"

namespace shardlens::models {
namespace {

constexpr size_t kReadChunkBytes = size_t{1} << 18;
constexpr size_t kMostReservedBytes = size_t{1} << 28;

// Reads in chunks: a damaged header must not make us touch gigabytes that the file does not have.
std::vector<uint8_t> read_exactly(IdxFile& file, size_t bytes) {
  std::vector<uint8_t> data;
  data.reserve(std::min(bytes, kMostReservedBytes));
  while (data.size() < bytes) {
    const size_t begin = data.size();
    const size_t wanted = std::min(kReadChunkBytes, bytes - begin);
    data.resize(begin + wanted);
    if (file.source->read(std::span(data).subspan(begin)) < wanted) {
      file.refuse("is truncated (its header promises " + std::to_string(bytes) + " bytes of data)");
    }
  }
  std::array<uint8_t, 1> beyond{};
  if (file.source->read(beyond) > 0) file.refuse("has more bytes than its header promises");
  return data;
}

ImageSet load(IdxSplit& files) {
  ImageSet set{files.count, files.height, files.width, {}, {}};
  set.pixels = read_exactly(files.images, static_cast<size_t>(set.count * set.height * set.width));
  set.labels = read_exactly(files.labels, static_cast<size_t>(set.count));
  return set;
}

}  // namespace

Dataset load_dataset(const std::string& where) {
  IdxFolder files = open_idx_folder(where);
  Dataset dataset{load(files.train), load(files.test), 0};
  const auto highest = [](const ImageSet& set) {
    return *std::max_element(set.labels.begin(), set.labels.end());
  };
  dataset.classes = 1 + std::max(highest(dataset.train), highest(dataset.test));
  return dataset;
}

}  // namespace shardlens::models
