#include "runtime/doctor/child.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// Reads all that the child writes. Returns true if the child closed its end in time.
bool read_all(int fd, Clock::time_point last_moment, std::string& text) {
  char part[4096];
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(last_moment - Clock::now());
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = ::read(fd, part, sizeof(part));
    if (got <= 0) return true;
    text.append(part, static_cast<size_t>(got));
  }
}

}  // namespace

ChildOutput ask_child(std::chrono::milliseconds deadline, const std::function<int(int fd)>& body) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) throw std::runtime_error("cannot create a pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::_exit(body(ends[1]));
  }
  ::close(ends[1]);
  ChildOutput said;
  if (child > 0) {
    said.is_late = !read_all(ends[0], Clock::now() + deadline, said.text);
    if (said.is_late) ::kill(child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) said.exit_code = WEXITSTATUS(status);
  }
  ::close(ends[0]);
  return said;
}

}  // namespace shardlens::runtime
