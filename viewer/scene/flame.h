// Lays a tree out as a flame graph: where each frame is, in parts of the width.
#pragma once

#include <cstdint>
#include <vector>

#include "viewer/model/alive_graph.h"

namespace shardlens::viewer {

/// A frame stands for a node, or for a chain of them: calls that each make one call and allocate
/// nothing themselves. Frames that are too small to be shown are
/// one frame behind their siblings.
struct FlameFrame {
  uint32_t node = 0;   // the last of the chain; of small frames their parent
  uint32_t first = 0;  // of the chain
  int calls = 1;       // in the chain
  int row = 0;         // 0 is the place that fills the width
  double begin = 0;    // of the width, from 0 to 1
  double end = 0;
  int64_t span_bytes = 0;
  int64_t bytes = 0;
  int64_t smaller = 0;  // frames that it stands for; 0: it is none of these
};

/// Returns the frames below a node, and that node, by row and from the left: the largest comes
/// first, and an own part of a node lies behind its children. A frame is small below `least` of the
/// width.
std::vector<FlameFrame> flame_frames(const AliveGraph& graph, uint32_t root, double least);

}  // namespace shardlens::viewer
