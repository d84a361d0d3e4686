#include "profiler/record/gpu_check.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "base/gpus.h"
#include "base/process/command_line.h"
#include "base/process/installation.h"
#include "profiler/record/judged_rank.h"
#include "profiler/record/python_program.h"
#include "profiler/record/recorded_run.h"
#include "profiler/record/recorder_files.h"
#include "profiler/record/search/split_flags.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

/// The cases of record/python/shardlens_check, those that most programs resemble first.
constexpr std::array kCases = {"plain", "autocast", "fsdp2", "convolutions", "streams", "runs_out"};
constexpr std::string_view kStandsIn = " (null device)";  // ends the name of a simulated GPU
constexpr double kLeastS = 1;

double passed_s(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns a port of this host that nothing listens on.
int free_port() {
  const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool is_bound =
      ::bind(listening, any, size) == 0 && ::getsockname(listening, any, &size) == 0;
  ::close(listening);
  if (!is_bound) {
    throw std::runtime_error(
        "no port of 127.0.0.1 is free, and the programs need one to meet; end programs that hold "
        "ports");
  }
  return ntohs(address.sin_port);
}

/// Makes the programs that are started from here the only rank of a world, with the same attention
/// whether cuDNN is installed or not: a simulated GPU may lack it.
void become_only_rank() {
  for (const char* variable : {"RANK", "LOCAL_RANK"}) ::setenv(variable, "0", 1);
  for (const char* variable : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) ::setenv(variable, "1", 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(free_port()).c_str(), 1);
  ::setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1", 0);
}

/// Returns the version that the driver's file in /proc gives, such as "580.159.04".
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (word.find('.') != word.npos && word.find_first_not_of("0123456789.") == word.npos) {
      return word;
    }
  }
  return {};
}

std::string simulated_name(const std::string& gpu) {
  const Gpu* const known = find_displayed_gpu(gpu);
  return known == nullptr ? "" : std::string(known->name);
}

/// A folder that is removed at the end, unless the user named it.
class Folder {
 public:
  explicit Folder(const std::string& kept) : path_(kept), is_kept_(!kept.empty()) {
    if (is_kept_) {
      fs::create_directories(path_);
      return;
    }
    std::string name = (fs::temp_directory_path() / "shardlens-gpu-check-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error(fmt::format(
          "the folder {} cannot be made; set TMPDIR to a folder that you can write to", name));
    }
    path_ = name;
  }
  ~Folder() {
    std::error_code in_use;
    if (!is_kept_) fs::remove_all(path_, in_use);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  bool is_kept_;
};

struct Program {
  std::string name;
  Words command;
};

std::vector<Program> programs_of(const GpuCheckOptions& options) {
  if (!options.command.empty()) return {{.name = kOwnProgram, .command = options.command}};
  std::vector<Program> programs;
  for (const char* name : kCases) {
    programs.push_back({name, {options.python, "-m", "shardlens_check", name}});
  }
  return programs;
}

/// The recording of one run, and what it says.
struct CheckedRun {
  std::string path;
  JudgedRank rank;
  CheckedRecording figures;
};

CheckedRecording checked_figures(const JudgedRank& rank) {
  return {.allocated_bytes = rank.report.peak_bytes(),
          .reserved_bytes = rank.report.reserved_peak_bytes().value_or(0),
          .beside_bytes = rank.outside.bytes,
          .retries = rank.facts.retries,
          .failures = rank.report.out_of_memory_count,
          .bands = rank.report.bands};
}

CheckOutcome outcome_of(const CheckedProgram& checked) {
  const bool has_same_peaks = checked.on_gpu->has_peaks_of(*checked.simulated);
  if (checked.events.is_equal() && has_same_peaks) return CheckOutcome::same;
  return checked.events.has_same_requests ? CheckOutcome::same_requests : CheckOutcome::differs;
}

/// Checks one machine: runs programs, and stops when a signal asks it to or time is over.
class Checker {
 public:
  Checker(const GpuCheckOptions& options, const ReplayRun& replay, const fs::path& folder)
      : options_(options),
        replay_(replay),
        folder_(folder),
        programs_(programs_of(options)),
        python_(find_python(programs_.front().command)) {
    const fs::path record = support_folder("record");
    attached_ = recorder_for(python_, record, CudaProvider::gpu);
    null_ = recorder_for(python_, record, CudaProvider::null_device);
  }

  GpuCheck check() {
    check_.gpu.torch_version = python_.torch_version;
    check_.gpu.driver_version = driver_version();
    for (const Program& program : programs_) {
      check_.programs.push_back({.name = program.name});
      if (goes_on()) check_one(program, check_.programs.back());
      const bool has_failed = check_.programs.back().outcome == CheckOutcome::failed;
      if (has_failed && check_.gpu.name.empty()) break;
    }
    return std::move(check_);
  }

 private:
  double left_s() const { return options_.limit_s - passed_s(start_); }

  bool goes_on() {
    CheckedProgram& program = check_.programs.back();
    if (check_.was_interrupted) program.reason = "interrupted";
    if (left_s() < kLeastS)
      program.reason = fmt::format("--limit {:g} s was over", options_.limit_s);
    return program.reason.empty();
  }

  void say(const Program& program, std::string_view where) const {
    const size_t number = check_.programs.size();
    const size_t count = programs_.size();
    const double mean_s = number > 1 ? passed_s(start_) / static_cast<double>(number - 1) : 0;
    const auto left = static_cast<double>(count - number + 1);
    const std::string time = mean_s > 0 ? fmt::format(", about {:.0f} s left", mean_s * left) : "";
    fmt::print(stderr, "shardlens check-gpu: {} ({} of {}) on the {}{}\n", program.name, number,
               count, where, time);
  }

  void check_one(const Program& program, CheckedProgram& checked) {
    const auto start = Clock::now();
    compare(program, checked);
    checked.seconds = passed_s(start);
  }

  void compare(const Program& program, CheckedProgram& checked) {
    say(program, "GPU");
    const auto on_gpu = record(program, {.kind = DeviceKind::cuda, .gpu = ""}, 0, checked);
    if (!on_gpu) return;
    checked.on_gpu = on_gpu->figures;
    learn_gpu(on_gpu->rank.report.header);
    if (check_.gpu.simulated.empty()) {
      checked.outcome = CheckOutcome::not_compared;
      checked.reason = fmt::format("no simulated GPU is of this kind: {}", check_.gpu.name);
      return;
    }
    say(program, "simulated GPU");
    const Device device{.kind = DeviceKind::null,
                        .gpu = check_.gpu.simulated,
                        .capacity_bytes = check_.gpu.capacity_bytes};
    const auto simulated = record(program, device, on_gpu->figures.beside_bytes, checked);
    if (!simulated) return;
    checked.simulated = simulated->figures;
    checked.events = compare_allocators(on_gpu->path, simulated->path);
    checked.outcome = outcome_of(checked);
  }

  void learn_gpu(const Header& header) {
    if (!check_.gpu.name.empty()) return;
    check_.gpu.name = header.gpu.substr(0, header.gpu.find(kStandsIn));
    check_.gpu.capacity_bytes = header.capacity_bytes;
    check_.gpu.simulated = simulated_name(check_.gpu.name);
    if (!check_.gpu.simulated.empty()) {
      check_.gpu.known_bytes = find_gpu(check_.gpu.simulated).memory_bytes;
    }
  }

  /// Returns nothing if the program did not end well; `checked` then says why.
  std::optional<CheckedRun> record(const Program& program, const Device& device,
                                   int64_t beside_bytes, CheckedProgram& checked) {
    const bool is_gpu = device.kind == DeviceKind::cuda;
    RecordOptions options;
    options.device = device;
    options.timeout_s = left_s();
    options.command = program.command;
    options.out = (folder_ / program.name / (is_gpu ? "gpu" : "simulated")).string();
    options.log = options.out + ".log";
    if (!is_gpu) {
      options.world_size = 1;
      options.beside_bytes = beside_bytes;
    }
    fs::create_directories(options.out);
    const RecordedRun run = RecordedRuns(options, python_, is_gpu ? attached_ : null_).run();
    if (const std::string why = why_useless(options, run); !why.empty()) {
      fail(run, fmt::format("on the {}: {}", is_gpu ? "GPU" : "simulated GPU", why), checked);
      return std::nullopt;
    }
    const JudgedRank rank = judge(options, run, replay_).front();
    return CheckedRun{run.recordings.front().string(), rank, checked_figures(rank)};
  }

  static std::string why_useless(const RecordOptions& options, const RecordedRun& run) {
    if (run.recordings.empty()) {
      return "nothing was recorded: " +
             why_nothing(run.accounts, run.end, options.command, options.is_attached());
    }
    if (run.recordings.size() > 1) {
      return fmt::format("{} ranks ran; give a program of one rank", run.recordings.size());
    }
    return failure_text(run.accounts, run.end).value_or("");
  }

  void fail(const RecordedRun& run, const std::string& why, CheckedProgram& checked) {
    const bool is_late = left_s() <= 0;
    check_.was_interrupted = !is_late && run.end.was_interrupted;
    checked.reason = why;
    if (is_late) checked.reason = fmt::format("--limit {:g} s was over", options_.limit_s);
    if (check_.was_interrupted) checked.reason = "interrupted";
    if (!is_late && !check_.was_interrupted) checked.outcome = CheckOutcome::failed;
  }

  const GpuCheckOptions& options_;
  const ReplayRun& replay_;
  const fs::path folder_;
  const std::vector<Program> programs_;
  const PythonProgram python_;
  RecordFiles attached_, null_;
  const Clock::time_point start_ = Clock::now();
  GpuCheck check_;
};

bool is_in(const PeakBand& band, int64_t bytes) {
  return band.least_bytes <= bytes && bytes <= band.most_bytes;
}

}  // namespace

bool CheckedRecording::is_in_bands_of(const CheckedRecording& other) const {
  return other.bands && is_in(other.bands->allocated, allocated_bytes) &&
         is_in(other.bands->reserved, reserved_bytes);
}

GpuCheckOptions parse_gpu_check_options(const Words& arguments) {
  GpuCheckOptions options;
  CLI::App app;
  app.set_help_flag();
  app.add_flag("--help,-h", options.help);
  app.add_option("--python", options.python);
  app.add_option("--out", options.out);
  app.add_option("--keep", options.keep);
  app.add_option("--limit", options.limit_s)->check(positive_number());
  const Words others = parse_own_flags(app, arguments);
  if (options.help || others.empty()) return options;
  if (others.front() != "--") {
    throw std::invalid_argument(fmt::format(
        "{}: no such flag; a program of yours comes after --, see --help", others.front()));
  }
  options.command.assign(others.begin() + 1, others.end());
  if (options.command.empty()) {
    throw std::invalid_argument("no command after --; give one, or leave -- out");
  }
  return options;
}

std::string gpu_check_help() {
  return "usage: shardlens check-gpu [flags] [-- COMMAND ...]\n\n"
         "Runs six small programs on this machine's GPU and on the simulated one of its kind, and\n"
         "compares what PyTorch's allocator did, event by event. It takes about two minutes and\n"
         "less than 2 GiB of the GPU, and needs no root. With a COMMAND it compares this program\n"
         "instead, which must use one GPU.\n\n"
         "  --python PYTHON    the Python whose PyTorch is checked; default: python3\n"
         "  --out FILE         gets the figures as JSON, without paths, names of hosts or of\n"
         "                     people; default: gpu-check.json\n"
         "  --keep DIR         keep the recordings there\n"
         "  --limit S          seconds for all programs; default: 300\n\n"
         "The first GPU is checked; CUDA_VISIBLE_DEVICES=1 makes the second one the first.\n\n"
         "Exit code: 0 if all programs are the same, 1 if one differs, failed or was not reached,\n"
         "2 for wrong use or without a GPU, 130 after Ctrl-C.\n";
}

GpuCheck check_gpu(const GpuCheckOptions& options, const ReplayRun& replay) {
  become_only_rank();
  const Folder folder(options.keep);
  GpuCheck check = Checker(options, replay, folder.path()).check();
  const CheckedProgram& first = check.programs.front();
  if (check.gpu.name.empty() && first.outcome == CheckOutcome::failed) {
    throw std::invalid_argument(
        fmt::format("nothing was checked: {} {}; see shardlens doctor", first.name, first.reason));
  }
  return check;
}

}  // namespace shardlens::profiler
