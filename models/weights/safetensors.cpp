#include "models/weights/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/input_file.h"
#include "base/shown.h"
#include "base/strict_json.h"

namespace shardlens::models {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's data is little-endian");

constexpr size_t kLengthBytes = 8;
constexpr size_t kHeaderAlignmentBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the limit of the format's own library
constexpr std::string_view kMetadataKey = "__metadata__";

struct DtypeBits {
  std::string_view name;
  uint64_t bits;
};

constexpr std::array<DtypeBits, 20> kDtypes = {{
    {"F64", 64}, {"I64", 64},    {"U64", 64},    {"C64", 64},    {"F32", 32},
    {"I32", 32}, {"U32", 32},    {"F16", 16},    {"BF16", 16},   {"I16", 16},
    {"U16", 16}, {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"U8", 8},
    {"I8", 8},   {"BOOL", 8},    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
}};

std::optional<uint64_t> bits_of(std::string_view dtype) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const DtypeBits& known) { return known.name == dtype; });
  if (found == kDtypes.end()) return std::nullopt;
  return found->bits;
}

// Returns nullopt for an unknown dtype, a negative size, a product beyond 64 bits or a broken last
// byte.
std::optional<uint64_t> bytes_of(std::string_view dtype, std::span<const int64_t> shape) {
  auto bits = bits_of(dtype);
  if (!bits) return std::nullopt;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(*bits, static_cast<uint64_t>(size), &*bits)) {
      return std::nullopt;
    }
  }
  if (*bits % 8 != 0) return std::nullopt;
  return *bits / 8;
}

[[noreturn]] void throw_damaged(std::string_view reason) {
  throw std::runtime_error(std::string(reason));
}

struct Range {
  uint64_t begin;
  uint64_t end;
};

Range range_from(const std::string& name, const nlohmann::json& entry) {
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    throw_damaged(fmt::format("tensor \"{}\" has no data_offsets [begin, end]", name));
  }
  return {(*offsets)[0].get<uint64_t>(), (*offsets)[1].get<uint64_t>()};
}

std::vector<int64_t> shape_from(const std::string& name, const nlohmann::json& entry) {
  const auto sizes = entry.find("shape");
  if (sizes == entry.end() || !sizes->is_array()) {
    throw_damaged(fmt::format("tensor \"{}\" has no shape", name));
  }
  std::vector<int64_t> shape;
  for (const auto& size : *sizes) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{INT64_MAX}) {
      throw_damaged(fmt::format("tensor \"{}\" has a shape that is not of whole numbers", name));
    }
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

SafetensorsTensor tensor_from(const std::string& name, const nlohmann::json& entry,
                              std::span<const std::byte> data) {
  if (!entry.is_object()) throw_damaged(fmt::format("tensor \"{}\" is not described", name));
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string() || !bits_of(dtype->get<std::string>())) {
    throw_damaged(fmt::format("tensor \"{}\" has no known dtype", name));
  }
  SafetensorsTensor tensor{name, dtype->get<std::string>(), shape_from(name, entry), {}};
  const Range range = range_from(name, entry);
  if (range.begin > range.end || range.end > data.size()) {
    throw_damaged(fmt::format("tensor \"{}\" lies at bytes {} to {}, the data has {}", name,
                              range.begin, range.end, data.size()));
  }
  if (bytes_of(tensor.dtype, tensor.shape) != range.end - range.begin) {
    throw_damaged(fmt::format("tensor \"{}\" has {} bytes, which do not match its shape and dtype",
                              name, range.end - range.begin));
  }
  tensor.data = data.subspan(range.begin, range.end - range.begin);
  return tensor;
}

SafetensorsMetadata metadata_from(const nlohmann::json& object) {
  if (!object.is_object()) throw_damaged("__metadata__ is not an object");
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) throw_damaged(fmt::format("__metadata__ \"{}\" is not a text", key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

void require_no_hole(const std::vector<SafetensorsTensor>& tensors,
                     std::span<const std::byte> data) {
  const std::byte* expected = data.data();
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.data.data() != expected) {
      throw_damaged(
          fmt::format("the data of tensor \"{}\" {}", tensor.name,
                      tensor.data.data() < expected ? "overlaps another's" : "follows a hole"));
    }
    expected += tensor.data.size();
  }
  if (expected != data.data() + data.size()) throw_damaged("bytes follow the last tensor");
}

class FileDescriptor {
 public:
  FileDescriptor(const std::string& path, int flags)
      : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int number() const { return number_; }
  bool close() { return number_ < 0 || ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw std::runtime_error(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
}

void write_all(const FileDescriptor& file, const std::string& path, const void* data,
               size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file.number(), next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "be written");
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

// A file under a temporary name; it is removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target)
      : target_(target), path_(unique_name(target)), file_(path_, O_WRONLY | O_CREAT | O_TRUNC) {
    if (file_.number() < 0) fail(path_, "be created");
  }
  ~TemporaryFile() {
    if (!published_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void append(const void* data, size_t bytes) { write_all(file_, path_, data, bytes); }

  void publish() {
    if (::fsync(file_.number()) != 0 || !file_.close()) fail(path_, "be written");
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail(target_, "be written");
    published_ = true;
    const std::string folder = std::filesystem::path(target_).parent_path().string();
    const FileDescriptor parent(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
    if (parent.number() < 0 || ::fsync(parent.number()) != 0) fail(target_, "be made durable");
  }

 private:
  static std::string unique_name(const std::string& target) {
    static std::atomic<unsigned> count{0};
    return fmt::format("{}.tmp-{}-{}", target, ::getpid(), count++);
  }

  std::string target_;
  std::string path_;
  FileDescriptor file_;
  bool published_ = false;
};

void require_sound(std::span<const SafetensorsTensor> tensors) {
  std::set<std::string_view> names;
  for (const SafetensorsTensor& tensor : tensors) {
    check(tensor.name != kMetadataKey && names.insert(tensor.name).second,
          [&] { return fmt::format("safetensors: the name '{}' is taken", tensor.name); });
    check(bytes_of(tensor.dtype, tensor.shape).has_value(), [&] {
      return fmt::format("safetensors: '{}' has no size, of dtype {}", tensor.name, tensor.dtype);
    });
  }
}

void require_data(std::span<const SafetensorsTensor> tensors) {
  for (const SafetensorsTensor& tensor : tensors) {
    check(bytes_of(tensor.dtype, tensor.shape) == tensor.data.size(), [&] {
      return fmt::format("safetensors: '{}' has {} bytes, not what {} and its shape ask",
                         tensor.name, tensor.data.size(), tensor.dtype);
    });
  }
}

std::vector<const SafetensorsTensor*> sort_by_data(std::span<const SafetensorsTensor> tensors) {
  std::vector<const SafetensorsTensor*> order;
  for (const SafetensorsTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return *bits_of(a->dtype) > *bits_of(b->dtype);
  });
  return order;
}

nlohmann::ordered_json entry_of(const SafetensorsTensor& tensor, uint64_t begin, uint64_t end) {
  return {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
}

// Returns the header: a word with its length, then the text.
std::string header_of(const nlohmann::ordered_json& entries) {
  std::string text;
  try {
    text = entries.dump();
  } catch (const nlohmann::json::exception&) {
    unreachable("safetensors: a name or a metadata text is not UTF-8");
  }
  text.resize(
      (text.size() + kHeaderAlignmentBytes - 1) / kHeaderAlignmentBytes * kHeaderAlignmentBytes,
      ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

}  // namespace

MappedFile SafetensorsFile::map_file(const std::string& path) {
  const InputFile file(path);
  if (!file.is_open()) {
    throw std::invalid_argument(
        fmt::format("{}: cannot be opened as a safetensors file ({}); give an existing file",
                    shown(path), *file.problem()));
  }
  if (file.bytes() < kLengthBytes) throw_damaged("too short for a header");
  MappedFile mapped(path);
  if (mapped.problem()) throw_damaged(fmt::format("cannot be mapped: {}", *mapped.problem()));
  if (mapped.bytes().size() < kLengthBytes) throw_damaged("too short for a header");
  return mapped;
}

void SafetensorsFile::read_header(std::string_view header, std::span<const std::byte> data) {
  if (!header.starts_with('{')) throw_damaged("the header does not start with '{'");
  const nlohmann::json entries = parse_strict_json(header);
  for (const auto& [name, entry] : entries.items()) {
    if (name == kMetadataKey) {
      metadata_ = metadata_from(entry);
    } else {
      tensors_.push_back(tensor_from(name, entry, data));
    }
  }
  // An empty tensor begins where the next one does and has to come before it.
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  require_no_hole(tensors_, data);
  for (size_t i = 0; i < tensors_.size(); ++i) index_of_name_[tensors_[i].name] = i;
}

SafetensorsFile::SafetensorsFile(const std::string& path) try : mapping_(map_file(path)) {
  const std::span<const std::byte> file = mapping_.bytes();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > kMostHeaderBytes || header_bytes > file.size() - kLengthBytes) {
    throw_damaged(fmt::format("the header's length is given as {}", header_bytes));
  }
  const auto* text = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  read_header({text, header_bytes}, file.subspan(kLengthBytes + header_bytes));
} catch (const std::runtime_error& error) {
  throw std::runtime_error(
      shown(fmt::format("{}: damaged safetensors file: {}", path, error.what())));
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_of_name_.find(name);
  return found == index_of_name_.end() ? nullptr : &tensors_[found->second];
}

SafetensorsLayout lay_out_safetensors(std::span<const SafetensorsTensor> tensors,
                                      const SafetensorsMetadata& metadata) {
  require_sound(tensors);
  SafetensorsLayout layout;
  layout.offsets_bytes.resize(tensors.size());
  nlohmann::ordered_json entries = nlohmann::ordered_json::object();
  if (!metadata.empty()) entries[std::string(kMetadataKey)] = metadata;
  uint64_t data_bytes = 0;
  for (const SafetensorsTensor* tensor : sort_by_data(tensors)) {
    const uint64_t begin = data_bytes;
    data_bytes += *bytes_of(tensor->dtype, tensor->shape);
    layout.offsets_bytes[static_cast<size_t>(tensor - tensors.data())] = begin;
    append_member(entries, tensor->name, entry_of(*tensor, begin, data_bytes));
  }
  layout.header = header_of(entries);
  for (uint64_t& offset_bytes : layout.offsets_bytes) offset_bytes += layout.header.size();
  layout.bytes = layout.header.size() + data_bytes;
  return layout;
}

void write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                       const SafetensorsMetadata& metadata) {
  const SafetensorsLayout layout = lay_out_safetensors(tensors, metadata);
  require_data(tensors);
  TemporaryFile file(path);
  file.append(layout.header.data(), layout.header.size());
  for (const SafetensorsTensor* tensor : sort_by_data(tensors)) {
    file.append(tensor->data.data(), tensor->data.size());
  }
  file.publish();
}

}  // namespace shardlens::models
