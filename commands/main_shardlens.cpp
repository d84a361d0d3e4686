// `shardlens COMMAND ...` executes the program shardlens-COMMAND beside it, as git does.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/process/installation.h"
#include "commands/shell_completion.h"

namespace {

struct Command {
  const char* name;
  const char* does;
};

constexpr std::array kCommands = {
    Command{"train", "train a model, as one rank or as N local ranks (--workers N)"},
    Command{"record", "record a PyTorch program on this machine's GPUs, or on a simulated one"},
    Command{"advise", "find the levers that make a PyTorch program fit, by running it with each"},
    Command{"solve", "find the largest batch, or other number, with which a PyTorch program fits"},
    Command{"sweep", "run a PyTorch program with several values of its flags; print a table"},
    Command{"matrix", "run a file of recipes; compare each with a baseline (for CI)"},
    Command{"plan", "predict peak memory; search strategies; solve for the largest batch"},
    Command{"profile", "report on recordings: report | diff | alive | time | work | export | ..."},
    Command{"gate", "compare two recordings; exit 1 if a peak grew beyond a limit (for CI)"},
    Command{"checkpoint", "verify | inspect | export | import checkpoints of a run"},
    Command{"infer", "classify an image with a trained model"},
    Command{"doctor", "check what this machine has for training, and what is wrong with it"},
    Command{"check-gpu", "compare this machine's GPU with the simulated one of its kind"},
    Command{"calibrate", "measure this machine's GPU, to predict step times on it more closely"},
    Command{"view", "show recordings and plans in a window, or as a picture, page or report"},
};

std::string usage() {
  std::string text = "usage: shardlens COMMAND [flags]\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<12} {}\n", command.name, command.does);
  }
  return text +
         "\n`shardlens COMMAND --help` lists the flags of a command.\n"
         "`shardlens --version` prints the version.\n"
         "`shardlens completion bash|zsh|fish` prints a completion script for that shell.\n";
}

bool is_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return true;
  }
  return false;
}

std::string command_names() {
  std::string names;
  for (const Command& command : kCommands) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
  }
  return names;
}

int fail(const std::string& line) {
  fmt::print(stderr, "shardlens: {}\n", line);
  return 2;
}

int print_completion(std::string_view shell) {
  const auto script = shardlens::completion_script(shell, command_names());
  if (!script) {
    return fail(fmt::format("completion '{}': unknown shell; give bash, zsh or fish", shell));
  }
  fmt::print("{}", *script);
  return 0;
}

/// Replaces this process with the command's program. `arguments` begin with the command's name.
int exec_command(std::string_view name, char** arguments) {
  if (!is_command(name))
    return fail(fmt::format("{}: unknown command; see shardlens --help", name));
  const auto folder = shardlens::own_program().parent_path();
  const std::string program = (folder / fmt::format("shardlens-{}", name)).string();
  arguments[0] = const_cast<char*>(program.c_str());
  ::execv(program.c_str(), arguments);
  return fail(fmt::format("{}: {} is not built; run make programs", name, program));
}

int help_of(std::string_view name) {
  std::string flag = "--help";
  char* arguments[] = {nullptr, flag.data(), nullptr};
  return exec_command(name, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "{}", usage()), 2;
  const std::string_view name = argv[1];
  const bool asks_help = name == "--help" || name == "-h" || name == "help";
  if (asks_help && argc > 2) return help_of(argv[2]);
  if (asks_help) return fmt::print("{}", usage()), 0;
  if (name == "--version" || name == "-V") return fmt::print("shardlens {}\n", SHARDLENS_IS), 0;
  if (name == "completion") return print_completion(argc > 2 ? argv[2] : "");
  return exec_command(name, argv + 1);
}
