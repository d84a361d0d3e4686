#include "planner/schedule/repetition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {

namespace {

constexpr int kEqualRounds = 3;
constexpr int kFewest = kEqualRounds + 2;  // microbatches in which rounds are looked for
constexpr int kMost = 64;

/// Returns the ids of the LOAD_INPUT actions, with which microbatches begin.
std::vector<int> loads_in(const Schedule& schedule) {
  std::vector<int> loads;
  for (int id = 0; id < schedule.size(); ++id) {
    if (schedule.action(id).kind == ActionKind::load_input) loads.push_back(id);
  }
  return loads;
}

Action moved(Action action, int actions, int microbatches) {
  action.microbatch += microbatches;
  for (int& wait : action.waits) wait += actions;
  return action;
}

class RoundFinder {
 public:
  explicit RoundFinder(const Schedule& schedule)
      : schedule_(schedule), loads_(loads_in(schedule)) {}

  /// Returns the earliest of the shortest rounds.
  std::optional<Round> find() const {
    const auto count = static_cast<int>(loads_.size());
    for (int microbatches = 1; kEqualRounds * microbatches + 2 <= count; ++microbatches) {
      for (int first = 1; first + kEqualRounds * microbatches < count; ++first) {
        if (is_round({first, microbatches})) return Round{first, microbatches};
      }
    }
    return std::nullopt;
  }

  bool is_round(const Round& round) const {
    const int behind = round.first + kEqualRounds * round.microbatches;
    if (behind >= static_cast<int>(loads_.size())) return false;
    for (int i = 1; i < kEqualRounds; ++i) {
      if (!is_again(round, round.first + i * round.microbatches)) return false;
    }
    return keeps_slots(round) && waits_for_near(round);
  }

  int begin_of(int microbatch) const { return loads_[static_cast<size_t>(microbatch)]; }

 private:
  const Action& action(int id) const { return schedule_.action(id); }

  bool is_again(const Round& round, int later) const {
    const int begin = begin_of(round.first);
    const int length = begin_of(round.first + round.microbatches) - begin;
    const int distance = begin_of(later) - begin;
    if (begin_of(later + round.microbatches) - begin_of(later) != length) return false;
    for (int id = begin; id < begin + length; ++id) {
      if (moved(action(id), distance, later - round.first) != action(id + distance)) return false;
    }
    return true;
  }

  /// True if the round touches only slots that last: others get memory once per step.
  bool keeps_slots(const Round& round) const {
    const auto lasts = [&](int slot) { return schedule_.slot(slot).lasts(); };
    for (int id = begin_of(round.first); id < begin_of(round.first + round.microbatches); ++id) {
      if (!std::ranges::all_of(action(id).reads, lasts)) return false;
      if (!std::ranges::all_of(action(id).writes, lasts)) return false;
    }
    return true;
  }

  /// True if actions after the rounds wait for nothing before the last round.
  bool waits_for_near(const Round& round) const {
    const int last = begin_of(round.first + (kEqualRounds - 1) * round.microbatches);
    for (int id = begin_of(round.first + kEqualRounds * round.microbatches); id < schedule_.size();
         ++id) {
      if (std::ranges::any_of(action(id).waits, [&](int wait) { return wait < last; }))
        return false;
    }
    return true;
  }

  const Schedule& schedule_;
  std::vector<int> loads_;
};

void expect_countable(int64_t actions, int microbatches) {
  if (actions <= std::numeric_limits<int>::max()) return;
  throw std::invalid_argument(fmt::format(
      "--accumulate {}: a step would have more than 2^31 actions; give fewer", microbatches));
}

}  // namespace

int Repetition::round_of(int id) const {
  if (id < end) return 0;
  return std::min((id - begin) / length(), times - 1);
}

int Repetition::index_of(int id) const {
  if (id < end) return id;
  return id < end + repeated_actions() ? begin + (id - begin) % length() : id - repeated_actions();
}

std::vector<int> Schedule::waits_of(int id) const {
  const int index = repetition.index_of(id);
  std::vector<int> waits = actions[static_cast<size_t>(index)].waits;
  for (int& wait : waits) wait += id - repetition.first_id_of(index);
  return waits;
}

int Schedule::microbatch_of(int id) const {
  const int index = repetition.index_of(id);
  const int first = actions[static_cast<size_t>(index)].microbatch;
  if (!repetition.is_in_round(index)) return first;
  return first + repetition.round_of(id) * repetition.microbatches;
}

Schedule Schedule::unrolled(int most_rounds) const {
  Schedule other = *this;
  const int times = std::min(repetition.times, most_rounds);
  const int fewer = repetition.times - times;
  const int behind = repetition.end + times * repetition.length() - repetition.length();
  other.microbatches -= fewer * repetition.microbatches;
  other.repetition = {};
  other.actions.clear();
  for (int id = 0; id < size() - fewer * repetition.length(); ++id) {
    const bool is_behind = id >= behind;
    const int from = is_behind ? id + fewer * repetition.length() : id;
    Action action = this->action(from);
    action.microbatch = microbatch_of(from) - (is_behind ? fewer * repetition.microbatches : 0);
    action.waits = waits_of(from);
    for (int& wait : action.waits) wait -= from - id;
    other.actions.push_back(std::move(action));
  }
  return other;
}

FewMicrobatches few_that_stand_for(int microbatches, const ScheduleBuilder& build) {
  for (int few = kFewest; few < std::min(microbatches, kMost); few += std::max(1, few / 4)) {
    const Schedule schedule = build(few);
    const std::optional<Round> round = RoundFinder(schedule).find();
    if (!round) continue;
    // The microbatches that are left must be a number of whole rounds.
    const int odd = (microbatches - few) % round->microbatches;
    if (odd == 0 || RoundFinder(build(few + odd)).is_round(*round)) return {few + odd, round};
  }
  return {microbatches, std::nullopt};
}

/// Keeps one of the equal rounds, to be repeated as often as `microbatches` needs.
Schedule repeated(Schedule schedule, const FewMicrobatches& few, int microbatches) {
  if (!few.round) return schedule;
  const RoundFinder places(schedule);
  const auto [first, in_round] = *few.round;
  const int begin = places.begin_of(first);
  const int end = places.begin_of(first + in_round);
  const int behind = places.begin_of(first + kEqualRounds * in_round);
  const int more = microbatches - schedule.microbatches;
  const int more_rounds = more / in_round;
  expect_countable(schedule.size() + int64_t{end - begin} * more_rounds, microbatches);
  check(more >= 0 && more % in_round == 0, "a step is repeated by parts of a round");
  std::vector<Action>& actions = schedule.actions;
  for (auto action = actions.begin() + behind; action != actions.end(); ++action) {
    *action = moved(std::move(*action), more_rounds * (end - begin), more);
  }
  actions.erase(actions.begin() + end, actions.begin() + behind);
  schedule.microbatches = microbatches;
  schedule.repetition = {begin, end, more_rounds + kEqualRounds, in_round};
  check(begin > 0 && begin < end && end < static_cast<int>(actions.size()),
        "a round leaves nothing before it, or behind it");
  return schedule;
}

}  // namespace shardlens::planner
