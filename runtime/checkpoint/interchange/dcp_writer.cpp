#include "runtime/checkpoint/interchange/dcp_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/document/pickle_writer.h"
#include "base/durable_files.h"
#include "models/weights/torch_file.h"
#include "runtime/checkpoint/interchange/dcp_classes.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

using models::SafetensorsTensor;

constexpr const char* kDataFile = "__0_0.distcp";

/// Says where a piece is in a tensor and in the file; for a value, only in the file.
struct Piece {
  std::vector<int64_t> begin;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;
  int64_t bytes = 0;
};

struct Entry {
  std::vector<std::string> path;
  std::vector<int64_t> shape;
  bool is_tensor = true;
  std::vector<Piece> pieces;

  std::string name() const { return fmt::format("{}", fmt::join(path, ".")); }
};

/// Writes the data file, and tracks how much has been written.
class DataFile {
 public:
  explicit DataFile(const fs::path& path) : path_(path), out_(path, std::ios::binary) {}

  /// Calls `write`, and returns the piece that `write` has written.
  Piece add(const std::function<void(std::ostream&)>& write) {
    const auto begin = static_cast<int64_t>(out_.tellp());
    write(out_);
    return {.begin = {},
            .shape = {},
            .offset_bytes = begin,
            .bytes = static_cast<int64_t>(out_.tellp()) - begin};
  }
  void finish() {
    out_.close();
    if (!out_) throw std::runtime_error(fmt::format("{}: cannot be written", path_.string()));
    SharedFile(path_).sync();
  }

 private:
  fs::path path_;
  std::ofstream out_;
};

SafetensorsTensor rows_of(const SafetensorsTensor& tensor, int64_t begin, int64_t rows) {
  SafetensorsTensor part = tensor;
  part.shape[0] = rows;
  const size_t row_bytes = tensor.data.size() / static_cast<size_t>(tensor.shape[0]);
  part.data = tensor.data.subspan(static_cast<size_t>(begin) * row_bytes,
                                  static_cast<size_t>(rows) * row_bytes);
  return part;
}

Entry add_tensor(DataFile& file, const DcpTensor& saved, int64_t most_piece_bytes) {
  const SafetensorsTensor& tensor = saved.tensor;
  Entry entry{.path = saved.path, .shape = tensor.shape, .is_tensor = true, .pieces = {}};
  const auto add = [&](const SafetensorsTensor& part, int64_t row) {
    Piece piece = file.add([&](std::ostream& out) { models::write_torch_tensor(out, part); });
    piece.begin.assign(part.shape.size(), 0);
    if (!piece.begin.empty()) piece.begin[0] = row;
    piece.shape = part.shape;
    entry.pieces.push_back(std::move(piece));
  };
  const auto bytes = static_cast<int64_t>(tensor.data.size());
  if (tensor.shape.empty() || bytes <= most_piece_bytes) {
    add(tensor, 0);
    return entry;
  }
  const int64_t all = tensor.shape[0];
  const int64_t rows = std::max<int64_t>(1, most_piece_bytes / (bytes / all));
  for (int64_t row = 0; row < all; row += rows) {
    add(rows_of(tensor, row, std::min(rows, all - row)), row);
  }
  return entry;
}

Entry add_value(DataFile& file, const DcpValue& value) {
  return {.path = value.path,
          .shape = {},
          .is_tensor = false,
          .pieces = {
              file.add([&](std::ostream& out) { models::write_torch_value(out, value.pickle); })}};
}

// --- metadata ----------------------------------------------------------------------------------

PickleWriter& global(PickleWriter& pickle, std::string_view name) {
  const size_t dot = name.rfind('.');
  return pickle.global(std::string(name.substr(0, dot)), std::string(name.substr(dot + 1)));
}

/// Begins an object whose constructor takes no arguments; its attributes follow.
PickleWriter& begin_object(PickleWriter& pickle, std::string_view name) {
  return global(pickle, name).empty_tuple().new_object();
}

PickleWriter& size(PickleWriter& pickle, const std::vector<int64_t>& sizes) {
  return global(pickle, dcp::kSize).numbers(sizes).tuple_of_one().reduce();
}

/// Writes the properties of fp32 tensors: dtype, layout, requires_grad, memory format, pinned.
void add_properties(PickleWriter& pickle) {
  begin_object(pickle, dcp::kProperties).mark();
  global(pickle, dcp::kFloat32);
  global(pickle, dcp::kLayout).text("torch.strided").tuple_of_one().reduce();
  pickle.boolean(false);
  global(pickle, dcp::kMemoryFormat).number(0).tuple_of_one().reduce();
  pickle.boolean(false).tuple().build();
}

void describe(PickleWriter& pickle, const Entry& entry) {
  pickle.text(entry.name());
  if (!entry.is_tensor) {
    begin_object(pickle, dcp::kBytes).empty_dict().build();
    return;
  }
  begin_object(pickle, dcp::kTensor).empty_dict().mark();
  pickle.text("properties");
  add_properties(pickle);
  size(pickle.text("size"), entry.shape);
  pickle.text("chunks").empty_list().mark();
  for (const Piece& piece : entry.pieces) {
    begin_object(pickle, dcp::kChunk).empty_dict().mark();
    size(pickle.text("offsets"), piece.begin);
    size(pickle.text("sizes"), piece.shape);
    pickle.set_items().build();
  }
  pickle.append_items().set_items().build();
}

void add_path(PickleWriter& pickle, const Entry& entry) {
  pickle.text(entry.name()).mark();
  for (const std::string& key : entry.path) {
    is_list_index(key) ? pickle.number(std::stoll(key)) : pickle.text(key);
  }
  pickle.tuple();
}

void locate(PickleWriter& pickle, const Entry& entry) {
  for (size_t i = 0; i < entry.pieces.size(); ++i) {
    const Piece& piece = entry.pieces[i];
    begin_object(pickle, dcp::kIndex).empty_dict().mark();
    pickle.text("fqn").text(entry.name()).text("offset");
    entry.is_tensor ? size(pickle, piece.begin) : pickle.none();
    pickle.text("index");
    entry.is_tensor ? pickle.number(static_cast<int64_t>(i)) : pickle.none();
    pickle.set_items().build();
    begin_object(pickle, dcp::kStorageInfo).empty_dict().mark();
    pickle.text("relative_path").text(kDataFile);
    pickle.text("offset").number(piece.offset_bytes);
    pickle.text("length").number(piece.bytes);
    pickle.set_items().build();
  }
}

std::string metadata_of(const std::vector<Entry>& entries) {
  PickleWriter pickle;
  begin_object(pickle, dcp::kMetadata).empty_dict().mark();
  const auto add = [&](const char* name, void (*describe_entry)(PickleWriter&, const Entry&)) {
    pickle.text(name).empty_dict().mark();
    for (const Entry& entry : entries) describe_entry(pickle, entry);
    pickle.set_items();
  };
  add("state_dict_metadata", describe);
  add("planner_data", add_path);
  add("storage_data", locate);
  pickle.text("storage_meta").none().text("version").text("1.0.0");
  pickle.set_items().build();
  return std::move(pickle).stop();
}

}  // namespace

bool is_list_index(const std::string& key) {
  return !key.empty() && key.find_first_not_of("0123456789") == std::string::npos;
}

void write_dcp(const fs::path& folder, const std::vector<DcpTensor>& tensors,
               const std::vector<DcpValue>& values, int64_t most_piece_bytes) {
  if (fs::exists(folder)) {
    throw std::invalid_argument(
        fmt::format("{}: already exists; give a new folder", folder.string()));
  }
  const fs::path target = fs::absolute(folder).lexically_normal();
  const fs::path unfinished =
      target.parent_path() / fmt::format(".tmp-{}", target.filename().string());
  fs::remove_all(unfinished);
  make_folders(unfinished);
  DataFile file(unfinished / kDataFile);
  std::vector<Entry> entries;
  for (const DcpTensor& tensor : tensors) {
    entries.push_back(add_tensor(file, tensor, most_piece_bytes));
  }
  for (const DcpValue& value : values) entries.push_back(add_value(file, value));
  file.finish();
  write_file(unfinished / ".metadata", metadata_of(entries));
  rename_durably(unfinished, target);
}

}  // namespace shardlens::runtime
