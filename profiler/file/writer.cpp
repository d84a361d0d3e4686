#include "profiler/file/writer.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "profiler/file/open_blocks.h"
#include "profiler/file/sealer.h"

namespace shardlens::profiler {

namespace {

constexpr uint32_t kAreaBytes = 1 << 20;
constexpr int64_t kSealAfterNs = 1'000'000'000;  // of recording, for a block that is not full
constexpr uint32_t kSealFromEvents = 8 << 10;    // and holds this many: fewer compress badly
constexpr uint32_t kNone = UINT32_MAX;

uint64_t draw_id() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

OpenShape shape_of(const WriterOptions& options) {
  if (options.blocks < 2 || options.blocks > 1024 || options.block_events < 1 ||
      options.block_events > kMaxBlockEvents) {
    throw std::invalid_argument(
        fmt::format("{} blocks of {} events: give 2 to 1024 blocks of 1 to {} events",
                    options.blocks, options.block_events, kMaxBlockEvents));
  }
  return {options.blocks, options.block_events, kAreaBytes};
}

/// A label's text and the innermost frame of its stack.
struct Label {
  std::string_view text;
  uint32_t innermost = 0;

  bool operator==(const Label&) const = default;
};

struct OwnedLabel {
  std::string text;
  uint32_t innermost = 0;

  operator Label() const { return {text, innermost}; }
};

struct LabelHash {
  using is_transparent = void;
  size_t operator()(const Label& label) const {
    return std::hash<std::string_view>()(label.text) ^ label.innermost * 0x9E37'79B9'7F4A'7C15U;
  }
};

struct LabelEquality {
  using is_transparent = void;
  bool operator()(const Label& a, const Label& b) const { return a == b; }
};

struct FrameHash {
  size_t operator()(const StackFrame& frame) const {
    const uint64_t place = uint64_t{frame.caller} << 32 | frame.line;
    const uint64_t names = uint64_t{frame.file} << 32 | frame.function;
    return (place * 0x9E37'79B9'7F4A'7C15U ^ names) * 0xD6E8'FEB8'6659'FD93U >> 7;
  }
};

std::string_view text_of(const auto& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

/// Writes one recording. Blocks circulate: free, open, full (waiting for the sealing thread), free
/// again. `mutex_` guards that state and is held only briefly; strings have their own mutex.
/// Neither is held while data is compressed or written to the recording.
class Writer::Recording {
 public:
  Recording(const std::string& path, const Header& header, WriterOptions options);
  ~Recording() { close(); }

  void append(const Event& event);
  void append_work(WorkBlock block);
  bool settle_work();
  uint32_t intern(Label label);
  uint32_t frame(const StackFrame& frame);
  void close();
  WriterCounts counts() const;
  Problem failure() const;

 private:
  struct Block {
    uint64_t sequence = 0;
    uint64_t lost = 0;  // events lost before it was opened
    uint32_t count = 0;
    int64_t first_ns = 0;
  };

  bool open_block(const Event& first);
  void hand_over();
  void lose() { open_.set_lost(++lost_); }
  void fail(const std::string& reason);
  void start_sealing();
  void seal_until_closed();
  uint32_t next_full();
  void seal(uint32_t index);
  void seal_strings();
  void seal_work();
  bool keep_strings(const Bytes& entries, bool& is_due);
  void announce_strings();

  const WriterOptions options_;
  const uint64_t id_ = draw_id();
  Sealer sealer_;  // only the sealing thread's
  OpenBlocks open_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;  // used last in, first out, which touches few pages
  std::vector<uint32_t> full_;  // oldest first
  uint32_t current_ = kNone;
  uint64_t sequence_ = 0;
  uint64_t events_ = 0;
  uint64_t sealed_ = 0;
  uint64_t lost_ = 0;
  bool strings_due_ = false;
  std::vector<WorkBlock> work_;  // that is to be sealed
  uint64_t work_added_ = 0;      // blocks
  uint64_t work_sealed_ = 0;
  std::condition_variable settled_;
  bool closing_ = false;
  Problem failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<uint64_t> bytes_ = 0;

  std::mutex strings_mutex_;
  std::unordered_map<OwnedLabel, uint32_t, LabelHash, LabelEquality> labels_;
  std::unordered_map<StackFrame, uint32_t, FrameHash> frames_;
  int area_ = 0;  // the area for new strings

  bool is_last_ = false;  // only the sealing thread's
  std::mutex close_mutex_;
  std::thread thread_;
};

Writer::Recording::Recording(const std::string& path, const Header& header, WriterOptions options)
    : options_(options),
      sealer_(path, id_, header),
      open_(open_blocks_path(path), id_, shape_of(options), options.map),
      blocks_(options.blocks) {
  if (options.lost > 0) open_.set_lost(lost_ = static_cast<uint64_t>(options.lost));
  free_.reserve(options.blocks);
  full_.reserve(options.blocks);
  for (uint32_t block = options.blocks; block > 0; --block) free_.push_back(block - 1);
  bytes_ = sealer_.bytes();
  start_sealing();
}

/// Starts the sealing thread with all signals blocked, since signals are for the program's threads.
void Writer::Recording::start_sealing() {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { seal_until_closed(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Writer::Recording::append(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (closing_) return;
  if (failed_ || (current_ == kNone && !open_block(event))) return lose();
  Block& block = blocks_[current_];
  if (!open_.append(current_, block.count, event)) {
    fail("cannot write the open blocks");
    return lose();
  }
  ++events_;
  ++block.count;
  const bool is_old = options_.seals_old && block.count >= kSealFromEvents &&
                      event.time_ns - block.first_ns >= kSealAfterNs;
  if (block.count == options_.block_events || is_old) hand_over();
}

void Writer::Recording::append_work(WorkBlock block) {
  const std::lock_guard lock(mutex_);
  if (closing_ || failed_) return;
  work_.push_back(std::move(block));
  ++work_added_;
  changed_.notify_one();
}

bool Writer::Recording::settle_work() {
  std::unique_lock lock(mutex_);
  const uint64_t wanted = work_added_;
  settled_.wait(lock, [&] { return work_sealed_ >= wanted || failed_ || closing_; });
  return work_sealed_ >= wanted;
}

bool Writer::Recording::open_block(const Event& first) {
  if (free_.empty()) return false;
  current_ = free_.back();
  free_.pop_back();
  blocks_[current_] = {++sequence_, lost_, 0, first.time_ns};
  open_.begin(current_, sequence_, lost_);
  return true;
}

void Writer::Recording::hand_over() {
  full_.push_back(current_);
  current_ = kNone;
  changed_.notify_one();
}

/// Stops the recording; the first reason is kept. The caller holds `mutex_`.
void Writer::Recording::fail(const std::string& reason) {
  if (failed_) return;
  failure_ = reason;
  failed_ = true;
  settled_.notify_all();
}

/// Adds entries to the area for new strings; `is_due` becomes true if that is to be sealed. The
/// caller holds `strings_mutex_`.
bool Writer::Recording::keep_strings(const Bytes& entries, bool& is_due) {
  const bool is_kept = open_.add_strings(area_, entries);
  is_due = open_.area_used_bytes(area_) > kAreaBytes / 2;
  return is_kept;
}

void Writer::Recording::announce_strings() {
  const std::lock_guard lock(mutex_);
  strings_due_ = true;
  changed_.notify_one();
}

uint32_t Writer::Recording::intern(Label label) {
  label.text = label.text.substr(0, kMaxStringBytes);
  if (label.text.empty() || failed_) return 0;
  bool is_due = false;
  uint32_t number = 0;
  {
    const std::lock_guard lock(strings_mutex_);
    if (const auto found = labels_.find(label); found != labels_.end()) return found->second;
    if (labels_.size() + 1 >= kMaxStrings) return 0;
    const auto next = static_cast<uint32_t>(labels_.size() + 1);
    Bytes entries;
    put_string(entries, {next, label.text});
    if (label.innermost != 0) put_string(entries, {next | kStackEntry, text_of(label.innermost)});
    const auto added = labels_.emplace(OwnedLabel{std::string(label.text), label.innermost}, next);
    if (keep_strings(entries, is_due)) {
      number = next;
    } else {
      labels_.erase(added.first);
    }
  }
  if (is_due) announce_strings();
  return number;
}

uint32_t Writer::Recording::frame(const StackFrame& frame) {
  if (failed_) return 0;
  bool is_due = false;
  uint32_t number = 0;
  {
    const std::lock_guard lock(strings_mutex_);
    if (const auto found = frames_.find(frame); found != frames_.end()) return found->second;
    if (frames_.size() + 1 >= kMaxFrames || frame.caller > frames_.size()) return 0;
    const auto next = static_cast<uint32_t>(frames_.size() + 1);
    Bytes entry;
    put_string(entry, {next | kFrameEntry, text_of(frame)});
    const auto added = frames_.emplace(frame, next);
    if (keep_strings(entry, is_due)) {
      number = next;
    } else {
      frames_.erase(added.first);
    }
  }
  if (is_due) announce_strings();
  return number;
}

/// Waits for the next block to seal; returns kNone if only strings or work are due, or at the end.
uint32_t Writer::Recording::next_full() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !full_.empty() || strings_due_ || !work_.empty() || closing_; });
  strings_due_ = false;
  if (full_.empty()) {
    is_last_ = closing_;
    return kNone;
  }
  const uint32_t index = full_.front();
  full_.erase(full_.begin());
  return index;
}

void Writer::Recording::seal_until_closed() {
  try {
    while (!is_last_) {
      const uint32_t index = next_full();
      seal_strings();
      if (index != kNone) seal(index);
      seal_work();
    }
    const WriterCounts all = counts();
    if (failed_) return;
    check(all.events == all.sealed, "recording: it ends before all its events are sealed");
    sealer_.seal_end(static_cast<uint64_t>(all.events), static_cast<uint64_t>(all.lost));
    bytes_ = sealer_.bytes();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    fail(error.what());
  }
}

/// Seals the strings that are due. Call it before the events that use them are sealed.
void Writer::Recording::seal_strings() {
  int full_area = 0;
  {
    const std::lock_guard lock(strings_mutex_);
    if (open_.area_used_bytes(area_) == 0) return;
    full_area = area_;
    area_ = 1 - area_;  // it is empty: only this thread fills and clears areas in turn
  }
  check(open_.area_used_bytes(full_area) <= kAreaBytes, "recording: an area of strings overflows");
  sealer_.seal_strings(open_.strings(full_area));
  const std::lock_guard lock(strings_mutex_);
  open_.clear_strings(full_area);
}

void Writer::Recording::seal_work() {
  std::vector<WorkBlock> blocks;
  {
    const std::lock_guard lock(mutex_);
    blocks.swap(work_);
  }
  for (const WorkBlock& block : blocks) sealer_.seal_work(block);
  const std::lock_guard lock(mutex_);
  work_sealed_ += blocks.size();
  settled_.notify_all();
}

void Writer::Recording::seal(uint32_t index) {
  const Block block = blocks_.at(index);
  check(block.count > 0 && block.count <= options_.block_events,
        "recording: a block to seal has no event, or too many");
  sealer_.seal_events(block.sequence, block.lost, open_.events(index, block.count));
  bytes_ = sealer_.bytes();
  const std::lock_guard lock(mutex_);
  check(free_.size() < options_.blocks, "recording: a block becomes free twice");
  free_.push_back(index);
  sealed_ += block.count;
  check(sealed_ <= events_, "recording: more events are sealed than were written");
}

void Writer::Recording::close() {
  const std::lock_guard once(close_mutex_);
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    if (current_ != kNone && blocks_[current_].count > 0) hand_over();
    closing_ = true;
    changed_.notify_one();
    settled_.notify_all();
  }
  thread_.join();
  if (!failed_) open_.remove();  // else it has the events that could not be sealed
}

WriterCounts Writer::Recording::counts() const {
  const std::lock_guard lock(mutex_);
  return {.events = static_cast<int64_t>(events_),
          .sealed = static_cast<int64_t>(sealed_),
          .lost = static_cast<int64_t>(lost_),
          .bytes = static_cast<int64_t>(bytes_)};
}

Problem Writer::Recording::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Writer::Writer(const std::string& path, const Header& header, WriterOptions options)
    : recording_(std::make_unique<Recording>(path, header, options)) {}
Writer::~Writer() = default;

void Writer::append(const Event& event) noexcept { recording_->append(event); }

uint32_t Writer::intern(std::string_view text) noexcept { return intern(text, 0); }

uint32_t Writer::intern(std::string_view text, uint32_t innermost) noexcept {
  try {
    return recording_->intern({text, innermost});
  } catch (const std::exception&) {
    return 0;  // no memory: the event goes without its label
  }
}

uint32_t Writer::frame(const StackFrame& frame) noexcept {
  try {
    return recording_->frame(frame);
  } catch (const std::exception&) {
    return 0;
  }
}

void Writer::append_work(WorkBlock block) noexcept {
  try {
    recording_->append_work(std::move(block));
  } catch (const std::exception&) {
    // no memory: a reader sees that the next block does not follow
  }
}

bool Writer::settle_work() noexcept { return recording_->settle_work(); }

void Writer::close() noexcept { recording_->close(); }
WriterCounts Writer::counts() const noexcept { return recording_->counts(); }
Problem Writer::failure() const { return recording_->failure(); }

}  // namespace shardlens::profiler
