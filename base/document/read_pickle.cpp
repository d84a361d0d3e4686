#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/document/read_document.h"
#include "base/limits.h"
#include "base/shown.h"

namespace shardlens {

namespace {

using Index = Document::Index;

constexpr std::string_view kOrderedMap = "collections.OrderedDict";
// The number of marks that may be open at once; PyTorch's snapshots need five.
constexpr size_t kMostMarks = kRecord.depth;

/// An opcode that is known, and refused by its name.
struct RefusedOpcode {
  unsigned char code;
  const char* name;
};
constexpr std::array kRefused = {RefusedOpcode{'R', "REDUCE"},
                                 RefusedOpcode{'b', "BUILD"},
                                 RefusedOpcode{'i', "INST"},
                                 RefusedOpcode{'o', "OBJ"},
                                 RefusedOpcode{0x81, "NEWOBJ"},
                                 RefusedOpcode{0x92, "NEWOBJ_EX"},
                                 RefusedOpcode{'P', "PERSID"},
                                 RefusedOpcode{'Q', "BINPERSID"},
                                 RefusedOpcode{0x82, "EXT1"},
                                 RefusedOpcode{0x83, "EXT2"},
                                 RefusedOpcode{0x84, "EXT4"},
                                 RefusedOpcode{0x8f, "EMPTY_SET"},
                                 RefusedOpcode{0x90, "ADDITEMS"},
                                 RefusedOpcode{0x91, "FROZENSET"},
                                 RefusedOpcode{0x96, "BYTEARRAY8"},
                                 RefusedOpcode{0x97, "NEXT_BUFFER"},
                                 RefusedOpcode{0x98, "READONLY_BUFFER"}};

class PickleReader {
 public:
  PickleReader(std::string_view bytes, std::span<const std::string_view> globals)
      : bytes_(bytes), globals_(globals) {}

  Document read() {
    if (take_byte() != kProto) fail("no pickle of protocol 2 to 5 begins here");
    const unsigned char protocol = take_byte();
    if (protocol < 2 || protocol > 5) fail(fmt::format("protocol {} is outside 2 to 5", protocol));
    do {
      opcode_at_ = at_;
    } while (execute(take_byte()));
    return std::move(document_);
  }

 private:
  static constexpr unsigned char kProto = 0x80;

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument(fmt::format("byte {}: {}", opcode_at_, what));
  }

  // --- bytes ---------------------------------------------------------------------------------

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("the pickle is cut off");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  unsigned char take_byte() { return static_cast<unsigned char>(take(1)[0]); }
  uint64_t take_unsigned(size_t width) {
    const std::string_view bytes = take(width);
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  int64_t take_signed(size_t width) {
    if (width == 0) return 0;
    const unsigned unused_bits = 64 - 8 * static_cast<unsigned>(width);
    return static_cast<int64_t>(take_unsigned(width) << unused_bits) >> unused_bits;
  }
  /// Reads an integer of `width` bytes. PyTorch writes line -1 as 2^64 - 1, in nine bytes of which
  /// the last is 0, so a ninth byte of 0 is allowed.
  int64_t take_long(uint64_t width) {
    if (width <= 8) return take_signed(width);
    const int64_t bits = take_signed(8);
    if (width > 9 || take_byte() != 0) {
      fail(fmt::format("an integer of {} bytes is too large", width));
    }
    return bits;
  }
  double take_real() {
    const std::string_view bytes = take(8);
    uint64_t bits = 0;
    for (const char byte : bytes) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }
  std::string_view take_line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("the pickle is cut off");
    const std::string_view line = take(end - at_);
    take(1);
    return line;
  }

  // --- the stack ------------------------------------------------------------------------------

  bool push(Index index) {
    stack_.push_back(index);
    return true;
  }
  bool push_text(uint64_t size) { return push(document_.add_text(std::string(take(size)))); }

  /// Returns the number of values above the last mark, or of all if no mark is open.
  size_t reach() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Index pop() {
    if (reach() == 0) fail("a value is missing");
    const Index index = stack_.back();
    stack_.pop_back();
    return index;
  }
  Index top() const {
    if (reach() == 0) fail("a value is missing");
    return stack_.back();
  }
  std::vector<Index> pop_last(size_t count) {
    if (reach() < count) fail("a value is missing");
    const std::vector<Index> last(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return last;
  }
  std::vector<Index> pop_to_mark() {
    if (marks_.empty()) fail("a mark is missing");
    std::vector<Index> last = pop_last(reach());
    marks_.pop_back();
    return last;
  }
  bool mark() {
    if (marks_.size() == kMostMarks) fail(fmt::format("more than {} marks are open", kMostMarks));
    marks_.push_back(stack_.size());
    return true;
  }

  // --- containers -----------------------------------------------------------------------------

  bool push_list(std::vector<Index> items) {
    const Index list = document_.add_list();
    document_.items(list) = std::move(items);
    return push(list);
  }
  bool push_map(const std::vector<Index>& items) {
    push(document_.add_map());
    return extend(Document::Type::map, items);
  }
  bool extend(Document::Type type, const std::vector<Index>& items) {
    const Index container = top();
    if (document_.type(container) != type) fail("only a list or a map can be extended");
    if (type == Document::Type::map && items.size() % 2 != 0) fail("a key has no value");
    auto& all = document_.items(container);
    all.insert(all.end(), items.begin(), items.end());
    return true;
  }

  // --- objects --------------------------------------------------------------------------------

  bool push_global(std::string_view opcode, std::string_view module, std::string_view name) {
    std::string global = fmt::format("{}.{}", module, name);
    if (std::ranges::find(globals_, global) == globals_.end()) {
      fail(fmt::format("{} of {:.60}.{:.60} is refused: {}", opcode, module, name,
                       globals_.empty() ? "a snapshot holds plain data only"
                                        : "it is not one of the classes that are read here"));
    }
    return push(document_.add_global(std::move(global)));
  }
  bool push_global_of_lines() {
    const std::string_view module = take_line();
    return push_global("GLOBAL", module, take_line());
  }
  bool push_global_of_texts() {
    const std::vector<Index> names = pop_last(2);
    return push_global("STACK_GLOBAL", Value(document_, names[0]).text(),
                       Value(document_, names[1]).text());
  }
  bool push_object(Index global, Index arguments) {
    const Index object = document_.add_object();
    document_.items(object) = {global, arguments};
    return push(object);
  }
  /// Calls a class or a function with arguments, which makes an object of data.
  bool call() {
    const std::vector<Index> called = pop_last(2);
    if (document_.type(called[0]) != Document::Type::global) fail("only a class can be called");
    if (document_.type(called[1]) != Document::Type::list) fail("the arguments are not a tuple");
    if (document_.text(called[0]) != kOrderedMap) return push_object(called[0], called[1]);
    if (!document_.items(called[1]).empty()) fail("an OrderedDict is made with arguments");
    return push(document_.add_map());
  }
  /// Gives an object its state. Attributes of a map are not kept.
  bool build() {
    const Index state = pop();
    const Index object = top();
    if (document_.type(object) == Document::Type::map) return true;
    if (document_.type(object) != Document::Type::object) fail("only an object can have a state");
    document_.items(object).push_back(state);
    return true;
  }

  // --- the memo -------------------------------------------------------------------------------

  bool memoize(uint64_t number) {
    // Every pickler counts up, so the vector never becomes longer than the pickle.
    if (number > memo_.size()) fail(fmt::format("memo {} is put before {}", number, memo_.size()));
    if (number == memo_.size()) memo_.push_back(top());
    memo_[number] = top();
    return true;
  }
  bool recall(uint64_t number) {
    if (number >= memo_.size()) fail(fmt::format("memo {} was never put", number));
    return push(memo_[number]);
  }

  // --- opcodes ---------------------------------------------------------------------------------

  bool finish() {
    document_.root = pop();
    if (!stack_.empty()) fail("more than one value is left at the end");
    return false;
  }

  [[noreturn]] void refuse(unsigned char opcode) {
    const auto known = std::ranges::find(kRefused, opcode, &RefusedOpcode::code);
    if (known == kRefused.end()) fail(fmt::format("{:#04x} is not a known opcode", opcode));
    std::string name = known->name;
    if (opcode == 'i') {
      const std::string_view module = take_line();
      name += fmt::format(" of {:.60}.{:.60}", module, take_line());
    }
    fail(fmt::format("{} is refused: {}", name,
                     globals_.empty() ? "a snapshot holds plain data only"
                                      : "only plain data and known classes are read here"));
  }

  /// Executes one opcode; returns false if the pickle ends with it.
  bool execute(unsigned char opcode) {
    switch (opcode) {
      case '.':
        return finish();
      case 0x95:  // FRAME: how far to read ahead
        take(8);
        return true;
      case '(':
        return mark();
      case '0':
        pop();
        return true;
      case '1':
        pop_to_mark();
        return true;
      case '2':
        return push(top());
      case 'q':
        return memoize(take_unsigned(1));
      case 'r':
        return memoize(take_unsigned(4));
      case 0x94:
        return memoize(memo_.size());
      case 'h':
        return recall(take_unsigned(1));
      case 'j':
        return recall(take_unsigned(4));
      default:
        return execute_scalar(opcode);
    }
  }

  bool execute_scalar(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        return push(Document::kNone);
      case 0x88:
        return push(Document::kTrue);
      case 0x89:
        return push(Document::kFalse);
      case 'J':
        return push(document_.add_integer(take_signed(4)));
      case 'K':
        return push(document_.add_integer(static_cast<int64_t>(take_unsigned(1))));
      case 'M':
        return push(document_.add_integer(static_cast<int64_t>(take_unsigned(2))));
      case 0x8a:
        return push(document_.add_integer(take_long(take_unsigned(1))));
      case 0x8b:
        return push(document_.add_integer(take_long(take_unsigned(4))));
      case 'G':
        return push(document_.add_real(take_real()));
      case 0x8c:
        return push_text(take_unsigned(1));
      case 'X':
        return push_text(take_unsigned(4));
      case 0x8d:
        return push_text(take_unsigned(8));
      default:
        return execute_container(opcode);
    }
  }

  bool execute_container(unsigned char opcode) {
    switch (opcode) {
      case ']':
      case ')':
        return push_list({});
      case '}':
        return push(document_.add_map());
      case 0x85:
        return push_list(pop_last(1));
      case 0x86:
        return push_list(pop_last(2));
      case 0x87:
        return push_list(pop_last(3));
      case 't':
      case 'l':
        return push_list(pop_to_mark());
      case 'd':
        return push_map(pop_to_mark());
      case 'a':
        return extend(Document::Type::list, pop_last(1));
      case 'e':
        return extend(Document::Type::list, pop_to_mark());
      case 's':
        return extend(Document::Type::map, pop_last(2));
      case 'u':
        return extend(Document::Type::map, pop_to_mark());
      case 'c':
        return push_global_of_lines();
      case 0x93:
        return push_global_of_texts();
      default:
        if (globals_.empty()) refuse(opcode);
        return execute_object(opcode);
    }
  }

  bool execute_object(unsigned char opcode) {
    switch (opcode) {
      case 'R':
      case 0x81:  // NEWOBJ
        return call();
      case 'b':
        return build();
      case 'Q':
        return push_object(Document::kNone, pop());
      default:
        refuse(opcode);
    }
  }

  std::string_view bytes_;
  std::span<const std::string_view> globals_;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  Document document_;
  std::vector<Index> stack_;
  std::vector<size_t> marks_;
  std::vector<Index> memo_;
};

}  // namespace

Document read_pickle(std::string_view bytes, std::span<const std::string_view> globals) {
  return PickleReader(bytes, globals).read();
}

}  // namespace shardlens
