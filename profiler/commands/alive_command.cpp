#include "profiler/commands/alive_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>

#include "base/process/command_line.h"
#include "base/shown.h"
#include "base/units.h"
#include "profiler/exchange/alive_at.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/file/reader.h"
#include "profiler/report/alive_tree.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

namespace {

struct AliveOptions {
  std::string source;
  std::optional<int32_t> rank;
  std::string at = "peak";
  std::string by = "stack";
  std::string from = "top";
  std::string threshold = "1%";
  bool json = false;
  bool folded = false;
};

/// Returns the index of a word in the words that a flag takes.
template <ClosedChoice Choice>
Choice parse_choice(std::string_view flag, const std::string& word) {
  if (const std::optional<Choice> value = choice_named<Choice>(word)) return *value;
  throw std::invalid_argument(
      fmt::format("{} {}: choose one of {}", flag, word, fmt::join(kWords<Choice>, ", ")));
}

std::string recording_of(const AliveOptions& options) {
  const std::vector<std::string> files = recordings_of(options.source, options.rank);
  if (files.size() == 1) return files.front();
  throw std::invalid_argument(fmt::format(
      "{}: {} ranks, but a tree shows one; choose it with --rank", options.source, files.size()));
}

AliveTree tree_of(const Profile& profile, const AliveBlocks& alive, TreeGrouping by,
                  TreeStart from) {
  const TreePaths paths(profile.header, profile.strings, profile.stacks);
  TreeBuilder builder(/*compares=*/false);
  for (const AliveGroup& group : alive.groups) builder.add(paths.path(group, by, from), group);
  return builder.finish();
}

std::string title_of_tree(const Profile& profile, const AliveBlocks& alive,
                          const AliveOptions& options) {
  const std::string step = alive.step < 0 ? "" : fmt::format(", step {}", alive.step);
  const bool has_times =
      profile.header.start_realtime_ns != 0 ||
      std::ranges::any_of(profile.events, [](const Event& event) { return event.time_ns != 0; });
  std::string text = fmt::format("alive{} {}{} ({}): {}{} in {} blocks, by {} from the {}\n",
                                 has_times ? "" : ",", time_text(alive.time_ns, has_times), step,
                                 options.at, bound_prefix(profile.judgement),
                                 bytes_text(alive.bytes), alive.count, options.by, options.from);
  if (!is_whole(profile.judgement)) {
    text += fmt::format("  {}\n", judgement_text(profile.judgement));
  }
  if (profile.stacks.frames.size() == 1 && options.by != "category") {
    text += "  this recording has no stacks: a path is an action and a label\n";
  }
  return text;
}

}  // namespace

std::string alive_command(const std::vector<std::string>& arguments) {
  CLI::App app;
  AliveOptions options;
  app.add_option("RUN|FILE", options.source)->required();
  app.add_option("--rank", options.rank);
  app.add_option("--at", options.at);
  app.add_option("--by", options.by);
  app.add_option("--from", options.from);
  app.add_option("--threshold", options.threshold);
  auto* const json = app.add_flag("--json", options.json);
  app.add_flag("--folded", options.folded)->excludes(json);
  parse_flags(app, arguments);
  const auto by = parse_choice<TreeGrouping>("--by", options.by);
  const auto from = parse_choice<TreeStart>("--from", options.from);
  const double percent = parse_percent("--threshold", options.threshold);
  const AliveMoment moment = parse_moment(options.at);
  const std::string path = recording_of(options);
  const Profile profile = is_memory_viz(path) ? import_memory_viz_file(path) : read_profile(path);
  const AliveBlocks alive = alive_at(profile, moment);
  const AliveTree tree = tree_of(profile, alive, by, from);
  if (options.json) return tree_json(tree);
  if (options.folded) return tree_folded(tree);
  return title_of_tree(profile, alive, options) + tree_text(tree, percent / 100);
}

}  // namespace shardlens::profiler
