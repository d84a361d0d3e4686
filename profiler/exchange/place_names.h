// Names the place in a run at which an event happened: "step 3, BACKWARD attention2".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/recording/events.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// The place in the run that the events so far have reached.
struct Place {
  Phase phase = Phase::starting;
  int64_t step = -1;  // the last of training that began; -1: none yet
  int32_t action = -1;

  /// Updates the place by a usable event.
  void take(const Event& event);
  bool operator==(const Place&) const = default;
};

/// Names the actions of a recording by the schedules in its header.
class PlaceNames {
 public:
  explicit PlaceNames(const Header& header);

  /// Returns "BACKWARD attention2"; "backward" in a program without a schedule; "action 7" if
  /// neither is known; an empty text for -1.
  std::string action(Phase phase, int32_t id) const;

  /// Returns "step 3, BACKWARD attention2", "step 3", "evaluating, FORWARD mlp0" or "starting".
  std::string place(const Place& place) const;

 private:
  /// The names of one schedule's actions.
  struct Names {
    explicit Names(const std::string& schedule);

    ActionLines actions;
    std::vector<std::string> names;  // by line
  };

  Names train_;
  Names evaluate_;
  std::array<std::string, kProgramParts> parts_;  // empty with a schedule
};

/// Returns the text of a label, which is UTF-8 whatever was recorded.
std::string label_text(const std::vector<std::string>& strings, uint32_t label);

}  // namespace shardlens::profiler
