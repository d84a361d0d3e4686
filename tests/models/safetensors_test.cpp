#include "models/weights/safetensors.h"

#include <bit>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

namespace shardlens::models {
namespace {

using Catch::Matchers::ContainsSubstring;
using Shape = std::vector<int64_t>;

// Written by Python's safetensors package: tests/reference/make_safetensors_fixture.py
const std::string kPythonFile =
    SHARDLENS_SOURCE_DIR "/tests/fixtures/safetensors/small.safetensors";

template <typename T>
std::vector<T> values_of(const SafetensorsTensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

template <typename T>
std::vector<T> values_of(const SafetensorsFile& file, std::string_view name) {
  const SafetensorsTensor* tensor = file.find(name);
  REQUIRE(tensor != nullptr);
  return values_of<T>(*tensor);
}

std::string file_bytes(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

std::string refusal_of(const std::string& path) {
  try {
    const SafetensorsFile file(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  FAIL("accepted: " << path);
  return "";
}

// Touches every byte, so that a range outside the file shows under the address sanitizer, and
// checks what the header promises: ranges of the right size that fill the data.
void check_consistent(const SafetensorsFile& file, size_t file_size) {
  size_t total_bytes = 0;
  unsigned sum = 0;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    CHECK(file.find(tensor.name) == &tensor);
    total_bytes += tensor.data.size();
    for (const std::byte value : tensor.data) sum += std::to_integer<unsigned>(value);
  }
  CHECK(total_bytes <= file_size);
  CHECK(sum <= 255 * total_bytes);
}

TEST_CASE("a file written by Python is read equal") {
  const SafetensorsFile file(kPythonFile);
  CHECK(file.tensors().size() == 10);
  CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}, {"note", "h\xc3\xa9llo"}});
  CHECK(values_of<float>(file, "floats") ==
        std::vector<float>{1.0f, -2.5f, 0.0f, 3.25f, 1e-30f, -0.0f});
  CHECK(file.find("floats")->shape == Shape{2, 3});
  CHECK(file.find("floats")->dtype == "F32");
  CHECK(values_of<double>(file, "doubles") == std::vector<double>{0.1, -1e300});
  CHECK(values_of<uint16_t>(file, "halves") == std::vector<uint16_t>{0x3c00, 0x7bff});
  CHECK(file.find("halves")->dtype == "F16");
  CHECK(values_of<uint16_t>(file, "brains") == std::vector<uint16_t>{0x3f80, 0xc040, 0x3f00});
  CHECK(file.find("brains")->dtype == "BF16");
  CHECK(values_of<int64_t>(file, "longs") == std::vector<int64_t>{-1, int64_t{1} << 40});
  CHECK(values_of<int32_t>(file, "ints") == std::vector<int32_t>{7, -8});
  CHECK(file.find("ints")->shape == Shape{2, 1});
  CHECK(values_of<uint8_t>(file, "bytes") == std::vector<uint8_t>{0, 127, 255});
  CHECK(values_of<uint8_t>(file, "flags") == std::vector<uint8_t>{1, 0, 1});
  CHECK(file.find("flags")->dtype == "BOOL");
  CHECK(values_of<float>(file, "scalar") == std::vector<float>{42.0f});
  CHECK(file.find("scalar")->shape.empty());
  CHECK(file.find("empty")->shape == Shape{0, 4});
  CHECK(file.find("empty")->data.empty());
  CHECK(file.find("nothing") == nullptr);
}

struct OwnedTensor {
  std::string name;
  std::string dtype;
  Shape shape;
  std::vector<std::byte> data;
};

std::vector<OwnedTensor> random_tensors(std::mt19937_64& random) {
  const std::vector<std::pair<std::string, size_t>> dtypes = {
      {"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"I64", 8}, {"U8", 1}, {"BOOL", 1}};
  std::vector<OwnedTensor> tensors(random() % 12);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [dtype, element_bytes] = dtypes[random() % dtypes.size()];
    size_t numel = 1;
    for (size_t dim = random() % 4; dim > 0; --dim) {
      tensors[i].shape.push_back(static_cast<int64_t>(random() % 6));
      numel *= static_cast<size_t>(tensors[i].shape.back());
    }
    tensors[i].name = "layer." + std::to_string(i) + ".\"weight\"\t\xc3\xbc";
    tensors[i].dtype = dtype;
    tensors[i].data.resize(numel * element_bytes);
    for (std::byte& value : tensors[i].data) value = std::byte(random() & 0xff);
  }
  return tensors;
}

size_t element_bytes_of(const OwnedTensor& tensor) {
  size_t numel = 1;
  for (const int64_t size : tensor.shape) numel *= static_cast<size_t>(size);
  return tensor.data.size() / numel;
}

std::vector<SafetensorsTensor> views_of(const std::vector<OwnedTensor>& owned) {
  std::vector<SafetensorsTensor> views;
  for (const OwnedTensor& tensor : owned) {
    views.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
  }
  return views;
}

TEST_CASE("what is written is read back, each tensor aligned to its elements") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  for (int round = 0; round < 50; ++round) {
    CAPTURE(round);
    const auto written = random_tensors(random);
    write_safetensors(path, views_of(written), {{"step", std::to_string(round)}});
    const SafetensorsFile file(path);
    CHECK(file.metadata() == SafetensorsMetadata{{"step", std::to_string(round)}});
    REQUIRE(file.tensors().size() == written.size());
    for (const OwnedTensor& tensor : written) {
      const SafetensorsTensor* read = file.find(tensor.name);
      REQUIRE(read != nullptr);
      CHECK(read->dtype == tensor.dtype);
      CHECK(read->shape == tensor.shape);
      CHECK(values_of<std::byte>(*read) == tensor.data);
      const size_t element_bytes = tensor.data.empty() ? 1 : element_bytes_of(tensor);
      CHECK(std::bit_cast<uintptr_t>(read->data.data()) % element_bytes == 0);
    }
  }
}

TEST_CASE("writing leaves one file with a padded header, and replaces an older one") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  tests::write_file(path, "older");
  const std::vector<std::byte> data(4);
  const SafetensorsTensor tensor{"w", "F32", {1}, data};
  write_safetensors(path, {&tensor, 1});
  const std::string bytes = tests::read_file(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  CHECK(header_bytes % 8 == 0);
  CHECK(bytes.size() == 8 + header_bytes + 4);
  CHECK(bytes[8] == '{');
  const auto entries = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(entries), end(entries)) == 1);
}

TEST_CASE("a failed write keeps the older file and no temporary one") {
  const tests::TemporaryFolder folder;
  const std::vector<std::byte> data(4);
  const SafetensorsTensor tensor{"w", "F32", {1}, data};
  CHECK_THROWS_AS(write_safetensors(folder.file("no/such/folder"), {&tensor, 1}),
                  std::runtime_error);
  std::filesystem::create_directory(folder.file("taken"));
  CHECK_THROWS_AS(write_safetensors(folder.file("taken"), {&tensor, 1}), std::runtime_error);
  const auto entries = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(entries), end(entries)) == 1);
}

TEST_CASE("tensors that the format cannot hold are not written") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  const std::vector<std::byte> data(4);
  const auto refused = GENERATE_COPY(values<std::vector<SafetensorsTensor>>({
      {{"w", "F32", {2}, data}},
      {{"w", "F32", {-1}, data}},
      {{"w", "float", {1}, data}},
      {{"w", "F32", {1}, data}, {"w", "F32", {1}, data}},
      {{"__metadata__", "F32", {1}, data}},
      {{"\xff", "F32", {1}, data}},
  }));
  CHECK_THROWS_AS(write_safetensors(path, refused), std::logic_error);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a path that is not a file is wrong use, not damage") {
  const tests::TemporaryFolder folder;
  CHECK_THROWS_AS(SafetensorsFile(folder.file("none")), std::invalid_argument);
  CHECK_THROWS_AS(SafetensorsFile(folder.path()), std::invalid_argument);
}

struct DamagedHeader {
  std::string header;
  std::string reason;
};

TEST_CASE("a header that does not describe 8 bytes of data exactly is refused") {
  const auto damaged = GENERATE(values<DamagedHeader>({
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,16]}})", "lies at bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "lies at bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "do not match"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "follow the last"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "hole"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "twice"},
      {R"({"a":{"dtype":"X32","shape":[2],"data_offsets":[0,8]}})", "dtype"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "dtype"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", "shape"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "shape"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "shape"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8.5]}})", "data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
       "do not match"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807,2,0],"data_offsets":[0,0]}})",
       "do not match"},
      {R"({"a":{"dtype":"F4","shape":[17],"data_offsets":[0,8]}})", "do not match"},
      {R"({"a":7})", "not described"},
      {R"({"__metadata__":{"a":1}})", "__metadata__"},
      {R"({"__metadata__":[]})", "__metadata__"},
      {R"({"a\nb":{}})", "dtype"},
      {R"({)", "JSON"},
      {R"([])", "start"},
      {"", "start"},
  }));
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("damaged.safetensors");
  tests::write_file(path, file_bytes(damaged.header, "12345678"));
  const std::string text = refusal_of(path);
  CHECK_THAT(text, ContainsSubstring(damaged.reason));
  CHECK_THAT(text, ContainsSubstring(path));
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("four-bit elements are counted two a byte") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("four.safetensors");
  tests::write_file(
      path, file_bytes(R"({"a":{"dtype":"F4","shape":[4,4],"data_offsets":[0,8]}})", "12345678"));
  CHECK(SafetensorsFile(path).find("a")->data.size() == 8);
}

TEST_CASE("every truncation of a file is refused") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("short.safetensors");
  const std::string whole = tests::read_file(kPythonFile);
  for (size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    tests::write_file(path, whole.substr(0, length));
    CHECK_THAT(refusal_of(path), ContainsSubstring("damaged"));
  }
  tests::write_file(path, whole + "x");
  CHECK_THAT(refusal_of(path), ContainsSubstring("follow the last tensor"));
}

TEST_CASE("random byte flips are refused or give consistent tensors") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("flipped.safetensors");
  const std::string whole = tests::read_file(kPythonFile);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    std::string bytes = whole;
    for (size_t flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random() & 0xff);
    }
    tests::write_file(path, bytes);
    try {
      check_consistent(SafetensorsFile(path), bytes.size());
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  CHECK(refused > 1500);  // most of this file is its header
}

}  // namespace
TEST_CASE("a file may be written in pieces at the places of its layout") {
  const std::vector<uint16_t> halves(5, 7);
  const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  const std::vector<SafetensorsTensor> tensors = {
      {"halves", "F16", {5}, std::as_bytes(std::span(halves))},
      {"floats", "F32", {2, 3}, std::as_bytes(std::span(floats))},
      {"none", "F32", {0}, {}}};
  const tests::TemporaryFolder folder;
  write_safetensors(folder.file("whole"), tensors, {{"format", "pt"}});
  const std::string whole = tests::read_file(folder.file("whole"));
  std::vector<SafetensorsTensor> without_data = tensors;
  for (SafetensorsTensor& tensor : without_data) tensor.data = {};
  const SafetensorsLayout layout = lay_out_safetensors(without_data, {{"format", "pt"}});
  REQUIRE(layout.bytes == whole.size());
  std::string pieces(layout.bytes, '\0');
  pieces.replace(0, layout.header.size(), layout.header);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& data = tensors[i].data;
    pieces.replace(layout.offsets_bytes[i], data.size(), reinterpret_cast<const char*>(data.data()),
                   data.size());
  }
  CHECK(pieces == whole);
  without_data.front().dtype = "F17";
  CHECK_THROWS_AS(lay_out_safetensors(without_data), std::logic_error);
}

}  // namespace shardlens::models
