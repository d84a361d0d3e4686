#include "runtime/checkpoint/interchange/torch_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/document/read_document.h"
#include "base/limits.h"
#include "runtime/checkpoint/interchange/allowance.h"

namespace shardlens::runtime {

namespace {

using Bytes = std::span<const std::byte>;

struct StorageClass {
  std::string_view name;
  std::string_view dtype;
  int64_t element_bytes;
};

constexpr std::array kStorages = {
    StorageClass{"torch.FloatStorage", "F32", 4}, StorageClass{"torch.DoubleStorage", "F64", 8},
    StorageClass{"torch.HalfStorage", "F16", 2},  StorageClass{"torch.BFloat16Storage", "BF16", 2},
    StorageClass{"torch.LongStorage", "I64", 8},  StorageClass{"torch.IntStorage", "I32", 4},
    StorageClass{"torch.ShortStorage", "I16", 2}, StorageClass{"torch.CharStorage", "I8", 1},
    StorageClass{"torch.ByteStorage", "U8", 1},   StorageClass{"torch.BoolStorage", "BOOL", 1},
};

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kOrderedMap = "collections.OrderedDict";

/// Returns all names that a torch.save pickle may ask for.
std::vector<std::string_view> known_globals() {
  std::vector<std::string_view> names = {kRebuildTensor, kRebuildParameter, kOrderedMap,
                                         "torch.Size"};
  for (const StorageClass& storage : kStorages) names.push_back(storage.name);
  return names;
}

std::string_view text_in(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<int64_t> sizes_in(Value list) {
  if (list.size() > kMostDimensions) {
    throw_damaged(fmt::format("a tensor has more than {} dimensions", kMostDimensions));
  }
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < list.size(); ++i) {
    sizes.push_back(list.at(i).integer(-1));
    if (sizes.back() < 0) throw_damaged("a tensor has a negative size or stride");
  }
  return sizes;
}

/// Describes how a tensor is laid out in its storage, in elements.
struct StridedLayout {
  int64_t offset = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

/// Returns the number of elements, or nothing if 64 bits cannot hold it.
std::optional<int64_t> numel_of(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(numel, size, &numel)) return std::nullopt;
  }
  return numel;
}

/// True if the whole tensor fits in a storage of `storage_numel` elements, and no two of its
/// elements share a place.
bool lies_in(const StridedLayout& tensor, int64_t storage_numel) {
  const std::optional<int64_t> numel = numel_of(tensor.shape);
  if (!numel || *numel > storage_numel || tensor.shape.size() != tensor.strides.size()) {
    return false;
  }
  if (*numel == 0) return true;
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return false;
    }
  }
  return tensor.offset >= 0 && last < storage_numel;
}

bool is_row_major(const StridedLayout& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

/// Returns a copy, in row-major order, of a tensor that is stored in another order.
std::shared_ptr<std::vector<std::byte>> row_major_copy(const StridedLayout& tensor, Bytes storage,
                                                       int64_t element_bytes) {
  const int64_t numel = *numel_of(tensor.shape);
  auto copy = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(numel * element_bytes));
  std::vector<int64_t> index(tensor.shape.size(), 0);
  int64_t from = tensor.offset;
  for (int64_t to = 0; to < numel; ++to) {
    std::memcpy(copy->data() + to * element_bytes, storage.data() + from * element_bytes,
                static_cast<size_t>(element_bytes));
    // This never steps beyond the last element: the stride of a dimension of size 1 may be any
    // number.
    for (size_t i = index.size(); i-- > 0;) {
      if (index[i] + 1 < tensor.shape[i]) {
        ++index[i];
        from += tensor.strides[i];
        break;
      }
      from -= tensor.strides[i] * index[i];
      index[i] = 0;
    }
  }
  return copy;
}

/// Walks through nested dicts, down to a depth that no real state has.
class Walk {
 public:
  Walk(SavedState& state, const TorchArchive& archive)
      : state_(state), archive_(archive), names_(archive.pickle_bytes()), data_(archive.bytes()) {}

  void visit(Value value) {
    if (value.is(Document::Type::integer) || value.is(Document::Type::real)) {
      state_.numbers.push_back({path_, value.real()});
    } else if (auto found = archive_.tensor(value)) {
      add(std::move(*found));
    } else {
      visit_entries(value.document(), value.entries());
    }
  }

 private:
  static constexpr size_t kMostDepth = 8;

  void add(ArchiveTensor found) {
    data_.spend(found.tensor.pieces.front().data.size());
    found.tensor.path = path_;
    state_.tensors.push_back(std::move(found.tensor));
    if (found.memory) state_.memory.push_back(std::move(found.memory));
  }

  void visit_entries(const Document& document, std::span<const Document::Index> entries) {
    if (path_.size() == kMostDepth)
      throw_damaged(fmt::format("its dicts are over {} deep", kMostDepth));
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      if (document.type(entries[i]) != Document::Type::text) continue;
      path_.push_back(document.text(entries[i]));
      // Each element of the path may be copied and kept.
      for (const std::string& key : path_) names_.spend_text(key);
      visit({document, entries[i + 1]});
      path_.pop_back();
    }
  }

  SavedState& state_;
  const TorchArchive& archive_;
  std::vector<std::string> path_;
  Allowance names_;
  Allowance data_;
};

}  // namespace

TorchArchive::TorchArchive(Bytes bytes) : bytes_(bytes.size()), entries_(read_zip(bytes)) {
  const auto pickle = entries_.find("data.pkl");
  if (pickle == entries_.end()) throw_damaged("it has no data.pkl, so torch.save did not write it");
  const auto order = entries_.find("byteorder");
  if (order != entries_.end() && text_in(order->second) != "little") {
    throw_damaged("its numbers are not little-endian");
  }
  pickle_bytes_ = pickle->second.size();
  static const std::vector<std::string_view> kGlobals = known_globals();
  try {
    document_ = read_pickle(text_in(pickle->second), kGlobals);
  } catch (const std::invalid_argument& error) {
    throw_damaged(fmt::format("its pickle: {}", error.what()));
  }
}

TorchArchive::Storage TorchArchive::storage(Value id) const {
  const Value parts = id.persistent_id();
  if (parts.size() != 5 || parts.at(0).text() != "storage")
    throw_damaged("a tensor has no storage");
  const auto known = std::ranges::find(kStorages, parts.at(1).global(), &StorageClass::name);
  if (known == kStorages.end()) throw_damaged("a tensor has a storage of an unknown type");
  const auto data = entries_.find(fmt::format("data/{}", parts.at(2).text()));
  if (data == entries_.end()) throw_damaged("a tensor's storage is missing");
  return {std::string(known->dtype), known->element_bytes, data->second};
}

std::optional<ArchiveTensor> TorchArchive::tensor(Value value) const {
  const Value parameter = value.instance_of(kRebuildParameter);
  const Value parts = (parameter.size() > 0 ? parameter.at(0) : value).instance_of(kRebuildTensor);
  if (parts.size() < 4) return std::nullopt;
  const Storage storage = this->storage(parts.at(0));
  const StridedLayout strided{.offset = parts.at(1).integer(-1),
                              .shape = sizes_in(parts.at(2)),
                              .strides = sizes_in(parts.at(3))};
  const auto numel = static_cast<int64_t>(storage.data.size()) / storage.element_bytes;
  if (!lies_in(strided, numel)) throw_damaged("a tensor does not fit into its storage");
  ArchiveTensor found{
      .tensor = {.path = {}, .dtype = storage.dtype, .shape = strided.shape, .pieces = {}},
      .memory = nullptr};
  Bytes data;
  if (*numel_of(strided.shape) > 0 && is_row_major(strided)) {
    data =
        storage.data.subspan(static_cast<size_t>(strided.offset * storage.element_bytes),
                             static_cast<size_t>(*numel_of(strided.shape) * storage.element_bytes));
  } else if (*numel_of(strided.shape) > 0) {
    auto copy = row_major_copy(strided, storage.data, storage.element_bytes);
    data = *copy;
    found.memory = std::move(copy);
  }
  found.tensor.pieces = {{std::vector<int64_t>(strided.shape.size(), 0), strided.shape, data}};
  return found;
}

void add_archive(SavedState& state, const TorchArchive& archive) {
  Walk(state, archive).visit(archive.root());
}

}  // namespace shardlens::runtime
