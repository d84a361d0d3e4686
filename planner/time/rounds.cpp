#include "planner/time/rounds.h"

#include <algorithm>
#include <span>

namespace shardlens::planner {

namespace {

using profiler::WorkItem;
using profiler::WorkKind;
using profiler::WorkTrace;

constexpr size_t kFewestItems = 4;  // of a round between two waits
constexpr size_t kMostWaits = 12;   // in such a round
constexpr size_t kMostRounds = 16;  // that are looked at, the last ones

bool is_wait(WorkKind kind) {
  return kind == WorkKind::event_synchronize || kind == WorkKind::stream_synchronize ||
         kind == WorkKind::device_synchronize;
}

bool is_run(WorkKind kind) {
  return kind <= WorkKind::graph_launch;  // what a GPU does
}

std::vector<Round> between(const std::vector<size_t>& borders) {
  std::vector<Round> rounds;
  for (size_t i = 0; i + 1 < borders.size(); ++i) rounds.push_back({borders[i], borders[i + 1]});
  return rounds;
}

/// True if both ask for the same pieces of work in the same order, on the same streams.
bool are_alike(const WorkTrace& trace, const Round& one, const Round& other) {
  const auto items = std::span(trace.items);
  return std::ranges::equal(items.subspan(one.begin, one.size()),
                            items.subspan(other.begin, other.size()),
                            [](const WorkItem& a, const WorkItem& b) {
                              return a.work == b.work && a.stream == b.stream;
                            });
}

/// The steps that the recording marks. The last one is left out, since a program's end follows it.
std::vector<Round> steps_of(const WorkTrace& trace) {
  std::vector<size_t> borders;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    if (trace.work_of(trace.items[i]).kind == WorkKind::step) borders.push_back(i);
  }
  return between(borders);
}

/// The parts of the trace that end with a wait.
std::vector<Round> waits_of(const WorkTrace& trace) {
  std::vector<size_t> borders = {0};
  for (size_t i = 0; i < trace.items.size(); ++i) {
    if (is_wait(trace.work_of(trace.items[i]).kind)) borders.push_back(i + 1);
  }
  return between(borders);
}

size_t runs_in(const WorkTrace& trace, const Round& round) {
  size_t runs = 0;
  for (size_t i = round.begin; i < round.end; ++i) {
    runs += is_run(trace.work_of(trace.items[i]).kind);
  }
  return runs;
}

/// Joins `count` waits to a round, the last round ending with the wait `last`.
std::vector<Round> joined(const std::vector<Round>& waits, size_t last, size_t count) {
  std::vector<Round> rounds;
  for (size_t end = last + 1; end >= count && rounds.size() < kMostRounds; end -= count) {
    rounds.insert(rounds.begin(), {waits[end - count].begin, waits[end - 1].end});
  }
  return rounds;
}

/// The rounds that repeat, by the smallest number of waits in a round; those at the end first.
std::vector<Round> repeated_waits(const WorkTrace& trace) {
  const std::vector<Round> waits = waits_of(trace);
  for (size_t last = waits.size(); last-- > 1;) {
    for (size_t count = 1; count <= kMostWaits && 2 * count <= last + 1; ++count) {
      const Round round = {waits[last + 1 - count].begin, waits[last].end};
      const Round before = {waits[last + 1 - 2 * count].begin, waits[last - count].end};
      if (runs_in(trace, round) < kFewestItems || !are_alike(trace, round, before)) continue;
      return joined(waits, last, count);
    }
  }
  return {};
}

/// Keeps the last rounds that are alike.
void keep_alike(const WorkTrace& trace, std::vector<Round>& rounds) {
  size_t first = rounds.size() - 1;
  while (first > 0 && are_alike(trace, rounds[first - 1], rounds.back())) --first;
  rounds.erase(rounds.begin(), rounds.begin() + static_cast<std::ptrdiff_t>(first));
}

int64_t quartile(std::vector<int64_t> values) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::ranges::nth_element(values, place);
  return *place;
}

/// The host's time for each item of a round: the lower quartile of all rounds, since what disturbs
/// a host only makes it slower.
std::vector<int64_t> usual_host_ns(const WorkTrace& trace, const std::vector<Round>& rounds) {
  std::vector<int64_t> quartiles;
  std::vector<int64_t> all(rounds.size());
  for (size_t i = 0; i < rounds.back().size(); ++i) {
    for (size_t round = 0; round < rounds.size(); ++round) {
      all[round] = trace.host_ns(rounds[round].begin + i);
    }
    quartiles.push_back(quartile(all));
  }
  return quartiles;
}

}  // namespace

Rounds settled_rounds(const WorkTrace& trace) {
  Rounds found;
  found.rounds = steps_of(trace);
  std::erase_if(found.rounds, [&](const Round& round) { return runs_in(trace, round) == 0; });
  found.are_steps = !found.rounds.empty();
  if (!found.are_steps) found.rounds = repeated_waits(trace);
  if (found.rounds.empty() && !trace.empty()) found.rounds = {{0, trace.items.size()}};
  if (found.rounds.empty()) return found;

  std::vector<Round> alike = found.rounds;
  keep_alike(trace, alike);
  found.are_alike = alike.size() > 1;
  if (found.are_alike) {
    found.rounds = alike;
    found.host_ns = usual_host_ns(trace, alike);
  } else if (found.rounds.size() > 2) {  // the first ones warm up
    const auto half = static_cast<std::ptrdiff_t>(found.rounds.size() / 2);
    found.rounds.erase(found.rounds.begin(), found.rounds.begin() + half);
  }
  return found;
}

}  // namespace shardlens::planner
