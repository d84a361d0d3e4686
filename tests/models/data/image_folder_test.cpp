#include "models/data/image_folder.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "tests/support/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::models;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
namespace fs = std::filesystem;

namespace {

void write_empty(const tests::TemporaryFolder& folder, const std::string& name) {
  fs::create_directories(fs::path(folder.file(name)).parent_path());
  tests::write_file(folder.file(name), "");
}

std::set<std::string> names_in(const std::vector<ImageFile>& files, const std::string& folder) {
  std::set<std::string> names;
  for (const ImageFile& file : files) {
    names.insert(std::to_string(file.label) + ":" +
                 fs::path(file.path).lexically_relative(folder).generic_string());
  }
  return names;
}

void check_refused(const tests::TemporaryFolder& folder, const std::string& why) {
  CHECK_THROWS_MATCHES(list_image_folder(folder.path()), std::invalid_argument,
                       MessageMatches(ContainsSubstring(why) && ContainsSubstring("give --data")));
}

}  // namespace

TEST_CASE("folders with train and val are taken as they are") {
  const tests::TemporaryFolder folder;
  for (const char* name :
       {"train/dog/1.png", "train/cat/a.JPG", "train/cat/deep/er/b.jpeg", "train/cat/notes.txt",
        "train/cat/.hidden.png", "train/.cache/c.png", "val/dog/2.png", "test/dog/3.png"}) {
    write_empty(folder, name);
  }
  const ImageFolder found = list_image_folder(folder.path());
  CHECK(found.classes == std::vector<std::string>{"cat", "dog"});
  CHECK(names_in(found.train, folder.path()) == std::set<std::string>{"0:train/cat/a.JPG",
                                                                      "0:train/cat/deep/er/b.jpeg",
                                                                      "1:train/dog/1.png"});
  CHECK(names_in(found.test, folder.path()) == std::set<std::string>{"1:val/dog/2.png"});
}

TEST_CASE("without a split a fifth is for testing, the same wherever the folder is") {
  const tests::TemporaryFolder one, other;
  for (int i = 0; i < 500; ++i) {
    const std::string name = (i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".png";
    write_empty(one, name);
    write_empty(other, name);
  }
  const ImageFolder found = list_image_folder(one.path());
  CHECK(found.train.size() + found.test.size() == 500);
  CHECK(found.test.size() > 70);
  CHECK(found.test.size() < 130);
  const auto train = names_in(found.train, one.path());
  for (const std::string& name : names_in(found.test, one.path()))
    CHECK_FALSE(train.contains(name));
  CHECK(names_in(list_image_folder(other.path()).test, other.path()) ==
        names_in(found.test, one.path()));
  // One more file moves no other one.
  write_empty(one, "a/more.png");
  const auto grown = names_in(list_image_folder(one.path()).test, one.path());
  for (const std::string& name : names_in(found.test, one.path())) CHECK(grown.contains(name));
}

TEST_CASE("a single image is trained on") {
  const tests::TemporaryFolder folder;
  const std::string name = GENERATE("1.png", "2.png", "3.png", "4.png", "5.png", "6.png", "7.png");
  write_empty(folder, "a/" + name);
  CHECK(list_image_folder(folder.path()).train.size() == 1);
}

TEST_CASE("a folder that is not an image folder is refused in one line") {
  const tests::TemporaryFolder folder;
  check_refused(folder, "has no folders of classes");
  write_empty(folder, "a/readme.txt");
  check_refused(folder, "has no .png or .jpg file");
  write_empty(folder, "train/a/1.png");
  write_empty(folder, "val/b/1.png");
  check_refused(folder, "val/b: is a class without training images");
}

TEST_CASE("IDX files and image folders are distinguished") {
  const tests::TemporaryFolder folder;
  CHECK_FALSE(is_image_folder(folder.path()));
  CHECK_FALSE(is_image_folder(folder.file("none")));
  write_empty(folder, "a/1.png");
  CHECK(is_image_folder(folder.path()));
  write_empty(folder, "train-images-idx3-ubyte.gz");
  CHECK_FALSE(is_image_folder(folder.path()));
}
