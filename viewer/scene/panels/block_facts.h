// Describes a block: its name, its sizes, what it is for, when it lived, and who allocated it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/report/alive_tree.h"
#include "viewer/model/run.h"

namespace shardlens::viewer {

struct BlockFact {
  std::string name;  // "born"
  std::string text;  // "step 5, at 1.240 s"
};

struct BlockFacts {
  std::string name;  // the block's label, else its action
  Category category{};
  std::vector<BlockFact> facts;     // in the order in which they are shown
  profiler::TreePath stack;         // innermost call first; empty if not recorded
  profiler::TreePath free_stack{};  // likewise for the call that freed it
};

/// `block` must be one of the rank's.
BlockFacts block_facts(const RankLane& rank, uint32_t block);

/// Returns the index of the call that is opened in an editor unless another one is marked: the one
/// in the block's name, else the innermost that has a file. Returns the stack's size if no call has
/// a file.
size_t main_call(const BlockFacts& facts);

/// Returns a line for each fact and each call: the text that is copied.
std::string facts_text(const BlockFacts& facts);

}  // namespace shardlens::viewer
