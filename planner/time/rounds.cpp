#include "planner/time/rounds.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace shardlens::planner {

namespace {

using profiler::WorkItem;
using profiler::WorkKind;
using profiler::WorkTrace;

constexpr size_t kFewestItems = 4;   // of a round between two waits
constexpr size_t kMostWaits = 12;    // in such a round
constexpr size_t kMostRounds = 16;   // that are looked at, the last ones
constexpr size_t kFewestPieces = 4;  // of one kind that stand for rounds
constexpr double kMostlyAll = 0.8;   // of the items: pieces that are asked for all the time

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

/// True for what a GPU does beside filling and copying memory.
bool is_work(WorkKind kind) {
  return is_run(kind) && kind != WorkKind::copy && kind != WorkKind::set;
}

/// Returns the items of a kind.
std::vector<size_t> items_of(const WorkTrace& trace, WorkKind kind) {
  std::vector<size_t> items;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    if (trace.work_of(trace.items[i]).kind == kind) items.push_back(i);
  }
  return items;
}

/// The graph that has captured a whole step: one whose mark follows captured work; 0 if none has.
/// What is captured before the first mark is a part of later steps at most.
uint32_t captured_step(const WorkTrace& trace, const std::vector<size_t>& marks) {
  for (size_t i = 1; i < marks.size(); ++i) {
    size_t item = marks[i];
    while (item > marks[i - 1] && !is_run(trace.work_of(trace.items[item]).kind)) --item;
    if (item > marks[i - 1] && trace.items[item].graph != 0) return trace.items[item].graph;
  }
  return 0;
}

/// The launches of a graph.
std::vector<size_t> launches_of_graph(const WorkTrace& trace, uint32_t graph) {
  std::vector<size_t> launches = items_of(trace, WorkKind::graph_launch);
  std::erase_if(launches, [&](size_t item) { return trace.items[item].about != graph; });
  return launches;
}

/// The steps that the recording marks. The last one is left out, since a program's end follows it.
Rounds marked_steps(const WorkTrace& trace) {
  const std::vector<size_t> marks = items_of(trace, WorkKind::step);
  if (const uint32_t graph = captured_step(trace, marks); graph != 0) {
    const std::vector<size_t> launches = launches_of_graph(trace, graph);
    if (launches.size() > 2)
      return {between(trace, launches), "a launch of the CUDA graph that captured one"};
  }
  return {.rounds = between(trace, marks), .are_steps = true};
}

/// Rounds that begin with the first piece after a backward.
Rounds turns(const WorkTrace& trace) {
  std::vector<size_t> borders;
  bool was_backward = false;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    const profiler::Work& work = trace.work_of(trace.items[i]);
    if (!is_run(work.kind) || work.call == 0) continue;
    const bool is_backward = trace.calls[work.call].in_backward;
    if (was_backward && !is_backward) borders.push_back(i);
    was_backward = is_backward;
  }
  return {between(trace, borders), "a forward and a backward: the program marks none"};
}

/// Rounds that begin with the rarest piece among those that are asked for from the beginning of the
/// work to its end. If all of them come as often, a round may be one layer of a model: none then.
Rounds rarest_pieces(const WorkTrace& trace) {
  using Places = std::vector<size_t>;  // of one piece among the items
  std::map<uint32_t, Places> places;
  for (size_t i = 0; i < trace.items.size(); ++i) {
    const WorkItem& item = trace.items[i];
    if (is_work(trace.work_of(item).kind) && item.graph == 0) places[item.work].push_back(i);
  }
  const auto span_of = [](const Places& all) { return all.back() - all.front(); };
  size_t longest = 0;
  for (const auto& [work, all] : places) longest = std::max(longest, span_of(all));
  std::erase_if(places, [&](const auto& one) {
    const auto span = static_cast<double>(span_of(one.second));
    return one.second.size() < kFewestPieces || span < kMostlyAll * static_cast<double>(longest);
  });
  if (places.empty()) return {};
  const auto [least, most] =
      std::ranges::minmax_element(places, {}, [](const auto& one) { return one.second.size(); });
  if (most->second.size() < 2 * least->second.size()) return {};
  const profiler::Work& piece = trace.work[least->first];
  const std::string& from = trace.strings[trace.calls[piece.call].name];
  return {between(trace, least->second), "the work from one " +
                                             (from.empty() ? trace.name_of(piece) : from) +
                                             " to the next: the program marks none"};
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
    return is_work(trace.work_of(trace.items[item]).kind);
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

/// Gives alike rounds the same number, which is the index of the first of them.
std::vector<size_t> kinds_of(const WorkTrace& trace, const std::vector<TraceRound>& rounds) {
  std::vector<size_t> kinds, firsts;
  for (size_t i = 0; i < rounds.size(); ++i) {
    const auto known = std::ranges::find_if(
        firsts, [&](size_t first) { return are_alike(trace, rounds[first], rounds[i]); });
    kinds.push_back(known == firsts.end() ? i : *known);
    if (known == firsts.end()) firsts.push_back(i);
  }
  return kinds;
}

/// Returns the rounds that are like the last one, one after the other; if it is alone, those of the
/// kind that at least half of the rounds have; else none.
std::vector<size_t> alike_rounds(const std::vector<size_t>& kinds) {
  const auto other =
      std::find_if(kinds.rbegin(), kinds.rend(), [&](size_t kind) { return kind != kinds.back(); });
  std::vector<size_t> alike(static_cast<size_t>(other - kinds.rbegin()));
  std::iota(alike.begin(), alike.end(), kinds.size() - alike.size());
  if (alike.size() > 1) return alike;
  std::map<size_t, std::vector<size_t>> by_kind;
  for (size_t i = 0; i < kinds.size(); ++i) by_kind[kinds[i]].push_back(i);
  for (const auto& [kind, rounds] : by_kind) {
    if (rounds.size() > 1 && 2 * rounds.size() >= kinds.size()) return rounds;
  }
  return {};
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

/// Returns the first of the ways to find rounds that finds some. Rounds without work count in none.
Rounds found_rounds(const WorkTrace& trace) {
  Rounds steps = marked_steps(trace);
  std::erase_if(steps.rounds, [&](const TraceRound& round) { return runs_in(trace, round) == 0; });
  if (!steps.rounds.empty()) return steps;
  Rounds found = turns(trace);
  if (found.rounds.size() > 1) return found;
  found = {repeated_waits(trace), "the work between two waits for the GPU: the program marks none"};
  if (!found.rounds.empty()) return found;
  found = rarest_pieces(trace);
  if (!found.rounds.empty()) return found;
  if (trace.empty()) return {};
  found = {between(trace, {0, trace.items.size()}), ""};
  return does_work(trace, found.rounds.front()) ? found : Rounds();
}

}  // namespace

Rounds settled_rounds(const WorkTrace& trace) {
  Rounds found = found_rounds(trace);
  if (found.rounds.empty()) return {};
  const std::vector<size_t> alike = alike_rounds(kinds_of(trace, found.rounds));
  found.are_alike = !alike.empty();
  if (found.are_alike) {
    const bool are_successive = alike.back() - alike.front() + 1 == alike.size();
    found.others = are_successive ? 0 : found.rounds.size() - alike.size();
    std::vector<TraceRound> rounds;
    for (const size_t i : alike) rounds.push_back(std::move(found.rounds[i]));
    found.rounds = std::move(rounds);
    found.host_ns = least_host_ns(trace, found.rounds);
  } else if (found.rounds.size() > 2) {  // the first ones warm up
    const auto half = static_cast<std::ptrdiff_t>(found.rounds.size() / 2);
    found.rounds.erase(found.rounds.begin(), found.rounds.begin() + half);
  }
  return found;
}

}  // namespace shardlens::planner
