// Runs one of our programs as a user would: takes flags, returns exit code and both outputs.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace shardlens::tests {

struct ProcessEnd {
  int exit_code = -1;  // -1: a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
  double seconds = 0;
};

class Process {
 public:
  explicit Process(const std::vector<std::string>& command)
      : start_(std::chrono::steady_clock::now()) {
    // Both exist also if the process is killed before it opens them.
    for (const char* name : {"out", "err"}) write_file(folder_.file(name), "");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) exec_command(command);
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  ProcessEnd wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
            .out = read_file(folder_.file("out")),
            .err = read_file(folder_.file("err")),
            .seconds = seconds.count()};
  }

  /// Its children, oldest first: a launcher's ranks.
  std::vector<pid_t> children() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                       "/children");
    std::vector<pid_t> pids;
    for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
    return pids;
  }

 private:
  [[noreturn]] void exec_command(const std::vector<std::string>& command) const {
    const auto redirect = [&](const char* name, int target) {
      const int file = ::open(folder_.file(name).c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
      ::dup2(file, target);
      ::close(file);
    };
    redirect("out", STDOUT_FILENO);
    redirect("err", STDERR_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }

  TemporaryFolder folder_;
  std::chrono::steady_clock::time_point start_;
  pid_t pid_ = -1;
};

inline ProcessEnd run(const std::vector<std::string>& command) { return Process(command).wait(); }

/// A process that has ended but was not waited for does not count as running.
inline bool is_running(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name, state;
  return (stat >> id >> name >> state) && state != "Z";
}

/// Polls until `holds` or the time is up; returns whether it held.
template <class Condition>
bool wait_until(const Condition& holds, std::chrono::seconds limit = std::chrono::seconds(60)) {
  const auto last_moment = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > last_moment) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace shardlens::tests
