#include "viewer/scene/flame.h"

#include <algorithm>

namespace shardlens::viewer {

namespace {

class FlameLayout {
 public:
  FlameLayout(const AliveGraph& graph, uint32_t root, double least)
      : graph_(graph),
        all_(static_cast<double>(std::max<int64_t>(1, graph.nodes[root].span_bytes))),
        least_(least) {
    frames_.push_back({.node = root,
                       .first = root,
                       .begin = 0,
                       .end = 1,
                       .span_bytes = graph.nodes[root].span_bytes,
                       .bytes = graph.tree.nodes[root].bytes});
  }

  /// Lays out row by row: the frames of a row come after those of the row above.
  std::vector<FlameFrame> run() {
    for (size_t i = 0; i < frames_.size(); ++i) {
      if (frames_[i].smaller == 0) place_below(i);
    }
    return std::move(frames_);
  }

 private:
  double part_of(int64_t bytes) const { return static_cast<double>(bytes) / all_; }

  void place_below(size_t parent) {
    const FlameFrame above = frames_[parent];
    FlameFrame rest{.node = above.node, .first = above.node, .row = above.row + 1};
    double begin = above.begin;
    for (const uint32_t child : graph_.tree.nodes[above.node].children) {
      const int64_t span = graph_.nodes[child].span_bytes;
      const int64_t bytes = graph_.tree.nodes[child].bytes;
      if (span == 0) continue;
      if (part_of(span) < least_) {
        rest.span_bytes += span;
        rest.bytes += bytes;
        ++rest.smaller;
        continue;
      }
      FlameFrame frame{.node = child,
                       .first = child,
                       .row = above.row + 1,
                       .begin = begin,
                       .end = begin + part_of(span),
                       .span_bytes = span,
                       .bytes = bytes};
      follow_chain(frame);
      frames_.push_back(frame);
      begin = frame.end;
    }
    if (rest.smaller == 0) return;
    rest.begin = begin;
    rest.end = begin + part_of(rest.span_bytes);
    frames_.push_back(rest);
  }

  void follow_chain(FlameFrame& frame) const {
    const bool is_category =
        graph_.by == profiler::TreeGrouping::category && graph_.tree.nodes[frame.node].parent == 0;
    if (is_category) return;  // which is not a call
    for (;;) {
      const auto& children = graph_.tree.nodes[frame.node].children;
      const bool is_link = children.size() == 1 &&
                           graph_.nodes[children.front()].span_bytes == frame.span_bytes &&
                           graph_.tree.nodes[children.front()].bytes == frame.bytes;
      if (!is_link) return;
      frame.node = children.front();
      ++frame.calls;
    }
  }

  const AliveGraph& graph_;
  double all_;
  double least_;
  std::vector<FlameFrame> frames_;
};

}  // namespace

std::vector<FlameFrame> flame_frames(const AliveGraph& graph, uint32_t root, double least) {
  return FlameLayout(graph, root, least).run();
}

}  // namespace shardlens::viewer
