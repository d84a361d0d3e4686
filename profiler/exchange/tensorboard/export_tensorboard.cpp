#include "profiler/exchange/tensorboard/export_tensorboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/checksum/crc32c.h"

namespace shardlens::profiler {

namespace {

// Numbers of fields in TensorBoard's event.proto and summary.proto.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;
constexpr int kValue = 1;                  // of a summary
constexpr int kTag = 1, kSimpleValue = 2;  // of a value

template <class Number>
void append_number(std::string& bytes, Number number) {
  for (size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> (8 * i));
}

/// A message of protocol buffers that is being written.
class Message {
 public:
  /// Adds a number; one that is missing is 0.
  void add_varint(int field, uint64_t value) {
    if (value == 0) return;
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
  }
  void add_double(int field, double value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    append_number(bytes_, std::bit_cast<uint64_t>(value));
  }
  void add_float(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    append_number(bytes_, std::bit_cast<uint32_t>(value));
  }
  void add_bytes(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

/// Returns the checksum as records have it, since a checksum of a text with checksums is weak.
uint32_t masked_checksum(std::string_view bytes) {
  const uint32_t checksum = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(checksum, 15) + 0xa282'ead8U;
}

void write_record(const std::string& bytes, std::ostream& out) {
  std::string head;
  append_number(head, static_cast<uint64_t>(bytes.size()));
  append_number(head, masked_checksum(head));
  std::string tail;
  append_number(tail, masked_checksum(bytes));
  out << head << bytes << tail;
}

std::string event_at(int64_t time_ns, int64_t step, int field, const std::string& content) {
  Message event;
  event.add_double(kWallTime, static_cast<double>(time_ns) / 1e9);
  event.add_varint(kStep, static_cast<uint64_t>(step));
  event.add_bytes(field, content);
  return event.bytes();
}

void add_scalar(Message& summary, std::string_view name, int64_t bytes) {
  constexpr double kMiB = 1 << 20;
  Message value;
  value.add_bytes(kTag, fmt::format("peak MiB/{}", name));
  value.add_float(kSimpleValue, static_cast<float>(static_cast<double>(bytes) / kMiB));
  summary.add_bytes(kValue, value.bytes());
}

CategoryBytes most_of(std::span<const StepMemory> steps) {
  CategoryBytes most{};
  for (const StepMemory& step : steps) {
    for (size_t i = 0; i < kCategories; ++i) most[i] = std::max(most[i], step.categories[i]);
  }
  return most;
}

}  // namespace

std::string tensorboard_file(const Header& header) {
  constexpr int64_t kSecond = 1'000'000'000;
  return fmt::format("events.out.tfevents.{:010}.shardlens", header.start_realtime_ns / kSecond);
}

void export_tensorboard(const Header& header, std::span<const StepMemory> steps,
                        std::ostream& out) {
  const CategoryBytes most = most_of(steps);
  write_record(event_at(header.start_realtime_ns, 0, kFileVersion, "brain.Event:2"), out);
  for (const StepMemory& step : steps) {
    Message summary;
    add_scalar(summary, "allocated", step.bytes);
    if (step.reserved_bytes) add_scalar(summary, "reserved", *step.reserved_bytes);
    for (size_t i = 0; i < kCategories; ++i) {
      const auto category = static_cast<Category>(i);
      if (most[i] == 0) continue;
      add_scalar(summary, category_name(category, has_shards(header)), step.categories[i]);
    }
    const int64_t time_ns = header.start_realtime_ns + step.time_ns;
    write_record(event_at(time_ns, step.step, kSummary, summary.bytes()), out);
  }
}

}  // namespace shardlens::profiler
