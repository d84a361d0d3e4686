#include "profiler/exchange/export_table.h"

#include <fmt/format.h>

#include <string>

#include "base/shown.h"

namespace shardlens::profiler {

namespace {

std::string csv(const std::string& recorded) {
  const std::string text = shown(recorded);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

/// Returns the recording's state for every row, since rows are what users copy elsewhere: "whole",
/// "damaged" or "whole, 12 lost".
std::string recording_word(const Judgement& judgement) {
  const std::string state(to_string(judgement.state));
  return judgement.lost_events == 0 ? state
                                    : csv(fmt::format("{}, {} lost", state, judgement.lost_events));
}

}  // namespace

void write_timeline_csv(const std::vector<MemoryTimeline>& timelines, std::ostream& out) {
  out << "rank,time_ms,step,phase,action,total_bytes";
  for (const std::string_view name : kWords<Category>) out << ',' << name;
  out << ",recording\n";
  for (const MemoryTimeline& timeline : timelines) {
    const PlaceNames names(timeline.header);
    for (const TimelinePoint& point : timeline.points) {
      out << fmt::format(
          "{},{:.6f},{},{},{},{}", timeline.header.rank, static_cast<double>(point.time_ns) / 1e6,
          point.place.step, to_string(point.place.phase),
          csv(names.action(point.place.phase, point.place.action)), point.total_bytes);
      for (const int64_t bytes : point.bytes) out << ',' << bytes;
      out << ',' << recording_word(timeline.judgement) << '\n';
    }
  }
}

void write_largest_csv(const std::vector<MemoryTimeline>& timelines, std::ostream& out) {
  out << "rank,bytes,category,label,step,action,recording\n";
  for (const MemoryTimeline& timeline : timelines) {
    const PlaceNames names(timeline.header);
    for (const PeakTensor& tensor : timeline.largest) {
      out << fmt::format("{},{},{},{},{},{},{}\n", timeline.header.rank, tensor.bytes,
                         to_string(tensor.category), csv(tensor.label), tensor.place.step,
                         csv(names.action(tensor.place.phase, tensor.place.action)),
                         recording_word(timeline.judgement));
    }
  }
}

}  // namespace shardlens::profiler
