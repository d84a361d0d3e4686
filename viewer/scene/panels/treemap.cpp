#include "viewer/scene/panels/treemap.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace shardlens::viewer {

namespace {

/// Returns how far the worst box of a row is from a square; 1 is a square. The row has areas from
/// `least` to `most`, `sum` in all, along a side.
double worst_of(double sum, double least, double most, double side) {
  const double thickness = sum / side;
  return std::max(most / (thickness * thickness), thickness * thickness / least);
}

}  // namespace

std::vector<Box> treemap(const Box& box, std::span<const int64_t> values) {
  std::vector<Box> boxes;
  double left = std::accumulate(values.begin(), values.end(), 0.0);
  Box rest = box;
  for (size_t first = 0; first < values.size();) {
    const double area = static_cast<double>(rest.w) * static_cast<double>(rest.h);
    const double scale = left > 0 ? area / left : 0;
    const bool is_wide = rest.w >= rest.h;
    const double side = is_wide ? rest.h : rest.w;
    // The row grows while its worst box gets better.
    size_t end = first;
    double sum = 0;
    double worst = std::numeric_limits<double>::infinity();
    while (end < values.size()) {
      const auto most = static_cast<double>(values[first]) * scale;
      const auto least = static_cast<double>(values[end]) * scale;
      const double next = worst_of(sum + least, least, most, side);
      if (next > worst) break;
      worst = next;
      sum += least;
      ++end;
    }
    end = std::max(end, first + 1);
    const bool is_last = end == values.size();
    const auto thickness = static_cast<float>(side > 0 ? sum / side : 0);
    Box row = is_wide ? rest.take_left(is_last ? rest.w : thickness)
                      : rest.take_top(is_last ? rest.h : thickness);
    const float length = is_wide ? row.h : row.w;
    for (; first < end; ++first) {
      const auto share =
          static_cast<float>(sum > 0 ? static_cast<double>(values[first]) * scale / sum : 0);
      boxes.push_back(is_wide ? row.take_top(length * share) : row.take_left(length * share));
      left -= static_cast<double>(values[first]);
    }
  }
  return boxes;
}

}  // namespace shardlens::viewer
