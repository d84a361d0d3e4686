#include "profiler/exchange/import_memory_viz.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/choice.h"
#include "base/document/read_document.h"
#include "base/hashed.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "base/shown.h"
#include "base/units.h"
#include "profiler/exchange/pinned_history.h"
#include "profiler/exchange/snapshot_events.h"
#include "profiler/exchange/snapshot_rewind.h"
#include "profiler/recording/python_rules.h"
#include "profiler/recording/stack_table.h"
#include "profiler/report/address_map.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 48;  // of one event; a larger one is damage
constexpr int64_t kMostTime_us = int64_t{1} << 52;
constexpr int64_t kMostRounded_mib = 32768;  // the last key of roundup_power2_divisions

/// Parts of the names of functions that allocate for other functions, as in PyTorch 2.1 to 2.15.
constexpr std::array<std::string_view, 8> kAllocators = {
    "CachingAllocator",   "CachedAllocator", "gather_with_cpp", "at::detail::empty_",
    "at::detail::_empty", "create_out",      "::set_output_",   "TensorIteratorBase::"};

/// The keys with which a snapshot may begin as JSON.
constexpr std::array<std::string_view, 6> kSnapshotKeys = {
    "segments",      "device_traces", "allocator_settings",
    "host_segments", "host_traces",   "external_annotations"};

bool is_python(std::string_view file) { return file.ends_with(".py") || file.starts_with('<'); }

Category category_of(std::string_view name) {
  return choice_named<Category>(name).value_or(Category::other);
}

/// A function at a line. The texts are those of the document.
struct Call {
  std::string_view file;
  std::string_view name;
  int64_t line = 0;
  bool is_python = false;
  bool is_of_program = false;
  bool takes_stacks = false;
  bool is_allocator = false;
};

using CallText = std::tuple<std::string_view, std::string_view, int64_t>;
struct CallHash {
  size_t operator()(const CallText& text) const {
    const auto& [file, name, line] = text;
    const std::hash<std::string_view> hash;
    return hashed(hash(file) + 31 * hash(name) + static_cast<uint64_t>(line));
  }
};

/// Returns the segments of a snapshot, which torch.cuda.memory_snapshot() gives alone.
Value segments_of(Value snapshot) {
  return snapshot.is(Document::Type::list) ? snapshot : snapshot["segments"];
}

/// A stack and its label.
struct StackLabel {
  Value frames;
  uint32_t label = 0;
};

class SnapshotImport {
 public:
  SnapshotImport(const Document& document, int device)
      : snapshot_(document),
        device_(device),
        segments_(segments_of(snapshot_)),
        trace_(snapshot_["device_traces"]) {}

  Profile read() {
    read_trace();
    read_end();
    const RewindDoubts doubts = rewind(state_, entries_);
    SnapshotEvents made = snapshot_events(state_, entries_, mapped_label());
    const PinnedHistory pinned = read_pinned();
    if (entries_.empty() && !pinned.entries.empty()) made.start_us = pinned.entries.front().time_us;
    profile_.events = with_pinned(std::move(made.events), pinned, made.start_us);
    profile_.header.device = "cuda";
    profile_.header.start_realtime_ns = made.start_us * 1000;
    judge(doubts, made);
    return std::move(profile_);
  }

 private:
  // --- texts -------------------------------------------------------------------------------------

  /// Returns the innermost frame of a stack; 0 if there is none, or the recording has too many.
  uint32_t stack_of(Value frames) {
    uint32_t caller = 0;
    const size_t innermost = innermost_of(frames);
    for (size_t i = frames.size(); i-- > innermost;) {
      caller = frame_of(call_of(frames.at(i)), caller);
      if (caller == 0) return 0;
    }
    return caller;
  }

  uint32_t frame_of(uint32_t call, uint32_t caller) {
    const uint64_t key = uint64_t{caller} << 32 | call;
    const uint32_t known = frames_.find(key);
    if (known != AddressMap::kNone) return known;
    const Call& called = calls_[call];
    const std::string_view name = shortened(called.name);
    const uint32_t frame = table_.frame(
        {.caller = caller,
         .file = table_.label(std::string(shortened(called.file))),
         .function = table_.label(name.empty() ? "??" : std::string(name)),
         .line = static_cast<uint32_t>(std::clamp<int64_t>(called.line, 0, INT32_MAX))});
    if (frame != 0) frames_.insert(key, frame);
    return frame;
  }

  /// Returns the number of a call. A snapshot has millions of frames but few calls: pickles share
  /// the frames in memory, which costs one look at a table here, and JSON repeats them.
  uint32_t call_of(Value frame) {
    const size_t index = frame.index();
    if (index >= call_of_value_.size()) call_of_value_.resize(index + index / 2 + 1);
    uint32_t& known = call_of_value_[index];  // 0: not seen yet, else the number + 1
    if (known == 0) known = known_call(frame) + 1;
    return known - 1;
  }

  uint32_t known_call(Value frame) {
    Call call{.file = frame["filename"].text(),
              .name = frame["name"].text(),
              .line = frame["line"].integer()};
    const auto [known, added] = calls_by_text_.try_emplace({call.file, call.name, call.line},
                                                           static_cast<uint32_t>(calls_.size()));
    if (!added) return known->second;
    call.is_python = is_python(call.file);
    call.is_of_program = call.is_python && is_of_program(call.file);
    call.takes_stacks = call.name.starts_with("torch::unwind::") ||
                        call.name.starts_with("torch::CapturedTraceback::");
    call.is_allocator = std::ranges::any_of(
        kAllocators, [&](std::string_view part) { return call.name.find(part) != call.name.npos; });
    calls_.push_back(call);
    return known->second;
  }

  /// Returns the index of the first frame that is not of the functions that took the stack.
  size_t innermost_of(Value frames) {
    size_t first = 0;
    while (first < frames.size() && calls_[call_of(frames.at(first))].takes_stacks) ++first;
    return first;
  }

  /// Labels are kept by list of frames, which pickles share in memory, and by the calls in a list:
  /// a long history has few stacks, and to find one frame by frame takes most of an import.
  uint32_t label_of(Value frames) {
    const auto [known, added] = frame_labels_.try_emplace(frames.index(), 0);
    if (!added || innermost_of(frames) == frames.size()) return known->second;
    const auto [same, is_new] =
        labels_of_stacks_.try_emplace(hash_of(frames), StackLabel{.frames = frames});
    if (is_new) return known->second = same->second.label = new_label_of(frames);
    const bool is_same = have_same_calls(same->second.frames, frames);
    return known->second = is_same ? same->second.label : new_label_of(frames);
  }

  uint64_t hash_of(Value frames) {
    uint64_t hash = frames.size();
    for (size_t i = 0; i < frames.size(); ++i) hash = hashed(hash + call_of(frames.at(i)));
    return hash;
  }

  bool have_same_calls(Value a, Value b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (call_of(a.at(i)) != call_of(b.at(i))) return false;
    }
    return true;
  }

  uint32_t new_label_of(Value frames) {
    const uint32_t call = naming_call(frames);
    const uint32_t stack = stack_of(frames);
    const auto [label, is_new] = labels_of_calls_.try_emplace(uint64_t{call} << 32 | stack, 0);
    if (is_new) label->second = table_.label(text_of(calls_[call]), stack);
    return label->second;
  }

  /// Returns the call after which a stack is named: the innermost of the program, else the
  /// innermost of Python, else the innermost function that is not the allocator's, else any.
  uint32_t naming_call(Value frames) {
    std::optional<uint32_t> python, native;
    const size_t first = innermost_of(frames);
    for (size_t i = 0; i < frames.size(); ++i) {
      const uint32_t number = call_of(frames.at(i));
      const Call& call = calls_[number];
      if (call.is_of_program) return number;
      if (!python && call.is_python) python = number;
      const bool is_named = !call.name.empty() && call.name != "??" && !call.is_allocator;
      if (!native && i >= first && is_named) native = number;
    }
    return python.value_or(native.value_or(call_of(frames.at(first))));
  }

  static std::string text_of(const Call& call) {
    if (!call.is_python) return std::string(shortened(call.name));
    return fmt::format("{}:{} {}", shortened(call.file), call.line, shortened(call.name));
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
                     .private_pool = pool_of_id(value["pool_id"]),
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

  /// Returns the number of a private pool, in order of first appearance. The id (0, 0) is that of
  /// no private pool.
  int32_t pool_of_id(Value id) {
    if (id.size() != 2) return kNoPrivatePool;
    const auto key = std::pair(id.at(0).integer(), id.at(1).integer());
    if (key == std::pair<int64_t, int64_t>()) return kNoPrivatePool;
    return pools_.try_emplace(key, static_cast<int32_t>(pools_.size())).first->second;
  }

  void read_end() {
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (segments_.at(i)["device"].integer() != device_) continue;
      read_segment(segments_.at(i));
      has_segments_ = true;
    }
  }

  /// Reads what the snapshot says of pinned memory, if the program asked for it.
  PinnedHistory read_pinned() {
    PinnedHistory pinned;
    const Value trace = snapshot_["host_traces"];
    for (size_t i = 0; i < trace.size(); ++i) {
      const Value entry = trace.at(i);
      const auto action = choice_named<PinnedAction>(entry["action"].text());
      if (!action) continue;  // a completed free changes nothing more
      pinned.entries.push_back(
          {.time_us = std::clamp<int64_t>(entry["time_us"].integer(), 0, kMostTime_us),
           .address = static_cast<uint64_t>(entry["addr"].integer()),
           .bytes = std::clamp<int64_t>(entry["size"].integer(), 0, kMostBytes - 1),
           .label = *action == PinnedAction::alloc ? label_of(entry["frames"]) : 0,
           .action = *action});
    }
    const Value segments = snapshot_["host_segments"];
    for (size_t i = 0; i < segments.size(); ++i) {
      const Value segment = segments.at(i), blocks = segment["blocks"];
      pinned.at_end.push_back(
          {.address = static_cast<uint64_t>(segment["address"].integer()),
           .bytes = std::clamp<int64_t>(segment["total_size"].integer(), 0, kMostBytes - 1),
           .label = blocks.size() > 0 ? label_of(blocks.at(0)["frames"]) : 0,
           .is_used = segment["allocated_size"].integer() > 0});
    }
    has_pinned_ = !pinned.entries.empty() || !pinned.at_end.empty();
    return pinned;
  }

  void read_segment(Value segment) {
    const auto begin = static_cast<uint64_t>(segment["address"].integer());
    const int64_t bytes = segment["total_size"].integer(-1);
    if (bytes < 0 || bytes >= kMostBytes) {
      throw std::invalid_argument(fmt::format("a segment has a size of {} bytes", bytes));
    }
    state_.segments.add(begin, {.end = begin + static_cast<uint64_t>(bytes),
                                .stream = segment["stream"].integer(),
                                .private_pool = pool_of_id(segment["segment_pool_id"]),
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
    if (has_pinned_) {
      notice = "imported from a memory snapshot of PyTorch: device and pinned memory only";
    }
    profile_.judgement.begins_late = made.start_allocated > 0 || made.start_reserved > 0;
    if (profile_.judgement.begins_late && !entries_.empty()) {
      notice += fmt::format("; its history begins with {} allocated, {} reserved",
                            bytes_text(made.start_allocated), bytes_text(made.start_reserved));
    }
    if (entries_.empty()) notice += "; it has no history, only the moment at which it was made";
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
    return maps || has_mapped ? table_.label("expandable segment") : 0;
  }

  Value snapshot_;
  int device_;
  Value segments_;
  Value trace_;
  std::vector<TraceEntry> entries_;
  SnapshotState state_;  // at the end, then at the start
  bool has_segments_ = false;
  bool has_pinned_ = false;
  uint64_t end_allocated_ = 0;  // unsigned, since a damaged snapshot may overflow it
  uint64_t end_reserved_ = 0;
  std::map<std::pair<int64_t, int64_t>, int32_t> pools_;
  Profile profile_;
  StackTable table_{profile_};
  std::vector<Call> calls_;
  std::unordered_map<CallText, uint32_t, CallHash> calls_by_text_;
  std::vector<uint32_t> call_of_value_;  // by the value's index in the document
  AddressMap frames_;                    // by caller and call
  std::unordered_map<uint64_t, uint32_t> labels_of_calls_;
  std::unordered_map<Document::Index, uint32_t> frame_labels_;
  std::unordered_map<uint64_t, StackLabel> labels_of_stacks_;  // by hash of the first such stack
  std::unordered_set<Document::Index> block_lists_;            // the lists that segments have
};

/// Returns the devices that have an entry in their trace, or a segment.
std::vector<int> devices_of(Value snapshot) {
  constexpr int kMostDevices = 1024;
  std::vector<int> devices;
  const Value traces = snapshot["device_traces"];
  for (size_t i = 0; i < std::min<size_t>(traces.size(), kMostDevices); ++i) {
    if (traces.at(i).size() > 0) devices.push_back(static_cast<int>(i));
  }
  const Value segments = segments_of(snapshot);
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
  const bool is_json =
      first != std::string_view::npos && (bytes[first] == '{' || bytes[first] == '[');
  return is_json ? read_json(bytes) : read_pickle(bytes);
}

bool is_memory_viz(const std::string& path) {
  constexpr size_t kLooked = 4096;
  const InputFile file(path);
  std::string start(std::min<uint64_t>(kLooked, file.bytes()), '\0');
  if (!file.read_at(0, std::as_writable_bytes(std::span(start)))) return false;
  if (start.size() > 1 && start[0] == '\x80') return start[1] >= 2 && start[1] <= 5;
  std::erase_if(start, [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
  if (start.starts_with("[")) return true;
  return std::ranges::any_of(kSnapshotKeys, [&](std::string_view key) {
    return start.starts_with(fmt::format("{{\"{}\":", key));
  });
}

Profile import_memory_viz(std::string_view bytes, std::optional<int> device) {
  return import_snapshot(read_snapshot(bytes), device);
}

Profile import_snapshot(const Document& document, std::optional<int> device) {
  const Value snapshot(document);
  if (!snapshot["device_traces"].is(Document::Type::list) &&
      !segments_of(snapshot).is(Document::Type::list)) {
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
