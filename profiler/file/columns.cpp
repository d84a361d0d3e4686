#include "profiler/file/columns.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/hashed.h"
#include "profiler/file/varint.h"

namespace shardlens::profiler {

namespace {

enum Column { classes, class_of, time, reference, address, value, action, label };
constexpr size_t kColumns = 8;
constexpr size_t kMaxVarintBytes = 10;
constexpr size_t kClassBytes = 6;  // kind, space, category, 0, stream

// The slots of address predictions. Addresses of one slot are close to each other: each space has
// one, and so has each kind of event without a space. Kinds that a later minor adds share the last
// slot.
constexpr size_t kSlots = 16;
constexpr size_t kLaterSlot = kSlots - 1;

// The numbers of kinds and counters in version 1.0. Later ones are written in the way that
// FORMAT.md promises to a reader of 1.0, which skips them.
constexpr size_t kFirstKinds = 9;
constexpr size_t kFirstCounters = 4;
static_assert(kSpaces + kFirstKinds <= kLaterSlot);
static_assert(kFirstKinds <= kEventKinds, "kinds are added, never taken away");
static_assert(sizeof(EventKind) == 1 && sizeof(Space) == 1 && sizeof(Category) == 1 &&
                  sizeof(Event::stream) == 2,
              "a class of events has room for each of its parts");

struct Lengths {
  uint32_t columns = kColumns;
  std::array<uint32_t, kColumns> bytes{};
  std::array<uint8_t, kSlots> shifts{};  // of a slot's address deltas
};
static_assert(sizeof(Lengths) == 4 + 4 * kColumns + kSlots &&
                  std::has_unique_object_representations_v<Lengths>,
              "padding would be written with undefined bytes");

bool refers(EventKind kind) { return kind == EventKind::free || kind == EventKind::recategorise; }
bool has_block(EventKind kind) { return kind == EventKind::alloc || refers(kind); }

/// True if the value of an event is predicted by the last one of its kind.
bool is_predicted(EventKind kind) {
  return !has_block(kind) && static_cast<size_t>(kind) < kFirstKinds;
}

size_t slot_of(EventKind kind, Space space) {
  if (has_block(kind)) return static_cast<size_t>(space);
  const auto number = static_cast<size_t>(kind);
  return number < kFirstKinds ? kSpaces + number : kLaterSlot;
}

/// The predictions that one event makes for the next; encoder and decoder make the same ones.
struct Predictions {
  uint64_t time = 0;
  uint64_t action = static_cast<uint64_t>(-1);
  std::array<uint64_t, kSlots> address{};
  std::array<uint64_t, kEventKinds> value{};
  std::array<uint64_t, kFirstCounters> counter{};

  /// Returns the predicted value of an event that refers to no allocation of its block.
  uint64_t& value_of(EventKind kind, uint64_t address_of_event) {
    if (kind == EventKind::counter && address_of_event < kFirstCounters) {
      return counter[address_of_event];
    }
    return value[static_cast<size_t>(kind)];
  }
};

/// Finds the block's allocation at an address. A slot stays with the address that took it first,
/// since steps use the same addresses again and again.
class AddressTable {
 public:
  struct Slot {
    uint64_t address = 0;
    uint32_t ordinal = 0;  // from 1; 0: none is alive there
    uint16_t epoch = 0;    // if it is another block's, the slot is empty
    Space space{};
  };

  void clear(size_t events) {
    const size_t wanted = std::bit_ceil(std::max<size_t>(2 * events, 64));
    if (slots_.size() < wanted || epoch_ == UINT16_MAX) {
      slots_.assign(std::max(wanted, slots_.size()), {});
      epoch_ = 0;
    }
    ++epoch_;
  }

  Slot& at(uint64_t address, Space space) {
    const size_t mask = slots_.size() - 1;
    const uint64_t key = address ^ (static_cast<uint64_t>(space) << 60);
    for (size_t i = hashed(key) >> 24;; ++i) {
      Slot& slot = slots_[i & mask];
      if (slot.epoch != epoch_) return slot = {address, 0, epoch_, space};
      if (slot.address == address && slot.space == space) return slot;
    }
  }

 private:
  std::vector<Slot> slots_;
  uint16_t epoch_ = 0;
};

/// The bytes of a column under construction, with room for all its values.
class ColumnWriter {
 public:
  void start(size_t values) {
    if (bytes_.size() < values * kMaxVarintBytes) bytes_.resize(values * kMaxVarintBytes);
    used_ = 0;
  }

  void put_varint(uint64_t number) {
    while (number >= 0x80) {
      bytes_[used_++] = static_cast<std::byte>(number | 0x80);
      number >>= 7;
    }
    bytes_[used_++] = static_cast<std::byte>(number);
  }

  /// Returns the column without the zeros at its end, since a reader takes missing bytes as zeros.
  ByteSpan trimmed() {
    check(used_ <= bytes_.size(), "columns: more values than there is room for");
    while (used_ > 0 && bytes_[used_ - 1] == std::byte{0}) --used_;
    return ByteSpan(bytes_).first(used_);
  }

 private:
  Bytes bytes_;
  size_t used_ = 0;
};

class ColumnReader {
 public:
  ColumnReader() = default;
  explicit ColumnReader(ByteSpan bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  uint64_t varint() {
    if (at_ == end_) return 0;
    const auto byte = static_cast<uint64_t>(*at_++);
    return byte < 0x80 ? byte : long_varint(byte & 0x7F);
  }

 private:
  uint64_t long_varint(uint64_t number) {
    for (int shift = 7; at_ != end_ && shift < 64; shift += 7) {
      const auto byte = static_cast<uint64_t>(*at_++);
      number |= (byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return number;
  }

  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
};

uint64_t class_key(const Event& event) {
  return static_cast<uint64_t>(event.kind) | static_cast<uint64_t>(event.space) << 8 |
         static_cast<uint64_t>(event.category) << 16 | static_cast<uint64_t>(event.stream) << 32;
}

/// A class of events as a block stores it.
struct EventClass {
  Event start;  // with kind, space, category and stream set
  bool refers = false;
  bool allocates = false;
  uint8_t slot = 0;
  bool known = true;
};

EventClass decode_class(ByteReader& reader) {
  const auto kind = reader.take<uint8_t>();
  const auto space = reader.take<uint8_t>();
  const auto category = reader.take<uint8_t>();
  reader.take<uint8_t>();
  EventClass decoded;
  decoded.start.stream = reader.take<uint16_t>();
  decoded.known = kind < kEventKinds && space < kSpaces;
  decoded.slot = kLaterSlot;
  if (kind < kEventKinds) {
    decoded.start.kind = static_cast<EventKind>(kind);
    decoded.refers = refers(decoded.start.kind);
    decoded.allocates = decoded.start.kind == EventKind::alloc;
  }
  if (category < kCategories) decoded.start.category = static_cast<Category>(category);
  if (!decoded.known) return decoded;
  decoded.start.space = static_cast<Space>(space);
  decoded.slot = static_cast<uint8_t>(slot_of(decoded.start.kind, decoded.start.space));
  return decoded;
}

}  // namespace

struct EventEncoder::State {
  AddressTable table;
  std::vector<const Event*> allocations;
  std::array<ColumnWriter, kColumns> columns;
  std::unordered_map<uint64_t, uint64_t> class_numbers;
  uint64_t last_class_key = 0;
  uint64_t last_class = 0;
  std::vector<uint64_t> class_keys;
  Predictions predicted;
  Lengths lengths;
  Bytes result;

  void start(std::span<const Event> events);
  uint64_t class_number(const Event& event);
  void put(Column column, uint64_t number) { columns[column].put_varint(number); }
  const Event* put_reference(const Event& event);
  void put_event(const Event& event);
  void put_classes();
  void join();
};

void EventEncoder::State::start(std::span<const Event> events) {
  table.clear(events.size());
  allocations.clear();
  for (ColumnWriter& column : columns) column.start(events.size());
  class_numbers.clear();
  class_keys.clear();
  last_class_key = ~uint64_t{0};
  predicted = {};
  lengths = {};
  std::array<uint64_t, kSlots> bits{};
  for (const Event& event : events) bits[slot_of(event.kind, event.space)] |= event.address;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const int zeros = std::countr_zero(bits[slot]);
    lengths.shifts[slot] = static_cast<uint8_t>(zeros == 64 ? 0 : zeros);
  }
}

uint64_t EventEncoder::State::class_number(const Event& event) {
  const uint64_t key = class_key(event);
  if (key == last_class_key) return last_class;
  const auto [found, added] = class_numbers.emplace(key, class_keys.size());
  if (added) class_keys.push_back(key);
  last_class_key = key;
  return last_class = found->second;
}

/// Writes how many allocations ago the event's block was allocated; 0 if that was before this block
/// of events, so that the caller writes the address. Returns the allocation, or null.
const Event* EventEncoder::State::put_reference(const Event& event) {
  AddressTable::Slot& slot = table.at(event.address, event.space);
  if (slot.ordinal == 0) {
    put(reference, 0);
    return nullptr;
  }
  put(reference, allocations.size() - slot.ordinal + 1);
  const Event* allocation = allocations[slot.ordinal - 1];
  if (event.kind == EventKind::free) slot.ordinal = 0;
  return allocation;
}

void EventEncoder::State::put_event(const Event& event) {
  const auto difference_from = [](uint64_t& last, uint64_t now) {
    return zigzag(now - std::exchange(last, now));
  };
  put(class_of, class_number(event));
  put(time, difference_from(predicted.time, static_cast<uint64_t>(event.time_ns)));
  const Event* allocation = refers(event.kind) ? put_reference(event) : nullptr;
  const auto bytes = static_cast<uint64_t>(event.value);
  if (allocation != nullptr) {
    put(value, zigzag(bytes - static_cast<uint64_t>(allocation->value)));
  } else {
    const size_t slot = slot_of(event.kind, event.space);
    const uint64_t shifted = event.address >> lengths.shifts[slot];
    put(address, difference_from(predicted.address[slot], shifted));
    uint64_t& last = predicted.value_of(event.kind, event.address);
    put(value, zigzag(bytes - last));
    if (is_predicted(event.kind)) last = bytes;
  }
  const auto action_bits = static_cast<uint64_t>(static_cast<int64_t>(event.action));
  put(action, difference_from(predicted.action, action_bits));
  put(label, zigzag(uint64_t{event.label} - (allocation != nullptr ? allocation->label : 0)));
  if (event.kind != EventKind::alloc) return;
  allocations.push_back(&event);
  table.at(event.address, event.space).ordinal = static_cast<uint32_t>(allocations.size());
}

void EventEncoder::State::put_classes() {
  for (const uint64_t key : class_keys) {
    profiler::put(result, static_cast<uint32_t>(key));
    profiler::put(result, static_cast<uint16_t>(key >> 32));
  }
}

void EventEncoder::State::join() {
  check(class_keys.size() == class_numbers.size(), "columns: a class of events has two numbers");
  result.clear();
  lengths.bytes[classes] = static_cast<uint32_t>(class_keys.size() * kClassBytes);
  std::array<ByteSpan, kColumns> trimmed;
  for (size_t column = class_of; column < kColumns; ++column) {
    trimmed[column] = columns[column].trimmed();
    lengths.bytes[column] = static_cast<uint32_t>(trimmed[column].size());
  }
  profiler::put(result, lengths);
  put_classes();
  for (const ByteSpan column : trimmed) result.insert(result.end(), column.begin(), column.end());
  size_t promised_bytes = sizeof lengths;
  for (const uint32_t bytes : lengths.bytes) promised_bytes += bytes;
  check(result.size() == promised_bytes, "columns: they are not as long as they claim");
}

EventEncoder::EventEncoder() : state_(std::make_unique<State>()) {}
EventEncoder::~EventEncoder() = default;

const Bytes& EventEncoder::encode(std::span<const Event> events) {
  check(events.size() <= kMaxBlockEvents, "columns: more events than a reader takes at once");
  state_->start(events);
  for (const Event& event : events) state_->put_event(event);
  state_->join();
  return state_->result;
}

namespace {

/// The columns of a block, cut apart.
struct Columns {
  Lengths lengths;
  std::vector<EventClass> classes;
  bool has_unknown = false;
  std::array<ColumnReader, kColumns> readers;
};

Columns split(ByteSpan bytes) {
  Columns columns;
  ByteReader reader{bytes};
  const auto count = reader.take<uint32_t>();
  if (count < kColumns || count > bytes.size() / sizeof(uint32_t)) {
    throw std::runtime_error("its columns are not those of this version");
  }
  for (uint32_t i = 0; i < count; ++i) {  // a newer minor may have more
    const auto length = reader.take<uint32_t>();
    if (i < kColumns) columns.lengths.bytes[i] = length;
  }
  columns.lengths.shifts = reader.take<std::array<uint8_t, kSlots>>();
  std::array<ByteSpan, kColumns> parts;
  for (size_t i = 0; i < kColumns; ++i) {
    const std::string_view part = reader.take_text(columns.lengths.bytes[i]);
    parts[i] = std::as_bytes(std::span(part));
    columns.readers[i] = ColumnReader(parts[i]);
  }
  if (reader.failed) throw std::runtime_error("its columns are longer than the block");
  for (const uint8_t shift : columns.lengths.shifts) {
    if (shift > 63) throw std::runtime_error("an address is shifted by more than 63 bits");
  }
  ByteReader entries{parts[classes]};
  while (entries.rest.size() >= kClassBytes) columns.classes.push_back(decode_class(entries));
  columns.has_unknown = !std::ranges::all_of(columns.classes, &EventClass::known);
  return columns;
}

/// Marks an event that this version does not know, until it is removed.
constexpr auto kUnknownKind = static_cast<EventKind>(255);
static_assert(kEventKinds <= 255, "the mark is not a kind of event");

class RowDecoder {
 public:
  RowDecoder(Columns columns, std::vector<uint32_t>& allocations, std::vector<Event>& events)
      : columns_(std::move(columns)), allocations_(allocations), events_(events) {}

  void decode() {
    const uint64_t number = take(class_of);
    if (number >= columns_.classes.size()) throw std::runtime_error("an event has no class");
    const EventClass& its_class = columns_.classes[number];
    Event& event = events_.emplace_back(its_class.start);  // there is room: nothing moves
    predicted_.time += unzigzag(take(time));
    event.time_ns = static_cast<int64_t>(predicted_.time);
    const uint64_t back = its_class.refers ? take(reference) : 0;
    const Event* allocation = back > 0 ? &allocation_at(back) : nullptr;
    if (allocation != nullptr) {
      event.address = allocation->address;
      event.value =
          static_cast<int64_t>(static_cast<uint64_t>(allocation->value) + unzigzag(take(value)));
    } else {
      take_address_and_value(its_class, event);
    }
    predicted_.action += unzigzag(take(action));
    event.action = static_cast<int32_t>(predicted_.action);
    event.label = static_cast<uint32_t>(unzigzag(take(label)) +
                                        (allocation != nullptr ? allocation->label : 0));
    if (!its_class.known) event.kind = kUnknownKind;
    if (its_class.allocates) allocations_.push_back(static_cast<uint32_t>(events_.size() - 1));
  }

 private:
  uint64_t take(Column column) { return columns_.readers[column].varint(); }

  const Event& allocation_at(uint64_t back) const {
    if (back > allocations_.size()) {
      throw std::runtime_error("an event refers to an allocation that does not exist");
    }
    return events_[allocations_[allocations_.size() - back]];
  }

  void take_address_and_value(const EventClass& its_class, Event& event) {
    uint64_t& last_address = predicted_.address[its_class.slot];
    last_address += unzigzag(take(address));
    event.address = last_address << columns_.lengths.shifts[its_class.slot];
    uint64_t& last = predicted_.value_of(event.kind, event.address);
    const uint64_t bytes = last + unzigzag(take(value));
    event.value = static_cast<int64_t>(bytes);
    if (is_predicted(event.kind)) last = bytes;
  }

  Columns columns_;
  Predictions predicted_;
  std::vector<uint32_t>& allocations_;
  std::vector<Event>& events_;
};

}  // namespace

int64_t EventDecoder::decode(ByteSpan bytes, uint32_t count, std::vector<Event>& events) {
  if (count > kMaxBlockEvents) throw std::runtime_error("it claims more events than fit a block");
  Columns columns = split(bytes);
  const bool has_unknown = columns.has_unknown;
  const size_t first = events.size();
  allocations_.clear();
  events.reserve(first + count);
  try {
    RowDecoder rows(std::move(columns), allocations_, events);
    for (uint32_t i = 0; i < count; ++i) rows.decode();
  } catch (...) {
    events.resize(first);
    throw;
  }
  check(events.size() == first + count, "columns: an event is decoded twice, or left out");
  if (!has_unknown) return 0;
  const auto known_end =
      std::remove_if(events.begin() + static_cast<ptrdiff_t>(first), events.end(),
                     [](const Event& e) { return e.kind == kUnknownKind; });
  const int64_t unknown = events.end() - known_end;
  events.erase(known_end, events.end());
  return unknown;
}

}  // namespace shardlens::profiler
