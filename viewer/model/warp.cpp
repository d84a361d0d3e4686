#include "viewer/model/warp.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

namespace shardlens::viewer {

namespace {

using Pieces = std::vector<Warp::Piece>;

double mapped(double value, const Range& from, const Range& to) {
  if (from.length() <= 0) return to.begin;
  const double at = (value - from.begin) / from.length();
  return to.begin + std::clamp(at, 0.0, 1.0) * to.length();
}

/// Returns the time right after the last event, so that a column up to there shows it.
double end_of(const Lane& lane) { return static_cast<double>(lane.info().end_ns + 1); }

/// Returns the indices of the training steps among the stretches.
std::vector<size_t> steps_of(const Lane& lane) {
  std::vector<size_t> steps;
  const auto& stretches = lane.arrays().stretches;
  for (size_t i = 0; i < stretches.size(); ++i) {
    if (stretches[i].number >= 0) steps.push_back(i);
  }
  return steps;
}

Warp time_warp(const Lane& lane) {
  const Stretch* const first = lane.first_step();
  const double zero = first == nullptr ? 0 : static_cast<double>(first->begin_ns);
  constexpr double kNsPerSecond = 1e9;
  const Range position{0, end_of(lane)};
  const Range x{-zero / kNsPerSecond, (position.end - zero) / kNsPerSecond};
  return {{{x, position}}, false};
}

/// Returns the time at which a step ends on the axis: a step includes what follows it (an
/// evaluation) until the next one begins. The last step does not: the end of the run is a separate
/// piece.
double end_of_step(const Lane& lane, const std::vector<size_t>& steps, size_t i) {
  const auto& stretches = lane.arrays().stretches;
  const bool is_last = i + 1 == steps.size();
  return static_cast<double>(is_last ? stretches[steps[i]].end_ns
                                     : stretches[steps[i + 1]].begin_ns);
}

/// A point within a step: its place as a fraction of the baseline's step, and the lane's time.
struct Point {
  double fraction = 0;
  double time_ns = 0;
};
using StepPoints = std::vector<Point>;

Pieces pieces_of_step(double number, const Range& position, const StepPoints& points) {
  Pieces pieces;
  Range x{number, number};
  Range part{position.begin, position.begin};
  const auto close = [&](double x_end, double position_end) {
    x.end = x_end;
    part.end = position_end;
    pieces.push_back({x, part});
    x.begin = x_end;
    part.begin = position_end;
  };
  for (const Point& point : points) close(number + point.fraction, point.time_ns);
  close(number + 1, position.end);
  return pieces;
}

/// Returns the index of the baseline's step with the same number, or nothing if there is no such
/// step.
std::optional<size_t> same_step(const Lane& baseline, int64_t number) {
  const auto steps = steps_of(baseline);
  for (const size_t step : steps) {
    if (baseline.arrays().stretches[step].number == number) return step;
  }
  return std::nullopt;
}

/// Returns the points that both lanes have, except those that come in different orders.
StepPoints common_points(const NamedLane& lane, const NamedLane& baseline, size_t step) {
  const auto& stretches = lane.lane->arrays().stretches;
  const auto other = same_step(*baseline.lane, stretches[step].number);
  if (!other) return {};
  const Stretch& there = baseline.lane->arrays().stretches[*other];
  std::map<std::string, int64_t> times;
  for (const Landmark& mark : landmarks_of(*lane.lane, *lane.names, step)) {
    times[mark.key] = mark.time_ns;
  }
  StepPoints points;
  const auto length = static_cast<double>(there.end_ns - there.begin_ns);
  auto last_ns = static_cast<double>(stretches[step].begin_ns);
  for (const Landmark& mark : landmarks_of(*baseline.lane, *baseline.names, *other)) {
    const auto here = times.find(mark.key);
    if (here == times.end() || length <= 0) continue;
    const auto time_ns = static_cast<double>(here->second);
    const double fraction = static_cast<double>(mark.time_ns - there.begin_ns) / length;
    if (time_ns <= last_ns || fraction <= (points.empty() ? 0 : points.back().fraction)) continue;
    points.push_back({fraction, time_ns});
    last_ns = time_ns;
  }
  return points;
}

/// Returns the length on the axis of what follows the last step: that of a step, or less if it took
/// less time than the steps did on average, so that a moment does not look like a step.
double length_of_end(double steps_ns, size_t steps, double end_ns) {
  const double step_ns = steps_ns / static_cast<double>(steps);
  return step_ns > 0 ? std::min(1.0, end_ns / step_ns) : 1.0;
}

/// Makes a warp in which each step has the length 1, and so has the part before the first step.
/// `points_of` gives the inner points of the step with an index.
template <typename PointsOf>
Warp step_warp(const Lane& lane, const PointsOf& points_of) {
  const auto steps = steps_of(lane);
  if (steps.empty()) return {{{{0, 1}, {0, end_of(lane)}}}, false};
  const auto& stretches = lane.arrays().stretches;
  const auto first = static_cast<double>(stretches[steps.front()].number);
  const auto first_ns = static_cast<double>(stretches[steps.front()].begin_ns);
  Pieces pieces = {{{first - 1, first}, {0, first_ns}}};
  for (size_t i = 0; i < steps.size(); ++i) {
    const Stretch& step = stretches[steps[i]];
    const Range position{static_cast<double>(step.begin_ns), end_of_step(lane, steps, i)};
    for (const auto& piece :
         pieces_of_step(static_cast<double>(step.number), position, points_of(steps[i]))) {
      pieces.push_back(piece);
    }
  }
  const Warp::Piece last = pieces.back();
  const double end_ns = end_of(lane) - last.position.end;
  const double length = length_of_end(last.position.end - first_ns, steps.size(), end_ns);
  pieces.push_back({{last.x.end, last.x.end + length}, {last.position.end, end_of(lane)}});
  return {std::move(pieces), false};
}

}  // namespace

std::string_view axis_title(Alignment alignment) {
  switch (alignment) {
    case Alignment::time:
      return "time from the first step";
    case Alignment::step:
      return "step";
    case Alignment::phase:
      return "step, phases aligned with the baseline";
    case Alignment::event:
      return "allocations and frees";
    case Alignment::normalised:
      return "fraction of the recording";
  }
  return "";
}

Warp::Warp(std::vector<Piece> pieces, bool by_change) : by_change_(by_change) {
  for (const Piece& piece : pieces) {
    const bool goes_on = pieces_.empty() || piece.x.begin >= pieces_.back().x.end;
    if (piece.x.length() > 0 && piece.position.length() >= 0 && goes_on) pieces_.push_back(piece);
  }
}

Range Warp::extent() const {
  if (pieces_.empty()) return {0, 1};
  return {pieces_.front().x.begin, pieces_.back().x.end};
}

std::optional<double> Warp::position_at(double x) const {
  const auto after =
      std::ranges::upper_bound(pieces_, x, {}, [](const Piece& p) { return p.x.begin; });
  if (after == pieces_.begin()) return std::nullopt;
  const Piece& piece = *std::prev(after);
  if (x > piece.x.end) return std::nullopt;
  return mapped(x, piece.x, piece.position);
}

double Warp::x_of(double position) const {
  if (pieces_.empty()) return 0;
  const auto after = std::ranges::upper_bound(pieces_, position, {},
                                              [](const Piece& p) { return p.position.begin; });
  const Piece& piece = after == pieces_.begin() ? pieces_.front() : *std::prev(after);
  return mapped(position, piece.position, piece.x);
}

Warp warp_of(Alignment alignment, const NamedLane& lane, const NamedLane& baseline) {
  switch (alignment) {
    case Alignment::time:
      return time_warp(*lane.lane);
    case Alignment::step:
      return step_warp(*lane.lane, [](size_t) { return StepPoints{}; });
    case Alignment::phase:
      return step_warp(*lane.lane,
                       [&](size_t step) { return common_points(lane, baseline, step); });
    case Alignment::event: {
      const Range all{0, static_cast<double>(lane.lane->changes())};
      return {{{all, all}}, true};
    }
    case Alignment::normalised:
      return {{{{0, 1}, {0, end_of(*lane.lane)}}}, false};
  }
  return {};
}

double x_of_change(const Warp& warp, const Lane& lane, int64_t change) {
  return warp.x_of(warp.is_by_change() ? static_cast<double>(change)
                                       : static_cast<double>(lane.time_of(change)));
}

double x_of_failure(const Warp& warp, const Lane& lane, const FailedRequest& failure) {
  if (warp.is_by_change()) return x_of_change(warp, lane, failure.change - 1);
  return warp.x_of(static_cast<double>(failure.time_ns));
}

namespace {

/// Returns the first change whose x satisfies `is_behind`; changes() if there is none. Their x
/// never decreases.
int64_t first_change(const Warp& warp, const Lane& lane,
                     const std::function<bool(double)>& is_behind) {
  int64_t begin = 0;
  int64_t end = lane.changes();
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (is_behind(x_of_change(warp, lane, middle))) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

}  // namespace

std::optional<int64_t> change_behind(const Warp& warp, const Lane& lane, double x) {
  const int64_t first = first_change(warp, lane, [x](double at) { return at > x; });
  return first < lane.changes() ? std::optional(first) : std::nullopt;
}

std::optional<int64_t> change_before(const Warp& warp, const Lane& lane, double x) {
  const int64_t first = first_change(warp, lane, [x](double at) { return at >= x; });
  return first > 0 ? std::optional(first - 1) : std::nullopt;
}

namespace {

/// Returns the first change at or after an x that the warp shows; x is first clipped to the warp's
/// extent.
int64_t border_at(const Warp& warp, const Lane& lane, double x) {
  const Range all = warp.extent();
  const double position = warp.position_at(std::clamp(x, all.begin, all.end)).value_or(0);
  return warp.is_by_change() ? static_cast<int64_t>(position + 0.5) : lane.change_at(position);
}

/// True if the range lies outside the warp's extent, or if the warp shows nothing at one of its
/// ends, which are first clipped to the extent.
bool is_gap(const Warp& warp, const Range& x) {
  const Range all = warp.extent();
  if (x.end < all.begin || x.begin > all.end) return true;
  return !warp.position_at(std::max(x.begin, all.begin)) ||
         !warp.position_at(std::min(x.end, all.end));
}

}  // namespace

std::optional<Extent> column_of(const Warp& warp, const Lane& lane, const Range& x,
                                bool begins_anew) {
  if (is_gap(warp, x)) return std::nullopt;
  const int64_t begin = border_at(warp, lane, x.begin);
  const int64_t end = border_at(warp, lane, x.end);
  return lane.extent_of_changes(begins_anew && begin < end ? begin + 1 : begin, end);
}

std::vector<std::optional<Extent>> columns_of(const Warp& warp, const Lane& lane, const Range& x,
                                              int count) {
  std::vector<std::optional<Extent>> columns(static_cast<size_t>(count));
  const auto x_at = [&](int i) { return x.begin + x.length() * i / count; };
  int64_t begin = border_at(warp, lane, x_at(0));
  for (int i = 0; i < count; ++i) {
    const int64_t end = border_at(warp, lane, x_at(i + 1));
    if (!is_gap(warp, {x_at(i), x_at(i + 1)})) {
      columns[static_cast<size_t>(i)] = lane.extent_of_changes(begin, end);
    }
    begin = end;
  }
  return columns;
}

std::optional<int64_t> change_at(const Warp& warp, const Lane& lane, double x) {
  const auto position = warp.position_at(x);
  if (!position) return std::nullopt;
  if (warp.is_by_change()) return static_cast<int64_t>(*position);
  return lane.change_at(std::floor(*position) + 0.5) - 1;
}

}  // namespace shardlens::viewer
