// Alignment: where each lane's moments lie on an x axis that all strategies share. A warp is
// piecewise linear and monotone, and values are never interpolated: every column of a picture
// shows a moment that was recorded. Where a lane has nothing for an x there is a gap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/lane.h"
#include "viewer/model/passes.h"

namespace shardlens::viewer {

enum class Alignment : uint8_t { time, step, phase, event, normalised };
constexpr int kAlignments = 5;
constexpr std::array<std::string_view, kAlignments> kAlignmentNames = {"time", "step", "phase",
                                                                       "event", "normalised"};

/// What x counts, for the axis: "seconds from the first step", "step", ...
std::string_view axis_title(Alignment alignment);

struct Range {
  double begin = 0;
  double end = 0;

  double length() const { return end - begin; }
  bool contains(double x) const { return begin <= x && x <= end; }
  bool operator==(const Range&) const = default;
};

/// From x to a lane's positions: times in ns, or changes.
class Warp {
 public:
  struct Piece {
    Range x;
    Range position;
  };

  Warp() = default;
  /// Pieces follow each other in both; those without length in x are left out.
  Warp(std::vector<Piece> pieces, bool by_change);

  bool by_change() const { return by_change_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  Range extent() const;  // in x

  std::optional<double> position_at(double x) const;
  /// The nearest x where nothing is shown at that position.
  double x_of(double position) const;

 private:
  std::vector<Piece> pieces_;
  bool by_change_ = false;
};

/// The first lane is the one that the others are compared with: for `phase`, the points of a step
/// that both have lie on each other. One warp a lane.
struct LaneToAlign {
  const Lane* lane = nullptr;
  const ActionNames* names = nullptr;
};
Warp warp_of(Alignment alignment, const LaneToAlign& lane, const LaneToAlign& baseline);

/// x of a change of the lane.
double x_of_change(const Warp& warp, const Lane& lane, int64_t change);

/// The highest moment that a column from x.begin to x.end shows, and nothing in a gap.
/// `begins_anew`: what was alive before x.begin does not count, where anything changes in the
/// column.
std::optional<Extent> column_of(const Warp& warp, const Lane& lane, const Range& x,
                                bool begins_anew = false);

/// `count` columns of equal width over x.
std::vector<std::optional<Extent>> columns_of(const Warp& warp, const Lane& lane, const Range& x,
                                              int count);

/// The change whose state holds at x; nothing in a gap.
std::optional<int64_t> change_at(const Warp& warp, const Lane& lane, double x);

}  // namespace shardlens::viewer
