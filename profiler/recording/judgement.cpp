#include "profiler/recording/judgement.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardlens::profiler {

namespace {

std::string state_text(const Judgement& judgement) {
  switch (judgement.state) {
    case RecordingState::whole:
      return {};
    case RecordingState::growing:
      return "still being written: the peak so far";
    case RecordingState::killed:
      return "not closed, its program was killed or could no longer write: the peak until then";
    case RecordingState::newer:
      return "written by a later version, whose new events are left out: the peak may be higher or "
             "lower";
    case RecordingState::damaged:
      if (judgement.missing_from_ns < 0) return "damaged, but no event is missing";
      return fmt::format("damaged from {:.3f} s on: the peak is a lower bound",
                         static_cast<double>(judgement.missing_from_ns) / 1e9);
  }
  return {};
}

}  // namespace

PeakBound Judgement::bound() const {
  if (lost_events > 0 || state == RecordingState::newer) return PeakBound::about;
  const bool has_all_events =
      state == RecordingState::whole || (state == RecordingState::damaged && missing_from_ns < 0);
  return has_all_events && !begins_late ? PeakBound::exact : PeakBound::at_least;
}

bool is_whole(const Judgement& judgement) {
  return judgement.state == RecordingState::whole && judgement.lost_events == 0 &&
         !judgement.begins_late;
}

std::string judgement_text(const Judgement& judgement) {
  std::string text = state_text(judgement);
  if (judgement.lost_events > 0) {
    text += fmt::format("{}{} events were lost or are uncertain: the peak may be higher or lower",
                        text.empty() ? "" : "; ", judgement.lost_events);
  }
  if (judgement.begins_late) {
    text += fmt::format(
        "{}begins with memory in use: an earlier peak may be higher, so the peak is a lower bound",
        text.empty() ? "" : "; ");
  }
  return text.empty() ? std::string(to_string(judgement.state)) : text;
}

std::string_view bound_prefix(const Judgement& judgement) {
  switch (judgement.bound()) {
    case PeakBound::exact:
      return "";
    case PeakBound::at_least:
      return "at least ";
    case PeakBound::about:
      return "about ";
  }
  return "";
}

Judgement joined(const Judgement& a, const Judgement& b) {
  Judgement both{.state = std::max(a.state, b.state), .lost_events = a.lost_events + b.lost_events};
  const bool both_miss = a.missing_from_ns >= 0 && b.missing_from_ns >= 0;
  both.missing_from_ns = both_miss ? std::min(a.missing_from_ns, b.missing_from_ns)
                                   : std::max(a.missing_from_ns, b.missing_from_ns);
  both.begins_late = a.begins_late || b.begins_late;
  both.faults = a.faults;
  both.faults.insert(both.faults.end(), b.faults.begin(), b.faults.end());
  return both;
}

}  // namespace shardlens::profiler
