// Reads images as train and infer do: a PNG or JPEG; or, from several parts, a folder of images by
// class, or the four IDX files of a data set, plain or gzipped.

#include <filesystem>

#include "models/data/dataset.h"
#include "models/data/image_file.h"
#include "models/data/image_folder.h"
#include "tests/fuzz/harness.h"

namespace shardlens::fuzz {

namespace {

void decode(const std::string& path) {
  for (const int64_t channels : {int64_t{1}, int64_t{3}}) {
    answers([&] {
      const models::DecodedImage image = models::decode_image(path, channels);
      const int64_t values = image.height * image.width * channels;
      expect(values > 0 && static_cast<int64_t>(image.pixels.size()) == values,
             "an image has not as many values as its sides say");
    });
  }
}

void load_idx(const std::string& folder) {
  answers([&] {
    const models::Dataset data = models::load_dataset(folder);
    for (const models::ImageSet* set : {&data.train, &data.test}) {
      const auto values = static_cast<size_t>(set->count * set->height * set->width);
      expect(set->pixels.size() == values, "a set has not as many pixels as it says");
      expect(set->labels.size() == static_cast<size_t>(set->count), "labels are missing");
    }
  });
}

/// Names without an extension of their own are read as images of a class.
void load_folder(const std::vector<Part>& parts, const std::string& folder) {
  std::filesystem::create_directory(folder + "/class");
  write_parts(parts, folder + "/class");
  answers([&] {
    for (const models::ImageFile& file : models::list_image_folder(folder).train) {
      decode(file.path);
    }
  });
}

}  // namespace

void images(std::string_view input) {
  const std::vector<Part> parts = parts_of(input, "image.png");
  const std::string first = write_parts(parts, empty_folder());
  if (parts.size() == 1) return decode(first);
  load_idx(std::filesystem::path(first).parent_path().string());
  load_folder(parts, empty_folder());
}

}  // namespace shardlens::fuzz
