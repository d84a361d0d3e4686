#include "base/process/program_output.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <stdexcept>

namespace shardlens {

ProgramOutput output_of(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe could be made");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  ProgramOutput output{.exit_code = 127, .text = {}};
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;) {
    output.text.append(part.data(), static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  if (failure == 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status)) {
    output.exit_code = WEXITSTATUS(status);
  }
  return output;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace shardlens
