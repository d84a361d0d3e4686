#include "profiler/report/alive_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

namespace shardlens::profiler {

namespace {

constexpr size_t kMostDepth = 200;  // PyTorch keeps 64 calls at most, Python itself 1000

std::string_view without_folders(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string_view without_ending(std::string_view file) { return file.substr(0, file.rfind('.')); }

/// Returns the module of a function that is the forward of one: "Attention" of "Attention.forward",
/// and the file's name if the recording has no class names. Otherwise returns nothing.
std::string_view module_of(const TreePlace& call) {
  constexpr std::string_view kForward = ".forward";
  const std::string_view name = call.name;
  if (name == "forward") return without_ending(without_folders(call.file));
  if (!name.ends_with(kForward)) return {};
  const std::string_view path = name.substr(0, name.size() - kForward.size());
  return path.substr(path.rfind('.') + 1);
}

}  // namespace

std::string place_text(const TreePlace& place) {
  if (place.file.empty()) return place.name;
  const std::string_view file = without_folders(place.file);
  if (place.line == 0) return fmt::format("{}  {}", place.name, file);
  return fmt::format("{}  {}:{}", place.name, file, place.line);
}

TreePaths::TreePaths(const Header& header, const std::vector<std::string>& strings,
                     const Stacks& stacks)
    : strings_(strings), stacks_(stacks), train_(header.train), evaluate_(header.evaluate) {}

std::string TreePaths::text(uint32_t string) const {
  if (string == 0 || string >= strings_.size()) return {};
  return strings_[string];
}

TreePath TreePaths::stack(uint32_t label) const {
  TreePath path;
  uint32_t frame = stacks_.innermost_frame(label);
  for (; frame != 0 && path.size() < kMostDepth; frame = stacks_.frames[frame].caller) {
    const StackFrame& call = stacks_.frames[frame];
    path.push_back({.name = text(call.function), .file = text(call.file), .line = call.line});
  }
  if (frame != 0) path.push_back({.name = "outer calls"});
  std::ranges::reverse(path);
  return path;
}

/// Returns the stack; for a block without one, the kind of its action, what that is for, and the
/// label.
TreePath TreePaths::call_path(const AliveGroup& group) const {
  TreePath path = stack(group.label);
  if (!path.empty()) return path;
  const ActionLines& actions = group.phase == Phase::evaluating ? evaluate_ : train_;
  const std::string action = actions.words(group.action);
  const size_t kind = std::min(action.find(' '), action.size());
  if (kind > 0) path.push_back({.name = action.substr(0, kind)});
  if (kind < action.size()) path.push_back({.name = action.substr(kind + 1)});
  std::string label = text(group.label);
  if (!label.empty()) path.push_back({.name = std::move(label)});
  if (path.empty()) path.push_back({.name = "without a name"});
  return path;
}

/// Returns the modules whose forward was running, and the label; for a block without a stack only
/// the label, which names a unit.
TreePath TreePaths::modules(const AliveGroup& group) const {
  const TreePath calls = stack(group.label);
  if (calls.empty()) return {{.name = group.label == 0 ? "without a name" : text(group.label)}};
  TreePath path;
  for (const TreePlace& call : calls) {
    const std::string_view module = module_of(call);
    if (!module.empty()) path.push_back({.name = std::string(module), .file = call.file});
  }
  if (path.empty()) path.push_back({.name = "outside any module"});
  path.push_back({.name = text(group.label)});
  return path;
}

TreePath TreePaths::path(const AliveGroup& group, TreeGrouping by, TreeStart from) const {
  TreePath path = by == TreeGrouping::module ? modules(group) : call_path(group);
  if (from == TreeStart::bottom) std::ranges::reverse(path);
  if (by != TreeGrouping::category) return path;
  const auto category = static_cast<size_t>(group.category);
  path.insert(path.begin(), {.name = std::string(kWords<Category>[category])});
  return path;
}

int64_t AliveTree::own_bytes(uint32_t node) const {
  int64_t bytes = nodes[node].bytes;
  for (const uint32_t child : nodes[node].children) bytes -= nodes[child].bytes;
  return bytes;
}

uint32_t TreeBuilder::child(uint32_t parent, const TreePlace& place) {
  const std::string file(compares_ ? without_folders(place.file) : place.file);
  const uint32_t line = !compares_ || unchanged_.contains(file) ? place.line : 0;
  const auto next = static_cast<uint32_t>(tree_.nodes.size());
  const auto [known, added] = known_.try_emplace({parent, place.name, file, line}, next);
  if (!added) return known->second;
  tree_.nodes.push_back({.place = place, .parent = parent, .children = {}});
  tree_.nodes[parent].children.push_back(next);
  return next;
}

uint32_t TreeBuilder::add(const TreePath& path, const AliveGroup& group, bool is_baseline) {
  const auto count = [&](TreeNode& node) {
    (is_baseline ? node.baseline_bytes : node.bytes) += group.bytes;
    (is_baseline ? node.baseline_count : node.count) += group.count;
  };
  uint32_t at = 0;
  count(tree_.nodes[at]);
  for (const TreePlace& place : path) {
    at = child(at, place);
    count(tree_.nodes[at]);
  }
  return at;
}

AliveTree TreeBuilder::finish() {
  const auto order = [&](uint32_t a, uint32_t b) {
    const TreeNode& left = tree_.nodes[a];
    const TreeNode& right = tree_.nodes[b];
    return std::tuple(-left.largest_bytes(), a) < std::tuple(-right.largest_bytes(), b);
  };
  for (TreeNode& node : tree_.nodes) std::ranges::sort(node.children, order);
  return std::move(tree_);
}

}  // namespace shardlens::profiler
