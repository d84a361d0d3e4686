// Where an axis has its ticks and what stands at them.
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

/// Round sizes in binary units from 0 up to `top_bytes`, at most `most` beside 0: "64 MiB".
std::vector<Tick> byte_ticks(double top_bytes, int most);
/// From -top to top, with signs: "+64 MiB".
std::vector<Tick> signed_byte_ticks(double top_bytes, int most);

/// Inside `range`, at most `most`. Steps are whole numbers; `extent` tells the start and the end
/// of a recording from its steps.
std::vector<Tick> x_ticks(Alignment alignment, const Range& range, const Range& extent,
                          double most);

/// "64 MiB", "1.5 GiB": as short as it is exact to two places.
std::string short_bytes(double bytes);

}  // namespace shardlens::viewer
