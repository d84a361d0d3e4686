#include "profiler/file/sealer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/check.h"

namespace shardlens::profiler {

namespace {

// The number of events between snapshots for each live allocation, which costs five to ten bytes in
// a snapshot: so snapshots stay below half a byte an event, and damage hides the live set for no
// longer than this many events.
constexpr uint64_t kEventsPerLive = 16;

}  // namespace

Sealer::Sealer(const std::string& path, uint64_t id, const Header& header)
    : path_(path), file_(File::create(path)) {
  const Bytes fields = encode_header(header);
  if (fields.size() > kMaxBlockBytes) {
    throw std::invalid_argument(
        fmt::format("{}: the recording's header has {} bytes, but at most {} are possible", path,
                    fields.size(), kMaxBlockBytes));
  }
  Preamble preamble{.id = id};
  preamble.crc = crc_of(preamble);
  write(bytes_of(preamble));
  append({.type = BlockType::header, .count = 1}, fields);
}

void Sealer::write(ByteSpan bytes) {
  if (!file_.write(size_, bytes)) {
    const int error = errno;
    // Half a block is useless. If this fails, too, readers skip it.
    if (::ftruncate(file_.descriptor(), static_cast<off_t>(size_)) != 0) errno = error;
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(error)));
  }
  size_ += bytes.size();
}

void Sealer::append(const BlockHeader& header, ByteSpan payload) {
  check(header.type >= BlockType::header && header.type <= BlockType::work,
        "recording: a block of a type that no reader knows");
  check(header.first_ns <= header.last_ns, "recording: a block ends before it begins");
  write(codec_.pack(header, payload));
}

void Sealer::seal_strings(std::span<const std::byte> entries) {
  const std::vector<NumberedString> strings = decode_strings(entries);
  size_t whole_bytes = 0;
  for (const NumberedString& string : strings) whole_bytes += kStringHeadBytes + string.text.size();
  check(whole_bytes == entries.size(), "recording: a sealed string is cut off");
  append({.type = BlockType::strings, .count = static_cast<uint32_t>(strings.size())}, entries);
}

void Sealer::seal_events(uint64_t sequence, uint64_t lost, std::span<const Event> events) {
  // Readers note a fault if a number is skipped, and refuse a block with more events.
  check(sequence == last_sequence_ + 1, "recording: a block of events is sealed out of turn");
  check(!events.empty() && events.size() <= kMaxBlockEvents,
        "recording: a block without events, or with too many");
  check(lost >= last_lost_, "recording: the number of lost events has fallen");
  last_lost_ = lost;
  const auto [first, last] = std::ranges::minmax(events, {}, &Event::time_ns);
  append({.type = BlockType::events,
          .sequence = sequence,
          .first_ns = first.time_ns,
          .last_ns = last.time_ns,
          .count = static_cast<uint32_t>(events.size()),
          .lost = lost},
         encoder_.encode(events));
  last_sequence_ = sequence;
  for (const Event& event : events) live_.apply(event);
  events_since_snapshot_ += events.size();
  const bool is_due = events_since_snapshot_ >= kEventsPerLive * live_.size();
  if (is_due && live_.size() + 2 <= kMaxBlockEvents) seal_snapshot(sequence, last.time_ns);
}

void Sealer::seal_snapshot(uint64_t sequence, int64_t time_ns) {
  const std::vector<Event> events = live_.snapshot();
  check(sequence == last_sequence_, "recording: a snapshot does not follow its events");
  check(events.size() >= live_.size() && events.size() <= kMaxBlockEvents,
        "recording: a snapshot leaves allocations out, or has too many");
  append({.type = BlockType::snapshot,
          .sequence = sequence,
          .first_ns = time_ns,
          .last_ns = time_ns,
          .count = static_cast<uint32_t>(events.size())},
         encoder_.encode(events));
  events_since_snapshot_ = 0;
}

void Sealer::seal_work(const WorkBlock& block) {
  check(block.count > 0, "recording: a block of work without items");
  append({.type = BlockType::work,
          .sequence = ++work_sequence_,
          .first_ns = block.first_ns,
          .last_ns = block.last_ns,
          .count = block.count},
         block.payload);
}

void Sealer::seal_end(uint64_t events, uint64_t lost) {
  check(lost >= last_lost_, "recording: the number of lost events has fallen");
  check(events >= last_sequence_, "recording: more blocks are sealed than there were events");
  Bytes payload;
  put(payload, events);
  append({.type = BlockType::end, .sequence = last_sequence_ + 1, .count = 1, .lost = lost},
         payload);
  if (::fdatasync(file_.descriptor()) != 0) {
    throw std::runtime_error(fmt::format("cannot sync {}: {}", path_, std::strerror(errno)));
  }
}

}  // namespace shardlens::profiler
