// `shardlens COMMAND ...`: becomes the program shardlens-COMMAND beside it, as git does.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace {

struct Command {
  const char* name;
  const char* does;
};

constexpr std::array kCommands = {
    Command{"train", "train, one process or a whole local group (--workers N)"},
    Command{"record", "record a PyTorch program, on its GPUs or on one that is not there"},
    Command{"plan", "predict peak memory; search strategies; solve for the largest batch"},
    Command{"profile", "report | diff | export | import | bundle | check recorded files"},
    Command{"gate", "compare two recordings; exit 1 where a peak grew above a limit (for CI)"},
    Command{"checkpoint", "verify | inspect | export | import what a run goes on from"},
    Command{"infer", "classify an image with a trained model"},
    Command{"doctor", "what this machine has, and what is wrong with it"},
    Command{"view", "desktop viewer; --screenshot and --report need no window"},
};

std::string usage() {
  std::string text = "usage: shardlens COMMAND [flags]\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<12} {}\n", command.name, command.does);
  }
  return text + "\n`shardlens COMMAND --help` lists the flags of a command.\n";
}

bool is_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return true;
  }
  return false;
}

int fail(const std::string& line) {
  fmt::print(stderr, "shardlens: {}\n", line);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "{}", usage()), 2;
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") return fmt::print("{}", usage()), 0;
  if (!is_command(name))
    return fail(fmt::format("{}: unknown command; see shardlens --help", name));
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string program = (self.parent_path() / fmt::format("shardlens-{}", name)).string();
  argv[1] = const_cast<char*>(program.c_str());
  ::execv(program.c_str(), argv + 1);
  return fail(fmt::format("{}: {} is not built; run make build", name, program));
}
