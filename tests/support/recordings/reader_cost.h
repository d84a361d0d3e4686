// Measures what a reader takes, in a process of its own: time on a core, which other programs
// hardly change, and the most memory beyond what was in use before.
#pragma once

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

namespace shardlens::tests {

struct ReaderCost {
  double cpu_s = 0;
  int64_t peak_bytes = 0;
  bool is_refused = false;  // it threw
  bool is_ended = false;    // by its limit or by a crash: the rest is unknown
};

/// A line such as "VmRSS:      1234 kB" of this process.
inline int64_t own_status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == key + ":" && status >> kib) return kib * 1024;
  }
  return 0;
}

/// Runs `read` in a child that is ended after `most_cpu_s` on a core.
inline ReaderCost cost_of(const std::function<void()>& read, unsigned most_cpu_s = 60) {
  int ends[2] = {};
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    ::malloc_trim(0);  // else the reader would take freed memory of the parent, uncounted
    const rlimit cpu{most_cpu_s, most_cpu_s};
    ::setrlimit(RLIMIT_CPU, &cpu);
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts again
    const int64_t before_bytes = own_status_bytes("VmRSS");
    const std::clock_t start = std::clock();
    ReaderCost cost;
    try {
      read();
    } catch (const std::exception&) {
      cost.is_refused = true;
    }
    cost.cpu_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    cost.peak_bytes = own_status_bytes("VmHWM") - before_bytes;
    const bool is_told = ::write(ends[1], &cost, sizeof cost) == sizeof cost;
    ::_exit(is_told ? 0 : 1);
  }
  ::close(ends[1]);
  ReaderCost cost;
  if (::read(ends[0], &cost, sizeof cost) != sizeof cost) cost = {.is_ended = true};
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return cost;
}

}  // namespace shardlens::tests
