#include "base/document/document_writer.h"

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace shardlens {

namespace {

class PickleWriter : public DocumentWriter {
 public:
  explicit PickleWriter(std::ostream& out) : out_(out) { out_.write("\x80\x02", 2); }

  void begin_map() override { begin('}', 'u', kMapBatch); }
  void key(std::string_view name) override { text(name); }
  void end_map() override { end(); }
  void begin_list() override { begin(']', 'e', kListBatch); }
  void end_list() override { end(); }
  void text(std::string_view value) override {
    item();
    const auto [known, added] =
        memo_.try_emplace(std::string(value), static_cast<uint32_t>(memo_.size()));
    if (!added) return numbered('h', 'j', known->second);
    out_.put('X');
    unsigned_bytes(value.size(), 4);
    out_.write(value.data(), static_cast<std::streamsize>(value.size()));
    numbered('q', 'r', known->second);
  }
  void integer(int64_t value) override {
    item();
    if (value >= 0 && value < 1 << 8) return number('K', value, 1);
    if (value >= 0 && value < 1 << 16) return number('M', value, 2);
    constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (value >= kLeast && value <= kMost) return number('J', value, 4);
    out_.write("\x8a\x08", 2);
    unsigned_bytes(static_cast<uint64_t>(value), 8);
  }
  void boolean(bool value) override {
    item();
    out_.put(static_cast<char>(value ? 0x88 : 0x89));
  }
  void real(double value) override {
    item();
    out_.put('G');
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 56; shift >= 0; shift -= 8) out_.put(static_cast<char>(bits >> shift));
  }
  void finish() override { out_.put('.'); }

 private:
  // PyTorch's viewer passes a batch as the arguments of one call, so batches must be short.
  static constexpr int kListBatch = 1000;
  static constexpr int kMapBatch = 2000;  // keys and values

  struct Container {
    char extend;
    int batch;
    int items;  // since its last mark
  };

  void item() {
    if (open_.empty()) return;
    Container& container = open_.back();
    if (container.items == container.batch) {
      out_.put(container.extend);
      container.items = 0;
    }
    if (container.items++ == 0) out_.put('(');
  }
  void begin(char opcode, char extend, int batch) {
    item();
    out_.put(opcode);
    open_.push_back({extend, batch, 0});
  }
  void end() {
    if (open_.back().items > 0) out_.put(open_.back().extend);
    open_.pop_back();
  }
  void unsigned_bytes(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) out_.put(static_cast<char>(value >> (8 * i)));
  }
  void number(char opcode, int64_t value, int width) {
    out_.put(opcode);
    unsigned_bytes(static_cast<uint64_t>(value), width);
  }
  void numbered(char narrow, char wide, uint32_t value) {
    value < 256 ? number(narrow, value, 1) : number(wide, value, 4);
  }

  std::ostream& out_;
  std::vector<Container> open_;
  std::unordered_map<std::string, uint32_t> memo_;
};

class JsonWriter : public DocumentWriter {
 public:
  explicit JsonWriter(std::ostream& out) : out_(out) {}

  void begin_map() override { begin('{'); }
  void key(std::string_view name) override {
    separate();
    write_text(name);
    out_.put(':');
    after_key_ = true;
  }
  void end_map() override { end('}'); }
  void begin_list() override { begin('['); }
  void end_list() override { end(']'); }
  void text(std::string_view value) override {
    separate();
    write_text(value);
  }
  void integer(int64_t value) override {
    separate();
    out_ << value;
  }
  void boolean(bool value) override {
    separate();
    out_ << (value ? "true" : "false");
  }
  void real(double value) override {
    separate();
    out_ << nlohmann::json(value).dump();
  }
  void finish() override { out_.put('\n'); }

 private:
  void separate() {
    if (after_key_ || first_.empty()) {
      after_key_ = false;
    } else if (first_.back()) {
      first_.back() = false;
    } else {
      out_.put(',');
    }
  }
  void begin(char bracket) {
    separate();
    out_.put(bracket);
    first_.push_back(true);
  }
  void end(char bracket) {
    out_.put(bracket);
    first_.pop_back();
  }
  void write_text(std::string_view value) {
    out_ << nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::ostream& out_;
  std::vector<bool> first_;  // true for each open container that is still empty
  bool after_key_ = false;
};

}  // namespace

std::unique_ptr<DocumentWriter> pickle_writer(std::ostream& out) {
  return std::make_unique<PickleWriter>(out);
}

std::unique_ptr<DocumentWriter> json_writer(std::ostream& out) {
  return std::make_unique<JsonWriter>(out);
}

}  // namespace shardlens
