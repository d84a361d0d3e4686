// Runs `shardlens plan`: the first part is its arguments, one a line, and the others are files that
// they may name. Models are bounded: a larger one is slow, which does not count as a finding.

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "planner/plan_command.h"
#include "tests/fuzz/harness.h"

namespace shardlens::fuzz {

namespace {

namespace fs = std::filesystem;

constexpr std::array kModels = {"vit-tutorial", "small.json"};
constexpr const char* kSmallModel =
    R"({"family": "llama", "layers": 2, "width": 64, "heads": 4, "kv_heads": 2,
        "mlp_width": 128, "vocab": 512, "seq": 64})";

std::vector<std::string> arguments_in(const std::string& text) {
  std::vector<std::string> arguments;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // Nothing is written outside the folder in which the command runs.
    std::ranges::replace(line, '/', '_');
    line.resize(std::min(line.find('\0'), line.size()));  // as an argument of a process ends
    arguments.push_back(std::move(line));
  }
  return arguments;
}

/// `--search` makes a thousand plans.
bool is_bounded(const std::vector<std::string>& arguments) {
  return std::ranges::none_of(arguments, [](const std::string& argument) {
    return argument.starts_with("--model") || argument.starts_with("--search");
  });
}

}  // namespace

void plan(std::string_view input) {
  std::vector<Part> parts = parts_of(input, "arguments");
  const std::string& folder = empty_folder();
  std::vector<std::string> arguments = arguments_in(parts.front().bytes);
  if (!is_bounded(arguments)) return;
  parts.front() = {"small.json", kSmallModel};
  write_parts(parts, folder);
  fs::current_path(folder);
  arguments.insert(arguments.begin(), {"--model", kModels[input.size() % kModels.size()]});
  answers([&] {
    const planner::PlanOutcome outcome = planner::plan_command(arguments, "");
    constexpr std::array kExitCodes = {0, 3, 4};
    expect(std::ranges::find(kExitCodes, outcome.exit_code) != kExitCodes.end(),
           "plan ends with an undocumented exit code");
    const bool is_json = std::ranges::find(arguments, "--json") != arguments.end();
    if (is_json && outcome.out.starts_with("{")) {
      expect(nlohmann::json::accept(outcome.out), "plan writes invalid JSON");
    }
  });
}

}  // namespace shardlens::fuzz
