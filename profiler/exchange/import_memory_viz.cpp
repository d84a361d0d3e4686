#include "profiler/exchange/import_memory_viz.h"
#include "base/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/document/read_document.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "base/shown.h"
#include "profiler/exchange/segment_ranges.h"
#include "profiler/recording/blocks.h"
#include "profiler/recording/python_rules.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 48;  // of one event; a larger one is damage
constexpr int64_t kMostTime_us = int64_t{1} << 52;
constexpr size_t kMostStreams = 1 << 16;
constexpr size_t kMostFrames = 1 << 20;

/// Parts of the names of functions that allocate for other functions, as in PyTorch 2.15.
constexpr std::array<std::string_view, 4> kAllocators = {"CachingAllocator", "CachedAllocator",
                                                         "gather_with_cpp", "at::detail::empty_"};

enum class Action : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom,
};
constexpr auto choice_words(Action) {
  return words("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
               "segment_map", "segment_unmap", "oom");
}

struct Entry {
  int64_t time_us = 0;
  uint64_t address = 0;
  int64_t bytes = 0;
  int64_t stream = 0;
  uint32_t label = 0;
  Action action{};
  Category category = Category::other;
};

/// A block that is alive at one moment; the table has it by its address.
struct LiveBlock {
  int64_t bytes = 0;
  int64_t stream = 0;
  uint32_t label = 0;
  Category category = Category::other;
};

bool is_python(std::string_view file) { return file.ends_with(".py") || file.starts_with('<'); }

Category category_of(std::string_view name) {
  return choice_named<Category>(name).value_or(Category::other);
}

class SnapshotImport {
 public:
  SnapshotImport(const Document& document, int device)
      : snapshot_(document), device_(device), trace_(snapshot_["device_traces"]) {}

  Profile read() {
    read_trace();
    read_end();
    rewind();
    write_start();
    write_trace();
    profile_.header.device = "cuda";
    profile_.header.notice = "imported from a memory snapshot of PyTorch: device memory only";
    profile_.header.start_realtime_ns = start_us_ * 1000;
    return std::move(profile_);
  }

 private:
  // --- texts -------------------------------------------------------------------------------------

  /// Returns the label of this text and stack: [Note: stacks] in profile.h.
  uint32_t intern(const std::string& text, uint32_t innermost = 0) {
    if (text.empty()) return 0;
    const auto [known, added] =
        labels_.try_emplace({text, innermost}, static_cast<uint32_t>(profile_.strings.size()));
    if (!added) return known->second;
    profile_.strings.push_back(text);
    profile_.stacks.of_label.resize(profile_.strings.size());
    profile_.stacks.of_label.back() = innermost;
    return known->second;
  }

  /// Returns the innermost frame of a stack; 0 if there is none, or the recording has too many.
  uint32_t stack_of(Value frames) {
    uint32_t caller = 0;
    for (size_t i = frames.size(); i-- > innermost_of(frames);) {
      caller = frame_of(frames.at(i), caller);
      if (caller == 0) return 0;
    }
    return caller;
  }

  uint32_t frame_of(Value value, uint32_t caller) {
    std::vector<StackFrame>& frames = profile_.stacks.frames;
    const std::string name(shortened(value["name"].text()));
    const StackFrame frame{
        .caller = caller,
        .file = intern(std::string(shortened(value["filename"].text()))),
        .function = intern(name.empty() ? "??" : name),
        .line = static_cast<uint32_t>(std::clamp<int64_t>(value["line"].integer(), 0, INT32_MAX))};
    const auto key = std::tuple(frame.caller, frame.file, frame.function, frame.line);
    if (const auto known = frames_.find(key); known != frames_.end()) return known->second;
    if (frames.size() >= kMostFrames) return 0;
    frames.push_back(frame);
    return frames_[key] = static_cast<uint32_t>(frames.size() - 1);
  }

  /// Returns the index of the first frame that is not of the functions that took the stack.
  static size_t innermost_of(Value frames) {
    const auto takes_stacks = [&](size_t i) {
      const std::string_view name = frames.at(i)["name"].text();
      return name.starts_with("torch::unwind::") || name.starts_with("torch::CapturedTraceback::");
    };
    size_t first = 0;
    while (first < frames.size() && takes_stacks(first)) ++first;
    return first;
  }

  /// Labels are kept by list of frames: entries of one call site share one list, and in pickles it
  /// is shared in memory, too.
  uint32_t label_of(Value frames) {
    const auto [known, added] = frame_labels_.try_emplace(frames.index(), 0);
    if (added) known->second = intern(frame_text(frames), stack_of(frames));
    return known->second;
  }

  static std::string frame_text(Value frames) {
    std::string innermost;
    for (size_t i = 0; i < frames.size(); ++i) {
      const std::string_view file = frames.at(i)["filename"].text();
      if (!is_python(file)) continue;
      if (is_of_program(file)) return python_text(frames.at(i));
      if (innermost.empty()) innermost = python_text(frames.at(i));
    }
    return innermost.empty() ? native_text(frames) : innermost;
  }

  /// Returns the innermost function that is not the allocator's; without Python, the best name
  /// available.
  static std::string native_text(Value frames) {
    const size_t first = innermost_of(frames);
    for (size_t i = first; i < frames.size(); ++i) {
      const std::string_view name = frames.at(i)["name"].text();
      const bool is_allocator = std::ranges::any_of(
          kAllocators, [&](std::string_view part) { return name.find(part) != name.npos; });
      if (!name.empty() && name != "??" && !is_allocator) return std::string(shortened(name));
    }
    return first < frames.size() ? std::string(shortened(frames.at(first)["name"].text())) : "";
  }

  static std::string python_text(Value frame) {
    return fmt::format("{}:{} {}", shortened(frame["filename"].text()), frame["line"].integer(),
                       shortened(frame["name"].text()));
  }

  /// Cuts a text to 1024 bytes: many frames may share one long text, and each label would copy that
  /// text.
  static std::string_view shortened(std::string_view text) {
    constexpr size_t kMostBytes = 1024;
    return text.substr(0, kMostBytes);
  }

  uint16_t stream_of(int64_t stream) {
    // Stream 0 is PyTorch's default stream, and Shardlens' main one.
    const auto [known, added] =
        streams_.try_emplace(stream, static_cast<uint16_t>(streams_.size()));
    if (streams_.size() > kMostStreams) throw std::invalid_argument("it has too many streams");
    return known->second;
  }

  // --- what the snapshot says -----------------------------------------------------------------

  void read_trace() {
    if (static_cast<size_t>(device_) >= trace_.size()) return;
    const Value entries = trace_.at(static_cast<size_t>(device_));
    for (size_t i = 0; i < entries.size(); ++i) read_entry(entries.at(i));
  }

  void read_entry(Value value) {
    const auto action = choice_named<Action>(value["action"].text());
    if (!action) return;  // it is "snapshot", or of a later version
    Entry entry{.time_us = std::clamp<int64_t>(value["time_us"].integer(), 0, kMostTime_us),
                .bytes = value["size"].integer(-1),
                .stream = value["stream"].integer(),
                .action = *action,
                .category = category_of(value["category"].text())};
    const bool has_stack = entry.action == Action::alloc || entry.action == Action::oom ||
                           entry.action == Action::free_requested;
    if (has_stack) entry.label = label_of(value["frames"]);
    const char* const address = entry.action == Action::oom ? "device_free" : "addr";
    entry.address = static_cast<uint64_t>(value[address].integer());
    if (entry.bytes < 0 || entry.bytes >= kMostBytes) {
      throw std::invalid_argument(fmt::format("entry {} of the trace has a size of {} bytes",
                                              entries_.size(), entry.bytes));
    }
    entries_.push_back(entry);
  }

  void read_end() {
    const Value segments = snapshot_["segments"];
    for (size_t i = 0; i < segments.size(); ++i) {
      if (segments.at(i)["device"].integer() == device_) read_segment(segments.at(i));
    }
  }

  void read_segment(Value segment) {
    const auto begin = static_cast<uint64_t>(segment["address"].integer());
    const int64_t bytes = segment["total_size"].integer(-1);
    if (bytes < 0 || bytes >= kMostBytes) {
      throw std::invalid_argument(fmt::format("a segment has a size of {} bytes", bytes));
    }
    segments_.add(begin, {.end = begin + static_cast<uint64_t>(bytes),
                          .stream = segment["stream"].integer(),
                          .expandable = segment["is_expandable"].boolean(),
                          .small = segment["segment_type"].text() == "small"});
    uint64_t address = begin;  // older snapshots give only the sizes of blocks
    const Value blocks = segment["blocks"];
    // The list is refused if another segment has the same one: a pickle may give one list to all
    // segments, at two bytes each.
    if (blocks.size() > 0 && !block_lists_.insert(blocks.index()).second) {
      throw std::invalid_argument("two segments share a list of blocks");
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Value block = blocks.at(i);
      const int64_t size = std::clamp<int64_t>(block["size"].integer(), 0, kMostBytes);
      address = static_cast<uint64_t>(block["address"].integer(static_cast<int64_t>(address)));
      if (block["state"].text() == "active_allocated") {
        const int64_t requested = block["requested_size"].integer(size);
        blocks_[address] = {.bytes = std::clamp<int64_t>(requested, 0, kMostBytes - 1),
                            .stream = segment["stream"].integer(),
                            .label = label_of(block["frames"])};
      }
      address += static_cast<uint64_t>(size);
    }
  }

  // --- from the end back to the start ---------------------------------------------------------

  void rewind() {
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) undo(*entry);
  }

  void undo(const Entry& entry) {
    const uint64_t end = entry.address + static_cast<uint64_t>(entry.bytes);
    switch (entry.action) {
      case Action::alloc:
        blocks_.erase(entry.address);
        return;
      case Action::free_requested:
      case Action::free_completed:
        blocks_[entry.address] = {
            .bytes = entry.bytes, .stream = entry.stream, .category = entry.category};
        return;
      case Action::segment_alloc:
      case Action::segment_map:
        segments_.remove(entry.address, end);
        return;
      case Action::segment_free:
      case Action::segment_unmap:
        segments_.add(entry.address, {.end = end,
                                      .stream = entry.stream,
                                      .expandable = entry.action == Action::segment_unmap});
        return;
      case Action::oom:
        return;
    }
  }

  // --- events ----------------------------------------------------------------------------------

  void write_start() {
    stream_of(0);
    for (const auto& [begin, range] : segments_.ranges()) {
      profile_.events.push_back({.address = begin,
                                 .value = static_cast<int64_t>(range.end - begin),
                                 .label = range.expandable ? mapped_label() : 0,
                                 .stream = stream_of(range.stream),
                                 .kind = EventKind::alloc,
                                 .space = Space::segment});
    }
    for (const auto& [address, block] : blocks_) {
      profile_.events.push_back({.address = address,
                                 .value = block.bytes,
                                 .label = block.label,
                                 .stream = stream_of(block.stream),
                                 .kind = EventKind::alloc,
                                 .space = Space::device,
                                 .category = block.category});
      live_[address] = block;
    }
  }

  /// Returns the label of a segment's event if memory is mapped into an expandable segment.
  uint32_t mapped_label() { return intern("expandable segment"); }

  void write_trace() {
    int64_t now_us = start_us_ = entries_.empty() ? 0 : entries_.front().time_us;
    for (const Entry& entry : entries_) {
      now_us = std::max(now_us, entry.time_us);
      const int64_t time_ns = (now_us - start_us_) * 1000;
      if (!completes_free(entry, time_ns)) write_entry(entry, time_ns);
    }
    hold_freed((now_us - start_us_) * 1000);
  }

  /// True for the completion of a free that was requested before: [Note: held blocks].
  bool completes_free(const Entry& entry, int64_t time_ns) {
    const bool is_completion = entry.action == Action::free_completed;
    if (is_completion && freed_ == entry.address) {
      freed_ = 0;
      return true;
    }
    hold_freed(time_ns);
    if (!is_completion || held_.erase(entry.address) == 0) return false;
    profile_.events.push_back(
        {.time_ns = time_ns, .address = entry.address, .kind = EventKind::release});
    return true;
  }

  void hold_freed(int64_t time_ns) {
    if (freed_ == 0) return;
    profile_.events.push_back({.time_ns = time_ns, .address = freed_, .kind = EventKind::hold});
    held_.insert(freed_);
    freed_ = 0;
  }

  void write_entry(const Entry& entry, int64_t time_ns) {
    Event event{.time_ns = time_ns,
                .address = entry.address,
                .value = entry.bytes,
                .label = entry.label,
                .stream = stream_of(entry.stream),
                .category = entry.category};
    switch (entry.action) {
      case Action::alloc:
        live_[entry.address] = {.bytes = entry.bytes,
                                .stream = entry.stream,
                                .label = entry.label,
                                .category = entry.category};
        event.kind = EventKind::alloc;
        break;
      case Action::free_requested:
      case Action::free_completed: {
        const auto live = live_.find(entry.address);
        if (live == live_.end()) return;  // its free was requested before
        event.value = live->second.bytes;
        if (event.label == 0) event.label = live->second.label;
        event.category = live->second.category;
        live_.erase(live);
        event.kind = EventKind::free;
        if (entry.action == Action::free_requested) freed_ = entry.address;
        break;
      }
      case Action::segment_alloc:
      case Action::segment_free:
      case Action::segment_map:
      case Action::segment_unmap:
        event.space = Space::segment;
        event.category = Category::other;
        event.label = is_mapping(entry.action) ? mapped_label() : 0;
        event.kind = is_release(entry.action) ? EventKind::free : EventKind::alloc;
        break;
      case Action::oom:
        event.kind = EventKind::out_of_memory;
        break;
    }
    profile_.events.push_back(event);
  }

  static bool is_mapping(Action action) {
    return action == Action::segment_map || action == Action::segment_unmap;
  }
  static bool is_release(Action action) {
    return action == Action::segment_free || action == Action::segment_unmap;
  }

  Value snapshot_;
  int device_;
  Value trace_;
  std::vector<Entry> entries_;
  SegmentRanges segments_;                // at the end, then at the start
  std::map<uint64_t, LiveBlock> blocks_;  // the same
  std::map<uint64_t, LiveBlock> live_;
  uint64_t freed_ = 0;  // address freed by the last entry; 0: it freed none
  std::unordered_set<uint64_t> held_;
  std::map<int64_t, uint16_t> streams_;
  std::map<std::pair<std::string, uint32_t>, uint32_t> labels_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, uint32_t> frames_;
  std::unordered_map<Document::Index, uint32_t> frame_labels_;
  std::unordered_set<Document::Index> block_lists_;  // the lists that segments have
  int64_t start_us_ = 0;
  Profile profile_;
};

/// Returns the devices that have an entry in their trace, or a segment.
std::vector<int> devices_of(Value snapshot) {
  constexpr int kMostDevices = 1024;
  std::vector<int> devices;
  const Value traces = snapshot["device_traces"];
  for (size_t i = 0; i < std::min<size_t>(traces.size(), kMostDevices); ++i) {
    if (traces.at(i).size() > 0) devices.push_back(static_cast<int>(i));
  }
  const Value segments = snapshot["segments"];
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t device = segments.at(i)["device"].integer(-1);
    if (device >= 0 && device < kMostDevices) devices.push_back(static_cast<int>(device));
  }
  std::ranges::sort(devices);
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

int chosen_device(Value snapshot, std::optional<int> device) {
  const std::vector<int> devices = devices_of(snapshot);
  if (devices.empty()) {
    throw std::invalid_argument(
        "it has no device memory; record with "
        "torch.cuda.memory._record_memory_history()");
  }
  if (!device && devices.size() == 1) return devices.front();
  if (device && std::ranges::find(devices, *device) != devices.end()) return *device;
  throw std::invalid_argument(
      fmt::format("it has the devices {}; choose one with --device", fmt::join(devices, ", ")));
}

}  // namespace

Document read_snapshot(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{') return read_json(bytes);
  return read_pickle(bytes);
}

Profile import_memory_viz(std::string_view bytes, std::optional<int> device) {
  return import_snapshot(read_snapshot(bytes), device);
}

Profile import_snapshot(const Document& document, std::optional<int> device) {
  const Value snapshot(document);
  if (!snapshot["device_traces"].is(Document::Type::list) &&
      !snapshot["segments"].is(Document::Type::list)) {
    throw std::invalid_argument(
        "it is not a memory snapshot: it has neither device_traces nor segments");
  }
  return SnapshotImport(document, chosen_device(snapshot, device)).read();
}

Profile import_memory_viz_file(const std::string& path, std::optional<int> device) {
  const std::string bytes =
      read_file(path, kRecord.bytes,
                "give the file of a snapshot, recorded with a smaller max_entries if need be");
  try {
    return import_memory_viz(bytes, device);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", shown(path), shown(error.what())));
  }
}

}  // namespace shardlens::profiler
