// A folder of images by class: which files it has, of which class, for training or for testing, and
// the pixels of one of them.
//
// The launcher lists the files once, before it starts ranks; pixels are read when a batch needs
// them. Free functions without state, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardlens::runtime {

struct ImageFile {
  std::string path;
  int64_t label = 0;  // index into ImageFolder::classes
};

/// Files in order of class and path, so that every machine lists the same. `train` is never empty.
struct ImageFolder {
  std::vector<std::string> classes;  // names of the folders, sorted
  std::vector<ImageFile> train;
  std::vector<ImageFile> test;
};

/// Whether a folder is one of images by class (it has folders in it and no IDX file).
bool is_image_folder(const std::string& folder);

/// `folder`/CLASS/**/*.{png,jpg,jpeg}, of which a hash of the path below `folder` takes a fifth for
/// testing; or `folder`/{train,val}/CLASS/..., where `test` stands in for `val`. Hidden files and
/// folders are passed over. Throws std::invalid_argument with one line.
ImageFolder list_image_folder(const std::string& folder);

struct DecodedImage {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  // [height, width, channels]
};

/// `channels`: 1 (grey) or 3. Throws std::runtime_error with one line that names the file and what
/// is wrong with it.
DecodedImage decode_image(const std::string& path, int64_t channels);

}  // namespace shardlens::runtime
