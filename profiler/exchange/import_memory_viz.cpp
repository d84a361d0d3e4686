#include "profiler/exchange/import_memory_viz.h"

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

#include "base/choice.h"
#include "base/document/read_document.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "base/shown.h"
#include "base/units.h"
#include "profiler/exchange/snapshot_events.h"
#include "profiler/exchange/snapshot_rewind.h"
#include "profiler/recording/python_rules.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 48;  // of one event; a larger one is damage
constexpr int64_t kMostTime_us = int64_t{1} << 52;
constexpr size_t kMostFrames = 1 << 20;
constexpr int64_t kMostRounded_mib = 32768;  // the last key of roundup_power2_divisions

/// Parts of the names of functions that allocate for other functions, as in PyTorch 2.1 to 2.15.
constexpr std::array<std::string_view, 8> kAllocators = {
    "CachingAllocator",   "CachedAllocator", "gather_with_cpp", "at::detail::empty_",
    "at::detail::_empty", "create_out",      "::set_output_",   "TensorIteratorBase::"};

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
    const RewindDoubts doubts = rewind(state_, entries_);
    SnapshotEvents made = snapshot_events(state_, entries_, mapped_label());
    profile_.events = std::move(made.events);
    profile_.header.device = "cuda";
    profile_.header.start_realtime_ns = made.start_us * 1000;
    judge(doubts, made);
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

  // --- what the snapshot says -----------------------------------------------------------------

  void read_trace() {
    if (static_cast<size_t>(device_) >= trace_.size()) return;
    const Value entries = trace_.at(static_cast<size_t>(device_));
    for (size_t i = 0; i < entries.size(); ++i) read_entry(entries.at(i));
  }

  void read_entry(Value value) {
    const auto action = choice_named<TraceAction>(value["action"].text());
    if (!action) return;  // it is "snapshot", or of a later version
    TraceEntry entry{.time_us = std::clamp<int64_t>(value["time_us"].integer(), 0, kMostTime_us),
                     .bytes = value["size"].integer(-1),
                     .given_bytes = given_in(value),
                     .stream = value["stream"].integer(),
                     .action = *action,
                     .category = category_of(value["category"].text())};
    const bool has_stack = entry.action == TraceAction::alloc || entry.action == TraceAction::oom ||
                           entry.action == TraceAction::free_requested;
    if (has_stack) entry.label = label_of(value["frames"]);
    const char* const address = entry.action == TraceAction::oom ? "device_free" : "addr";
    entry.address = static_cast<uint64_t>(value[address].integer());
    if (entry.bytes < 0 || entry.bytes >= kMostBytes) {
      throw std::invalid_argument(fmt::format("entry {} of the trace has a size of {} bytes",
                                              entries_.size(), entry.bytes));
    }
    entry.says_size = entry.given_bytes != 0;
    entries_.push_back(entry);
  }

  /// Returns the size of the block, which only snapshots that Shardlens has exported tell; else 0.
  static int64_t given_in(Value entry) {
    return std::clamp<int64_t>(entry["block_size"].integer(), 0, kMostBytes - 1);
  }

  void read_end() {
    const Value segments = snapshot_["segments"];
    for (size_t i = 0; i < segments.size(); ++i) {
      if (segments.at(i)["device"].integer() != device_) continue;
      read_segment(segments.at(i));
      has_segments_ = true;
    }
  }

  void read_segment(Value segment) {
    const auto begin = static_cast<uint64_t>(segment["address"].integer());
    const int64_t bytes = segment["total_size"].integer(-1);
    if (bytes < 0 || bytes >= kMostBytes) {
      throw std::invalid_argument(fmt::format("a segment has a size of {} bytes", bytes));
    }
    state_.segments.add(begin, {.end = begin + static_cast<uint64_t>(bytes),
                                .stream = segment["stream"].integer(),
                                .expandable = segment["is_expandable"].boolean(),
                                .small = segment["segment_type"].text() == "small"});
    end_reserved_ += static_cast<uint64_t>(bytes);
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
      read_block(block, address, size, segment["stream"].integer());
      address += static_cast<uint64_t>(size);
    }
  }

  void read_block(Value block, uint64_t address, int64_t size, int64_t stream) {
    const std::string_view state = block["state"].text();
    if (!state.starts_with("active") || size == 0) return;
    const bool is_pending = state != "active_allocated";
    if (!is_pending) end_allocated_ += static_cast<uint64_t>(size);
    const int64_t requested = block["requested_size"].integer(size);
    state_.blocks[address] = {.bytes = std::clamp<int64_t>(requested, 0, kMostBytes - 1),
                              .given_bytes = size,
                              .stream = stream,
                              .label = label_of(block["frames"]),
                              .is_pending = is_pending};
  }

  // --- what it leaves open ----------------------------------------------------------------------

  void judge(const RewindDoubts& rewound, const SnapshotEvents& made) {
    std::string& notice = profile_.header.notice;
    notice = "imported from a memory snapshot of PyTorch: device memory only";
    if (made.start_allocated > 0 && !entries_.empty()) {
      notice +=
          fmt::format("; its history begins with {} allocated", bytes_text(made.start_allocated));
    }
    doubt(rewound.unknown_sizes,
          "blocks from before its history that may each be up to 1 MiB larger than shown");
    if (!has_segments_) return;  // then it does not say what was at its end
    doubt(rewound.contradictions + made.misplaced,
          "events that do not fit its segments, as if the history had stopped before the snapshot");
    doubt(made.resized + unruled_blocks(),
          "blocks whose size does not follow from the allocator's default settings");
    const bool is_as_at_end = static_cast<uint64_t>(made.allocated) == end_allocated_ &&
                              static_cast<uint64_t>(made.reserved) == end_reserved_;
    if (profile_.judgement.lost_events == 0 && !is_as_at_end) {
      doubt(1, "sums at the end that differ from those of its segments");
    }
  }

  /// Counts what is unknown as events that were lost, and says why.
  void doubt(int64_t count, std::string_view why) {
    if (count == 0) return;
    profile_.judgement.lost_events += count;
    profile_.header.notice += fmt::format("; {}: {}", why, count);
  }

  /// Returns the number of allocations without a size, if the allocator had settings that blocks.h
  /// does not know.
  int64_t unruled_blocks() const {
    const Value settings = snapshot_["allocator_settings"];
    const int64_t largest_split = settings["max_split_size"].integer(-1);
    bool is_usual = largest_split < 0 || largest_split >= kMostBytes;
    for (int64_t of_mib = 1; of_mib <= kMostRounded_mib; of_mib *= 2) {
      const Value divisions = settings["roundup_power2_divisions"][std::to_string(of_mib)];
      is_usual = is_usual && divisions.integer() <= 1;
    }
    if (is_usual) return 0;
    return std::ranges::count_if(entries_, [](const TraceEntry& entry) {
      return entry.action == TraceAction::alloc && entry.given_bytes == 0;
    });
  }

  /// Returns the label of memory in expandable segments, or 0 if there is none.
  uint32_t mapped_label() {
    const bool maps = std::ranges::any_of(
        entries_, [](const TraceEntry& entry) { return is_mapping(entry.action); });
    const bool has_mapped = std::ranges::any_of(
        state_.segments.ranges(), [](const auto& range) { return range.second.expandable; });
    return maps || has_mapped ? intern("expandable segment") : 0;
  }

  Value snapshot_;
  int device_;
  Value trace_;
  std::vector<TraceEntry> entries_;
  SnapshotState state_;  // at the end, then at the start
  bool has_segments_ = false;
  uint64_t end_allocated_ = 0;  // unsigned, since a damaged snapshot may overflow it
  uint64_t end_reserved_ = 0;
  std::map<std::pair<std::string, uint32_t>, uint32_t> labels_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, uint32_t> frames_;
  std::unordered_map<Document::Index, uint32_t> frame_labels_;
  std::unordered_set<Document::Index> block_lists_;  // the lists that segments have
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
