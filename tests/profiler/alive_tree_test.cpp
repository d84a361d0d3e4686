// Compares trees of live memory with sums over all blocks.

#include "profiler/report/alive_tree.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "profiler/commands/alive_command.h"
#include "profiler/exchange/alive_at.h"
#include "profiler/exchange/write_recording.h"
#include "profiler/report/recording_report.h"
#include "tests/support/recordings/random_recording.h"
#include "tests/support/recordings/small_recording.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

/// Two modules' calls in one script, an operator in each, and a block of autograd.
Profile scripted() {
  Profile profile;
  profile.strings = {"",
                     "/u/llama.py",
                     "/torch/nn/modules/module.py",
                     "main",
                     "Llama.forward",
                     "Module._call_impl",
                     "Block.forward",
                     "aten::mm",
                     "MmBackward0"};
  profile.stacks.frames = {{},
                           {.file = 1, .function = 3, .line = 120},                // 1 main
                           {.caller = 1, .file = 2, .function = 5, .line = 1789},  // 2 _call_impl
                           {.caller = 2, .file = 1, .function = 4, .line = 90},    // 3 Llama
                           {.caller = 3, .file = 1, .function = 6, .line = 62},    // 4 Block
                           {.caller = 4, .function = 7},                           // 5 aten::mm
                           {.function = 8}};                                       // 6 a node
  const auto label = [&](const char* text, uint32_t innermost) {
    profile.strings.push_back(text);
    profile.stacks.of_label.resize(profile.strings.size());
    profile.stacks.of_label.back() = innermost;
    return static_cast<uint32_t>(profile.strings.size() - 1);
  };
  const auto allocate = [&](int64_t bytes, uint32_t its_label, Category category) {
    profile.events.push_back({.address = 4096 * (profile.events.size() + 1),
                              .value = bytes,
                              .label = its_label,
                              .space = Space::host,
                              .category = category});
  };
  const uint32_t block = label("llama.py:62 forward", 5);
  allocate(300, block, Category::activation);
  allocate(100, block, Category::activation);
  allocate(50, label("llama.py:90 forward", 3), Category::activation);
  allocate(40, label("MmBackward0", 6), Category::gradient);
  allocate(10, label("bare", 0), Category::other);
  return profile;
}

AliveTree tree_of(const Profile& profile, TreeGrouping by, TreeStart from) {
  const TreePaths paths(profile.header, profile.strings, profile.stacks);
  TreeBuilder builder(false);
  for (const AliveGroup& group : alive_at(profile, {}).groups) {
    builder.add(paths.path(group, by, from), group);
  }
  return builder.finish();
}

std::map<uint64_t, int64_t> naive_live(const tests::RandomRecording& recording, size_t until) {
  std::map<uint64_t, int64_t> live;
  for (size_t i = 0; i < until; ++i) {
    const Event& event = recording.profile.events[i];
    if (event.space != Space::device) continue;
    if (event.kind == EventKind::alloc) live[event.address] = recording.given[i];
    if (event.kind == EventKind::free) live.erase(event.address);
  }
  return live;
}

int64_t total_of(const std::map<uint64_t, int64_t>& live) {
  int64_t total = 0;
  for (const auto& [address, bytes] : live) total += bytes;
  return total;
}

}  // namespace

TEST_CASE("a tree has the bytes of all blocks below each of its nodes") {
  std::mt19937_64 engine(Catch::getSeed());
  const auto below = [&](uint64_t limit) { return static_cast<int64_t>(engine() % limit); };
  for (int round = 0; round < 50; ++round) {
    std::map<std::vector<std::string>, int64_t> wanted;
    TreeBuilder builder(false);
    for (int block = 0; block < 100; ++block) {
      TreePath path;
      std::vector<std::string> names;
      const AliveGroup group{.bytes = below(1000), .count = 1};
      wanted[names] += group.bytes;
      for (int64_t depth = below(5); depth >= 0; --depth) {
        path.push_back({.name = std::string(1, static_cast<char>('a' + below(3)))});
        names.push_back(path.back().name);
        wanted[names] += group.bytes;
      }
      builder.add(path, group);
    }
    const AliveTree tree = builder.finish();
    std::vector<std::vector<std::string>> paths(tree.nodes.size());
    int64_t own = 0;
    CHECK(tree.nodes.size() == wanted.size());
    for (uint32_t i = 0; i < tree.nodes.size(); ++i) {
      if (i > 0) {
        paths[i] = paths[tree.nodes[i].parent];
        paths[i].push_back(tree.nodes[i].place.name);
      }
      CHECK(tree.nodes[i].bytes == wanted.at(paths[i]));
      CHECK(std::ranges::is_sorted(tree.nodes[i].children, std::greater(),
                                   [&](uint32_t child) { return tree.nodes[child].bytes; }));
      own += tree.own_bytes(i);
    }
    CHECK(own == tree.nodes[0].bytes);
  }
}

TEST_CASE("memory alive at the peak, the end or any time is what was not freed before") {
  for (const bool expandable : {false, true}) {
    const uint64_t seed = Catch::getSeed();
    CAPTURE(seed, expandable);
    const auto recording = tests::RandomRecorder(seed, expandable).record(1500);
    const std::vector<Event>& events = recording.profile.events;
    size_t peak_end = 0;
    int64_t most = 0;
    for (size_t i = 1; i <= events.size(); i += 1) {
      if (events[i - 1].space != Space::device) continue;
      const int64_t now = total_of(naive_live(recording, i));
      if (now > most) peak_end = i;
      most = std::max(most, now);
    }
    const auto same = [&](const AliveBlocks& alive, size_t until) {
      const auto live = naive_live(recording, until);
      int64_t bytes = 0;
      for (const AliveGroup& group : alive.groups) bytes += group.bytes;
      CHECK(alive.bytes == bytes);
      CHECK(alive.bytes == total_of(live));
      CHECK(alive.count == std::ssize(live));
    };
    same(alive_at(recording.profile, {}), peak_end);
    CHECK(alive_at(recording.profile, {}).bytes == analyse(recording.profile).peak_bytes());
    same(alive_at(recording.profile, {.at = AliveMoment::Kind::end}), events.size());
    for (size_t i = 0; i < events.size(); i += 97) {
      same(alive_at(recording.profile,
                    {.at = AliveMoment::Kind::time, .time_ns = events[i].time_ns}),
           i + 1);
    }
  }
}

TEST_CASE("a tree by stack, from either end, by module and by category") {
  const Profile profile = scripted();
  CHECK(tree_folded(tree_of(profile, TreeGrouping::stack, TreeStart::top)) ==
        "main  llama.py:120;Module._call_impl  module.py:1789;Llama.forward  llama.py:90 50\n"
        "main  llama.py:120;Module._call_impl  module.py:1789;Llama.forward  llama.py:90;"
        "Block.forward  llama.py:62;aten::mm 400\n"
        "MmBackward0 40\nbare 10\n");
  CHECK(tree_folded(tree_of(profile, TreeGrouping::stack, TreeStart::bottom)) ==
        "aten::mm;Block.forward  llama.py:62;Llama.forward  llama.py:90;"
        "Module._call_impl  module.py:1789;main  llama.py:120 400\n"
        "Llama.forward  llama.py:90;Module._call_impl  module.py:1789;main  llama.py:120 50\n"
        "MmBackward0 40\nbare 10\n");
  CHECK(tree_folded(tree_of(profile, TreeGrouping::module, TreeStart::top)) ==
        "Llama  llama.py;Block  llama.py;llama.py:62 forward 400\n"
        "Llama  llama.py;llama.py:90 forward 50\n"
        "outside any module;MmBackward0 40\nbare 10\n");
  const AliveTree by_category = tree_of(profile, TreeGrouping::category, TreeStart::bottom);
  std::map<std::string, int64_t> bytes;
  for (const uint32_t child : by_category.nodes[0].children) {
    bytes[by_category.nodes[child].place.name] = by_category.nodes[child].bytes;
  }
  CHECK(bytes ==
        std::map<std::string, int64_t>{{"activation", 450}, {"gradient", 40}, {"other", 10}});
}

TEST_CASE("a script that was shifted and moved has the same places in a comparison") {
  Profile shifted = scripted();
  shifted.strings[1] = "/elsewhere/llama.py";
  for (StackFrame& frame : shifted.stacks.frames) frame.line += frame.file == 1 ? 5 : 0;
  shifted.events[0].value += 1000;
  TreeBuilder builder(true);
  const Profile baseline = scripted();
  for (const Profile* const one : {&std::as_const(shifted), &baseline}) {
    const TreePaths paths(one->header, one->strings, one->stacks);
    for (const AliveGroup& group : alive_at(*one, {}).groups) {
      builder.add(paths.path(group, TreeGrouping::stack, TreeStart::top), group, one == &baseline);
    }
  }
  const AliveTree tree = builder.finish();
  CHECK(tree.nodes.size() == 8);
  for (const TreeNode& node : tree.nodes) {
    CAPTURE(node.place.name);
    const bool is_above = node.place.file.ends_with(".py") || node.place.name == "aten::mm" ||
                          node.place.name.empty();
    CHECK(node.bytes - node.baseline_bytes == (is_above ? 1000 : 0));
  }
}

TEST_CASE("the command shows a recording's tree as text, JSON and folded stacks") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  Profile profile = scripted();
  write_recording(profile, path);
  const std::string text = alive_command({path});
  CHECK_THAT(text, ContainsSubstring("alive, no times (peak): 500 B in 5 blocks, by stack"));
  CHECK_THAT(text, ContainsSubstring("400 B  80.0 %    Block.forward  llama.py:62"));
  CHECK_THAT(alive_command({path, "--threshold", "50%"}), ContainsSubstring("2 smaller"));
  CHECK(alive_command({path, "--folded"}) ==
        tree_folded(tree_of(profile, TreeGrouping::stack, TreeStart::top)));
  const auto json = nlohmann::json::parse(alive_command({path, "--by", "category", "--json"}));
  CHECK(json.at("bytes") == 500);
  CHECK(json.at("children").at(0).at("name") == "activation");
  CHECK_THROWS_MATCHES(alive_command({path, "--by", "colour"}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("--by colour: choose one of stack")));
  CHECK_THROWS_MATCHES(alive_command({path, "--at", "noon"}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("--at noon: give peak, end")));
  write_recording(tests::small_recording(), path);
  CHECK_THAT(alive_command({path}), ContainsSubstring("this recording has no stacks"));
}

TEST_CASE("a stack of a million calls is one place and the inner calls") {
  Profile profile;
  profile.strings = {"", "f", "label"};
  for (uint32_t i = 0; i < 500'000; ++i) {
    profile.stacks.frames.push_back({.caller = i, .function = 1});
  }
  profile.stacks.of_label = {0, 0, 500'000};
  const TreePath path = TreePaths(profile.header, profile.strings, profile.stacks).stack(2);
  CHECK(path.size() == 201);
  CHECK(path.front().name == "outer calls");
}

TEST_CASE("in a comparison, lines of a file that has not changed stay apart") {
  const auto path = [](uint32_t line) {
    return TreePath{{.name = "<module>", .file = "/u/train.py", .line = line}};
  };
  for (const bool is_unchanged : {true, false}) {
    TreeBuilder builder(true,
                        is_unchanged ? std::set<std::string>{"train.py"} : std::set<std::string>());
    builder.add(path(8), {.bytes = 1, .count = 1});
    builder.add(path(15), {.bytes = 2, .count = 1});
    builder.add(path(15), {.bytes = 3, .count = 1}, true);
    const AliveTree tree = builder.finish();
    REQUIRE(tree.nodes.size() == (is_unchanged ? 3U : 2U));
    CHECK(tree.nodes.back().baseline_bytes == 3);
    if (is_unchanged) CHECK(tree.nodes.back().bytes == 2);
  }
}

TEST_CASE("a call of a chain does not look like a sibling") {
  TreeBuilder builder(false);
  const auto add = [&](const std::vector<std::string>& names, int64_t bytes) {
    TreePath path;
    for (const std::string& name : names) path.push_back({.name = name});
    builder.add(path, {.bytes = bytes, .count = 1});
  };
  add({"Model", "Mlp", "Linear", "aten::mm"}, 30);
  add({"Model", "Mlp", "forward"}, 10);
  const std::string text = tree_text(builder.finish(), 0);
  CAPTURE(text);
  CHECK_THAT(text, ContainsSubstring("%  Model\n"));
  CHECK_THAT(text, ContainsSubstring("%  > Mlp\n"));
  CHECK_THAT(text, ContainsSubstring("%    Linear\n"));
  CHECK_THAT(text, ContainsSubstring("%    > aten::mm\n"));
  CHECK_THAT(text, ContainsSubstring("%    forward\n"));
}

}  // namespace shardlens::profiler
