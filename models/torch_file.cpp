#include "models/torch_file.h"

#include <zlib.h>

#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shardlens::models {
namespace {

constexpr const char* kArchive = "full-model";  // the folder that all entries are in
constexpr size_t kAlignmentBytes = 64;          // of tensors in the file, so that it can be mapped

/// Whole numbers, little-endian.
template <class Integer>
std::string word(Integer value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

/// The opcodes of a pickle that are needed here, with what follows them.
class Pickle {
 public:
  Pickle() { text_ = "\x80\x02"; }
  std::string stop() && { return std::move(text_) + "."; }

  Pickle& empty_dict() { return add("}"); }
  Pickle& mark() { return add("("); }
  Pickle& tuple() { return add("t"); }  // of all since the mark
  Pickle& empty_tuple() { return add(")"); }
  Pickle& set_items() { return add("u"); }
  Pickle& reduce() { return add("R"); }
  Pickle& persistent() { return add("Q"); }
  Pickle& no() { return add("\x89"); }
  Pickle& global(const std::string& module, const std::string& name) {
    return add("c" + module + "\n" + name + "\n");
  }
  Pickle& text(const std::string& value) {
    return add("X" + word(static_cast<uint32_t>(value.size())) + value);
  }
  Pickle& number(int64_t value) {
    constexpr int64_t kMostInt = 0x7fffffff;
    if (value <= kMostInt) return add("J" + word(static_cast<uint32_t>(value)));
    return add(std::string("\x8a\x08") + word(static_cast<uint64_t>(value)));
  }
  Pickle& numbers(const std::vector<int64_t>& values) {
    mark();
    for (const int64_t value : values) number(value);
    return tuple();
  }

 private:
  Pickle& add(const std::string& code) {
    text_ += code;
    return *this;
  }

  std::string text_;
};

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// What unpickling calls torch._utils._rebuild_tensor_v2 with.
void add_tensor(Pickle& pickle, const SafetensorsTensor& tensor, size_t key) {
  const auto numel = static_cast<int64_t>(tensor.data.size() / sizeof(float));
  pickle.text(tensor.name).global("torch._utils", "_rebuild_tensor_v2").mark();
  pickle.mark().text("storage").global("torch", "FloatStorage").text(std::to_string(key));
  pickle.text("cpu").number(numel).tuple().persistent();
  pickle.number(0).numbers(tensor.shape).numbers(strides_of(tensor.shape)).no();
  pickle.global("collections", "OrderedDict").empty_tuple().reduce();
  pickle.tuple().reduce();
}

std::string pickle_of(std::span<const SafetensorsTensor> tensors) {
  Pickle pickle;
  pickle.empty_dict().mark();
  for (size_t i = 0; i < tensors.size(); ++i) add_tensor(pickle, tensors[i], i);
  pickle.set_items();
  return std::move(pickle).stop();
}

/// A zip archive whose entries are stored as they are.
class Archive {
 public:
  explicit Archive(std::ostream& out) : out_(out) {}

  void add(const std::string& name, std::span<const std::byte> data) {
    const std::string path = std::string(kArchive) + "/" + name;
    const std::string about = describe(path, data);
    const size_t header_bytes = 4 + about.size() + path.size();
    const std::string padding = padding_for(bytes_ + header_bytes);
    // The entry is told of twice: before its data, and in the directory at the end.
    directory_ += "PK\x01\x02" + word<uint16_t>(kVersion) + about + word<uint16_t>(0) +
                  word<uint16_t>(0) + word<uint16_t>(0) + word<uint16_t>(0) + word<uint32_t>(0) +
                  word(static_cast<uint32_t>(bytes_)) + path;
    ++entries_;
    write("PK\x03\x04" + about + word(static_cast<uint16_t>(padding.size())) + path + padding);
    out_.write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size()));
    bytes_ += data.size();
  }

  void end() {
    const auto begin = static_cast<uint32_t>(bytes_);
    const auto directory_bytes = static_cast<uint32_t>(directory_.size());
    write(directory_);
    write("PK\x05\x06" + word<uint32_t>(0) + word(entries_) + word(entries_) +
          word(directory_bytes) + word(begin) + word<uint16_t>(0));
  }

 private:
  static constexpr uint16_t kVersion = 20;

  /// What both headers have in common, up to the length of the name.
  static std::string describe(const std::string& path, std::span<const std::byte> data) {
    constexpr uint16_t kUtf8 = 1 << 11, kStored = 0, kTime = 0, kDate = 0x21;
    const auto crc = static_cast<uint32_t>(
        ::crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
    const auto bytes = static_cast<uint32_t>(data.size());
    return word(kVersion) + word(kUtf8) + word(kStored) + word(kTime) + word(kDate) + word(crc) +
           word(bytes) + word(bytes) + word(static_cast<uint16_t>(path.size()));
  }

  /// An extra field after which the data is aligned; `end`: where the header would end without
  /// its own length of two bytes and this field.
  static std::string padding_for(uint64_t end) {
    constexpr size_t kLengthBytes = 2, kFieldBytes = 4;
    const size_t beyond = (end + kLengthBytes + kFieldBytes) % kAlignmentBytes;
    const size_t fill = (kAlignmentBytes - beyond) % kAlignmentBytes;
    return "FB" + word(static_cast<uint16_t>(fill)) + std::string(fill, 'Z');
  }

  void write(const std::string& text) {
    out_.write(text.data(), static_cast<std::streamsize>(text.size()));
    bytes_ += text.size();
  }

  std::ostream& out_;
  std::string directory_;
  uint64_t bytes_ = 0;
  uint16_t entries_ = 0;
};

void require_small(std::span<const SafetensorsTensor> tensors) {
  constexpr size_t kMostTensors = 60000;  // entries are counted in 16 bits
  uint64_t bytes = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.dtype != "F32") throw std::logic_error("torch file: " + tensor.name + " is no F32");
    bytes += tensor.data.size() + 4 * (tensor.name.size() + 2 * kAlignmentBytes);
  }
  if (bytes <= kMostTorchFileBytes && tensors.size() <= kMostTensors) return;
  throw std::logic_error("torch file: more than one archive holds");
}

}  // namespace

void write_torch_file(std::ostream& out, std::span<const SafetensorsTensor> tensors) {
  require_small(tensors);
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  Archive archive(out);
  archive.add("data.pkl", bytes_of(pickle_of(tensors)));
  archive.add("byteorder", bytes_of("little"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    archive.add("data/" + std::to_string(i), tensors[i].data);
  }
  archive.add("version", bytes_of("3\n"));
  archive.end();
}

}  // namespace shardlens::models
