// Names the actions of a lane by the schedules that its recording carries as text: names and kinds
// of actions for the ribbon, and the points of a step by which two runs are aligned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/choice.h"
#include "planner/schedule/schedule.h"
#include "viewer/model/lane.h"

namespace shardlens::viewer {

/// The part of a step that an action belongs to.
enum class PassPart : uint8_t {
  input,
  gather,
  forward,
  loss,
  backward,
  reduce,
  optimizer,
  communication,  // of a program without a schedule, as is the next one
  checkpoint,
  other,
};
constexpr int kPassParts = 10;
constexpr auto choice_words(PassPart) {
  return words("input", "gather", "forward", "loss", "backward", "reduce", "optimizer",
               "communication", "checkpoint", "other");
}
static_assert(kWords<PassPart>.size() == kPassParts);

struct ActionName {
  std::string text;  // "BACKWARD unit=mlp3", "backward"; "action 57" if nothing else is known
  PassPart part = PassPart::other;
  std::string unit;  // of compute; empty otherwise
};

/// A set of parts, one bit for each.
using PassParts = uint32_t;
constexpr PassParts only(PassPart part) { return PassParts{1} << static_cast<unsigned>(part); }

constexpr PassParts kCommunicationParts =
    only(PassPart::gather) | only(PassPart::reduce) | only(PassPart::communication);
constexpr bool is_communication(PassPart part) { return (only(part) & kCommunicationParts) != 0; }

class ActionNames {
 public:
  ActionNames() = default;
  explicit ActionNames(const profiler::Header& header);

  /// Returns an action's name; its text is "outside a pass" for -1.
  ActionName name_of(profiler::Phase phase, int32_t action) const;
  /// True if actions are the parts of a program without a schedule.
  bool are_of_program() const { return !parts_.empty(); }
  /// Returns the parts of all actions that the schedules list.
  PassParts listed_parts() const;
  /// Returns the part of the same action, for pictures of many actions, which need only that.
  PassPart part_of(profiler::Phase phase, int32_t action) const;

 private:
  /// The names of one schedule's actions.
  struct Names {
    Names() = default;
    explicit Names(const std::string& schedule);

    std::vector<ActionName> listed;  // as the schedule lists its actions
    planner::Repetition repetition;
  };

  const ActionName* find(profiler::Phase phase, int32_t action) const;

  Names train_;
  Names evaluate_;
  std::vector<ActionName> parts_;  // of a program without schedules
};

/// Returns the parts that the ribbon of a lane may show.
PassParts parts_in(const Lane& lane, const ActionNames& names);

/// A moment of a step that runs of one model have in common: "forward of mlp3 begins".
struct Landmark {
  std::string key;
  int64_t time_ns = 0;
};

/// Returns the landmarks of the stretch with this index, in order of time; every key is unique.
std::vector<Landmark> landmarks_of(const Lane& lane, const ActionNames& names, size_t stretch);

}  // namespace shardlens::viewer
