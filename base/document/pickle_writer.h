// Writes the opcodes of a pickle (protocol 2) that torch.save's files and DCP's metadata consist
// of, each with its argument. The caller keeps the stack in order.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shardlens {

/// Writes a whole number as bytes, little-endian.
template <class Integer>
std::string little_endian(Integer value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

class PickleWriter {
 public:
  PickleWriter() { text_ = "\x80\x02"; }
  std::string stop() && { return std::move(text_) + "."; }

  PickleWriter& none() { return add("N"); }
  PickleWriter& boolean(bool value) { return add(value ? "\x88" : "\x89"); }
  PickleWriter& number(int64_t value) {
    constexpr int64_t kMostInt = 0x7fffffff;
    if (value >= 0 && value <= kMostInt) {
      return add("J" + little_endian(static_cast<uint32_t>(value)));
    }
    return add(std::string("\x8a\x08") + little_endian(static_cast<uint64_t>(value)));
  }
  PickleWriter& real(double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    std::string bytes = "G";
    for (int i = 7; i >= 0; --i) bytes += static_cast<char>(bits >> (8 * i) & 0xff);
    return add(bytes);
  }
  PickleWriter& text(const std::string& value) {
    return add("X" + little_endian(static_cast<uint32_t>(value.size())) + value);
  }

  PickleWriter& mark() { return add("("); }
  PickleWriter& tuple() { return add("t"); }  // of all since the mark
  PickleWriter& tuple_of_one() { return add("\x85"); }
  PickleWriter& empty_tuple() { return add(")"); }
  PickleWriter& empty_list() { return add("]"); }
  PickleWriter& append_items() { return add("e"); }  // all since the mark
  PickleWriter& empty_dict() { return add("}"); }
  PickleWriter& set_items() { return add("u"); }  // all since the mark
  PickleWriter& numbers(const std::vector<int64_t>& values) {
    mark();
    for (const int64_t value : values) number(value);
    return tuple();
  }

  PickleWriter& global(const std::string& module, const std::string& name) {
    return add("c" + module + "\n" + name + "\n");
  }
  PickleWriter& reduce() { return add("R"); }
  PickleWriter& new_object() { return add("\x81"); }
  PickleWriter& build() { return add("b"); }
  PickleWriter& persistent() { return add("Q"); }

 private:
  PickleWriter& add(const std::string& code) {
    text_ += code;
    return *this;
  }

  std::string text_;
};

}  // namespace shardlens
