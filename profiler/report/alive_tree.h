// What is alive at a moment, as a tree: by the stack on which it was allocated, by the modules
// whose forward asked for it, or by its category. A flame graph is a drawing of such a tree.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/choice.h"
#include "profiler/recording/events.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

enum class TreeGrouping : uint8_t { stack, module, category };
constexpr auto choice_words(TreeGrouping) { return words("stack", "module", "category"); }

/// The end of a stack at which its tree begins: the program's first function, or the call that
/// allocated.
enum class TreeStart : uint8_t { top, bottom };
constexpr auto choice_words(TreeStart) { return words("top", "bottom"); }

/// A function at a line, a module, a category, an action of the schedule or a label.
struct TreePlace {
  std::string name;
  std::string file{};  // with its folders; empty where there is none
  uint32_t line = 0;   // 0: none

  bool operator==(const TreePlace&) const = default;
};

/// Returns "forward  llama.py:62", or only the name.
std::string place_text(const TreePlace& place);

using TreePath = std::vector<TreePlace>;

/// Blocks that no tree can tell apart, since they share everything that it groups by.
struct AliveGroup {
  uint32_t label = 0;
  int32_t action = -1;  // of the schedule of its phase
  Phase phase{};
  Category category{};
  int64_t bytes = 0;  // of all blocks, as the allocator gave them
  int64_t count = 0;
};

/// Finds the path of a block in a tree. The recording's strings and stacks must outlive it.
class TreePaths {
 public:
  TreePaths(const Header& header, const std::vector<std::string>& strings, const Stacks& stacks);

  /// Returns the path from the root on. It has one place at least, and at most a few hundred: the
  /// outer calls of a deeper stack are one place.
  TreePath path(const AliveGroup& group, TreeGrouping by, TreeStart from) const;

  /// Returns the stack of a label, the outermost call first; nothing if it has none.
  TreePath stack(uint32_t label) const;

 private:
  std::string text(uint32_t string) const;
  TreePath call_path(const AliveGroup& group) const;
  TreePath modules(const AliveGroup& group) const;

  const std::vector<std::string>& strings_;
  const Stacks& stacks_;
  ActionLines train_;
  ActionLines evaluate_;
};

struct TreeNode {
  TreePlace place;
  uint32_t parent = 0;
  int64_t bytes = 0;  // of all blocks below it
  int64_t count = 0;
  int64_t baseline_bytes = 0;  // the same in the run that is compared with
  int64_t baseline_count = 0;
  std::vector<uint32_t> children;  // the largest first, equal ones as they came

  int64_t largest_bytes() const { return bytes > baseline_bytes ? bytes : baseline_bytes; }
};

/// `nodes[0]` is the root, which is everything. A child comes after its parent.
struct AliveTree {
  std::vector<TreeNode> nodes = {{}};

  /// Returns the bytes of the blocks that end at this node, so not those of its children.
  int64_t own_bytes(uint32_t node) const;
};

/// Builds the tree of one run, or of two. With two, places are the same if they have the same name
/// and file. Folders do not count. Lines count in `unchanged` files (names without folders), but
/// not in others, since an edit moves lines.
class TreeBuilder {
 public:
  explicit TreeBuilder(bool compares, std::set<std::string> unchanged = {})
      : compares_(compares), unchanged_(std::move(unchanged)) {}

  /// Adds the blocks of a group to every node of a path. Returns the last of these.
  uint32_t add(const TreePath& path, const AliveGroup& group, bool is_baseline = false);
  AliveTree finish();

 private:
  using Key = std::tuple<uint32_t, std::string, std::string, uint32_t>;

  uint32_t child(uint32_t parent, const TreePlace& place);

  bool compares_;
  std::set<std::string> unchanged_;
  AliveTree tree_;
  std::map<Key, uint32_t> known_;
};

/// Returns the tree in rows, each with its share of all bytes. Rows with less than `least_share` of
/// all bytes (0 to 1) are left out, but counted. A chain of calls that leads to one place is not
/// indented: each call but the first has a ">" before it.
std::string tree_text(const AliveTree& tree, double least_share);
/// Returns nested objects of name, file, line, bytes, own_bytes, count and children.
std::string tree_json(const AliveTree& tree);
/// Returns a line "a;b;c BYTES" for each path at which blocks end, as flame graph tools read it.
std::string tree_folded(const AliveTree& tree);

}  // namespace shardlens::profiler
