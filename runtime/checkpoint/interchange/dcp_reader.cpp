#include "runtime/checkpoint/interchange/dcp_reader.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/document/read_document.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "runtime/checkpoint/interchange/allowance.h"
#include "runtime/checkpoint/interchange/dcp_classes.h"
#include "runtime/checkpoint/interchange/torch_archive.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMetadataFile = ".metadata";

/// Lists all names that the metadata of any version may ask for. Names that are not in
/// dcp_classes.h are allowed, but ignored.
constexpr std::array kGlobals = {
    dcp::kMetadata,
    dcp::kTensor,
    dcp::kBytes,
    dcp::kProperties,
    dcp::kMemoryFormat,
    dcp::kChunk,
    dcp::kIndex,
    dcp::kStorageInfo,
    dcp::kLayout,
    dcp::kSize,
    dcp::kFloat32,
    std::string_view("torch.distributed.checkpoint.metadata.StorageMeta"),
    // Python 3.11.2, unlike 3.11.7, pickles an enum's member with getattr, which is recognised but
    // never called.
    std::string_view("builtins.getattr"),
    std::string_view("collections.OrderedDict"),
    std::string_view("pathlib.PosixPath"),
    std::string_view("pathlib.WindowsPath"),
    std::string_view("pathlib._local.PosixPath"),
    std::string_view("pathlib._local.WindowsPath"),
    std::string_view("torch.float64"),
    std::string_view("torch.float16"),
    std::string_view("torch.bfloat16"),
    std::string_view("torch.int64"),
    std::string_view("torch.int32"),
    std::string_view("torch.int16"),
    std::string_view("torch.int8"),
    std::string_view("torch.uint8"),
    std::string_view("torch.bool"),
};

std::vector<int64_t> sizes_of(Value size, const std::string& name) {
  const Value arguments = size.instance_of(dcp::kSize);
  if (arguments.size() != 1) throw_damaged(fmt::format("{} has no size", name));
  if (arguments.at(0).size() > kMostDimensions) {
    throw_damaged(fmt::format("{} has more than {} dimensions", name, kMostDimensions));
  }
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < arguments.at(0).size(); ++i) {
    sizes.push_back(arguments.at(0).at(i).integer(-1));
    if (sizes.back() < 0) throw_damaged(fmt::format("{} has a negative size", name));
  }
  return sizes;
}

/// Says where a piece or a value is stored.
struct StoredPiece {
  std::string file;
  uint64_t offset_bytes = 0;
  uint64_t bytes = 0;
};

StoredPiece stored_of(Value info) {
  const Value state = info.instance_of(dcp::kStorageInfo);
  StoredPiece stored{.file = std::string(state["relative_path"].text()),
                     .offset_bytes = static_cast<uint64_t>(state["offset"].integer(-1)),
                     .bytes = static_cast<uint64_t>(state["length"].integer(-1))};
  constexpr size_t kMostNameBytes = 255;
  if (stored.file.empty() || stored.file.size() > kMostNameBytes ||
      stored.file.find('/') != std::string::npos || stored.file == "..") {
    throw_damaged("a piece is not in a file of the folder");
  }
  if (state["transform_descriptors"].size() > 0) {
    throw_damaged("its pieces use an extension (such as compression) that is not supported");
  }
  return stored;
}

/// Identifies a piece by name and offset. A value that is not a tensor has no offset.
using PieceKey = std::pair<std::string, std::vector<int64_t>>;

class Folder {
 public:
  explicit Folder(const fs::path& path) : path_(path) {
    const MappedFile file(path / kMetadataFile);
    if (file.problem()) throw_damaged(fmt::format("{}: {}", kMetadataFile, *file.problem()));
    names_ = Allowance(file.bytes().size());
    const std::string_view pickle(reinterpret_cast<const char*>(file.bytes().data()),
                                  file.bytes().size());
    try {
      document_ = read_pickle(pickle, kGlobals);
    } catch (const std::invalid_argument& error) {
      throw_damaged(fmt::format("{}: {}", kMetadataFile, error.what()));
    }
    metadata_.emplace(Value(document_).instance_of(dcp::kMetadata));
    if (metadata().entries().empty())
      throw_damaged(fmt::format("{} does not describe a checkpoint", kMetadataFile));
    index_storage();
    index_paths();
  }

  SavedState read() {
    const auto entries = metadata()["state_dict_metadata"].entries();
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const std::string name(Value(document_, entries[i]).text());
      for (const std::string& key : path_of(name)) names_.spend_text(key);
      const Value tensor = Value(document_, entries[i + 1]).instance_of(dcp::kTensor);
      tensor.entries().empty() ? add_number(name) : add_tensor(name, tensor);
    }
    return std::move(state_);
  }

 private:
  Value metadata() const { return *metadata_; }

  void index_storage() {
    const auto entries = metadata()["storage_data"].entries();
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const Value index = Value(document_, entries[i]).instance_of(dcp::kIndex);
      const std::string name(index["fqn"].text());
      names_.spend_text(name);
      PieceKey key{name, {}};
      if (index["offset"].is(Document::Type::object)) key.second = sizes_of(index["offset"], name);
      stored_[key] = stored_of(Value(document_, entries[i + 1]));
    }
  }

  /// Finds out which keys of nested dicts each name was made from.
  void index_paths() {
    const auto entries = metadata()["planner_data"].entries();
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const Value keys(document_, entries[i + 1]);
      std::vector<std::string> path;
      for (size_t k = 0; k < keys.size(); ++k) {
        const Value key = keys.at(k);
        path.push_back(key.is(Document::Type::integer) ? std::to_string(key.integer())
                                                       : std::string(key.text()));
        names_.spend_text(path.back());
      }
      if (!path.empty()) paths_[std::string(Value(document_, entries[i]).text())] = path;
    }
  }

  std::vector<std::string> path_of(const std::string& name) const {
    const auto found = paths_.find(name);
    return found == paths_.end() ? std::vector<std::string>{name} : found->second;
  }

  TorchArchive open(const std::string& name, const std::vector<int64_t>& begin) {
    const auto found = stored_.find({name, begin});
    if (found == stored_.end()) throw_damaged(fmt::format("a piece of {} is in no file", name));
    const StoredPiece& stored = found->second;
    take_range(stored, name);
    const std::span<const std::byte> file = map(stored.file);
    if (stored.offset_bytes > file.size() || stored.bytes > file.size() - stored.offset_bytes) {
      throw_damaged(fmt::format("{} has {} bytes: a piece of {} is beyond its end", stored.file,
                                file.size(), name));
    }
    try {
      return TorchArchive(file.subspan(stored.offset_bytes, stored.bytes));
    } catch (const std::runtime_error& error) {
      throw_damaged(fmt::format("{}: a piece of {}: {}", stored.file, name, error.what()));
    }
  }

  /// Throws if two pieces share bytes, so that no more is read than the file holds.
  void take_range(const StoredPiece& stored, const std::string& name) {
    std::map<uint64_t, uint64_t>& ends = taken_[stored.file];
    const auto after = ends.lower_bound(stored.offset_bytes);
    const bool is_before =
        after == ends.end() ||
        (after->first >= stored.offset_bytes && after->first - stored.offset_bytes >= stored.bytes);
    const bool is_behind = after == ends.begin() || std::prev(after)->second <= stored.offset_bytes;
    if (!is_before || !is_behind || stored.bytes == 0) {
      throw_damaged(fmt::format("{}: a piece of {} overlaps another one", stored.file, name));
    }
    uint64_t end = 0;
    if (__builtin_add_overflow(stored.offset_bytes, stored.bytes, &end)) end = UINT64_MAX;
    ends[stored.offset_bytes] = end;
  }

  std::span<const std::byte> map(const std::string& name) {
    auto& file = files_[name];
    if (!file) {
      file = std::make_shared<MappedFile>(path_ / name);
      if (file->problem()) throw_damaged(fmt::format("{}: {}", name, *file->problem()));
      state_.memory.push_back(file);
    }
    return file->bytes();
  }

  /// Adds a value if it is a number. Import needs no other values.
  void add_number(const std::string& name) {
    const TorchArchive archive = open(name, {});
    const Value value = archive.root();
    if (!value.is(Document::Type::integer) && !value.is(Document::Type::real)) return;
    state_.numbers.push_back({path_of(name), value.real()});
  }

  void add_tensor(const std::string& name, Value metadata) {
    SavedTensor tensor{.path = path_of(name),
                       .dtype = {},
                       .shape = sizes_of(metadata["size"], name),
                       .pieces = {}};
    const Value chunks = metadata["chunks"];
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Value chunk = chunks.at(i).instance_of(dcp::kChunk);
      SavedPiece box{.begin = sizes_of(chunk["offsets"], name),
                     .shape = sizes_of(chunk["sizes"], name),
                     .data = {}};
      add_piece(name, tensor, std::move(box));
    }
    state_.tensors.push_back(std::move(tensor));
  }

  void add_piece(const std::string& name, SavedTensor& tensor, SavedPiece box) {
    const TorchArchive archive = open(name, box.begin);
    std::optional<ArchiveTensor> stored = archive.tensor(archive.root());
    if (!stored || stored->tensor.shape != box.shape) {
      throw_damaged(fmt::format("a piece of {} does not match the metadata", name));
    }
    if (!tensor.dtype.empty() && tensor.dtype != stored->tensor.dtype) {
      throw_damaged(fmt::format("the pieces of {} are of several dtypes", name));
    }
    tensor.dtype = stored->tensor.dtype;
    box.data = stored->tensor.pieces.front().data;
    tensor.pieces.push_back(std::move(box));
    if (stored->memory) state_.memory.push_back(std::move(stored->memory));
  }

  fs::path path_;
  Allowance names_{0};
  Document document_;
  std::optional<Value> metadata_;
  std::map<PieceKey, StoredPiece> stored_;
  std::map<std::string, std::vector<std::string>> paths_;
  std::map<std::string, std::shared_ptr<MappedFile>> files_;
  std::map<std::string, std::map<uint64_t, uint64_t>> taken_;  // ends by beginnings, by file
  SavedState state_;
};

}  // namespace

bool is_dcp_folder(const fs::path& folder) { return fs::exists(folder / kMetadataFile); }

SavedState read_dcp(const fs::path& folder) { return Folder(folder).read(); }

}  // namespace shardlens::runtime
