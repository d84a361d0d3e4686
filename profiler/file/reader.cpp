#include "profiler/file/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>

#include "profiler/file/block_index.h"
#include "profiler/file/columns.h"
#include "profiler/file/file.h"
#include "profiler/file/live_set.h"
#include "profiler/file/open_blocks.h"
#include "profiler/file/work_layer.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kMostReserved = 1 << 26;  // events, however many a file claims

/// True if the time is small enough that sums of times, and of a time and the recording's start, do
/// not overflow.
bool is_time(int64_t time_ns) { return -kMaxTime_ns <= time_ns && time_ns <= kMaxTime_ns; }

}  // namespace

class Reader::Recording {
 public:
  explicit Recording(const std::string& path);

  bool next(std::vector<Event>& events);
  void start_at(int64_t time_ns);
  FileReport report() const;

  Judgement judgement() const;

  Header header;
  std::vector<std::string> strings = {""};
  Stacks stacks;
  bool closed = false;
  bool has_work = false;
  int64_t stored_events = 0;
  int64_t open_events = 0;

 private:
  /// A block of events or a snapshot: a sealed block, or one of `open_`.
  struct Part {
    bool is_snapshot = false;
    uint64_t sequence = 0;
    int64_t last_ns = 0;
    std::optional<size_t> sealed;  // of index_.blocks
    size_t open = 0;               // of open_.blocks
  };

  /// Adds a fault once, since the same events may be read several times.
  void note(const std::string& what) {
    if (known_faults_.insert(what).second) faults_.push_back(what);
  }
  void note(const IndexedBlock& block, const std::string& what);
  void note_newer(const std::string& what);
  void take_sealed();
  void take_block(size_t number);
  void take_strings(const Bytes& payload);
  void take_string(uint32_t id, std::string_view text);
  void take_frame(uint32_t number, std::string_view bytes);
  void take_stack(uint32_t label, std::string_view bytes);
  void drop_broken_stacks();
  void take_open();
  void note_ends();
  bool has_events(uint64_t sequence) const;
  bool read(const Part& part, std::vector<Event>& events);
  bool take_events(const Part& part, std::vector<Event>& events);
  void decode(const IndexedBlock& block, std::vector<Event>& events);
  void check_labels(const Part& part, std::vector<Event>& events);
  void note_gap(uint64_t sequence);
  void miss_events();
  void drop_unsure(size_t part, std::vector<Event>& events);
  void give_events(size_t number, std::vector<Event>& events);
  void repair(size_t snapshot, std::vector<Event>& events);
  LiveSet live_before(size_t part);
  LiveSet next_snapshot(size_t part);
  void give_snapshot(size_t number, std::vector<Event>& events);

  // These are read in this order, so that a block sealed between the two reads is found in one of
  // them.
  File file_;
  OpenContents open_;
  BlockIndex index_;
  BlockCodec codec_;
  EventDecoder decoder_;
  Bytes payload_;
  std::vector<Part> parts_;
  size_t position_ = 0;
  uint64_t expected_ = 1;        // the sequence number of the next block of events
  bool state_lost_ = false;      // true until the next snapshot
  std::optional<LiveSet> sure_;  // while the state is lost: what is live for certain
  bool sure_stale_ = false;      // true if more is missing than `sure_` has taken into account
  bool may_lack_end_ = false;
  bool starts_here_ = false;        // true at a snapshot that is to be given as it is
  std::optional<size_t> known_at_;  // the last snapshot that agreed with the events given so far
  uint64_t sequence_of_end_ = 0;    // of the end block; 0: not closed
  int64_t last_ns_ = 0;             // of the events given so far
  std::set<size_t> noted_;          // sealed blocks that faults name already
  std::vector<std::string> faults_;
  std::set<std::string> known_faults_;
  int64_t missing_from_ns_ = -1;
  uint64_t lost_ = 0;
  size_t newer_faults_ = 0;  // how many of the faults are not damage
};

Reader::Recording::Recording(const std::string& path) : file_(open_recording(path)) {
  Preamble preamble;
  file_.read(0, std::as_writable_bytes(std::span(&preamble, 1)));
  open_ = read_open_blocks(open_blocks_path(path), preamble.id);
  index_ = index_blocks(file_, path);
  for (const std::string& fault : index_.faults) note(fault);
  take_sealed();
  take_open();
  drop_broken_stacks();
  note_ends();
}

Judgement Reader::Recording::judgement() const {
  Judgement judgement{.lost_events = static_cast<int64_t>(lost_),
                      .missing_from_ns = missing_from_ns_,
                      .faults = faults_};
  if (!closed) {
    judgement.state = open_.has_writer ? RecordingState::growing : RecordingState::killed;
  }
  if (newer_faults_ > 0) judgement.state = RecordingState::newer;
  if (faults_.size() > newer_faults_) judgement.state = RecordingState::damaged;
  return judgement;
}

void Reader::Recording::note(const IndexedBlock& block, const std::string& what) {
  note(fmt::format("offset {}: block of {}, {} entries: {}", block.offset,
                   type_name(block.header.type), block.header.count, what));
}

void Reader::Recording::note_newer(const std::string& what) {
  const size_t before = faults_.size();
  note(what);
  newer_faults_ += faults_.size() - before;
}

void Reader::Recording::take_sealed() {
  bool has_later_types = false;
  bool has_header = false;
  for (size_t number = 0; number < index_.blocks.size(); ++number) {
    const IndexedBlock& block = index_.blocks[number];
    if (block.problem) continue;
    has_later_types |= block.header.type > BlockType::work;
    has_header |= block.header.type == BlockType::header;
    try {
      take_block(number);
    } catch (const std::exception& error) {
      note(block, error.what());
    }
  }
  if (!has_header) note("its header is missing: rank, device and configuration are unknown");
  if (has_later_types) {
    note_newer(fmt::format("written in format {}.{}: what is newer than {}.{} is left out",
                           index_.preamble.major, index_.preamble.minor, kMajor, kMinor));
  }
}

void Reader::Recording::take_block(size_t number) {
  const IndexedBlock& block = index_.blocks[number];
  const BlockHeader& of = block.header;
  lost_ = std::max(lost_, of.lost);
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
      const int64_t last_ns = std::clamp(of.last_ns, -kMaxTime_ns, kMaxTime_ns);
      parts_.push_back({is_snapshot, of.sequence, last_ns, number, 0});
      if (!is_snapshot) stored_events += std::min(of.count, kMaxBlockEvents);
      break;
    }
    case BlockType::end:
      closed = true;
      sequence_of_end_ = of.sequence;
      break;
    case BlockType::work:
      has_work = true;  // read_work() reads it
      break;
  }
}

void Reader::Recording::take_strings(const Bytes& payload) {
  for (const NumberedString& string : decode_strings(payload)) take_string(string.id, string.text);
}

void Reader::Recording::take_string(uint32_t id, std::string_view text) {
  if ((id & kFrameEntry) != 0) return take_frame(id & ~kFrameEntry, text);
  if ((id & kStackEntry) != 0) return take_stack(id & ~kStackEntry, text);
  if (id == 0 || id >= kMaxStrings) return;
  if (id >= strings.size()) strings.resize(id + 1);
  if (strings[id].empty()) strings[id] = text;
}

void Reader::Recording::take_frame(uint32_t number, std::string_view bytes) {
  StackFrame frame;
  if (number == 0 || number >= kMaxFrames || bytes.size() != sizeof frame) return;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (number >= stacks.frames.size()) stacks.frames.resize(number + 1);
  if (stacks.frames[number] == StackFrame{}) stacks.frames[number] = frame;
}

void Reader::Recording::take_stack(uint32_t label, std::string_view bytes) {
  uint32_t innermost = 0;
  if (label == 0 || label >= kMaxStrings || bytes.size() != sizeof innermost) return;
  std::memcpy(&innermost, bytes.data(), sizeof innermost);
  if (label >= stacks.of_label.size()) stacks.of_label.resize(label + 1);
  if (stacks.of_label[label] == 0) stacks.of_label[label] = innermost;
}

/// Removes the stacks that lack frames, or whose frames do not lead outwards.
void Reader::Recording::drop_broken_stacks() {
  std::vector<StackFrame>& frames = stacks.frames;
  const auto is_there = [&](uint32_t id) { return id < strings.size() && !strings[id].empty(); };
  std::vector<bool> is_whole(frames.size());
  for (uint32_t i = 1; i < frames.size(); ++i) {
    const StackFrame& frame = frames[i];
    const bool leads_out = frame.caller < i && (frame.caller == 0 || is_whole[frame.caller]);
    const bool has_file = frame.file == 0 || is_there(frame.file);
    is_whole[i] = leads_out && has_file && is_there(frame.function);
    if (!is_whole[i]) frames[i] = {};
  }
  int64_t broken = 0;
  for (uint32_t& innermost : stacks.of_label) {
    if (innermost == 0 || (innermost < frames.size() && is_whole[innermost])) continue;
    innermost = 0;
    ++broken;
  }
  if (broken > 0) note(fmt::format("{} labels have stacks whose frames are missing", broken));
}

/// Adds the open blocks that are not also sealed.
void Reader::Recording::take_open() {
  if (!open_.found) return;
  std::set<uint64_t> sealed;
  for (const Part& part : parts_) {
    if (!part.is_snapshot) sealed.insert(part.sequence);
  }
  for (const auto& [id, text] : open_.strings) take_string(id, text);
  for (size_t i = 0; i < open_.blocks.size(); ++i) {
    const OpenContents::Block& block = open_.blocks[i];
    if (sealed.contains(block.sequence)) continue;
    const int64_t last_ns = block.events.empty() ? 0 : block.events.back().time_ns;
    parts_.push_back({false, block.sequence, last_ns, std::nullopt, i});
    open_events += static_cast<int64_t>(block.events.size());
  }
  stored_events += open_events;
  for (const std::string& fault : open_.faults) note(fault);
  may_lack_end_ = !open_.faults.empty();
  lost_ = std::max(lost_, open_.lost);
  // A snapshot follows the events that it names.
  std::ranges::stable_sort(
      parts_, {}, [](const Part& part) { return std::pair(part.sequence, part.is_snapshot); });
}

bool Reader::Recording::has_events(uint64_t sequence) const {
  return std::ranges::any_of(
      parts_, [&](const Part& part) { return !part.is_snapshot && part.sequence == sequence; });
}

/// Notes what the end of the file lacks. While the file is being written, it may end in half a
/// block, whose events are in the .open file until it is whole.
void Reader::Recording::note_ends() {
  const bool has_open = !closed && open_.found;
  if (index_.torn_tail) {
    const IndexedBlock* last = index_.blocks.empty() ? nullptr : &index_.blocks.back();
    const bool misses_events = last != nullptr && last->problem &&
                               last->header.type == BlockType::events &&
                               !has_events(last->header.sequence);
    if (!has_open || misses_events) note(*index_.torn_tail);
  }
  if (closed || open_.found) return;
  note(fmt::format("not closed, and its .open file is useless ({}): the last events may be missing",
                   open_.problem.value_or("it is missing")));
  may_lack_end_ = true;
}

void Reader::Recording::decode(const IndexedBlock& block, std::vector<Event>& events) {
  read_payload(file_, block, codec_, payload_);
  const int64_t unknown = decoder_.decode(payload_, block.header.count, events);
  if (unknown > 0) {
    note_newer(fmt::format("offset {}: {} events of kinds newer than format {}.{} are left out",
                           block.offset, unknown, kMajor, kMinor));
  }
}

/// Reads a part's events; returns false if the block is damaged, which is noted once.
bool Reader::Recording::read(const Part& part, std::vector<Event>& events) {
  events.clear();
  if (!take_events(part, events)) return false;
  if (!std::ranges::all_of(events, is_time, &Event::time_ns)) {
    note(fmt::format("events block {}: an event is more than 73 years away", part.sequence));
    events.clear();
    return false;
  }
  check_labels(part, events);
  return true;
}

bool Reader::Recording::take_events(const Part& part, std::vector<Event>& events) {
  if (!part.sealed) {
    events = open_.blocks[part.open].events;
    return true;
  }
  const IndexedBlock& block = index_.blocks[*part.sealed];
  try {
    decode(block, events);
    return true;
  } catch (const std::exception& error) {
    if (noted_.insert(*part.sealed).second) note(block, error.what());
    return false;
  }
}

void Reader::Recording::check_labels(const Part& part, std::vector<Event>& events) {
  int64_t unknown = 0;
  for (Event& event : events) {
    const bool is_there =
        event.label == 0 || (event.label < strings.size() && !strings[event.label].empty());
    if (is_there) continue;
    event.label = 0;
    ++unknown;
  }
  if (unknown > 0) {
    note(fmt::format("events block {}: {} have labels whose strings are missing", part.sequence,
                     unknown));
  }
}

/// Notes the blocks that are missing before the block of events with this number.
void Reader::Recording::note_gap(uint64_t sequence) {
  if (sequence <= expected_) return;
  note(sequence == expected_ + 1
           ? fmt::format("events block {} is missing", expected_)
           : fmt::format("events blocks {} to {} are missing", expected_, sequence - 1));
  miss_events();
  expected_ = sequence;
}

/// Notes that events are missing right after those that were given last.
void Reader::Recording::miss_events() {
  state_lost_ = true;
  sure_stale_ = true;
  if (missing_from_ns_ < 0) missing_from_ns_ = last_ns_;
}

bool Reader::Recording::next(std::vector<Event>& events) {
  events.clear();
  while (events.empty() && position_ < parts_.size()) {
    const size_t number = position_;
    const Part& part = parts_[number];
    if (!part.is_snapshot) note_gap(part.sequence);
    if (!part.is_snapshot && sure_stale_) {
      drop_unsure(number, events);
      continue;  // with this part, unless there are events to give first
    }
    ++position_;
    if (part.is_snapshot) {
      give_snapshot(number, events);
    } else {
      give_events(number, events);
    }
  }
  if (!events.empty()) {
    last_ns_ = std::max(last_ns_, events.back().time_ns);
    return true;
  }
  note_gap(std::max(sequence_of_end_, open_.newest + 1));
  if (may_lack_end_) miss_events();
  return false;
}

void Reader::Recording::give_events(size_t number, std::vector<Event>& events) {
  const Part& part = parts_[number];
  expected_ = part.sequence + 1;
  if (!read(part, events)) return miss_events();
  if (sure_) {
    for (const Event& event : events) sure_->apply(event);
  }
  const bool is_cut_short = !part.sealed && !open_.blocks[part.open].is_whole;
  if (!is_cut_short) return;
  if (!events.empty()) last_ns_ = std::max(last_ns_, events.back().time_ns);
  miss_events();
}

void Reader::Recording::give_snapshot(size_t number, std::vector<Event>& events) {
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

/// Returns the allocations that a caller who took all events up to this part believes to be live.
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

/// Returns the first readable snapshot from this part on, or an empty set if there is none.
LiveSet Reader::Recording::next_snapshot(size_t part) {
  LiveSet live;
  std::vector<Event> events;
  for (size_t number = part; number < parts_.size(); ++number) {
    if (!parts_[number].is_snapshot || !read(parts_[number], events)) continue;
    for (const Event& event : events) live.apply(event);
    break;
  }
  return live;
}

/// Replaces `events` by frees of all allocations that the events missing before a part may have
/// freed.
void Reader::Recording::drop_unsure(size_t part, std::vector<Event>& events) {
  const LiveSet live = sure_ ? *sure_ : live_before(part);
  sure_ = live.common_with(next_snapshot(part));
  sure_stale_ = false;
  events = live.path_to(*sure_, last_ns_);
}

void Reader::Recording::repair(size_t snapshot, std::vector<Event>& events) {
  const Part& part = parts_[snapshot];
  std::vector<Event> truth;
  if (!read(part, truth)) return;
  LiveSet target;
  for (const Event& event : truth) target.apply(event);
  events = (sure_ ? *sure_ : live_before(snapshot)).path_to(target, part.last_ns);
  state_lost_ = sure_stale_ = false;
  sure_.reset();
  note(fmt::format("live memory is known again from {} ms on: {} events were inserted",
                   part.last_ns / 1'000'000, events.size()));
}

void Reader::Recording::start_at(int64_t time_ns) {
  position_ = 0;
  expected_ = 1;
  state_lost_ = sure_stale_ = starts_here_ = false;
  sure_.reset();
  known_at_.reset();
  last_ns_ = 0;
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
                    .lost_events = static_cast<int64_t>(lost_),
                    .closed = closed,
                    .blocks = {},
                    .problems = faults_};
  if (!closed) report.problems.push_back(judgement_text(judgement()));
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
const Stacks& Reader::stacks() const { return recording_->stacks; }
bool Reader::has_work() const { return recording_->has_work; }
int64_t Reader::stored_events() const { return recording_->stored_events; }
Judgement Reader::judgement() const { return recording_->judgement(); }
bool Reader::next(std::vector<Event>& events) { return recording_->next(events); }
void Reader::start_at(int64_t time_ns) { recording_->start_at(time_ns); }

Profile read_profile(const std::string& path) {
  Reader reader(path);
  Profile profile;
  profile.header = reader.header();
  profile.strings = reader.strings();
  profile.stacks = reader.stacks();
  profile.events.reserve(static_cast<size_t>(std::min(reader.stored_events(), kMostReserved)));
  std::vector<Event> block;
  while (reader.next(block)) {
    profile.events.insert(profile.events.end(), block.begin(), block.end());
  }
  profile.judgement = reader.judgement();
  return profile;
}

FileReport check_profile(const std::string& path) {
  Reader reader(path);
  int64_t events = 0;
  std::vector<Event> block;
  while (reader.next(block)) events += static_cast<int64_t>(block.size());
  FileReport report = reader.recording_->report();
  report.events = events;
  if (!reader.has_work()) return report;
  const std::vector<std::string> of_work = read_work(path).faults;
  report.problems.insert(report.problems.end(), of_work.begin(), of_work.end());
  return report;
}

}  // namespace shardlens::profiler
