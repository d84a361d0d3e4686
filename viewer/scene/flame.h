// Lays a tree out as a flame graph: the position of each frame, as fractions of the width.
#pragma once

#include <cstdint>
#include <vector>

#include "viewer/model/alive_graph.h"

namespace shardlens::viewer {

/// A frame stands for a node, or for a chain of nodes: calls that each make one call and allocate
/// nothing themselves. Frames that are too small to be shown are merged into one after their
/// siblings.
struct FlameFrame {
  uint32_t node = 0;   // the last of the chain; for merged frames their parent
  uint32_t first = 0;  // of the chain
  int calls = 1;       // in the chain
  int row = 0;         // 0 is the place that fills the width
  double begin = 0;    // of the width, from 0 to 1
  double end = 0;
  int64_t span_bytes = 0;
  int64_t bytes = 0;
  int64_t smaller = 0;  // number of merged frames; 0: not merged
};

/// Returns the frames below a node, and that node, by row and from the left: the largest comes
/// first, and a node's own part comes after its children. A frame is small below `least` of the
/// width.
std::vector<FlameFrame> flame_frames(const AliveGraph& graph, uint32_t root, double least);

}  // namespace shardlens::viewer
