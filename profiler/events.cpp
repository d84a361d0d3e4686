#include "profiler/events.h"

#include <sstream>

namespace shardlens::profiler {

bool is_memory(const Event& event) {
  return event.kind == EventKind::alloc || event.kind == EventKind::free;
}

bool is_usable(const Event& event) {
  if (static_cast<int>(event.kind) >= kEventKinds || static_cast<int>(event.space) >= kSpaces ||
      static_cast<int>(event.category) >= kCategories) {
    return false;
  }
  const auto is_below = [&](int64_t limit) { return event.value >= 0 && event.value < limit; };
  switch (event.kind) {
    case EventKind::alloc:
    case EventKind::free:
    case EventKind::out_of_memory:
    case EventKind::hold:
      return is_below(kMostEventBytes);
    case EventKind::phase:
      return is_below(kPhases);
    case EventKind::counter:
      return event.address < kCounters;
    case EventKind::recategorise:
    case EventKind::step:
    case EventKind::action_begin:
    case EventKind::action_end:
    case EventKind::release:
      return true;
  }
  return false;
}

std::vector<std::string> action_lines(const std::string& schedule) {
  std::vector<std::string> actions;
  std::istringstream lines(schedule);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    size_t id = 0;
    if (!(words >> id) || id != actions.size()) continue;
    std::string text;
    for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
    actions.push_back(std::move(text));
  }
  return actions;
}

}  // namespace shardlens::profiler
