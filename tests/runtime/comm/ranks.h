// Runs one function as several ranks, as threads of this process or as forked processes, and
// returns what each returned. Only the parent uses Catch2's macros: a rank reports by its text.
#pragma once

#include <csignal>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace shardlens::tests {

using RankBody = std::function<std::string(int rank)>;

/// The text of an exception counts as the text returned.
inline std::string text_of(const RankBody& body, int rank) {
  try {
    return body(rank);
  } catch (const std::exception& error) {
    return error.what();
  }
}

inline std::vector<std::string> run_threads(int world_size, const RankBody& body) {
  std::vector<std::string> texts(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { texts[static_cast<size_t>(rank)] = text_of(body, rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

struct RankProcess {
  pid_t pid = 0;
  int texts = -1;  // read end
};

inline RankProcess fork_rank(int rank, const RankBody& body) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid == 0) {
    std::signal(SIGPIPE, SIG_IGN);  // as the launcher's ranks do
    const std::string text = text_of(body, rank);
    const auto written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

inline std::string read_all(int fd) {
  std::string text;
  char part[512];
  for (ssize_t got = 0; (got = read(fd, part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

/// `lost`: a rank that will not end by itself; it is killed after all others have ended.
inline std::vector<std::string> run_processes(int world_size, const RankBody& body,
                                              std::optional<int> lost = {}) {
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < world_size; ++rank) processes.push_back(fork_rank(rank, body));
  std::vector<std::string> texts(processes.size());
  for (int rank = 0; rank < world_size; ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank != lost) texts[index] = read_all(processes[index].texts);
  }
  for (const RankProcess& process : processes) {
    kill(process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    close(process.texts);
  }
  return texts;
}

}  // namespace shardlens::tests
