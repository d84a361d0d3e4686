#include "models/weights/torch_file.h"

#include <zlib.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/document/pickle_writer.h"

namespace shardlens::models {
namespace {

constexpr const char* kArchive = "full-model";  // the folder that all entries are in
constexpr size_t kTensorAlignmentBytes = 64;    // of tensors in the file, so that it can be mapped

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// Adds a tensor: the arguments with which unpickling calls torch._utils._rebuild_tensor_v2.
void add_tensor(PickleWriter& pickle, const SafetensorsTensor& tensor, size_t key) {
  const auto numel = static_cast<int64_t>(tensor.data.size() / sizeof(float));
  pickle.global("torch._utils", "_rebuild_tensor_v2").mark();
  pickle.mark().text("storage").global("torch", "FloatStorage").text(std::to_string(key));
  pickle.text("cpu").number(numel).tuple().persistent();
  pickle.number(0).numbers(tensor.shape).numbers(strides_of(tensor.shape)).boolean(false);
  pickle.global("collections", "OrderedDict").empty_tuple().reduce();
  pickle.tuple().reduce();
}

std::string pickle_of(std::span<const SafetensorsTensor> tensors) {
  PickleWriter pickle;
  pickle.empty_dict().mark();
  for (size_t i = 0; i < tensors.size(); ++i) {
    pickle.text(tensors[i].name);
    add_tensor(pickle, tensors[i], i);
  }
  pickle.set_items();
  return std::move(pickle).stop();
}

/// Writes a zip archive whose entries are stored without compression.
class Archive {
 public:
  explicit Archive(std::ostream& out) : out_(out) {}

  void add(const std::string& name, std::span<const std::byte> data) {
    const std::string path = std::string(kArchive) + "/" + name;
    const std::string about = describe(path, data);
    const size_t header_bytes = 4 + about.size() + path.size();
    const std::string padding = padding_for(bytes_ + header_bytes);
    // The entry is described twice: before its data, and in the directory at the end.
    directory_ += "PK\x01\x02" + little_endian<uint16_t>(kVersion) + about +
                  little_endian<uint16_t>(0) + little_endian<uint16_t>(0) +
                  little_endian<uint16_t>(0) + little_endian<uint16_t>(0) +
                  little_endian<uint32_t>(0) + little_endian(static_cast<uint32_t>(bytes_)) + path;
    ++entries_;
    write("PK\x03\x04" + about + little_endian(static_cast<uint16_t>(padding.size())) + path +
          padding);
    out_.write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size()));
    bytes_ += data.size();
  }

  void end() {
    const auto begin = static_cast<uint32_t>(bytes_);
    const auto directory_bytes = static_cast<uint32_t>(directory_.size());
    write(directory_);
    write("PK\x05\x06" + little_endian<uint32_t>(0) + little_endian(entries_) +
          little_endian(entries_) + little_endian(directory_bytes) + little_endian(begin) +
          little_endian<uint16_t>(0));
  }

 private:
  static constexpr uint16_t kVersion = 20;

  /// Returns the fields that both headers have in common, up to the length of the name.
  static std::string describe(const std::string& path, std::span<const std::byte> data) {
    constexpr uint16_t kUtf8 = 1 << 11, kStored = 0, kTime = 0, kDate = 0x21;
    const auto crc = static_cast<uint32_t>(
        ::crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
    const auto bytes = static_cast<uint32_t>(data.size());
    return little_endian(kVersion) + little_endian(kUtf8) + little_endian(kStored) +
           little_endian(kTime) + little_endian(kDate) + little_endian(crc) + little_endian(bytes) +
           little_endian(bytes) + little_endian(static_cast<uint16_t>(path.size()));
  }

  /// Returns an extra field after which the data is aligned. `end`: where the header would end
  /// without its own length of two bytes and this field.
  static std::string padding_for(uint64_t end) {
    constexpr size_t kLengthBytes = 2, kFieldBytes = 4;
    const size_t beyond = (end + kLengthBytes + kFieldBytes) % kTensorAlignmentBytes;
    const size_t fill = (kTensorAlignmentBytes - beyond) % kTensorAlignmentBytes;
    return "FB" + little_endian(static_cast<uint16_t>(fill)) + std::string(fill, 'Z');
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
    check(tensor.dtype == "F32", [&] { return "torch file: " + tensor.name + " is not F32"; });
    bytes += tensor.data.size() + 4 * (tensor.name.size() + 2 * kTensorAlignmentBytes);
  }
  check(bytes <= kMostTorchFileBytes && tensors.size() <= kMostTensors,
        "torch file: more than one archive holds");
}

std::span<const std::byte> bytes_of_text(const std::string& text) {
  return std::as_bytes(std::span(text));
}

void write_archive(std::ostream& out, const std::string& pickle,
                   std::span<const SafetensorsTensor> tensors) {
  Archive archive(out);
  archive.add("data.pkl", bytes_of_text(pickle));
  archive.add("byteorder", bytes_of_text("little"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    archive.add("data/" + std::to_string(i), tensors[i].data);
  }
  archive.add("version", bytes_of_text("3\n"));
  archive.end();
}

}  // namespace

void write_torch_file(std::ostream& out, std::span<const SafetensorsTensor> tensors) {
  require_small(tensors);
  write_archive(out, pickle_of(tensors), tensors);
}

void write_torch_tensor(std::ostream& out, const SafetensorsTensor& tensor) {
  require_small({&tensor, 1});
  PickleWriter pickle;
  add_tensor(pickle, tensor, 0);
  write_archive(out, std::move(pickle).stop(), {&tensor, 1});
}

void write_torch_value(std::ostream& out, const std::string& pickle) {
  write_archive(out, pickle, {});
}

}  // namespace shardlens::models
