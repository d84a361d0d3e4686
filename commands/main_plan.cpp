#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "base/output_file.h"
#include "base/process/installation.h"
#include "base/process/program.h"
#include "base/process/program_output.h"
#include "planner/plan_command.h"
#include "planner/pytorch/running.h"

namespace {

using namespace shardlens;

std::filesystem::path program_of(const std::string& command) {
  return own_program().parent_path() / ("shardlens-" + command);
}

/// Replaces this process with the command of ours that runs the program.
int become(const std::vector<std::string>& command) {
  const auto program = program_of(command.front());
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.front() = const_cast<char*>(program.c_str());
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  throw std::system_error(errno, std::generic_category(), program.string());
}

/// Runs the command, and prints the report of its recording as JSON. Returns the command's code.
int print_json(std::vector<std::string> command, const std::string& recording) {
  command.front() = program_of(command.front()).string();
  const ProgramOutput ran = output_of(command);
  print_output(ran.text, stderr);
  const ProgramOutput report =
      output_of({program_of("profile").string(), "report", recording, "--json"});
  print_output(report.text);
  return report.exit_code == 0 || ran.exit_code != 0 ? ran.exit_code : report.exit_code;
}

int run_python_program(const std::vector<std::string>& arguments) {
  const auto program = support_folder("plan") / "train.py";
  const bool asks_help = std::ranges::find(arguments, "--help") != arguments.end();
  if (asks_help) return print_output(planner::running_help(program)), 0;
  const planner::RunningPlan plan = planner::plan_by_running(arguments, program);
  if (!plan.json_of.empty()) return print_json(plan.command, plan.json_of);
  if (plan.write.empty()) return become(plan.command);
  if (std::filesystem::exists(plan.write)) {
    throw std::invalid_argument(fmt::format("--write {}: exists; give another name", plan.write));
  }
  write_text(plan.write, plan.program);
  print_output(fmt::format(
      "wrote {}; start it with torchrun --nproc-per-node N {}, where N is the number of GPUs\n",
      plan.write, plan.write));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const settings = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  return run_program("shardlens plan", [&] {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (planner::plans_by_running(arguments)) return run_python_program(arguments);
    const auto outcome = planner::plan_command(arguments, settings == nullptr ? "" : settings);
    print_output(outcome.notes, stderr);  // not mixed into the JSON of --json
    print_output(outcome.out);
    return outcome.exit_code;
  });
}
