#include "runtime/checkpoint/run_directory.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/durable_files.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "base/process/command_line.h"
#include "base/strict_json.h"
#include "planner/config/options.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/checkpoint/checkpoint_writer.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

/// Lists what a run writes: `--fresh` removes only these, the checkpoints and the model.
constexpr std::array kOwnFiles = {
    "config.json", "result.json", "metrics.jsonl", "events.jsonl", "logs", "profiles", ".id"};

fs::path run_path(const planner::Config& config) {
  if (config.name.empty()) {
    const std::string usual =
        fmt::format("{}-{}-{:%Y%m%d-%H%M%S}", fs::path(config.model).stem().string(),
                    to_string(config.strategy), fmt::localtime(std::time(nullptr)));
    return free_path((fs::path(config.storage) / usual).string());
  }
  const std::string& name = config.name;
  if (name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw std::invalid_argument(fmt::format(
        "--name {}: a run's name must be a folder's name; leave out slashes and dots", name));
  }
  return fs::path(config.storage) / name;
}

[[noreturn]] void refuse_name(const fs::path& path, std::string_view why, std::string_view fix) {
  throw std::invalid_argument(fmt::format("--name {}: {}; {}", path.filename().string(), why, fix));
}

[[noreturn]] void refuse_storage(const fs::path& path, const std::string& why) {
  throw std::invalid_argument(
      fmt::format("--storage {}: cannot be written ({}); give a folder that you can write to",
                  path.string(), why));
}

/// Returns "" if the file is missing.
std::string read_file(const fs::path& path) {
  return shardlens::read_file(path, kRecord.bytes).text;
}

planner::Config read_config(const fs::path& path) {
  planner::Config config;
  planner::read_json(config, read_file(path / "config.json"), "config.json");
  return config;
}

/// Returns the lines of metrics up to a step. The last line of a killed run may be incomplete.
std::string lines_until(const std::string& metrics, int64_t step) {
  std::istringstream lines(metrics);
  std::string kept;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const auto json = find_json(line);
    if (json && json->is_object() && whole_in(*json, "step").value_or(step + 1) <= step) {
      kept += line + "\n";
    }
  }
  return kept;
}

bool is_finished(const fs::path& path) {
  const auto result = find_json(read_file(path / "result.json"));
  return result && text_in(*result, "status") == "ok";
}

std::string identity_of(const fs::path& path) {
  try {
    return planner::run_identity(read_config(path));
  } catch (const std::invalid_argument&) {
    return "damaged";
  }
}

/// Opens the lock without waiting. Returns -1 if a live run holds it.
int take_lock(const fs::path& path) {
  const int lock = ::open((path / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock < 0) refuse_storage(path.parent_path(), std::strerror(errno));
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return lock;
  ::close(lock);
  return -1;
}

bool is_live(const fs::path& path) {
  const int lock = ::open((path / ".lock").c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) return false;
  const bool live = ::flock(lock, LOCK_EX | LOCK_NB) != 0;
  ::close(lock);
  return live;
}

/// Refuses what already exists under the name, unless --fresh may replace it. Returns true if it is
/// an unfinished run that may resume.
bool is_unfinished_run(const fs::path& path, const planner::Config& config) {
  if (fs::is_directory(path) && fs::is_empty(path)) return false;
  if (!fs::exists(path / "config.json")) {
    refuse_name(path, "the folder is not a run",
                "give another name; this folder was left as it is");
  }
  constexpr std::string_view kFix = "give another name, or --fresh to start over";
  if (is_live(path)) refuse_name(path, "the run is live", "wait for its end, or give another name");
  if (config.fresh) return false;
  if (identity_of(path) != planner::run_identity(config)) {
    refuse_name(path, "a run of another configuration", kFix);
  }
  if (is_finished(path)) refuse_name(path, "the run is finished", kFix);
  return true;
}

/// Holds the folders that open() has made, and removes them unless all steps succeeded.
class MadeFolders {
 public:
  void folders(const fs::path& path) {
    fs::path missing = path;
    std::vector<fs::path> made;
    for (; !missing.empty() && !fs::exists(missing); missing = missing.parent_path()) {
      made.push_back(missing);
    }
    for (auto folder = made.rbegin(); folder != made.rend(); ++folder) {
      std::error_code error;
      if (!fs::create_directory(*folder, error) && error) {
        refuse_storage(path.parent_path(), error.message());
      }
      made_.push_back(*folder);
    }
  }
  void keep() { made_.clear(); }
  ~MadeFolders() {
    std::error_code ignored;
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) fs::remove_all(*path, ignored);
  }

 private:
  std::vector<fs::path> made_;
};

/// Returns the configuration that the run keeps: with its real name, with paths that are valid from
/// any folder, and without --fresh, which was meant only once.
planner::Config kept_config(const planner::Config& given, const fs::path& path) {
  planner::Config config = planner::with_absolute_inputs(given);
  const auto absolute = [](const std::string& folder) {
    return fs::absolute(folder).lexically_normal().string();
  };
  config.storage = absolute(config.storage);
  if (!config.profile_dir.empty()) config.profile_dir = absolute(config.profile_dir);
  config.name = path.filename().string();
  config.fresh = false;
  return config;
}

std::string draw_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

void remove_own_files(const fs::path& path) {
  for (const char* name : kOwnFiles) fs::remove_all(path / name);
  CheckpointStore(path / kCheckpointsFolder).clear();
  remove_written(path / kModelFolder);
}

}  // namespace

RunDirectory RunDirectory::open(const planner::Config& config) {
  const fs::path path = run_path(config);
  std::error_code error;
  const bool taken = fs::exists(path, error);
  if (error) refuse_storage(config.storage, error.message());
  const bool is_unfinished = taken && is_unfinished_run(path, config);
  MadeFolders made;
  made.folders(path);
  const int lock = take_lock(path);
  if (lock < 0) refuse_name(path, "the run is live", "wait for its end, or give another name");
  RunDirectory run(path, lock);
  run.is_unfinished_ = is_unfinished;
  if (is_unfinished) return run;
  remove_own_files(path);
  fs::create_directory(path / "logs");
  fs::create_directory(path / "profiles");
  write_file(path / ".id", draw_id());
  write_file(path / "config.json", planner::to_json(kept_config(config, path)));
  made.keep();
  return run;
}

RunDirectory RunDirectory::attach(const planner::Config& config, const std::string& name) {
  return {fs::path(config.storage) / name, -1};
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      is_unfinished_(other.is_unfinished_) {}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

planner::Config RunDirectory::config() const { return read_config(path_); }

std::string RunDirectory::id() const { return read_file(path_ / ".id"); }

void RunDirectory::go_on(const planner::Config& config, int64_t step) const {
  for (const char* folder : {"logs", "profiles"}) fs::create_directory(path_ / folder);
  write_file(metrics(), lines_until(read_file(metrics()), step));
  write_file(path_ / "config.json", planner::to_json(kept_config(config, path_)));
  if (id().empty()) write_file(path_ / ".id", draw_id());
  fs::remove(result());
  remove_unfinished_models(path_ / kModelFolder);
}

fs::path RunDirectory::actions(int rank) const {
  return path_ / "logs" / fmt::format("actions-rank{}.txt", rank);
}

fs::path RunDirectory::profile(int rank) const {
  return path_ / "profiles" / fmt::format("rank{}.slp", rank);
}

fs::path RunDirectory::log(int rank) const {
  return path_ / "logs" / fmt::format("rank{}.log", rank);
}

}  // namespace shardlens::runtime
