// Numbers, texts, lists and maps of a pickle or a JSON file, in one arena. Values are indices: a
// value that the file mentions twice is stored once, so no file is larger in memory than a small
// multiple of its bytes, and no function here is recursive, however deep a file nests.
//
// A pickle's objects are data, too: the name of a class, the arguments that it was called with, and
// the state that was given to it. The reader of the document decides what they mean.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/limits.h"

namespace shardlens {

class Document {
 public:
  using Index = uint32_t;
  enum class Type : uint8_t { none, boolean, integer, real, text, list, map, global, object };

  static constexpr Index kNone = 0;
  static constexpr Index kFalse = 1;
  static constexpr Index kTrue = 2;

  Index root = kNone;

  Index add_integer(int64_t value) { return add(Type::integer, value); }
  Index add_real(double value) { return add(Type::real, std::bit_cast<int64_t>(value)); }
  Index add_text(std::string text) {
    texts_.push_back(std::move(text));
    return add(Type::text, static_cast<int64_t>(texts_.size() - 1));
  }
  /// Adds a class or function by its name, such as "torch.Size".
  Index add_global(std::string name) {
    texts_.push_back(std::move(name));
    return add(Type::global, static_cast<int64_t>(texts_.size() - 1));
  }
  Index add_list() { return add_container(Type::list); }
  Index add_map() { return add_container(Type::map); }
  Index add_object() { return add_container(Type::object); }

  Type type(Index index) const { return nodes_[index].type; }
  int64_t integer(Index index) const { return nodes_[index].number; }
  double real(Index index) const { return std::bit_cast<double>(nodes_[index].number); }
  const std::string& text(Index index) const { return texts_[place(index)]; }
  /// Returns the items of a list, the keys and values of a map in turn, or of an object its class
  /// (none: a persistent id), its arguments, and its state if it was given one.
  const std::vector<Index>& items(Index index) const { return containers_[place(index)]; }
  std::vector<Index>& items(Index index) { return containers_[place(index)]; }

  /// Returns the value of a key in a map, the last of equal ones, or nothing if the map has no such
  /// key. A large map is indexed when it is first asked, and no item may be added to it afterwards.
  std::optional<Index> find(Index map, std::string_view key) const {
    const auto& items = containers_[place(map)];
    if (items.size() / 2 > kMostSearched) return find_indexed(map, items, key);
    for (size_t i = items.size() / 2; i-- > 0;) {
      if (is_text(items[2 * i], key)) return items[2 * i + 1];
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kMostSearched = 32;  // larger maps are indexed, not searched
  using KeyIndex = std::map<std::string_view, Index>;

  bool is_text(Index index, std::string_view text) const {
    return type(index) == Type::text && this->text(index) == text;
  }
  std::optional<Index> find_indexed(Index map, const std::vector<Index>& items,
                                    std::string_view key) const {
    const auto [known, added] = indexes_.try_emplace(map);
    for (size_t i = 0; added && i + 1 < items.size(); i += 2) {
      if (type(items[i]) == Type::text) known->second[text(items[i])] = items[i + 1];
    }
    const auto found = known->second.find(key);
    return found == known->second.end() ? std::nullopt : std::optional(found->second);
  }

  struct Node {
    Type type{};
    int64_t number = 0;  // the value, the bits of a double, or an index
  };

  size_t place(Index index) const { return static_cast<size_t>(nodes_[index].number); }
  Index add(Type type, int64_t number) {
    if (nodes_.size() >= kRecord.values) throw std::invalid_argument("it has too many values");
    nodes_.push_back({type, number});
    return static_cast<Index>(nodes_.size() - 1);
  }
  Index add_container(Type type) {
    containers_.emplace_back();
    return add(type, static_cast<int64_t>(containers_.size() - 1));
  }

  std::vector<Node> nodes_ = {{}, {Type::boolean, 0}, {Type::boolean, 1}};
  std::deque<std::string> texts_;
  std::deque<std::vector<Index>> containers_;
  mutable std::unordered_map<Index, KeyIndex> indexes_;
};

/// One value of a document, read as the type that the caller expects; a value of any other type
/// counts as absent.
class Value {
 public:
  Value(const Document& document, Document::Index index) : document_(&document), index_(index) {}
  explicit Value(const Document& document) : Value(document, document.root) {}

  bool is(Document::Type type) const { return document_->type(index_) == type; }

  /// Returns the value of the key, or none if this is not a map or has no such key. The last of
  /// equal keys counts.
  Value operator[](std::string_view key) const {
    if (!is(Document::Type::map)) return {*document_, Document::kNone};
    return {*document_, document_->find(index_, key).value_or(Document::kNone)};
  }

  /// Returns the last part of an object that is an instance of the class, or the result of a call
  /// to the class: its state, else its arguments. Returns none for any other value.
  Value instance_of(std::string_view global) const {
    if (!is(Document::Type::object)) return {*document_, Document::kNone};
    const auto& items = document_->items(index_);
    const bool is_it =
        document_->type(items[0]) == Document::Type::global && document_->text(items[0]) == global;
    return {*document_, is_it ? items.back() : Document::kNone};
  }
  /// Returns the value that a persistent id was made of; none if this is another value.
  Value persistent_id() const {
    if (!is(Document::Type::object)) return {*document_, Document::kNone};
    const auto& items = document_->items(index_);
    return {*document_, items[0] == Document::kNone ? items[1] : Document::kNone};
  }
  /// Returns the name of a class or function; empty if this is neither.
  std::string_view global() const {
    return is(Document::Type::global) ? std::string_view(document_->text(index_)) : "";
  }

  size_t size() const { return is(Document::Type::list) ? document_->items(index_).size() : 0; }
  Value at(size_t i) const { return {*document_, document_->items(index_)[i]}; }

  int64_t integer(int64_t otherwise = 0) const {
    return is(Document::Type::integer) ? document_->integer(index_) : otherwise;
  }
  double real(double otherwise = 0) const {
    if (is(Document::Type::integer)) return static_cast<double>(document_->integer(index_));
    return is(Document::Type::real) ? document_->real(index_) : otherwise;
  }
  bool boolean() const { return index_ == Document::kTrue; }
  std::string_view text() const {
    return is(Document::Type::text) ? std::string_view(document_->text(index_)) : "";
  }
  /// Returns the keys and values of a map in turn; nothing if this is not a map.
  std::span<const Document::Index> entries() const {
    if (!is(Document::Type::map)) return {};
    return document_->items(index_);
  }
  Document::Index index() const { return index_; }
  const Document& document() const { return *document_; }

 private:
  const Document* document_;
  Document::Index index_;
};

}  // namespace shardlens
