#include "models/data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <stdexcept>
#include <string_view>

namespace shardlens::models {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_images(const fs::path& path, std::string_view problem) {
  throw std::invalid_argument(path.string() + ": " + std::string(problem) +
                              "; give --data a folder with a folder of .png or .jpg files for each "
                              "class");
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_image(const fs::directory_entry& entry) {
  std::string extension = entry.path().extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool is_known = extension == ".png" || extension == ".jpg" || extension == ".jpeg";
  return is_known && entry.is_regular_file() && !is_hidden(entry.path());
}

std::vector<fs::path> sorted(std::vector<fs::path> paths) {
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && !is_hidden(entry.path())) folders.push_back(entry.path());
  }
  return sorted(std::move(folders));
}

std::vector<fs::path> images_below(const fs::path& folder) {
  std::vector<fs::path> images;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::end(entry); ++entry) {
    if (is_hidden(entry->path()) && entry->is_directory()) entry.disable_recursion_pending();
    if (is_image(*entry)) images.push_back(entry->path());
  }
  return sorted(std::move(images));
}

/// Computes FNV-1a, which is the same on every machine, unlike std::hash.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 14695981039346656037U;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211U;
  return hash;
}

std::vector<std::string> class_names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& path : folders_in(folder)) names.push_back(path.filename().string());
  if (names.empty()) refuse_images(folder, "has no folders of classes");
  return names;
}

/// Lists the images of every class folder in `folder`. The name of each folder must be in
/// `classes`.
std::vector<ImageFile> files_by_class(const fs::path& folder,
                                      const std::vector<std::string>& classes) {
  std::vector<ImageFile> files;
  for (const fs::path& path : folders_in(folder)) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), path.filename().string());
    if (found == classes.end() || *found != path.filename()) {
      refuse_images(path, "is a class without training images");
    }
    for (const fs::path& image : images_below(path)) {
      files.push_back({image.string(), found - classes.begin()});
    }
  }
  return files;
}

void take_test_files(const fs::path& folder, ImageFolder& found) {
  constexpr uint64_t kOneOf = 5;
  const auto is_train = [&](const ImageFile& file) {
    return hash_of(fs::path(file.path).lexically_relative(folder).generic_string()) % kOneOf != 0;
  };
  const auto test = std::stable_partition(found.train.begin(), found.train.end(), is_train);
  if (test == found.train.begin()) return;  // so few that none would be left
  found.test.assign(test, found.train.end());
  found.train.erase(test, found.train.end());
}

ImageFolder list_folder(const fs::path& folder) {
  const bool is_split = fs::is_directory(folder / "train");
  const fs::path train = is_split ? folder / "train" : folder;
  ImageFolder found{class_names_in(train), {}, {}};
  found.train = files_by_class(train, found.classes);
  if (found.train.empty()) refuse_images(train, "has no .png or .jpg file in its folders");
  if (!is_split) {
    take_test_files(folder, found);
    return found;
  }
  for (const char* name : {"val", "test"}) {
    if (!fs::is_directory(folder / name)) continue;
    found.test = files_by_class(folder / name, found.classes);
    break;
  }
  return found;
}

}  // namespace

bool is_image_folder(const std::string& folder) {
  std::error_code unreadable;
  bool has_folder = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    if (entry.path().filename().string().find("-ubyte") != std::string::npos) return false;
    has_folder |= entry.is_directory(unreadable) && !is_hidden(entry.path());
  }
  return has_folder;
}

ImageFolder list_image_folder(const std::string& folder) {
  try {
    return list_folder(folder);
  } catch (const fs::filesystem_error& error) {
    refuse_images(error.path1(), "cannot be read (" + error.code().message() + ")");
  }
}

}  // namespace shardlens::models
