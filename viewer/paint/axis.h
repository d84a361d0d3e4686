// Finds the positions and texts of an axis's ticks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "viewer/model/warp.h"

namespace shardlens::viewer {

struct Tick {
  double at = 0;
  std::string text;
};

/// Returns round sizes in binary units from `bottom_bytes` up to `top_bytes`, at most `most`
/// besides 0: "64 MiB".
std::vector<Tick> byte_ticks(double top_bytes, int most, double bottom_bytes = 0);
/// Returns ticks from -top to top, with signs: "+64 MiB".
std::vector<Tick> signed_byte_ticks(double top_bytes, int most);

/// Returns the ticks inside `range`, at most about `most`. `event` has them only at whole numbers;
/// `step` and `phase` write "start" and "end" at the ends of `extent`, where there is no step.
std::vector<Tick> x_ticks(Alignment alignment, const Range& range, const Range& extent,
                          double most);

/// Formats a size: "64 MiB", "1.50 GiB". A whole number, or one from 100 on, has no decimals, one
/// from 10 on has one, and a smaller one has two. Both get more if sizes that differ by `step`
/// would read alike.
std::string short_bytes(double bytes, double step = 0);

}  // namespace shardlens::viewer
