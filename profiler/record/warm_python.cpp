#include "profiler/record/warm_python.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <string_view>
#include <tuple>

namespace shardlens::profiler {

namespace {

constexpr std::chrono::minutes kPatience{5};  // for imports, on a machine with much else to do
constexpr std::string_view kNo = "no ";

/// Makes orphans below this process its children.
void adopt(bool does) { ::prctl(PR_SET_CHILD_SUBREAPER, does ? 1 : 0, 0, 0, 0); }

}  // namespace

bool can_be_forked(const RecordOptions& variant) {
  return !variant.is_alone && !variant.log.empty() &&
         std::ranges::none_of(variant.levers, acts_at_start);
}

WarmPython::WarmPython(const RecordOptions& options, const std::string& imports,
                       const std::function<void(int socket)>& become)
    : options_(options) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    why_not_ = "no socket could be made";
    return;
  }
  process_ = ::fork();
  if (process_ == 0) {
    ::fcntl(ends[1], F_SETFD, 0);  // stays open in the command
    become(ends[1]);
    ::_exit(127);
  }
  ::close(ends[1]);
  socket_.emplace(ends[0]);
  adopt(true);
  const auto answer = process_ > 0 ? ask(imports) : std::nullopt;
  if (answer == "ready") return;
  const bool is_refused = answer && answer->starts_with(kNo);
  why_not_ = is_refused ? answer->substr(kNo.size()) : "the process that was to fork has ended";
}

WarmPython::~WarmPython() {
  socket_.reset();
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  adopt(false);
}

bool WarmPython::suits(const RecordOptions& variant) const {
  const auto environment_of = [](const RecordOptions& one) {
    return std::tie(one.device.gpu, one.device.capacity_bytes, one.world_size, one.rank,
                    one.gpus_per_node, one.gpu_index, one.beside_bytes, one.true_at,
                    one.routing.kind, one.routing.factor, one.draws_weights);
  };
  return !why_not_ && can_be_forked(variant) && environment_of(variant) == environment_of(options_);
}

std::optional<pid_t> WarmPython::fork_for(const std::string& request) {
  const auto answer = ask(request);
  if (!answer) {
    why_not_ = "the process that forks has ended";
    return std::nullopt;
  }
  pid_t child = 0;
  const char* const end = answer->data() + answer->size();
  const auto [rest, error] = std::from_chars(answer->data(), end, child);
  return error == std::errc() && rest == end ? std::optional(child) : std::nullopt;
}

/// Returns the answer to a line, or nothing if the process has ended or does not answer.
std::optional<std::string> WarmPython::ask(const std::string& line) {
  return socket_->send(line) ? socket_->receive(kPatience) : std::nullopt;
}

}  // namespace shardlens::profiler
