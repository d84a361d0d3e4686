#include "planner/plan_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>

#include "planner/config/arguments.h"

namespace shardlens::planner {

namespace {

struct PlanFlag {
  const char* name;
  const char* value;
  const char* help;
  std::variant<std::string PlanFlags::*, bool PlanFlags::*> field;
};

constexpr std::array kFlags = {
    PlanFlag{"gpu", "NAME",
             "the GPU to plan for: h200, h100, b200, a100-80, ...; default: this machine's",
             &PlanFlags::gpu},
    PlanFlag{"calibration", "FILE.slp|FILE.json",
             "a run recorded on such a GPU, for the memory outside LibTorch's allocator",
             &PlanFlags::calibration},
    PlanFlag{"beside", "SIZE",
             "the memory outside LibTorch's allocator, e.g. 700MiB, if you know it: CUDA's, NCCL's "
             "and that of other programs",
             &PlanFlags::beside},
    PlanFlag{"engine", "shardlens|pytorch",
             "the program: Shardlens's own, or one for a model of transformers, torchvision or "
             "timm, run on a simulated GPU (see --engine pytorch --help)",
             &PlanFlags::engine},
    PlanFlag{"torch", "VERSION",
             "plan for this version of PyTorch, such as 2.13; default: this build's",
             &PlanFlags::torch},
    PlanFlag{"explain", "", "show what would take less memory, also if the run fits",
             &PlanFlags::explain},
    PlanFlag{"solve", "batch|world|layers|gpu",
             "find the largest batch or number of layers, the fewest ranks or the smallest GPU "
             "that fits",
             &PlanFlags::solve},
    PlanFlag{"search", "", "try strategies; show those that no other beats in memory and time",
             &PlanFlags::search},
    PlanFlag{"budget", "SIZE", "memory for --search, e.g. 80GiB; default: the GPU's memory",
             &PlanFlags::budget},
    PlanFlag{"config-out", "DIR", "with --search: write a config.json for each strategy shown",
             &PlanFlags::config_out},
    PlanFlag{"timeline", "FILE.slp", "write the predicted timeline, for profile and view",
             &PlanFlags::timeline},
    PlanFlag{"text", "", "print the schedule of a step", &PlanFlags::text},
    PlanFlag{"shards", "", "print which ranks hold which range of every parameter",
             &PlanFlags::shards},
    PlanFlag{"json", "", "print JSON, for programs", &PlanFlags::json},
};

void require_consistent(const PlanFlags& flags) {
  if (flags.engine != "shardlens") {
    throw std::invalid_argument(
        fmt::format("--engine {}: not known; give shardlens or pytorch", flags.engine));
  }
  const int answers = flags.text + flags.shards + flags.search + !flags.solve.empty();
  if (answers > 1) {
    throw std::invalid_argument("--text, --shards, --search, --solve: give only one of them");
  }
  if (!flags.beside.empty() && !flags.calibration.empty()) {
    throw std::invalid_argument("--beside and --calibration: give one of them");
  }
  const bool is_of_search = !flags.budget.empty() || !flags.config_out.empty();
  if (is_of_search && !flags.search) {
    throw std::invalid_argument("--budget and --config-out: need a search; give --search too");
  }
  if (!flags.timeline.empty() && answers > 0) {
    throw std::invalid_argument(
        "--timeline: only applies to one plan; leave out --text, --shards, --search and --solve");
  }
}

}  // namespace

PlanArguments parse_plan_arguments(const std::vector<std::string>& arguments) {
  PlanArguments result;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (const PlanFlag& flag : kFlags) {
    const std::string name = fmt::format("--{}", flag.name);
    if (const auto* text = std::get_if<std::string PlanFlags::*>(&flag.field)) {
      app.add_option(name, result.flags.**text)->take_last();
    } else {
      app.add_flag(name, result.flags.*std::get<bool PlanFlags::*>(flag.field));
    }
  }
  try {
    // CLI11 takes the arguments in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(fmt::format("{}; see --help", error.what()));
  }
  Arguments of_train = parse_arguments(app.remaining());
  for (const std::string& word : app.remaining()) {
    if (word.starts_with("--")) result.given.push_back(word.substr(2, word.find('=') - 2));
  }
  result.config = std::move(of_train.config);
  result.notes = std::move(of_train.notes);
  result.help = of_train.help;
  if (!result.help) require_consistent(result.flags);
  return result;
}

std::string plan_help() {
  std::string text = help_text("plan") + "\nflags of plan only:\n";
  for (const PlanFlag& flag : kFlags) {
    text += fmt::format("  {:<42} {}\n", fmt::format("--{} {}", flag.name, flag.value), flag.help);
  }
  return text +
         "\nexit codes: 0 fits, 4 fits only with allocator retries, 3 does not fit, 2 wrong usage, "
         "1 failed\n";
}

}  // namespace shardlens::planner
