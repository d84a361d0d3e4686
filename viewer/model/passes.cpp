#include "viewer/model/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "profiler/recording/events.h"

namespace shardlens::viewer {

namespace {

using planner::ActionKind;

PassPart part_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::load_input:
      return PassPart::input;
    case ActionKind::h2d:
    case ActionKind::cast_shard:
    case ActionKind::all_gather:
    case ActionKind::reshard:
      return PassPart::gather;
    case ActionKind::forward:
      return PassPart::forward;
    case ActionKind::loss:
      return PassPart::loss;
    case ActionKind::recompute:
    case ActionKind::backward:
      return PassPart::backward;
    case ActionKind::d2h:
    case ActionKind::reduce_scatter:
    case ActionKind::all_reduce:
    case ActionKind::accumulate:
      return PassPart::reduce;
    case ActionKind::clip:
    case ActionKind::optimizer_step:
      return PassPart::optimizer;
  }
  return PassPart::other;
}

PassPart pass_part(profiler::ProgramPart part) {
  using profiler::ProgramPart;
  switch (part) {
    case ProgramPart::input:
      return PassPart::input;
    case ProgramPart::forward:
      return PassPart::forward;
    case ProgramPart::backward:
      return PassPart::backward;
    case ProgramPart::optimizer:
      return PassPart::optimizer;
    case ProgramPart::communication:
      return PassPart::communication;
    case ProgramPart::checkpoint:
      return PassPart::checkpoint;
  }
  return PassPart::other;
}

ActionName name_of_action(const planner::Schedule& schedule, const planner::Action& action) {
  ActionName name{
      .text = std::string(to_string(action.kind)), .part = part_of(action.kind), .unit = ""};
  if (action.unit >= 0) {
    name.unit = schedule.units[static_cast<size_t>(action.unit)];
    name.text += " " + name.unit;
  } else if (action.group >= 0) {
    name.text += " " + schedule.groups[static_cast<size_t>(action.group)].name;
  }
  if (action.bucket >= 0) name.text += fmt::format(" bucket {}", action.bucket);
  return name;
}

}  // namespace

/// Parses a schedule; the names stay empty if the text is not one, as in an imported or damaged
/// recording.
ActionNames::Names::Names(const std::string& text) {
  if (text.empty()) return;
  try {
    const planner::Schedule schedule = planner::parse_schedule(text);
    for (const planner::Action& action : schedule.actions) {
      listed.push_back(name_of_action(schedule, action));
    }
    repetition = schedule.repetition;
  } catch (const std::exception&) {
    listed.clear();
  }
}

ActionNames::ActionNames(const profiler::Header& header)
    : train_(header.train), evaluate_(header.evaluate) {
  for (int32_t i = 0; i < profiler::kProgramParts; ++i) {
    const auto part = profiler::program_part(header, i);
    if (!part) return;
    parts_.push_back({.text = std::string(to_string(*part)), .part = pass_part(*part), .unit = ""});
  }
}

ActionName ActionNames::name_of(profiler::Phase phase, int32_t action) const {
  if (action < 0) return {.text = "outside a pass", .part = PassPart::other, .unit = ""};
  if (const ActionName* const known = find(phase, action)) return *known;
  return {.text = fmt::format("action {}", action), .part = PassPart::other, .unit = ""};
}

PassPart ActionNames::part_of(profiler::Phase phase, int32_t action) const {
  const ActionName* const known = find(phase, action);
  return known != nullptr ? known->part : PassPart::other;
}

PassParts ActionNames::listed_parts() const {
  PassParts parts = 0;
  for (const Names* const names : {&train_, &evaluate_}) {
    for (const ActionName& name : names->listed) parts |= only(name.part);
  }
  return parts;
}

/// Returns the action's name; nullptr if the schedule has no such action.
const ActionName* ActionNames::find(profiler::Phase phase, int32_t action) const {
  const Names& names = phase == profiler::Phase::evaluating ? evaluate_ : train_;
  if (action < 0) return nullptr;
  if (static_cast<size_t>(action) < parts_.size()) return &parts_[static_cast<size_t>(action)];
  const auto index = static_cast<size_t>(names.repetition.index_of(action));
  return index < names.listed.size() ? &names.listed[index] : nullptr;
}

PassParts parts_in(const Lane& lane, const ActionNames& names) {
  if (lane.arrays().spans.empty()) return 0;
  if (!names.are_of_program()) return names.listed_parts();
  PassParts parts = 0;
  for (const Span& span : lane.arrays().spans) {
    const Stretch& stretch = lane.arrays().stretches[static_cast<size_t>(span.stretch)];
    parts |= only(names.part_of(stretch.phase, span.action));
  }
  return parts;
}

std::vector<Landmark> landmarks_of(const Lane& lane, const ActionNames& names, size_t stretch) {
  const auto& spans = lane.arrays().spans;
  const auto wanted = static_cast<int64_t>(stretch);
  auto span = std::ranges::lower_bound(spans, wanted, {}, &Span::stretch);
  const profiler::Phase phase = lane.arrays().stretches[stretch].phase;
  std::vector<Landmark> landmarks;
  std::set<std::string> known;
  for (; span != spans.end() && span->stretch == wanted; ++span) {
    const ActionName name = names.name_of(phase, span->action);
    const bool is_of_program = name.part == PassPart::forward || name.part == PassPart::backward ||
                               name.part == PassPart::optimizer;
    const bool is_known = !name.unit.empty() || name.part == PassPart::loss ||
                          (names.are_of_program() && is_of_program);
    if (!is_known) continue;
    const std::string key = fmt::format("{}:{}", static_cast<int>(name.part), name.unit);
    if (known.insert(key).second) landmarks.push_back({key, span->begin_ns});
  }
  return landmarks;
}

}  // namespace shardlens::viewer
