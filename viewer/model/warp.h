// Aligns lanes: maps the moments of each lane to an x axis that all runs share. A warp is piecewise
// linear and monotone, and values are never interpolated: every column of a picture shows a moment
// that was recorded. An x for which a lane has no moment is a gap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "viewer/model/lane.h"
#include "viewer/model/passes.h"

namespace shardlens::viewer {

enum class Alignment : uint8_t { time, step, phase, event, normalised };
constexpr int kAlignments = 5;
constexpr auto choice_words(Alignment) {
  return words("time", "step", "phase", "event", "normalised");
}
static_assert(kWords<Alignment>.size() == kAlignments);

/// Returns the unit of x for the axis: "time from the first step", "step", ...
std::string_view axis_title(Alignment alignment);

struct Range {
  double begin = 0;
  double end = 0;

  double length() const { return end - begin; }
  bool contains(double x) const { return begin <= x && x <= end; }
  bool operator==(const Range&) const = default;
};

/// Maps x to positions in a lane: times in ns, or changes.
class Warp {
 public:
  struct Piece {
    Range x;
    Range position;
  };

  Warp() = default;
  /// The pieces must rise in x and in position. Pieces of zero length in x, or out of order, are
  /// dropped.
  Warp(std::vector<Piece> pieces, bool by_change);

  bool is_by_change() const { return by_change_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  Range extent() const;  // in x

  std::optional<double> position_at(double x) const;
  /// Returns the x of a position; the nearest x if nothing shows that position.
  double x_of(double position) const;

 private:
  std::vector<Piece> pieces_;
  bool by_change_ = false;
};

/// A lane with the names of its actions. warp_of makes the warp of `lane`, aligned with `baseline`:
/// for `phase`, the points of a step that both have coincide.
struct NamedLane {
  const Lane* lane = nullptr;
  const ActionNames* names = nullptr;
};
Warp warp_of(Alignment alignment, const NamedLane& lane, const NamedLane& baseline);

/// Returns the x of a change of the lane.
double x_of_change(const Warp& warp, const Lane& lane, int64_t change);

/// Returns the x of a failed request.
double x_of_failure(const Warp& warp, const Lane& lane, const FailedRequest& failure);

/// Returns the first change that lies beyond an x; nothing if there is none.
std::optional<int64_t> change_behind(const Warp& warp, const Lane& lane, double x);

/// Returns the last change that lies before an x; nothing if there is none.
std::optional<int64_t> change_before(const Warp& warp, const Lane& lane, double x);

/// Returns the highest moment that a column from x.begin to x.end shows, or nothing in a gap. If
/// `begins_anew` is set and anything changes in the column, the state before x.begin does not
/// count.
std::optional<Extent> column_of(const Warp& warp, const Lane& lane, const Range& x,
                                bool begins_anew = false);

/// Returns `count` columns of equal width over x.
std::vector<std::optional<Extent>> columns_of(const Warp& warp, const Lane& lane, const Range& x,
                                              int count);

/// Returns the change whose state holds at x, or nothing in a gap.
std::optional<int64_t> change_at(const Warp& warp, const Lane& lane, double x);

}  // namespace shardlens::viewer
