#include "profiler/exchange/export_perfetto.h"
#include "base/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/exchange/place_names.h"
#include "profiler/exchange/timeline.h"
#include "profiler/recording/events.h"
#include "profiler/recording/python_rules.h"
#include "profiler/report/block_tracker.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::json;

enum class Track : uint8_t { phases, steps, actions };
constexpr auto choice_words(Track) { return words("phases", "steps", "actions"); }

// Numbers of processes and threads, which Perfetto keeps in 32 bits; ranks come before.
constexpr int64_t kFirstSimulated = 100'000;
constexpr int64_t kMostTracks = 20'000;

constexpr size_t kMostTensors = 200;  // of the peak, each with its stack

/// A named stretch of time in the trace.
struct Slice {
  std::string name;
  int64_t begin_ns = 0;
  int32_t action = -1;
};

std::string json_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string microseconds(int64_t time_ns) {
  return fmt::format("{}.{:03}", time_ns / 1000, time_ns % 1000);
}

class RankWriter {
 public:
  RankWriter(std::ostream& out, bool& first, const EventSource& source, int64_t offset_ns)
      : out_(out),
        first_(first),
        source_(source),
        names_(source.header),
        offset_ns_(offset_ns),
        process_(int64_t{source.header.rank} + 1) {}  // 0 stands for the idle process

  void write(size_t most_points) {
    const MemoryTimeline timeline = timeline_of(source_, most_points, kMostTensors);
    end_ns_ = timeline.end_ns;
    write_names();
    write_slices();
    write_counters(timeline);
    for (const PeakTensor& tensor : timeline.largest) write_tensor(tensor);
  }

 private:
  int64_t thread(Track track) const { return process_ * 4 + static_cast<int64_t>(track); }

  std::string at(int64_t time_ns) const {
    return microseconds(std::max<int64_t>(0, time_ns + offset_ns_));
  }

  void line(const std::string& event) {
    out_ << (first_ ? "\n" : ",\n") << event;
    first_ = false;
  }

  void write_names() {
    const Header& header = source_.header;
    line(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})",
                     process_,
                     json_text(fmt::format("rank {} of {}, {}", header.rank, header.world_size,
                                           header.device))));
    line(fmt::format(
        R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", process_,
        header.rank));
    if (!is_whole(source_.judgement())) {
      line(fmt::format(R"({{"ph":"M","name":"process_labels","pid":{},"args":{{"labels":{}}}}})",
                       process_, json_text(judgement_text(source_.judgement()))));
    }
    for (size_t i = 0; i < kWords<Track>.size(); ++i) {
      line(fmt::format(
          R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", process_,
          thread(static_cast<Track>(i)), kWords<Track>[i]));
    }
  }

  // --- slices ------------------------------------------------------------------------------------

  void write_slices() {
    place_.phase = Phase::starting;
    phase_ = Slice{.name = std::string(kWords<Phase>[0])};
    source_.for_each([this](std::span<const Event> events) {
      for (const Event& event : events) {
        if (is_usable(event)) take(event);
      }
    });
    close(step_, Track::steps, end_ns_);
    close(phase_, Track::phases, end_ns_);
    while (!actions_.empty()) end_action(actions_.back().action, end_ns_);
  }

  void take(const Event& event) {
    place_.take(event);
    if (event.space == Space::segment) {
      tracker_.take(event);
      counter("reserved bytes", event.time_ns,
              fmt::format("\"total\":{}", tracker_.totals().reserved));
    }
    switch (event.kind) {
      case EventKind::phase:
        close(step_, Track::steps, event.time_ns);
        close(phase_, Track::phases, event.time_ns);
        phase_ = {.name = std::string(kWords<Phase>[static_cast<size_t>(event.value)]),
                  .begin_ns = event.time_ns};
        return;
      case EventKind::step:
        close(step_, Track::steps, event.time_ns);
        step_ = {.name = fmt::format("step {}", event.value), .begin_ns = event.time_ns};
        return;
      case EventKind::action_begin:
        actions_.push_back({.name = names_.action(place_.phase, event.action),
                            .begin_ns = event.time_ns,
                            .action = event.action});
        return;
      case EventKind::action_end:
        return end_action(event.action, event.time_ns);
      default:
        return;
    }
  }

  /// Ends the innermost action with this number; one whose beginning was lost has no slice.
  void end_action(int32_t action, int64_t time_ns) {
    const auto found =
        std::ranges::find(actions_.rbegin(), actions_.rend(), action, &Slice::action);
    if (found == actions_.rend()) return;
    std::optional<Slice> slice = std::move(*found);
    actions_.erase(std::next(found).base());
    close(slice, Track::actions, time_ns);
  }

  void close(std::optional<Slice>& slice, Track track, int64_t end_ns) {
    if (!slice) return;
    const int64_t duration_ns = std::max<int64_t>(0, end_ns - slice->begin_ns);
    std::string arguments;
    if (slice->action >= 0) arguments = fmt::format(R"(,"args":{{"action":{}}})", slice->action);
    line(fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{},"dur":{}{}}})",
                     json_text(slice->name), process_, thread(track), at(slice->begin_ns),
                     microseconds(duration_ns), arguments));
    slice.reset();
  }

  // --- tensors of the peak -----------------------------------------------------------------------

  /// Writes the life of a tensor that was alive at the peak. Perfetto groups them by their lines,
  /// and shows a list as one row for each frame; it ignores the stacks of the format itself.
  void write_tensor(const PeakTensor& tensor) {
    const Json arguments = {
        {"bytes", tensor.bytes},
        {"category", category_name(tensor.category, has_shards(source_.header))},
        {"allocated", names_.place(tensor.place)},
        {"stack", stack_of(tensor)}};
    const std::string who =
        fmt::format(R"("cat":"alive at the peak","id":"{}.{}","name":{},"pid":{},"tid":{})",
                    process_, ++tensors_, json_text(tensor.label), process_, process_ * 4);
    line(fmt::format(R"({{"ph":"b",{},"ts":{},"args":{}}})", who, at(tensor.begin_ns),
                     arguments.dump(-1, ' ', false, Json::error_handler_t::replace)));
    line(fmt::format(R"({{"ph":"e",{},"ts":{}}})", who, at(tensor.end_ns)));
  }

  /// Returns the frames that led to the allocation, the innermost first, without those of the
  /// hooks.
  std::vector<std::string> stack_of(const PeakTensor& tensor) const {
    std::vector<std::string> frames;
    for (uint32_t i = tensor.innermost_frame; i != 0; i = source_.stacks.frames[i].caller) {
      const StackFrame& frame = source_.stacks.frames[i];
      const std::string& file = source_.strings[frame.file];
      const std::string& function = source_.strings[frame.function];
      if (is_of_hooks(file)) continue;
      frames.push_back(frame.file == 0 ? function
                                       : fmt::format("{} ({}:{})", function, file, frame.line));
    }
    return frames;
  }

  // --- counters ----------------------------------------------------------------------------------

  void write_counters(const MemoryTimeline& timeline) {
    const std::string_view space = to_string(timeline.space);
    std::vector<size_t> used;
    for (size_t i = 0; i < kCategories; ++i) {
      if (timeline.uses(static_cast<Category>(i))) used.push_back(i);
    }
    for (const TimelinePoint& point : timeline.points) {
      counter(fmt::format("{} bytes", space), point.time_ns,
              fmt::format("\"total\":{}", point.total_bytes));
      std::string values;
      for (const size_t i : used) {
        const auto category = static_cast<Category>(i);
        values += fmt::format("{}\"{}\":{}", values.empty() ? "" : ",",
                              category_name(category, has_shards(source_.header)), point.bytes[i]);
      }
      counter(fmt::format("{} bytes by category", space), point.time_ns, values);
    }
  }

  void counter(const std::string& name, int64_t time_ns, const std::string& values) {
    line(fmt::format(R"({{"ph":"C","name":"{}","pid":{},"ts":{},"args":{{{}}}}})", name, process_,
                     at(time_ns), values));
  }

  std::ostream& out_;
  bool& first_;
  const EventSource& source_;
  PlaceNames names_;
  int64_t offset_ns_;
  int64_t process_;
  int64_t end_ns_ = 0;
  int64_t tensors_ = 0;  // that were written
  Place place_;
  BlockTracker tracker_;  // of the segments
  std::optional<Slice> phase_;
  std::optional<Slice> step_;
  std::vector<Slice> actions_;
};

}  // namespace

PerfettoWriter::PerfettoWriter(std::ostream& out, int64_t start_realtime_ns)
    : out_(out), start_realtime_ns_(start_realtime_ns) {
  out_ << R"({"displayTimeUnit":"ms","traceEvents":[)";
}

void PerfettoWriter::add(const EventSource& source, size_t most_points) {
  const int64_t offset_ns = source.header.start_realtime_ns - start_realtime_ns_;
  RankWriter(out_, first_, source, offset_ns).write(most_points);
}

void PerfettoWriter::add(const Header& header, const SimulatedStep& step) {
  const int64_t offset_ns = header.start_realtime_ns - start_realtime_ns_;
  const int64_t process = kFirstSimulated + header.rank;
  const auto line = [this](const std::string& event) {
    out_ << (first_ ? "\n" : ",\n") << event;
    first_ = false;
  };
  const auto track = [process](int number) { return process * kMostTracks + number; };
  line(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process,
                   json_text(fmt::format("rank {} by itself, {}", header.rank, step.title))));
  std::set<int> named;
  for (const SimulatedSlice& slice : step.slices) {
    if (named.insert(slice.track).second) {
      const std::string name =
          slice.track == 0 ? "host" : fmt::format("stream {}", slice.track - 1);
      line(fmt::format(
          R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", process,
          track(slice.track), name));
    }
    line(fmt::format(
        R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{"operator":{}}}}})",
        json_text(slice.name), process, track(slice.track),
        microseconds(std::max<int64_t>(0, slice.begin_ns + offset_ns)),
        microseconds(std::max<int64_t>(0, slice.end_ns - slice.begin_ns)), json_text(slice.from)));
  }
}

void PerfettoWriter::finish() { out_ << "\n]}\n"; }

}  // namespace shardlens::profiler
