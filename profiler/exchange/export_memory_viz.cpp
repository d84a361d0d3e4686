#include "profiler/exchange/export_memory_viz.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/exchange/lifetimes.h"
#include "profiler/exchange/place_names.h"
#include "profiler/exchange/segment_ranges.h"
#include "profiler/recording/blocks.h"
#include "profiler/recording/events.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kDevice = 0;  // a recording knows one device

class SnapshotExport {
 public:
  SnapshotExport(const Profile& profile, DocumentWriter& out)
      : profile_(profile),
        lives_(lifetimes_of(profile, Space::device)),
        names_(profile.header),
        out_(out) {
    if (lives_.lives.empty()) {
      throw std::invalid_argument(
          "no device memory was recorded, and memory_viz shows nothing else; "
          "export a recording of the CPU as perfetto, csv or html");
    }
    for (uint32_t i = 0; i < profile.strings.size(); ++i)
      labels_.push_back(label_text(profile.strings, i));
  }

  void write() {
    out_.begin_map();
    out_.key("device_traces");
    out_.begin_list();
    out_.begin_list();
    write_trace();
    out_.end_list();
    out_.end_list();
    out_.key("segments");
    write_segments();
    out_.key("allocator_settings");
    out_.begin_map();
    out_.end_map();
    out_.field("shardlens_judgement", judgement_text(profile_.judgement));
    out_.key("external_annotations");
    out_.begin_list();
    out_.end_list();
    out_.end_map();
    out_.finish();
  }

 private:
  std::string label(uint32_t index) const {
    return index < labels_.size() ? labels_[index] : label_text(profile_.strings, index);
  }

  // --- the trace ---------------------------------------------------------------------------------

  void write_trace() {
    auto change = lives_.changes.begin();
    for (size_t i = 0; i < profile_.events.size(); ++i) {
      const Event& event = profile_.events[i];
      if (!is_usable(event)) continue;
      place_.take(event);
      for (; change != lives_.changes.end() && change->event == i; ++change) {
        write_change(*change, event);
      }
      if (event.space == Space::segment && is_memory(event)) write_segment_event(event);
      if (event.space == Space::device && event.kind == EventKind::out_of_memory) {
        begin_entry("oom", "device_free", event.address, event);
        end_entry(event, "unknown", event.label);
      }
    }
    // The viewer fails if "unknown" is not among the categories.
    const Event end{.time_ns = profile_.events.empty() ? 0 : profile_.events.back().time_ns,
                    .action = -1};
    begin_entry("snapshot", "addr", 0, end);
    end_entry(end, "unknown", 0);
  }

  void write_change(const LifeChange& change, const Event& now) {
    const Lifetime& life = lives_.lives[change.life];
    const Event& begun = profile_.events[life.begin];
    Event event = begun;
    event.time_ns = now.time_ns;
    event.action = now.action;
    const auto category = to_string(life.category);
    const std::vector<const char*> actions =
        change.begins ? std::vector{"alloc"} : std::vector{"free_requested", "free_completed"};
    for (const char* action : actions) {
      begin_entry(action, "addr", event.address, event);
      if (change.begins) out_.field("block_size", life.given_bytes);
      end_entry(event, category, begun.label);
    }
  }

  void write_segment_event(const Event& event) {
    const bool mapped = event.label != 0;
    const uint64_t end = event.address + static_cast<uint64_t>(event.value);
    if (event.kind == EventKind::alloc) {
      const bool small =
          mapped ? event.value % page_bytes(Pool::large) != 0 : event.value <= kSmallSegmentBytes;
      segments_.add(event.address, {.end = end,
                                    .stream = event.stream,
                                    .private_pool = pool_of_action(event.action),
                                    .expandable = mapped,
                                    .small = small});
      begin_entry(mapped ? "segment_map" : "segment_alloc", "addr", event.address, event);
    } else {
      segments_.remove(event.address, end);
      begin_entry(mapped ? "segment_unmap" : "segment_free", "addr", event.address, event);
    }
    write_pool("pool_id",
               event.kind == EventKind::alloc ? pool_of_action(event.action) : kNoPrivatePool);
    Event segment = event;
    segment.action = std::max(segment.action, -1);  // below: its private pool
    end_entry(segment, "unknown", event.label);
  }

  /// Writes the id of a private pool, as PyTorch has it for pools that a program made.
  void write_pool(std::string_view name, int32_t private_pool) {
    if (private_pool == kNoPrivatePool) return;
    out_.key(name);
    out_.begin_list();
    out_.integer(int64_t{0});
    out_.integer(int64_t{private_pool} + 1);
    out_.end_list();
  }

  void begin_entry(std::string_view action, std::string_view address_name, uint64_t address,
                   const Event& event) {
    out_.begin_map();
    out_.field("action", action);
    out_.field(address_name, static_cast<int64_t>(address));
    out_.field("size", event.value);
    out_.field("stream", int64_t{event.stream});
    out_.field("time_us", (profile_.header.start_realtime_ns + event.time_ns) / 1000);
  }

  void end_entry(const Event& event, std::string_view category, uint32_t label_index) {
    const std::string name = label(label_index);
    out_.field("category", category);
    out_.field("user_metadata", fmt::format("{} {}", category, name));
    write_frames(label_index, names_.place(place_), event.action);
    out_.end_map();
  }

  /// Writes the stack of a label; if it has none, a frame made of its text and its place in the
  /// run.
  void write_frames(uint32_t label_index, const std::string& place, int64_t action) {
    out_.key("frames");
    out_.begin_list();
    uint32_t frame = profile_.stacks.innermost_frame(label_index);
    if (frame == 0) write_frame(label(label_index), place, action);
    for (; frame != 0; frame = profile_.stacks.frames[frame].caller) {
      const StackFrame& call = profile_.stacks.frames[frame];
      write_frame(label(call.function), label(call.file), call.line);
    }
    out_.end_list();
  }

  void write_frame(const std::string& name, const std::string& file, int64_t line) {
    out_.begin_map();
    out_.field("name", name);
    out_.field("filename", file);
    out_.field("line", line);
    out_.end_map();
  }

  // --- the end -----------------------------------------------------------------------------------

  void write_segments() {
    add_unrecorded_segments();
    out_.begin_list();
    auto life = lives_.last.begin();
    for (const auto& [begin, range] : segments_.ranges()) {
      std::vector<uint32_t> blocks;
      for (; life != lives_.last.end() && address_of(*life) < range.end; ++life) {
        blocks.push_back(*life);
      }
      write_segment(begin, range, blocks);
    }
    out_.end_list();
  }

  /// Adds a segment for every block that has none, so that each has one even if segments were not
  /// recorded.
  void add_unrecorded_segments() {
    for (const uint32_t life : lives_.last) {
      const uint64_t address = address_of(life);
      const auto after = segments_.ranges().upper_bound(address);
      if (after != segments_.ranges().begin() && std::prev(after)->second.end > address) continue;
      const auto bytes = static_cast<uint64_t>(lives_.lives[life].given_bytes);
      segments_.add(address, {.end = address + bytes,
                              .stream = event_of(life).stream,
                              .small = pool_of(lives_.lives[life].given_bytes) == Pool::small});
    }
  }

  const Event& event_of(uint32_t life) const { return profile_.events[lives_.lives[life].begin]; }
  uint64_t address_of(uint32_t life) const { return event_of(life).address; }

  void write_segment(uint64_t begin, const SegmentRange& range,
                     const std::vector<uint32_t>& blocks) {
    int64_t allocated = 0;
    int64_t requested = 0;
    for (const uint32_t life : blocks) {
      allocated += lives_.lives[life].given_bytes;
      requested += event_of(life).value;
    }
    out_.begin_map();
    out_.field("device", kDevice);
    out_.field("address", static_cast<int64_t>(begin));
    out_.field("total_size", static_cast<int64_t>(range.end - begin));
    out_.field("allocated_size", allocated);
    out_.field("active_size", allocated);
    out_.field("requested_size", requested);
    out_.field("stream", range.stream);
    out_.field("segment_type", range.small ? "small" : "large");
    out_.field("is_expandable", range.expandable);
    write_pool("segment_pool_id", range.private_pool);
    out_.key("frames");
    out_.begin_list();
    out_.end_list();
    out_.key("blocks");
    write_blocks(begin, range.end, blocks);
    out_.end_map();
  }

  void write_blocks(uint64_t begin, uint64_t end, const std::vector<uint32_t>& blocks) {
    out_.begin_list();
    for (const uint32_t life : blocks) {
      const Event& event = event_of(life);
      if (event.address > begin) write_free_block(begin, event.address);
      begin_block(event.address, lives_.lives[life].given_bytes, event.value, "active_allocated");
      write_frames(event.label, std::string(to_string(lives_.lives[life].category)), event.action);
      out_.end_map();
      begin = event.address + static_cast<uint64_t>(lives_.lives[life].given_bytes);
    }
    if (end > begin) write_free_block(begin, end);
    out_.end_list();
  }

  void write_free_block(uint64_t begin, uint64_t end) {
    begin_block(begin, static_cast<int64_t>(end - begin), 0, "inactive");
    out_.key("frames");
    out_.begin_list();
    out_.end_list();
    out_.end_map();
  }

  void begin_block(uint64_t address, int64_t bytes, int64_t requested, std::string_view state) {
    out_.begin_map();
    out_.field("address", static_cast<int64_t>(address));
    out_.field("size", bytes);
    out_.field("requested_size", requested);
    out_.field("state", state);
  }

  const Profile& profile_;
  Lifetimes lives_;
  PlaceNames names_;
  DocumentWriter& out_;
  std::vector<std::string> labels_;
  Place place_;
  SegmentRanges segments_;
};

}  // namespace

void export_memory_viz(const Profile& profile, DocumentWriter& out) {
  SnapshotExport(profile, out).write();
}

}  // namespace shardlens::profiler
