#include "viewer/scene/panels/block_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "profiler/recording/profile.h"
#include "viewer/model/compare.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

using profiler::TreePlace;

namespace {

std::string exact_bytes(int64_t bytes) {
  return bytes < 1024 ? bytes_text(bytes) : fmt::format("{} ({} bytes)", bytes_text(bytes), bytes);
}

std::string when_text(const Lane& lane, int64_t change) {
  const std::string stretch = stretch_text(lane, change);
  constexpr int kMicroseconds = 6;  // digits: a block may live for less than a millisecond
  return stretch + (stretch.empty() ? "" : ", ") + clock_text(lane, change, kMicroseconds);
}

std::string life_text(const Lane& lane, const Block& block) {
  const bool is_freed = block.died != kNeverFreed;
  const int64_t last = is_freed ? static_cast<int64_t>(block.died) : lane.changes() - 1;
  const int64_t steps = age_in_steps(block, step_of_change(lane, last));
  const double ms = static_cast<double>(lane.time_of(last) - lane.time_of(block.born)) / 1e6;
  return fmt::format("{:.3f} ms{}{}", ms, is_freed ? "" : " or more",
                     steps == 0 ? ", within its step"
                                : fmt::format(", {} step{} began", steps, steps == 1 ? "" : "s"));
}

/// Returns the operators that ran inside the program's innermost call, the inner one first.
std::string operator_text(const profiler::TreePath& stack) {
  std::string text;
  for (const TreePlace& call : stack) {
    if (!call.file.empty()) break;
    text += (text.empty() ? "" : " in ") + call.name;
  }
  return text;
}

std::string module_text(const profiler::TreePaths& paths, const Block& block) {
  const profiler::AliveGroup group{.label = block.label,
                                   .action = block.action,
                                   .phase = block.phase,
                                   .category = block.category};
  profiler::TreePath modules =
      paths.path(group, profiler::TreeGrouping::module, profiler::TreeStart::top);
  modules.pop_back();  // the label
  std::string text;
  for (const TreePlace& module : modules) text += (text.empty() ? "" : " > ") + module.name;
  return text;
}

}  // namespace

BlockFacts block_facts(const RankLane& rank, uint32_t index) {
  const Lane& lane = rank.lane;
  const Block& block = lane.arrays().blocks[index];
  const LaneInfo& info = lane.info();
  const profiler::TreePaths paths(info.header, info.strings, info.stacks);
  const std::string action = rank.names.name_of(block.phase, block.action).text;
  BlockFacts facts{.name = std::string(lane.label(block)),
                   .category = block.category,
                   .facts = {},
                   .stack = paths.stack(block.label)};
  std::ranges::reverse(facts.stack);
  const uint32_t free_label = lane.free_label(index);
  if (free_label != 0) facts.free_stack = paths.stack(free_label);
  std::ranges::reverse(facts.free_stack);
  const auto add = [&](const char* name, std::string text) {
    if (!text.empty()) facts.facts.push_back({name, std::move(text)});
  };
  const std::string category = words_of(block.category, profiler::has_shards(info.header));
  if (facts.name.empty()) facts.name = fmt::format("{} of {}", category, action);
  add("holds", std::string(lane.name(index)));
  add("category", category);
  add("asked", exact_bytes(block.asked_bytes));
  add("given", exact_bytes(block.given_bytes));
  add("born", when_text(lane, block.born));
  add("born in", block.action >= 0 ? action : action_text(rank, block.born));
  const bool is_freed = block.died != kNeverFreed;
  add("freed", is_freed ? when_text(lane, block.died) : "not in this recording");
  add("freed in", is_freed ? action_text(rank, block.died) : "");
  add("freed by",
      free_label != 0 && free_label < info.strings.size() ? info.strings[free_label] : "");
  add("lived", life_text(lane, block));
  add("operator", operator_text(facts.stack));
  add("module", module_text(paths, block));
  add("address", fmt::format("{:#x}", block.address));
  if (block.stream != 0) add("stream", fmt::format("{}", block.stream));
  return facts;
}

size_t main_call(const BlockFacts& facts) {
  const auto is_named = [&](const TreePlace& call) {
    // A label is "llama.py:62 forward"; place_text returns "forward  llama.py:62".
    const std::string file = call.file.substr(call.file.rfind('/') + 1);
    return !file.empty() && facts.name.starts_with(fmt::format("{}:{} ", file, call.line));
  };
  const auto& stack = facts.stack;
  auto at = std::ranges::find_if(stack, is_named);
  if (at == stack.end()) {
    at = std::ranges::find_if(stack, [](const TreePlace& call) { return !call.file.empty(); });
  }
  return static_cast<size_t>(at - stack.begin());
}

namespace {

std::string stack_text(std::string_view title, const profiler::TreePath& stack) {
  if (stack.empty()) return "";
  std::string text = fmt::format("{}, the innermost call first\n", title);
  for (const TreePlace& call : stack) {
    text += call.file.empty() ? fmt::format("  {}\n", call.name)
                              : fmt::format("  {}  {}:{}\n", call.name, call.file, call.line);
  }
  return text;
}

}  // namespace

std::string facts_text(const BlockFacts& facts) {
  std::string text = facts.name + "\n";
  for (const BlockFact& fact : facts.facts) text += fmt::format("{:<9} {}\n", fact.name, fact.text);
  return text + stack_text("stack", facts.stack) +
         stack_text("stack of the free", facts.free_stack);
}

}  // namespace shardlens::viewer
