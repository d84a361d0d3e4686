// Reads schedules as text, which recordings contain and the viewer reads.

#include "planner/schedule/schedule.h"

#include <stdexcept>

#include "tests/fuzz/harness.h"

namespace shardlens::fuzz {

void schedule(std::string_view input) {
  planner::Schedule schedule;
  if (!answers([&] { schedule = planner::parse_schedule(input); })) return;
  const std::string text = planner::to_text(schedule);
  expect(planner::parse_schedule(text) == schedule, "a schedule is another when read again");
  for (int action = 0; action < static_cast<int>(schedule.actions.size()); ++action) {
    planner::action_to_text(schedule, action);
  }
  try {
    planner::validate(schedule);
  } catch (const std::logic_error&) {
    // It breaks a rule, which validate() exists to report.
  }
}

}  // namespace shardlens::fuzz
