// Small data sets in the IDX format, as Fashion-MNIST's files are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace shardlens::tests {

/// Header and data of one file; 0x803 means images, 0x801 labels.
inline std::string idx_bytes(uint32_t magic, const std::vector<uint32_t>& dims,
                             const std::string& data) {
  std::string bytes;
  const auto append = [&](uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift & 0xff);
  };
  append(magic);
  for (const uint32_t dim : dims) append(dim);
  return bytes + data;
}

struct IdxSizes {
  uint32_t train = 0;
  uint32_t test = 0;
  uint32_t px = 0;
  uint32_t classes = 0;
};

/// Four files, uncompressed. An image's mean grows with its label, so there is something to learn.
inline void write_idx_dataset(const std::string& folder, const IdxSizes& sizes) {
  const auto write_set = [&](const std::string& name, uint32_t count) {
    const uint32_t pixels = sizes.px * sizes.px;
    std::string images, labels;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t label = i * 7 % sizes.classes;
      labels += static_cast<char>(label);
      for (uint32_t pixel = 0; pixel < pixels; ++pixel) {
        images += static_cast<char>(label * 256 / sizes.classes + (i * 31 + pixel * 17) % 64);
      }
    }
    write_file(folder + "/" + name + "-images-idx3-ubyte",
               idx_bytes(0x803, {count, sizes.px, sizes.px}, images));
    write_file(folder + "/" + name + "-labels-idx1-ubyte", idx_bytes(0x801, {count}, labels));
  };
  write_set("train", sizes.train);
  write_set("t10k", sizes.test);
}

}  // namespace shardlens::tests
