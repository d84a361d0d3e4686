#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/shown.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/report/alive_tree.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostIndent = 30;  // columns; deeper rows are not indented further

class TreeText {
 public:
  TreeText(const AliveTree& tree, double least_share)
      : tree_(tree), least_bytes_(least_share * static_cast<double>(tree.nodes[0].bytes)) {}

  std::string run() {
    rows_below(0, 0);
    return std::move(text_);
  }

 private:
  bool is_shown(uint32_t node) const {
    return static_cast<double>(tree_.nodes[node].bytes) >= least_bytes_;
  }

  void rows_below(uint32_t node, size_t indent, const char* before = "") {
    int64_t left_out = 0;
    int64_t count = 0;
    for (const uint32_t child : tree_.nodes[node].children) {
      if (is_shown(child)) {
        row(tree_.nodes[child], indent, before);
        is_chain(child) ? rows_below(child, indent, "> ") : rows_below(child, indent + 2);
        continue;
      }
      left_out += tree_.nodes[child].bytes;
      ++count;
    }
    if (count > 0) line(left_out, indent, fmt::format("{} smaller", count));
  }

  /// True if all that is below a node is below its only child.
  bool is_chain(uint32_t node) const {
    const TreeNode& one = tree_.nodes[node];
    return one.children.size() == 1 && tree_.nodes[one.children.front()].bytes == one.bytes;
  }

  void row(const TreeNode& node, size_t indent, const char* before) {
    const std::string blocks =
        node.children.empty() && node.count > 1 ? fmt::format("  ({} blocks)", node.count) : "";
    line(node.bytes, indent, before + shown(place_text(node.place)) + blocks);
  }

  void line(int64_t bytes, size_t indent, const std::string& what) {
    const int64_t all = std::max<int64_t>(1, tree_.nodes[0].bytes);
    const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(all);
    text_ += fmt::format("  {:>12} {:>5.1f} %  {:{}}{}\n", bytes_text(bytes), percent, "",
                         std::min(indent, kMostIndent), what);
  }

  const AliveTree& tree_;
  double least_bytes_;
  std::string text_;
};

Json node_json(const AliveTree& tree, uint32_t index) {
  const TreeNode& node = tree.nodes[index];
  Json children = Json::array();
  for (const uint32_t child : node.children) children.push_back(node_json(tree, child));
  return {{"name", node.place.name},
          {"file", node.place.file},
          {"line", node.place.line},
          {"bytes", node.bytes},
          {"own_bytes", tree.own_bytes(index)},
          {"count", node.count},
          {"children", std::move(children)}};
}

/// Returns the name as it can stand between the separators of a folded stack.
std::string folded_name(const TreePlace& place) {
  std::string name = place_text(place);
  std::ranges::replace(name, ';', ':');
  std::ranges::replace(name, '\n', ' ');
  return name;
}

}  // namespace

std::string tree_text(const AliveTree& tree, double least_share) {
  return TreeText(tree, least_share).run();
}

std::string tree_json(const AliveTree& tree) { return json_text(node_json(tree, 0)); }

std::string tree_folded(const AliveTree& tree) {
  std::vector<std::string> paths(tree.nodes.size());
  std::string text;
  for (uint32_t i = 1; i < tree.nodes.size(); ++i) {
    const TreeNode& node = tree.nodes[i];
    const std::string& before = paths[node.parent];
    paths[i] = before.empty() ? folded_name(node.place)
                              : fmt::format("{};{}", before, folded_name(node.place));
    const int64_t own = tree.own_bytes(i);
    if (own > 0) text += fmt::format("{} {}\n", paths[i], own);
  }
  return text;
}

}  // namespace shardlens::profiler
