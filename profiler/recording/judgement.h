// A judgement says how far a recording can be trusted: whether it holds all events, and if not,
// what that means for the numbers taken from it. The reader judges; every report that shows a
// number shows the judgement beside it, in these words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"

namespace shardlens::profiler {

enum class RecordingState : uint8_t {
  whole,    // its writer closed it, and every block is intact
  growing,  // its writer still writes
  killed,   // its writer ended without closing it; everything recorded until then is intact
  newer,    // a later version wrote it, with events that this version leaves out
  damaged,  // blocks are missing, or their bytes are not what was written
};
constexpr auto choice_words(RecordingState) {
  return words("whole", "growing", "killed", "newer", "damaged");
}

/// The relation of a peak that was taken from a recording to the program's own peak.
enum class PeakBound : uint8_t {
  exact,
  at_least,  // memory that is missing can only add to it
  about,     // what is missing may have been frees: the true peak may be higher or lower
};
constexpr auto choice_words(PeakBound) { return words("exact", "at_least", "about"); }

struct Judgement {
  RecordingState state = RecordingState::whole;
  int64_t lost_events = 0;       // that could not be kept, or that an import left open
  int64_t missing_from_ns = -1;  // events are missing from this time on; -1: none
  /// Memory was in use before the first event, so that a higher peak may have come before it.
  bool begins_late = false;
  std::vector<std::string> faults{};  // what is damaged or missing, one line each

  PeakBound bound() const;
  bool is_exact() const { return bound() == PeakBound::exact; }

  bool operator==(const Judgement&) const = default;
};

/// True if the recording was closed, is intact, and lacks no events, not even earlier ones.
bool is_whole(const Judgement& judgement);

/// Returns "whole", or what is wrong and what it means for the peak, in one line.
std::string judgement_text(const Judgement& judgement);

/// Returns "at least ", "about " or an empty text, to be printed right before a peak.
std::string_view bound_prefix(const Judgement& judgement);

/// Judges two recordings as one: takes the worse state, and all lost events and faults, so that a
/// run is as trustworthy as its worst rank.
Judgement joined(const Judgement& a, const Judgement& b);

}  // namespace shardlens::profiler
