#include "viewer/model/joined_warp.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace shardlens::viewer {

namespace {

/// A moment that both lanes have, in ns of each lane.
struct Pair {
  int64_t measured_ns = 0;
  int64_t plan_ns = 0;
};

/// Finds the plan's stretch that corresponds to one of the lane's. Phases without a number are told
/// apart by how many of their kind came before.
class PlanStretches {
 public:
  explicit PlanStretches(const Lane& plan) : plan_(plan) {
    const auto& stretches = plan.arrays().stretches;
    for (size_t i = 0; i < stretches.size(); ++i) {
      if (stretches[i].number >= 0) {
        steps_.push_back(i);
      } else {
        phases_[static_cast<size_t>(stretches[i].phase)].push_back(i);
      }
    }
  }

  std::optional<size_t> stretch_index(const Stretch& stretch) {
    if (stretch.number < 0) {
      const auto phase = static_cast<size_t>(stretch.phase);
      const size_t nth = seen_[phase]++;
      return nth < phases_[phase].size() ? std::optional(phases_[phase][nth]) : std::nullopt;
    }
    if (steps_.empty()) return std::nullopt;
    const auto& stretches = plan_.arrays().stretches;
    const auto by_number = [&](size_t i) { return stretches[i].number; };
    const auto after = std::ranges::upper_bound(steps_, stretch.number, {}, by_number);
    return after == steps_.begin() ? std::nullopt : std::optional(*std::prev(after));
  }

 private:
  const Lane& plan_;
  std::vector<size_t> steps_;
  std::array<std::vector<size_t>, profiler::kPhases> phases_;
  std::array<size_t, profiler::kPhases> seen_{};
};

/// The spans of every stretch. Spans come in order of time, so each stretch has a range of them.
class SpanRanges {
 public:
  explicit SpanRanges(const Lane& lane) : spans_(lane.arrays().spans) {
    const size_t count = lane.arrays().stretches.size();
    begins_.resize(count + 1, spans_.size());
    for (size_t i = spans_.size(); i-- > 0;) {
      if (spans_[i].stretch >= 0) begins_[static_cast<size_t>(spans_[i].stretch)] = i;
    }
    for (size_t i = count; i-- > 0;) begins_[i] = std::min(begins_[i], begins_[i + 1]);
  }

  std::span<const Span> spans_of(size_t stretch) const {
    return spans_.subspan(begins_[stretch], begins_[stretch + 1] - begins_[stretch]);
  }

 private:
  std::span<const Span> spans_;
  std::vector<size_t> begins_;
};

/// Numbers the executions of each action, since an evaluation executes its schedule several times:
/// maps an action's id to how often it has run before.
class Occurrences {
 public:
  std::pair<int32_t, int> next(const Span& span) { return {span.action, count_[span.action]++}; }

 private:
  std::map<int32_t, int> count_;
};

/// Returns the moments at which actions that both lanes have begin and end, in the lane's order,
/// without those that are out of order in the plan.
std::vector<Pair> pairs_of(const Stretch& stretch, std::span<const Span> spans, const Stretch& plan,
                           std::span<const Span> plan_spans) {
  std::map<std::pair<int32_t, int>, const Span*> by_action;
  Occurrences planned;
  for (const Span& span : plan_spans) by_action.emplace(planned.next(span), &span);
  std::vector<Pair> pairs = {{stretch.begin_ns, plan.begin_ns}};
  Occurrences measured;
  for (const Span& span : spans) {
    const auto at = by_action.find(measured.next(span));
    if (at == by_action.end()) continue;
    pairs.push_back({span.begin_ns, at->second->begin_ns});
    pairs.push_back({span.end_ns, at->second->end_ns});
  }
  std::ranges::stable_sort(pairs, {}, &Pair::measured_ns);
  std::vector<Pair> rising;
  for (const Pair& pair : pairs) {
    const bool rises = rising.empty() || pair.plan_ns >= rising.back().plan_ns;
    if (rises && pair.plan_ns <= plan.end_ns) rising.push_back(pair);
  }
  rising.push_back({stretch.end_ns, plan.end_ns});
  return rising;
}

/// Puts pieces of a plan between the moments that it shares with a lane.
class Joiner {
 public:
  Joiner(const Warp& warp, const Lane& measured, const Lane& plan)
      : warp_(warp),
        measured_(measured),
        plan_(plan),
        joins_changes_(measured.changes() <= kMostJoined) {}

  /// Adds the piece between two shared moments. If both lanes have equally many changes there, each
  /// change lies on its counterpart as well.
  void join(const Pair& from, const Pair& to) {
    const int64_t begin = first_change(measured_, from.measured_ns);
    const int64_t count = first_change(measured_, to.measured_ns) - begin;
    const int64_t plan_begin = first_change(plan_, from.plan_ns);
    const int64_t plan_count = first_change(plan_, to.plan_ns) - plan_begin;
    Pair last = from;
    for (int64_t i = 0; joins_changes_ && count == plan_count && i < count; ++i) {
      const Pair next{measured_.time_of(begin + i), plan_.time_of(plan_begin + i)};
      add(last, next);
      last = next;
    }
    add(last, to);
  }
  JoinedWarp finish() {
    JoinedWarp warps;
    std::vector<Warp::Piece> run;
    const auto close = [&] {
      Warp warp(std::exchange(run, {}), warp_.is_by_change());
      if (!warp.pieces().empty()) warps.push_back(std::move(warp));
    };
    for (const Warp::Piece& piece : pieces_) {
      const bool goes_on = run.empty() || piece.position.begin == run.back().position.end;
      if (!goes_on) close();
      run.push_back(piece);
    }
    close();
    return warps;
  }

 private:
  static constexpr int64_t kMostJoined = 200'000;

  static int64_t first_change(const Lane& lane, int64_t time_ns) {
    return lane.change_at(static_cast<double>(time_ns));
  }
  double x_of(int64_t time_ns) const {
    const bool by_change = warp_.is_by_change();
    return warp_.x_of(by_change ? static_cast<double>(first_change(measured_, time_ns))
                                : static_cast<double>(time_ns));
  }
  double position_of(int64_t time_ns) const {
    return warp_.is_by_change() ? static_cast<double>(first_change(plan_, time_ns))
                                : static_cast<double>(time_ns);
  }
  void add(const Pair& from, const Pair& to) {
    pieces_.push_back({{x_of(from.measured_ns), x_of(to.measured_ns)},
                       {position_of(from.plan_ns), position_of(to.plan_ns)}});
  }

  const Warp& warp_;
  const Lane& measured_;
  const Lane& plan_;
  bool joins_changes_;
  std::vector<Warp::Piece> pieces_;
};

Extent higher_of(const Extent& a, const Extent& b) {
  Extent higher = b.max_bytes > a.max_bytes ? b : a;
  higher.min_bytes = std::min(a.min_bytes, b.min_bytes);
  return higher;
}

}  // namespace

JoinedWarp joined_warp(const Warp& measured_warp, const Lane& measured, const Lane& plan) {
  Joiner joiner(measured_warp, measured, plan);
  PlanStretches plan_stretches(plan);
  const SpanRanges spans(measured);
  const SpanRanges plan_spans(plan);
  const auto& stretches = measured.arrays().stretches;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const auto other = plan_stretches.stretch_index(stretches[i]);
    if (!other) continue;
    const std::vector<Pair> pairs =
        pairs_of(stretches[i], spans.spans_of(i), plan.arrays().stretches[*other],
                 plan_spans.spans_of(*other));
    for (size_t p = 1; p < pairs.size(); ++p) joiner.join(pairs[p - 1], pairs[p]);
  }
  return joiner.finish();
}

std::vector<std::optional<Extent>> joined_columns(const JoinedWarp& warp, const Lane& plan,
                                                  const Range& x, int count) {
  std::vector<std::optional<Extent>> columns(static_cast<size_t>(count));
  const auto x_at = [&](int i) { return x.begin + x.length() * i / count; };
  size_t first = 0;
  for (int i = 0; i < count; ++i) {
    std::optional<Extent>& column = columns[static_cast<size_t>(i)];
    while (first < warp.size() && warp[first].extent().end <= x_at(i)) ++first;
    for (size_t part = first; part < warp.size(); ++part) {
      const Range all = warp[part].extent();
      if (all.begin >= x_at(i + 1)) break;
      const bool begins_anew = all.begin >= x_at(i);
      const auto one =
          column_of(warp[part], plan,
                    {std::max(x_at(i), all.begin), std::min(x_at(i + 1), all.end)}, begins_anew);
      if (one) column = column ? higher_of(*column, *one) : *one;
    }
  }
  return columns;
}

}  // namespace shardlens::viewer
