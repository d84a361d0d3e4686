// Lists a folder of images by class: its files, the class of each, and whether it is for training
// or for testing. Only names are read. The functions have no state and are safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardlens::models {

struct ImageFile {
  std::string path;
  int64_t label = 0;  // index into ImageFolder::classes
};

/// The files are in order of class and path, so that every machine lists the same. `train` is never
/// empty.
struct ImageFolder {
  std::vector<std::string> classes;  // names of the folders, sorted
  std::vector<ImageFile> train;
  std::vector<ImageFile> test;
};

/// True if a folder is one of images by class (it has folders in it and no IDX file).
bool is_image_folder(const std::string& folder);

/// Lists `folder`/CLASS/**/*.{png,jpg,jpeg}, of which a hash of the path below `folder` selects a
/// fifth for testing; or `folder`/{train,val}/CLASS/..., where `test` may stand in for `val`.
/// Hidden files and folders are skipped. Throws std::invalid_argument with one line.
ImageFolder list_image_folder(const std::string& folder);

}  // namespace shardlens::models
