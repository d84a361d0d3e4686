#include "profiler/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>

#include "input/input_file.h"
#include "profiler/file/block_index.h"
#include "profiler/file/columns.h"
#include "profiler/file/file.h"
#include "profiler/file/live_set.h"
#include "profiler/file/open_blocks.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kMostReserved = 1 << 26;  // events: whatever a file claims

File open_recording(const std::string& path) {
  input::InputFile file(path);
  if (!file.is_open()) {
    throw std::invalid_argument(
        fmt::format("{}: cannot open this recording: {}", path, file.problem()));
  }
  return File(file.release());
}

}  // namespace

class Reader::Recording {
 public:
  explicit Recording(const std::string& path);

  bool next(std::vector<Event>& events);
  void start_at(int64_t time_ns);
  FileReport report() const;

  Header header;
  std::vector<std::string> strings = {""};
  std::vector<std::string> diagnostics;
  uint64_t lost = 0;
  bool closed = false;
  int64_t stored_events = 0;
  int64_t open_events = 0;

 private:
  /// Events or a snapshot: a sealed block, or one of `open_`.
  struct Part {
    bool is_snapshot = false;
    uint64_t sequence = 0;
    int64_t last_ns = 0;
    std::optional<size_t> sealed;  // of index_.blocks
    size_t open = 0;               // of open_.blocks
  };

  void note(const std::string& what) { diagnostics.push_back(what); }
  void note(const IndexedBlock& block, const std::string& what);
  void take_sealed();
  void take_block(size_t number);
  void take_strings(const Bytes& payload);
  void take_string(uint32_t id, std::string_view text);
  void take_open();
  void note_end();
  bool read(const Part& part, std::vector<Event>& events);
  void decode(const IndexedBlock& block, std::vector<Event>& events);
  void check_labels(const Part& part, std::vector<Event>& events);
  void note_gap(uint64_t sequence);
  void repair(size_t snapshot, std::vector<Event>& events);
  LiveSet live_before(size_t part);
  void give_snapshot(size_t number, std::vector<Event>& events);

  // Read in this order: what is sealed between the two is then found in one of them.
  File file_;
  OpenContents open_;
  BlockIndex index_;
  BlockCodec codec_;
  EventDecoder decoder_;
  Bytes payload_;
  std::vector<Part> parts_;
  size_t position_ = 0;
  uint64_t expected_ = 1;           // the sequence number of the next events
  bool state_lost_ = false;         // until the next snapshot
  bool starts_here_ = false;        // at a snapshot that is to be given as it is
  std::optional<size_t> known_at_;  // the last snapshot that agreed with the events given so far
  uint64_t sequence_of_end_ = 0;    // 0: not closed
  std::set<size_t> noted_;          // sealed blocks that diagnostics name already
};

Reader::Recording::Recording(const std::string& path) : file_(open_recording(path)) {
  Preamble preamble;
  file_.read(0, std::as_writable_bytes(std::span(&preamble, 1)));
  open_ = read_open_blocks(open_blocks_path(path), preamble.id);
  index_ = index_blocks(file_, path);
  diagnostics = index_.faults;
  take_sealed();
  take_open();
  note_end();
}

void Reader::Recording::note(const IndexedBlock& block, const std::string& what) {
  note(fmt::format("offset {}: block of {}, {} entries: {}", block.offset,
                   type_name(block.header.type), block.header.count, what));
}

void Reader::Recording::take_sealed() {
  bool has_later_types = false;
  for (size_t number = 0; number < index_.blocks.size(); ++number) {
    const IndexedBlock& block = index_.blocks[number];
    if (!block.problem.empty()) continue;
    has_later_types |= block.header.type > BlockType::end;
    try {
      take_block(number);
    } catch (const std::exception& error) {
      note(block, error.what());
    }
  }
  if (has_later_types) {
    note(fmt::format("written as format {}.{}: what is newer than {}.{} is left out",
                     index_.preamble.major, index_.preamble.minor, kMajor, kMinor));
  }
}

void Reader::Recording::take_block(size_t number) {
  const IndexedBlock& block = index_.blocks[number];
  const BlockHeader& of = block.header;
  lost = std::max(lost, of.lost);
  switch (of.type) {
    case BlockType::header:
      read_payload(file_, block, codec_, payload_);
      if (!decode_header(payload_, header)) note(block, "it ends inside a field");
      break;
    case BlockType::strings:
      read_payload(file_, block, codec_, payload_);
      take_strings(payload_);
      break;
    case BlockType::events:
    case BlockType::snapshot: {
      const bool is_snapshot = of.type == BlockType::snapshot;
      parts_.push_back({is_snapshot, of.sequence, of.last_ns, number, 0});
      if (!is_snapshot) stored_events += std::min(of.count, kMaxBlockEvents);
      break;
    }
    case BlockType::end:
      closed = true;
      sequence_of_end_ = of.sequence;
      break;
  }
}

void Reader::Recording::take_strings(const Bytes& payload) {
  for (const NumberedString& string : decode_strings(payload)) take_string(string.id, string.text);
}

void Reader::Recording::take_string(uint32_t id, std::string_view text) {
  if (id == 0 || id >= kMaxStrings) return;
  if (id >= strings.size()) strings.resize(id + 1);
  if (strings[id].empty()) strings[id] = text;
}

/// Blocks that are sealed as well are left out.
void Reader::Recording::take_open() {
  if (!open_.found) return;
  std::set<uint64_t> sealed;
  for (const Part& part : parts_) {
    if (!part.is_snapshot) sealed.insert(part.sequence);
  }
  for (const auto& [id, text] : open_.strings) take_string(id, text);
  for (size_t i = 0; i < open_.blocks.size(); ++i) {
    const OpenContents::Block& block = open_.blocks[i];
    if (sealed.contains(block.sequence) || block.events.empty()) continue;
    parts_.push_back({false, block.sequence, block.events.back().time_ns, std::nullopt, i});
    open_events += static_cast<int64_t>(block.events.size());
  }
  stored_events += open_events;
  lost = std::max(lost, open_.lost);
  // A snapshot follows the events that it names.
  std::ranges::stable_sort(
      parts_, {}, [](const Part& part) { return std::pair(part.sequence, part.is_snapshot); });
}

void Reader::Recording::note_end() {
  if (closed) return;
  if (open_.found) {
    note(
        fmt::format("not closed: still being written, or its process was killed; {} events are "
                    "read from the .open file beside it",
                    open_events));
  } else {
    note(fmt::format("not closed, and of its .open file {}: the last events may be missing",
                     open_.problem.empty() ? "there is none" : open_.problem));
  }
}

void Reader::Recording::decode(const IndexedBlock& block, std::vector<Event>& events) {
  read_payload(file_, block, codec_, payload_);
  const int64_t unknown = decoder_.decode(payload_, block.header.count, events);
  if (unknown > 0) {
    note(block, fmt::format("{} events of kinds newer than format {}.{} are left out", unknown,
                            kMajor, kMinor));
  }
}

/// False where the block is damaged, which is noted once.
bool Reader::Recording::read(const Part& part, std::vector<Event>& events) {
  events.clear();
  if (!part.sealed) {
    events = open_.blocks[part.open].events;
    check_labels(part, events);
    return true;
  }
  const IndexedBlock& block = index_.blocks[*part.sealed];
  try {
    decode(block, events);
  } catch (const std::exception& error) {
    if (noted_.insert(*part.sealed).second) note(block, error.what());
    return false;
  }
  check_labels(part, events);
  return true;
}

void Reader::Recording::check_labels(const Part& part, std::vector<Event>& events) {
  int64_t unknown = 0;
  for (Event& event : events) {
    if (event.label < strings.size()) continue;
    event.label = 0;
    ++unknown;
  }
  if (unknown > 0) {
    note(fmt::format("events block {}: {} have labels whose strings are missing", part.sequence,
                     unknown));
  }
}

/// Before the block of events with this number.
void Reader::Recording::note_gap(uint64_t sequence) {
  if (sequence <= expected_) return;
  note(sequence == expected_ + 1
           ? fmt::format("events block {} is missing", expected_)
           : fmt::format("events blocks {} to {} are missing", expected_, sequence - 1));
  state_lost_ = true;
  expected_ = sequence;
}

bool Reader::Recording::next(std::vector<Event>& events) {
  while (position_ < parts_.size()) {
    const size_t number = position_++;
    const Part& part = parts_[number];
    if (part.is_snapshot) {
      give_snapshot(number, events);
    } else {
      note_gap(part.sequence);
      expected_ = part.sequence + 1;
      if (!read(part, events)) state_lost_ = true;
    }
    if (!events.empty()) return true;
  }
  note_gap(sequence_of_end_);
  events.clear();
  return false;
}

void Reader::Recording::give_snapshot(size_t number, std::vector<Event>& events) {
  events.clear();
  const Part& part = parts_[number];
  if (starts_here_) {
    starts_here_ = false;
    known_at_ = number;
    read(part, events);
    return;
  }
  note_gap(part.sequence + 1);
  if (state_lost_) repair(number, events);
  if (!state_lost_) known_at_ = number;
}

/// What whoever took all events up to this part believes to be live.
LiveSet Reader::Recording::live_before(size_t part) {
  LiveSet live;
  std::vector<Event> events;
  for (size_t number = known_at_.value_or(0); number < part; ++number) {
    const bool counts = !parts_[number].is_snapshot || number == known_at_;
    if (!counts || !read(parts_[number], events)) continue;
    for (const Event& event : events) live.apply(event);
  }
  return live;
}

void Reader::Recording::repair(size_t snapshot, std::vector<Event>& events) {
  const Part& part = parts_[snapshot];
  std::vector<Event> truth;
  if (!read(part, truth)) return;
  LiveSet target;
  for (const Event& event : truth) target.apply(event);
  events = live_before(snapshot).path_to(target, part.last_ns);
  state_lost_ = false;
  note(fmt::format("the memory that is live is known again from {} ms on: {} events put in",
                   part.last_ns / 1'000'000, events.size()));
}

void Reader::Recording::start_at(int64_t time_ns) {
  position_ = 0;
  expected_ = 1;
  state_lost_ = starts_here_ = false;
  known_at_.reset();
  for (size_t number = 0; number < parts_.size(); ++number) {
    const Part& part = parts_[number];
    if (!part.is_snapshot || part.last_ns > time_ns) continue;
    position_ = number;
    expected_ = part.sequence + 1;
    starts_here_ = true;
  }
}

FileReport Reader::Recording::report() const {
  FileReport report{.major = index_.preamble.major,
                    .minor = index_.preamble.minor,
                    .bytes = index_.file_bytes,
                    .open_events = open_events,
                    .lost_events = static_cast<int64_t>(lost),
                    .closed = closed,
                    .blocks = {},
                    .problems = diagnostics};
  for (const IndexedBlock& block : index_.blocks) {
    const BlockHeader& of = block.header;
    report.blocks.push_back({.offset = block.offset,
                             .type = type_name(of.type),
                             .sequence = of.sequence,
                             .bytes = sizeof of + of.stored_bytes,
                             .raw_bytes = of.raw_bytes,
                             .count = of.count,
                             .first_ns = of.first_ns,
                             .last_ns = of.last_ns,
                             .problem = block.problem});
  }
  return report;
}

Reader::Reader(const std::string& path) : recording_(std::make_unique<Recording>(path)) {}
Reader::~Reader() = default;

const Header& Reader::header() const { return recording_->header; }
const std::vector<std::string>& Reader::strings() const { return recording_->strings; }
int64_t Reader::lost_events() const { return static_cast<int64_t>(recording_->lost); }
int64_t Reader::stored_events() const { return recording_->stored_events; }
bool Reader::is_closed() const { return recording_->closed; }
const std::vector<std::string>& Reader::diagnostics() const { return recording_->diagnostics; }
bool Reader::next(std::vector<Event>& events) { return recording_->next(events); }
void Reader::start_at(int64_t time_ns) { recording_->start_at(time_ns); }

Profile read_profile(const std::string& path) {
  Reader reader(path);
  Profile profile;
  profile.header = reader.header();
  profile.strings = reader.strings();
  profile.events.reserve(static_cast<size_t>(std::min(reader.stored_events(), kMostReserved)));
  std::vector<Event> block;
  while (reader.next(block)) {
    profile.events.insert(profile.events.end(), block.begin(), block.end());
  }
  profile.lost_events = reader.lost_events();
  profile.diagnostics = reader.diagnostics();
  return profile;
}

FileReport check_profile(const std::string& path) {
  Reader reader(path);
  int64_t events = 0;
  std::vector<Event> block;
  while (reader.next(block)) events += static_cast<int64_t>(block.size());
  FileReport report = reader.recording_->report();
  report.events = events;
  return report;
}

}  // namespace shardlens::profiler
