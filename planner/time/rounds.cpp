#include "planner/time/rounds.h"

#include <algorithm>

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

std::vector<TraceRound> between(const WorkTrace& trace, const std::vector<size_t>& borders) {
  std::vector<TraceRound> rounds;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    TraceRound& round = rounds.emplace_back();
    for (size_t item = borders[i]; item < borders[i + 1]; ++item) {
      const WorkKind kind = trace.work_of(trace.items[item]).kind;
      if (kind != WorkKind::memory) round.items.push_back(item);
    }
  }
  return rounds;
}

/// True if both ask for the same pieces of work in the same order, on the same streams.
bool are_alike(const WorkTrace& trace, const TraceRound& one, const TraceRound& other) {
  return std::ranges::equal(one.items, other.items, [&trace](size_t a, size_t b) {
    const WorkItem &first = trace.items[a], &second = trace.items[b];
    return first.work == second.work && first.stream == second.stream;
  });
}

/// The steps that the recording marks. The last one is left out, since a program's end follows it.
std::vector<TraceRound> steps_of(const WorkTrace& trace) {
  std::vector<size_t> borders;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    if (trace.work_of(trace.items[i]).kind == WorkKind::step) borders.push_back(i);
  }
  return between(trace, borders);
}

/// The parts of the trace that end with a wait.
std::vector<TraceRound> waits_of(const WorkTrace& trace) {
  std::vector<size_t> borders = {0};
  for (size_t i = 0; i < trace.items.size(); ++i) {
    if (is_wait(trace.work_of(trace.items[i]).kind)) borders.push_back(i + 1);
  }
  return between(trace, borders);
}

size_t runs_in(const WorkTrace& trace, const TraceRound& round) {
  size_t runs = 0;
  for (const size_t item : round.items) runs += is_run(trace.work_of(trace.items[item]).kind);
  return runs;
}

/// True if the round does more than to fill and to copy memory, as a program does that brings its
/// model to the GPU, tensor by tensor.
bool does_work(const WorkTrace& trace, const TraceRound& round) {
  return std::ranges::any_of(round.items, [&trace](size_t item) {
    const WorkKind kind = trace.work_of(trace.items[item]).kind;
    return is_run(kind) && kind != WorkKind::copy && kind != WorkKind::set;
  });
}

TraceRound joined_round(const std::vector<TraceRound>& waits, size_t begin, size_t end) {
  TraceRound round;
  for (size_t i = begin; i < end; ++i) {
    round.items.insert(round.items.end(), waits[i].items.begin(), waits[i].items.end());
  }
  return round;
}

/// Joins `count` waits to a round, the last round ending with the wait `last`.
std::vector<TraceRound> joined(const std::vector<TraceRound>& waits, size_t last, size_t count) {
  std::vector<TraceRound> rounds;
  for (size_t end = last + 1; end >= count && rounds.size() < kMostRounds; end -= count) {
    rounds.insert(rounds.begin(), joined_round(waits, end - count, end));
  }
  return rounds;
}

/// The rounds that repeat, by the smallest number of waits in a round; those at the end first.
std::vector<TraceRound> repeated_waits(const WorkTrace& trace) {
  const std::vector<TraceRound> waits = waits_of(trace);
  for (size_t last = waits.size(); last-- > 1;) {
    for (size_t count = 1; count <= kMostWaits && 2 * count <= last + 1; ++count) {
      const TraceRound round = joined_round(waits, last + 1 - count, last + 1);
      const TraceRound before = joined_round(waits, last + 1 - 2 * count, last + 1 - count);
      if (runs_in(trace, round) < kFewestItems || !does_work(trace, round)) continue;
      if (!are_alike(trace, round, before)) continue;
      return joined(waits, last, count);
    }
  }
  return {};
}

/// Keeps the last rounds that are alike.
void keep_alike(const WorkTrace& trace, std::vector<TraceRound>& rounds) {
  size_t first = rounds.size() - 1;
  while (first > 0 && are_alike(trace, rounds[first - 1], rounds.back())) --first;
  rounds.erase(rounds.begin(), rounds.begin() + static_cast<std::ptrdiff_t>(first));
}

/// The host's time for each item of a round: the least of all rounds, since what disturbs a host
/// only makes it slower.
std::vector<int64_t> least_host_ns(const WorkTrace& trace, const std::vector<TraceRound>& rounds) {
  std::vector<int64_t> least;
  for (size_t i = 0; i < rounds.back().size(); ++i) {
    int64_t ns = trace.host_ns(rounds.front().items[i]);
    for (const TraceRound& round : rounds) ns = std::min(ns, trace.host_ns(round.items[i]));
    least.push_back(ns);
  }
  return least;
}

}  // namespace

Rounds settled_rounds(const WorkTrace& trace) {
  Rounds found;
  found.rounds = steps_of(trace);
  std::erase_if(found.rounds, [&](const TraceRound& round) { return runs_in(trace, round) == 0; });
  found.are_steps = !found.rounds.empty();
  if (!found.are_steps) found.rounds = repeated_waits(trace);
  if (found.rounds.empty() && !trace.empty()) {
    found.rounds = between(trace, {0, trace.items.size()});
    if (!does_work(trace, found.rounds.front())) return {};
  }
  if (found.rounds.empty()) return found;

  std::vector<TraceRound> alike = found.rounds;
  keep_alike(trace, alike);
  found.are_alike = alike.size() > 1;
  if (found.are_alike) {
    found.rounds = alike;
    found.host_ns = least_host_ns(trace, alike);
  } else if (found.rounds.size() > 2) {  // the first ones warm up
    const auto half = static_cast<std::ptrdiff_t>(found.rounds.size() / 2);
    found.rounds.erase(found.rounds.begin(), found.rounds.begin() + half);
  }
  return found;
}

}  // namespace shardlens::planner
