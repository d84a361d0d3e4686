#include "base/process/background_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace shardlens {

namespace {

constexpr std::chrono::seconds kTimeToEnd{15};
constexpr std::chrono::milliseconds kPause{20};
constexpr int kNotStarted = 127;

/// Returns this program's environment with the given variables.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string one = *at;
    const std::string name = one.substr(0, one.find('=') + 1);
    const bool is_given = std::ranges::any_of(
        variables, [&](const std::string& variable) { return variable.starts_with(name); });
    if (!is_given) all.push_back(one);
  }
  return all;
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// Becomes the program. It only calls what a child of a process with threads may call.
[[noreturn]] void become(const BackgroundProgram::Options& options, char** argv, char** variables,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int input = ::open("/dev/null", O_RDONLY);
  const int log = ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool is_ready = ::getppid() == parent && input >= 0 && log >= 0 &&
                        ::chdir(options.directory.c_str()) == 0 &&
                        ::dup2(input, STDIN_FILENO) >= 0 && ::dup2(log, STDOUT_FILENO) >= 0 &&
                        ::dup2(log, STDERR_FILENO) >= 0;
  if (is_ready) ::execve(argv[0], argv, variables);
  ::_exit(kNotStarted);
}

}  // namespace

BackgroundProgram::BackgroundProgram(const Options& options) {
  const std::vector<std::string> environment = environment_with(options.environment);
  const std::vector<char*> argv = pointers_to(options.command);
  const std::vector<char*> variables = pointers_to(environment);
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ == 0) {
    become(options, const_cast<char**>(argv.data()), const_cast<char**>(variables.data()), parent);
  }
  if (process_ < 0) {
    throw std::runtime_error(
        "no process could be started: too many processes run, or memory is short; end some");
  }
  ::setpgid(process_, process_);  // whichever of the two comes first
}

BackgroundProgram::~BackgroundProgram() {
  while (!exit_code()) {
    stop();
    std::this_thread::sleep_for(kPause);
  }
}

std::optional<int> BackgroundProgram::exit_code() {
  int status = 0;
  if (!exit_code_ && ::waitpid(process_, &status, WNOHANG) == process_) {
    exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return exit_code_;
}

void BackgroundProgram::stop() {
  if (exit_code()) return;
  const auto now = Clock::now();
  if (!stopped_at_) {
    stopped_at_ = now;
    ::kill(process_, SIGTERM);
  } else if (now - *stopped_at_ > kTimeToEnd) {
    ::kill(-process_, SIGKILL);
  }
}

}  // namespace shardlens
