#include "planner/plan_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

#include "base/output_file.h"
#include "base/units.h"
#include "planner/config/options.h"
#include "planner/plan_json.h"
#include "planner/plan_options.h"
#include "planner/plan_search.h"
#include "planner/plan_solve.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "planner/predicted_timeline.h"

namespace shardlens::planner {

namespace {

namespace fs = std::filesystem;

AllocatorSettings settings_of(const std::string& text) {
  try {
    return parse_allocator_settings(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("PYTORCH_CUDA_ALLOC_CONF: {}", error.what()));
  }
}

/// Returns the size that a flag gives; nothing if it is not given.
std::optional<int64_t> size_of(const char* flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    return parse_bytes(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--{} {}", flag, error.what()));
  }
}

int exit_code_of(Verdict verdict) {
  if (verdict == Verdict::does_not_fit) return 3;
  return verdict == Verdict::fits_with_retries ? 4 : 0;
}

/// Checks that an output can be written, before the work that makes it.
void expect_output(const char* flag, const std::string& path) {
  try {
    expect_writable(path);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--{} {}", flag, error.what()));
  }
}

void make_folder(const std::string& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed) {
    throw std::invalid_argument(
        fmt::format("--config-out {}: cannot be made ({}); give a folder "
                    "that may be written",
                    directory, failed.message()));
  }
  expect_output("config-out", (fs::path(directory) / "pareto-1.json").string());
}

/// Writes each configuration of the front to a file of its own: DIR/pareto-1.json, ...
std::string write_configs(const SearchResult& result, const std::string& directory) {
  std::string text;
  for (size_t i = 0; i < result.front.size(); ++i) {
    const fs::path path = fs::path(directory) / fmt::format("pareto-{}.json", i + 1);
    write_text(path.string(), to_json(result.front_candidate(i).config));
    text += fmt::format("wrote {}\n", path.string());
  }
  return text;
}

PlanOutcome search(const PlanArguments& arguments, const PlanOptions& options) {
  if (!arguments.flags.config_out.empty()) make_folder(arguments.flags.config_out);
  const SearchResult result = search_strategies(arguments.config, arguments.given, options,
                                                size_of("budget", arguments.flags.budget));
  PlanOutcome outcome{.exit_code = result.front.empty() ? 3 : 0};
  std::string written;
  if (!arguments.flags.config_out.empty()) {
    written = write_configs(result, arguments.flags.config_out);
  }
  outcome.out = arguments.flags.json ? search_json(result) : search_text(result) + written;
  return outcome;
}

PlanOutcome plan(const PlanArguments& arguments, const PlanOptions& options) {
  const PlanFlags& flags = arguments.flags;
  if (!flags.timeline.empty()) expect_output("timeline", flags.timeline);
  const Plan made = flags.solve.empty() ? make_plan(arguments.config, options)
                                        : solve(flags.solve, arguments.config, options);
  if (!flags.timeline.empty()) {
    write_predicted_timeline(flags.timeline, arguments.config, options);
  }
  return {.exit_code = exit_code_of(made.verdict),
          .out = flags.json ? plan_json(made) : plan_text(made)};
}

PlanOutcome answer(const PlanArguments& arguments, const PlanOptions& options) {
  const PlanFlags& flags = arguments.flags;
  PlanOutcome outcome;
  if (flags.text) {
    outcome.out = schedule_text(arguments.config, options);
  } else if (flags.shards) {
    outcome.out = shards_text(arguments.config, options);
  } else {
    outcome = flags.search ? search(arguments, options) : plan(arguments, options);
  }
  for (const std::string& note : arguments.notes) outcome.notes += note + "\n";
  return outcome;
}

}  // namespace

PlanOutcome plan_command(const std::vector<std::string>& arguments,
                         const std::string& allocator_settings) {
  const PlanArguments parsed = parse_plan_arguments(arguments);
  const PlanFlags& flags = parsed.flags;
  if (parsed.help) return {.out = plan_help()};
  PlanOptions options{.gpu = flags.gpu,
                      .allocator = settings_of(allocator_settings),
                      .explains = flags.explain,
                      .finds_bands = true};
  if (!flags.torch.empty()) options.torch = &models::torch_rules(flags.torch);
  options.outside.bytes = size_of("beside", flags.beside);
  if (!flags.calibration.empty()) {
    options.outside.calibration = read_calibration(flags.calibration);
  }
  return answer(parsed, options);
}

}  // namespace shardlens::planner
