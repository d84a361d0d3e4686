#include "runtime/record/recorded_run.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "profiler/exchange/import_history.h"
#include "runtime/installation.h"
#include "runtime/null_device/null_device.h"

namespace shardlens::runtime {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeToEnd{10};  // after it was interrupted

constexpr int kTimedOut = 124;  // the exit code of timeout(1)

fs::path profiles_of(const RecordOptions& options) { return fs::path(options.out) / "profiles"; }

/// Returns the folder of what torch.compile keeps, which is not kept from run to run here.
/// Compiling anew takes memory, too, and a GPU must not find kernels that were chosen without one.
fs::path compiled_in(const RecordOptions& options, const std::string& claim) {
  return fs::path(options.out) / ("compiled" + claim);
}

/// Returns the folder in which the program's processes write their accounts, until these have been
/// read.
fs::path accounts_in(const RecordOptions& options, const std::string& claim) {
  return fs::path(options.out) / ("accounts" + claim);
}

/// Returns the ending of the files by which a process tells which rank's recording it makes.
std::string own_claim() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string name = fmt::format(".claim-{}-{}", host.data(), ::getpid());
  std::ranges::replace(name.begin() + 1, name.end(), '.', '-');
  return name;
}

// ---- before -------------------------------------------------------------------------------------

template <class Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string options_json(const RecordOptions& options, const PythonProgram& program,
                         const RecordFiles& files, const std::string& claim) {
  std::vector<std::string> doubts = doubts_of(program);
  if (!files.doubt.empty()) doubts.push_back(files.doubt);
  const std::string library = files.library.string();
  const nlohmann::json json = {
      {"library", library.empty() ? nlohmann::json() : nlohmann::json(library)},
      {"torch", program.torch_version},
      {"doubts", doubts},
      {"python", program.interpreter},
      {"accounts", fs::absolute(accounts_in(options, claim)).string()},
      {"folder", fs::absolute(profiles_of(options)).string()},
      {"claim", claim.substr(1)},
      {"device", options.device_name()},
      {"world", or_null(options.world_size)},
      {"rank", or_null(options.rank)},
      {"gpus_per_node", or_null(options.gpus_per_node)},
      {"steps", or_null(options.steps)},
      {"true_at", options.true_at},
      {"command", options.command}};
  return json.dump();
}

void set(const char* variable, int64_t number) {
  ::setenv(variable, std::to_string(number).c_str(), 1);
}

/// Sets what torchrun sets. Without --world the program, or a torchrun in the command, sets it.
void set_world(const RecordOptions& options) {
  if (!options.world_size) return;
  const int size = *options.world_size, rank = options.rank.value_or(0), gpus = options.gpus();
  set("WORLD_SIZE", size);
  set("RANK", rank);
  set("GROUP_RANK", rank / gpus);
  set("GROUP_WORLD_SIZE", size / gpus);
  set("LOCAL_RANK", rank % gpus);
  set("LOCAL_WORLD_SIZE", gpus);
  ::setenv("MASTER_ADDR", "127.0.0.1", 0);
  ::setenv("MASTER_PORT", "29500", 0);
  ::setenv("OMP_NUM_THREADS", "1", 0);
}

void set_environment(const RecordOptions& options, const PythonProgram& program,
                     const RecordFiles& files, const std::string& claim) {
  ::setenv("SHARDLENS_RECORD", options_json(options, program, files, claim).c_str(), 1);
  put_first("PYTHONPATH", files.python.string());
  if (options.is_attached()) return;
  put_first("LD_PRELOAD", preload_of(files.stubs));
  ::setenv(kNullKeepCopiesVariable, "1", 1);
  ::setenv(kNullGpuVariable, options.device.gpu.c_str(), 1);
  if (options.device.capacity_bytes > 0) {
    set(kNullCapacityVariable, options.device.capacity_bytes);
  }
  set(kNullGpusVariable, options.gpus());
  ::setenv("TRITON_LIBCUDA_PATH", files.stubs.c_str(), 1);
  ::setenv("TORCHINDUCTOR_CACHE_DIR", fs::absolute(compiled_in(options, claim)).c_str(), 1);
  set_world(options);
}

/// Removes what is of no use once the command has ended, or was left by one of this name that was
/// killed.
void forget(const RecordOptions& options, const std::string& claim) {
  for (const auto& entry : fs::directory_iterator(profiles_of(options))) {
    if (entry.path().extension() == claim) fs::remove(entry.path());
  }
  std::error_code a_process_still_writes;
  fs::remove_all(compiled_in(options, claim), a_process_still_writes);
  fs::remove_all(accounts_in(options, claim), a_process_still_writes);
}

// ---- while it runs ------------------------------------------------------------------------------

sigset_t awaited_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  return signals;
}

[[noreturn]] void become(const RecordOptions& options, const PythonProgram& program,
                         const RecordFiles& files, const std::string& claim,
                         const sigset_t& signals) {
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  // A shell lets its background jobs ignore SIGINT, which ends them here when their time is over.
  if (options.timeout_s) ::signal(SIGINT, SIG_DFL);
  set_environment(options, program, files, claim);
  std::vector<char*> argv;
  for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  fmt::print(stderr, "shardlens record: {} cannot be started: {}\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

/// Holds the command as a child, and passes interrupts on to it.
class Command {
 public:
  Command(pid_t child, std::optional<double> timeout_s) : child_(child) {
    if (timeout_s) {
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(*timeout_s));
    }
  }

  CommandEnd wait() {
    CommandEnd end;
    const sigset_t signals = awaited_signals();
    const timespec moment{.tv_sec = 0, .tv_nsec = 200'000'000};
    int status = 0;
    while (::waitpid(child_, &status, WNOHANG) == 0) {
      siginfo_t signal{};
      const int number = ::sigtimedwait(&signals, &signal, &moment);
      if (number > 0 && number != SIGCHLD) pass_on(signal, end);
      if (deadline_ && Clock::now() > *deadline_) time_is_up(end);
    }
    end.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (WIFSIGNALED(status) && end.how.empty()) {
      end.how = fmt::format("the command was ended by {}", ::strsignal(WTERMSIG(status)));
    }
    if (timed_out_) end.exit_code = kTimedOut;
    if (end.exit_code == 0 && got_signal_ != 0) end.exit_code = 128 + got_signal_;
    return end;
  }

 private:
  /// Passes a signal on, unless a terminal has sent it: that signals the command itself.
  void pass_on(const siginfo_t& signal, CommandEnd& end) {
    if (signal.si_code == SI_USER) ::kill(child_, signal.si_signo);
    end.how = fmt::format("the command got {}", ::strsignal(signal.si_signo));
    got_signal_ = signal.si_signo;
  }

  void time_is_up(CommandEnd& end) {
    ::kill(child_, timed_out_ ? SIGKILL : SIGINT);
    end.how = timed_out_ ? "the command did not end when it was interrupted, and was killed"
                         : "the command was interrupted: --timeout is over";
    timed_out_ = true;
    deadline_ = Clock::now() + kTimeToEnd;
  }

  pid_t child_;
  std::optional<Clock::time_point> deadline_;
  bool timed_out_ = false;
  int got_signal_ = 0;
};

// ---- afterwards ---------------------------------------------------------------------------------

/// Makes recordings of the histories that processes have left instead (RecordFiles). If no
/// recording can be made of a history, it is kept.
void record_histories(const fs::path& profiles, const std::string& claim, Accounts& accounts) {
  for (const auto& entry : fs::directory_iterator(profiles)) {
    if (entry.path().extension() != claim) continue;
    const fs::path history = fs::path(entry.path()).replace_extension(".history");
    if (!fs::exists(history)) continue;
    try {
      profiler::record_history(history.string(),
                               fs::path(history).replace_extension(".slp").string());
      fs::remove(history);
    } catch (const std::exception& error) {
      accounts.told.push_back({.what = "refused", .text = error.what()});
    }
  }
}

/// Returns the recordings of the processes that have claimed a rank, and so have begun one.
std::vector<fs::path> claimed_recordings(const fs::path& profiles, const std::string& claim) {
  std::vector<fs::path> recordings;
  for (const auto& entry : fs::directory_iterator(profiles)) {
    fs::path recording = entry.path();
    if (recording.extension() != claim) continue;
    recording.replace_extension(".slp");
    if (fs::exists(recording)) recordings.push_back(recording);
  }
  const auto rank2_before_rank10 = [](const fs::path& path) {
    return std::pair(path.native().size(), path.native());
  };
  std::ranges::sort(recordings, {}, rank2_before_rank10);
  return recordings;
}

}  // namespace

RecordedRun run_recorded(const RecordOptions& options, const PythonProgram& program,
                         const RecordFiles& files) {
  if (!options.is_attached()) preload_of(files.stubs);  // is refused here, not by a child
  const fs::path profiles = profiles_of(options);
  fs::create_directories(profiles);
  const std::string claim = own_claim();
  forget(options, claim);
  fs::create_directory(accounts_in(options, claim));
  const sigset_t awaited = awaited_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process could be made for the command");
  if (child == 0) become(options, program, files, claim, before);
  RecordedRun run;
  run.end = Command(child, options.timeout_s).wait();
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  run.accounts = read_accounts(accounts_in(options, claim));
  record_histories(profiles, claim, run.accounts);
  run.recordings = claimed_recordings(profiles, claim);
  forget(options, claim);
  return run;
}

}  // namespace shardlens::runtime
