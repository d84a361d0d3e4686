#include "profiler/record/recorded_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
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
#include <thread>
#include <utility>

#include "base/process/awaited_signals.h"
#include "base/process/host_limits.h"
#include "base/process/installation.h"
#include "profiler/exchange/import_history.h"
#include "profiler/null_device/null_device.h"
#include "profiler/null_device/outside_figures.h"
#include "profiler/record/levers/lever_sites.h"
#include "profiler/record/search/command_again.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeToEnd{10};  // after it was interrupted

constexpr int kTimedOut = 124;  // the exit code of timeout(1)

fs::path profiles_of(const RecordOptions& options) { return fs::path(options.out) / "profiles"; }

/// Returns the folder of torch.compile's cache, which is not kept from run to run here. Compiling
/// again takes memory, too, and a GPU must not find kernels that were chosen without one.
fs::path compiled_in(const RecordOptions& options, const std::string& claim) {
  return fs::path(options.out) / ("compiled" + claim);
}

/// Returns the folder in which the program's processes write their accounts. It is removed once
/// these have been read.
fs::path accounts_in(const RecordOptions& options, const std::string& claim) {
  return fs::path(options.out) / ("accounts" + claim);
}

/// Names this process on all machines that share the run's folder.
std::string own_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string name = fmt::format("{}-{}", host.data(), ::getpid());
  std::ranges::replace(name, '.', '-');
  return name;
}

/// Returns the folder of the objects that ranks send each other.
std::string messages_in(const RecordOptions& options) {
  return fs::absolute(fs::path(options.out) / ("messages-" + own_name())).string();
}

/// Returns the ending of the files in which a process claims the rank whose recording it makes.
std::string claim_of(const RecordOptions& options) {
  return fmt::format(".claim-{}-{}", own_name(), options.rank.value_or(0));
}

// ---- before -------------------------------------------------------------------------------------

template <class Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json levers_json(const std::vector<Lever>& levers) {
  nlohmann::json json = nlohmann::json::object();
  for (const Lever& lever : levers) json[lever.name] = lever.value;
  return json;
}

/// The program may change its folder.
std::string absolute_if_named(const std::string& file) {
  return file.empty() ? file : fs::absolute(file).string();
}

/// Returns the flags that a recording keeps, to be made again.
std::vector<std::string> kept_flags(const RecordOptions& options) {
  return flags_again(options, options.is_attached() ? 0 : memory_bytes_of(options.device));
}

nlohmann::json options_json(const RecordOptions& options, const PythonProgram& program,
                            const RecordFiles& files, const std::string& claim,
                            const std::string& messages) {
  std::vector<std::string> doubts = doubts_of(program);
  if (files.doubt) doubts.push_back(*files.doubt);
  const std::string library = files.library.string();
  return {{"library", library.empty() ? nlohmann::json() : nlohmann::json(library)},
          {"torch", program.torch_version},
          {"doubts", doubts},
          {"python", program.interpreter},
          {"accounts", fs::absolute(accounts_in(options, claim)).string()},
          {"messages", messages},
          {"folder", fs::absolute(profiles_of(options)).string()},
          {"claim", claim.substr(1)},
          {"device", options.device_name()},
          {"world", or_null(options.world_size)},
          {"rank", or_null(options.rank)},
          {"gpus_per_node", or_null(options.gpus_per_node)},
          {"gpu_index", or_null(options.gpu_index)},
          {"steps", or_null(options.steps)},
          {"true_at", options.true_at},
          {"init", options.draws_weights ? "keep" : "skip"},
          {"routing", static_cast<int>(options.routing.kind)},
          {"routing_factor", options.routing.factor},
          {"levers", levers_json(options.levers)},
          {"look", options.looks},
          {"holders", options.finds_holders},
          {"tells_imports", options.tells_imports},
          {"event_times", (files.python.parent_path() / "libshardlens_event_times.so").string()},
          {"calibration", absolute_if_named(options.calibration)},
          {"command", options.command},
          {"flags", kept_flags(options)},
          {"directory", fs::current_path().string()}};
}

void set(const char* variable, int64_t number) {
  ::setenv(variable, std::to_string(number).c_str(), 1);
}

/// Sets the variables that torchrun sets. Without --world the program, or a torchrun in the
/// command, sets them.
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
                     const RecordFiles& files, const std::string& claim,
                     const std::string& messages) {
  const std::string told = options_json(options, program, files, claim, messages).dump();
  ::setenv("SHARDLENS_RECORD", told.c_str(), 1);
  put_first("PYTHONPATH", files.python.string());
  if (options.is_attached()) return;
  put_first("LD_PRELOAD", preload_of(files.stubs));
  ::setenv(kNullKeepCopiesVariable, "1", 1);
  ::setenv(kNullGpuVariable, options.device.gpu.c_str(), 1);
  if (options.device.capacity_bytes > 0) {
    set(kNullCapacityVariable, options.device.capacity_bytes);
  }
  const int64_t estimate = bytes_beside_pytorch(find_gpu(options.device.gpu));
  set(kNullBesideVariable, options.beside_bytes.value_or(estimate));
  set(kNullNcclVariable, options.beside_bytes ? 0 : 1);
  set(kNullGpusVariable, options.gpus());
  set(kNullWorkVariable, options.traces_work ? 1 : 0);
  ::setenv("TRITON_LIBCUDA_PATH", files.stubs.c_str(), 1);
  ::setenv("TORCHINDUCTOR_CACHE_DIR", fs::absolute(compiled_in(options, claim)).c_str(), 1);
  if (!options.kernels.empty()) ::setenv("TRITON_CACHE_DIR", options.kernels.c_str(), 0);
  set_world(options);
}

/// Removes files that are of no use once the command has ended, or that a killed process of the
/// same name left.
void forget(const RecordOptions& options, const std::string& claim) {
  for (const auto& entry : fs::directory_iterator(profiles_of(options))) {
    if (entry.path().extension() == claim) fs::remove(entry.path());
  }
  std::error_code a_process_still_writes;
  fs::remove_all(compiled_in(options, claim), a_process_still_writes);
  fs::remove_all(accounts_in(options, claim), a_process_still_writes);
}

// ---- while it runs ------------------------------------------------------------------------------

/// Redirects this process's output to a file.
void print_into(const std::string& log) {
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return;
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
}

[[noreturn]] void exec_recorded(const RecordOptions& options, const sigset_t& signals) {
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  // A shell makes its background jobs ignore SIGINT, which we use to end them after --timeout.
  if (options.timeout_s) ::signal(SIGINT, SIG_DFL);
  std::vector<char*> argv;
  for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  fmt::print(stderr, "shardlens record: {} cannot be started: {}\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

/// Holds the command as a child process, and passes interrupts on to it.
class Command {
 public:
  Command(pid_t child, std::optional<double> timeout_s) : child_(child) {
    if (timeout_s) {
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(*timeout_s));
    }
  }

  /// Also interrupts the command if its time is over.
  bool has_ended() {
    if (has_ended_) return true;
    has_ended_ = ::wait4(child_, &status_, WNOHANG, &use_) != 0;
    if (!has_ended_ && deadline_ && Clock::now() > *deadline_) time_is_up();
    return has_ended_;
  }

  /// Passes a signal on, unless a terminal sent it: a terminal also signals the command.
  void pass_on(const siginfo_t& signal) {
    if (has_ended_) return;
    if (signal.si_code == SI_USER) ::kill(child_, signal.si_signo);
    end_.how = fmt::format("the command got {}", ::strsignal(signal.si_signo));
    end_.was_interrupted = true;
    got_signal_ = signal.si_signo;
  }

  /// Says how the command ended, once it has.
  CommandEnd end() const {
    CommandEnd end = end_;
    end.exit_code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
    if (WIFSIGNALED(status_) && end.how.empty()) {
      end.how = fmt::format("the command was ended by {}", ::strsignal(WTERMSIG(status_)));
    }
    if (timed_out_) end.exit_code = kTimedOut;
    if (end.exit_code == 0 && got_signal_ != 0) end.exit_code = 128 + got_signal_;
    return end;
  }

  int64_t host_bytes() const { return int64_t{1024} * use_.ru_maxrss; }
  pid_t process() const { return child_; }

 private:
  void time_is_up() {
    ::kill(child_, timed_out_ ? SIGKILL : SIGINT);
    end_.how = timed_out_ ? "the command did not end when it was interrupted, and was killed"
                          : "the command was interrupted: --timeout has passed";
    timed_out_ = true;
    deadline_ = Clock::now() + kTimeToEnd;
  }

  pid_t child_;
  std::optional<Clock::time_point> deadline_;
  bool has_ended_ = false;
  bool timed_out_ = false;
  int got_signal_ = 0;
  int status_ = 0;
  rusage use_{};
  CommandEnd end_;
};

// ---- afterwards ---------------------------------------------------------------------------------

/// Makes recordings of the histories that processes left instead (RecordFiles). A history that
/// cannot be turned into a recording is kept.
void record_histories(const fs::path& profiles, const std::string& claim, Accounts& accounts) {
  for (const auto& entry : fs::directory_iterator(profiles)) {
    if (entry.path().extension() != claim) continue;
    const fs::path history = fs::path(entry.path()).replace_extension(".history");
    if (!fs::exists(history)) continue;
    try {
      record_history(history.string(), fs::path(history).replace_extension(".slp").string());
      fs::remove(history);
    } catch (const std::exception& error) {
      accounts.told.push_back({.what = "refused", .text = error.what()});
    }
  }
}

/// Returns the recordings of the processes that have claimed a rank.
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

/// Removes the recordings of a program to which a lever does not apply: they would claim a change
/// that was not made.
void drop_if_idle(const RecordOptions& options, RecordedRun& run) {
  const Problem idle = idle_lever(options.levers, run.accounts, run.end.is_failure());
  if (!idle) return;
  for (const fs::path& recording : run.recordings) {
    fs::remove(recording);
    fs::remove(fs::path(recording).replace_extension(".json"));
  }
  run.recordings.clear();
  run.accounts.told.insert(run.accounts.told.begin(), {.what = "refused", .text = *idle});
}

/// A running command and its options.
struct StartedCommand {
  RecordOptions options;
  std::string claim;
  Command command;
  bool was_forked = false;
};

struct Starter {
  const PythonProgram& program;
  const RecordFiles& files;
  WarmPython* warm = nullptr;
  AwaitedSignals signals = {};

  StartedCommand start(const RecordOptions& options) const {
    const std::string claim = claim_of(options);
    fs::create_directories(profiles_of(options));
    forget(options, claim);
    fs::create_directory(accounts_in(options, claim));
    const std::string messages = messages_in(options);  // has this process's name, not the child's
    if (const auto child = forked(options, claim, messages)) {
      return {.options = options,
              .claim = claim,
              .command = Command(*child, options.timeout_s),
              .was_forked = true};
    }
    const pid_t child = ::fork();
    if (child < 0) {
      throw std::runtime_error(
          "no process could be started for the command: too many processes run, or memory is "
          "short; end some, or raise ulimit -u");
    }
    if (child == 0) {
      if (!options.log.empty()) print_into(options.log);
      set_environment(options, program, files, claim, messages);
      exec_recorded(options, signals.previous_mask());
    }
    return {.options = options, .claim = claim, .command = Command(child, options.timeout_s)};
  }

  /// Returns a child that was forked from the warm process, or nothing.
  std::optional<pid_t> forked(const RecordOptions& options, const std::string& claim,
                              const std::string& messages) const {
    if (warm == nullptr || !warm->suits(options)) return std::nullopt;
    const nlohmann::json request = {
        {"options", options_json(options, program, files, claim, messages)},
        {"compiled", fs::absolute(compiled_in(options, claim)).string()},
        {"log", options.log}};
    return warm->fork_for(request.dump());
  }

  static RecordedRun finish(const StartedCommand& started) {
    RecordedRun run;
    run.end = started.command.end();
    run.host_bytes = started.command.host_bytes();
    run.process = started.command.process();
    run.was_forked = started.was_forked;
    run.accounts = read_accounts(accounts_in(started.options, started.claim));
    const fs::path profiles = profiles_of(started.options);
    record_histories(profiles, started.claim, run.accounts);
    run.recordings = claimed_recordings(profiles, started.claim);
    drop_if_idle(started.options, run);
    forget(started.options, started.claim);
    return run;
  }
};

/// Runs commands, up to `jobs` at once, and calls `ended` after each. Returns false if it was
/// interrupted: it starts no more then.
bool run_all(const Starter& starter, const std::vector<RecordOptions>& all, int jobs,
             const std::function<void(const StartedCommand&)>& ended) {
  auto waiting = all.begin();
  std::vector<StartedCommand> running;
  bool goes_on = true;
  while (!running.empty() || (goes_on && waiting != all.end())) {
    while (goes_on && waiting != all.end() && running.size() < static_cast<size_t>(jobs)) {
      running.push_back(starter.start(*waiting++));
    }
    if (const auto signal = starter.signals.next()) {
      goes_on = false;
      for (StartedCommand& one : running) one.command.pass_on(*signal);
    }
    for (auto one = running.begin(); one != running.end();) {
      if (!one->command.has_ended()) {
        ++one;
        continue;
      }
      ended(*one);
      one = running.erase(one);
    }
  }
  return goes_on;
}

RecordOptions as_rank(RecordOptions options, int rank) {
  const fs::path logs = fs::path(options.out) / "logs";
  fs::create_directories(logs);
  options.rank = rank;
  options.log = (logs / fmt::format("rank{}.log", rank)).string();
  return options;
}

}  // namespace

RecordedRuns::RecordedRuns(const RecordOptions& options, const PythonProgram& program,
                           const RecordFiles& files)
    : options_(options), program_(program), files_(files), had_folder_(fs::exists(options.out)) {
  if (!options.is_attached()) preload_of(files.stubs);  // throws here, not in a child
}

RecordedRuns::~RecordedRuns() {
  std::error_code a_process_still_writes;
  fs::remove_all(messages_in(options_), a_process_still_writes);
  if (had_folder_) return;
  std::error_code has_files;
  fs::remove(profiles_of(options_), has_files);
  fs::remove(options_.out, has_files);
}

RecordedRun RecordedRuns::run() {
  const Starter starter{.program = program_, .files = files_};
  StartedCommand started = starter.start(options_);
  while (!started.command.has_ended()) {
    if (const auto signal = starter.signals.next()) started.command.pass_on(*signal);
  }
  return Starter::finish(started);
}

bool RecordedRuns::run_as(const std::vector<int>& ranks, int jobs, const EndListener& ended) {
  std::vector<RecordOptions> all;
  for (const int rank : ranks) all.push_back(as_rank(options_, rank));
  const Starter starter{.program = program_, .files = files_};
  return run_all(starter, all, jobs, [&](const StartedCommand& one) {
    ended(*one.options.rank, Starter::finish(one));
  });
}

int jobs_for(int64_t host_bytes, bool measures_host) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const int cores = std::max(1, measures_host ? threads / 2 : threads);
  const auto available = available_host_bytes();
  if (!available || host_bytes <= 0) return 1;
  const int64_t fit = *available / (host_bytes + host_bytes / 4);
  return static_cast<int>(std::clamp<int64_t>(fit, 1, cores));
}

std::unique_ptr<WarmPython> warm_up(const RecordOptions& options, const std::string& imports,
                                    const PythonProgram& program, const RecordFiles& files) {
  const auto become = [&](int socket) {
    print_into("/dev/null");
    set_environment(options, program, files, claim_of(options), messages_in(options));
    set("SHARDLENS_WARM", socket);
    sigset_t signals;
    ::sigprocmask(SIG_BLOCK, nullptr, &signals);
    exec_recorded(options, signals);
  };
  return std::make_unique<WarmPython>(options, imports, become);
}

bool run_programs(const std::vector<RecordOptions>& all, const PythonProgram& program,
                  const RecordFiles& files, int jobs, WarmPython* warm,
                  const ProgramListener& ended) {
  if (!all.empty()) preload_of(files.stubs);  // throws here, not in a child
  const Starter starter{.program = program, .files = files, .warm = warm};
  return run_all(starter, all, jobs, [&](const StartedCommand& one) {
    const RecordedRun run = Starter::finish(one);
    std::error_code a_process_still_writes;
    fs::remove_all(messages_in(one.options), a_process_still_writes);
    ended(one.options, run);
  });
}

}  // namespace shardlens::profiler
