#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/document/read_document.h"
#include "base/limits.h"

namespace shardlens {

namespace {

using Index = Document::Index;

constexpr size_t kMostDepth = kRecord.depth;

/// Builds the document from what the parser meets. The parser keeps its own stack, so nesting costs
/// no recursion.
class DocumentBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Document take() { return std::move(document_); }

  bool null() override { return put(Document::kNone); }
  bool boolean(bool value) override { return put(value ? Document::kTrue : Document::kFalse); }
  bool number_integer(int64_t value) override { return put(document_.add_integer(value)); }
  bool number_unsigned(uint64_t value) override {
    return put(document_.add_integer(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string&) override {
    return put(document_.add_real(value));
  }
  bool string(std::string& value) override { return put(document_.add_text(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool key(std::string& value) override {
    const auto [known, added] = keys_.try_emplace(value, Document::kNone);
    if (added) known->second = document_.add_text(value);
    document_.items(open_.back()).push_back(known->second);
    return true;
  }
  bool start_object(size_t) override { return open(document_.add_map()); }
  bool start_array(size_t) override { return open(document_.add_list()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    throw std::invalid_argument(fmt::format("byte {}: not JSON", byte));
  }

 private:
  bool put(Index index) {
    if (open_.empty()) {
      document_.root = index;
    } else {
      document_.items(open_.back()).push_back(index);
    }
    return true;
  }
  bool open(Index container) {
    if (open_.size() == kMostDepth) {
      throw std::invalid_argument(fmt::format("it nests more than {} deep", kMostDepth));
    }
    put(container);
    open_.push_back(container);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Document document_;
  std::vector<Index> open_;
  std::map<std::string, Index> keys_;
};

}  // namespace

Document read_json(std::string_view bytes) {
  DocumentBuilder builder;
  nlohmann::json::sax_parse(bytes, &builder);
  return builder.take();
}

}  // namespace shardlens
