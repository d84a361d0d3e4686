// Labelled images from the four IDX files of the MNIST family, plain or gzipped.
//
// The launcher loads them once and checks them whole before it starts ranks, which share them; so
// wrong input leaves nothing behind. Fashion-MNIST takes 0.3 s. Whatever is wrong with the files is
// for the user to mend: every error is std::invalid_argument with one line, what file, what is
// wrong, how to mend. Free functions without state, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardlens::runtime {

/// Never empty once loaded. Pixels are as in the file, 0 to 255.
struct ImageSet {
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  // [count, height, width]
  std::vector<uint8_t> labels;  // [count]
};

/// Both sets have the same height and width.
struct Dataset {
  ImageSet train;
  ImageSet test;
  int classes = 0;  // one more than the highest label of both sets
};

/// `where`: as open_idx_folder takes it (planner/idx_file.h).
Dataset load_dataset(const std::string& where);

}  // namespace shardlens::runtime
