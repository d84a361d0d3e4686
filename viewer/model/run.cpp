#include "viewer/model/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/compare/origin.h"
#include "profiler/exchange/import_memory_viz.h"
#include "viewer/model/planned_run.h"
#include "viewer/model/trace/joined_trace.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostRunsOfFolder = 64;

/// Returns the R of "rankR.slp", by which ranks are sorted.
std::optional<int32_t> rank_of(const fs::path& path) {
  const std::string stem = path.stem().string();
  if (path.extension() != ".slp" || !stem.starts_with("rank")) return std::nullopt;
  int32_t rank = 0;
  const char* const end = stem.data() + stem.size();
  const auto [stop, error] = std::from_chars(stem.data() + 4, end, rank);
  return error == std::errc{} && stop == end ? std::optional(rank) : std::nullopt;
}

/// Returns the recordings in a run's folder, by rank; none if the folder is not a run's.
std::vector<std::string> recordings_in(const fs::path& folder) {
  const fs::path inside = folder / "profiles";
  std::vector<std::pair<int32_t, std::string>> files;
  for (const auto& entry : fs::directory_iterator(fs::is_directory(inside) ? inside : folder)) {
    if (const auto rank = rank_of(entry.path())) files.emplace_back(*rank, entry.path().string());
  }
  std::ranges::sort(files);
  std::vector<std::string> paths;
  for (auto& [rank, file] : files) paths.push_back(std::move(file));
  return paths;
}

/// Returns the recordings of a run, or the file itself. Throws std::invalid_argument if there is no
/// recording.
std::vector<std::string> recordings_of(const fs::path& path) {
  if (!fs::exists(path)) throw std::invalid_argument(missing_text(path.string()));
  if (!fs::is_directory(path)) return {path.string()};
  std::vector<std::string> paths = recordings_in(path);
  if (paths.empty()) {
    throw std::invalid_argument(
        fmt::format("{}: no recording profiles/rank0.slp in it; make one with `shardlens record`, "
                    "or train with --profile",
                    path.string()));
  }
  return paths;
}

/// Returns the runs in a folder of runs, in natural order of their names, or the path itself if it
/// is not such a folder. `message` says how many are too many to open.
std::vector<std::string> runs_of(const std::string& path, std::string& message) {
  if (!fs::is_directory(path) || !recordings_in(path).empty()) return {path};
  std::vector<std::string> runs;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (!entry.is_directory() || recordings_in(entry.path()).empty()) continue;
    runs.push_back(entry.path().string());
  }
  std::ranges::sort(runs, profiler::is_naturally_less);
  if (runs.empty()) return {path};
  if (runs.size() <= kMostRunsOfFolder) return runs;
  message = fmt::format("{}: only the first {} of {} runs are open; name the others to see them",
                        path, kMostRunsOfFolder, runs.size());
  runs.resize(kMostRunsOfFolder);
  return runs;
}

/// Returns the folder or file after which a run is named: its folder, even if the user gave
/// something inside the folder.
fs::path named_by(const fs::path& path) {
  const fs::path clean = fs::absolute(path).lexically_normal();
  const fs::path last = clean.filename().empty() ? clean.parent_path() : clean;
  if (fs::is_directory(path)) return last.filename() == "profiles" ? last.parent_path() : last;
  const bool is_in_run = last.parent_path().filename() == "profiles" && rank_of(last);
  return is_in_run ? last.parent_path().parent_path() : last;
}

std::string run_name_of(const fs::path& path) {
  const fs::path by = named_by(path);
  if (fs::is_directory(path)) return by.filename().string();
  if (by.string().ends_with(".json.gz")) return by.stem().stem().string();
  if (!fs::is_directory(by)) return by.stem().string();
  return fmt::format("{} {}", by.filename().string(), path.stem().string());
}

struct Job {
  size_t run = 0;
  std::string path;
  std::optional<profiler::Space> space;
  std::optional<int> device{};  // of a snapshot of several
  bool is_trace = false;        // of torch.profiler
  Clock clock{};
  std::optional<RankLane> opened{};
  std::optional<Outlook> outlook{};  // of a plan
  std::string name{};                // a plan's own name
  std::string message{};
  std::shared_ptr<const profiler::GpuTrace> trace{};
};

/// A file with the name of a pickle is read as one, so that its errors are about snapshots.
bool is_snapshot(const std::string& path) {
  return path.ends_with(".pickle") || path.ends_with(".pkl") || profiler::is_memory_viz(path);
}

/// Reads a snapshot that PyTorch's torch.cuda.memory._dump_snapshot wrote.
Lane read_snapshot(const Job& job) {
  return lane_of(profiler::import_memory_viz_file(job.path, job.device), job.space);
}

void take_lane(Job& job, Lane lane, const RecordingStamp& stamp) {
  if (lane.changes() == 0 && !job.space) {
    const profiler::Judgement& judgement = lane.info().judgement;
    const std::string why =
        profiler::is_whole(judgement)
            ? "record a run that trains at least one step"
            : "the recording is not whole: " + profiler::judgement_text(judgement);
    throw std::invalid_argument(
        fmt::format("{}: it contains no tensor allocation; {}", job.path, why));
  }
  ActionNames names(lane.info().header);
  const PassParts parts = parts_in(lane, names);
  job.opened = RankLane{.path = job.path,
                        .lane = std::move(lane),
                        .names = std::move(names),
                        .stamp = stamp,
                        .notes = profiler::notes_beside(job.path),
                        .parts = parts};
}

void open_lane_of(Job& job, const std::string& cache_folder, const ReadProgress& tell) {
  const RecordingStamp stamp = stamp_of(job.path);
  if (is_snapshot(job.path)) return take_lane(job, read_snapshot(job), stamp);
  // A cached lane has no other times, and opening its recording to know that would take longer.
  if (auto cached = find_cached_lane(job.path, cache_folder, job.space)) {
    return take_lane(job, std::move(*cached), stamp);
  }
  if (job.clock == Clock::predicted) {
    if (auto predicted = read_predicted_lane(job.path, job.space, tell)) {
      take_lane(job, std::move(predicted->lane), stamp);
      job.opened->work = std::move(predicted->work);
      return;
    }
  }
  take_lane(job, open_lane(job.path, cache_folder, job.space, tell), stamp);
}

/// Opens a trace of torch.profiler: as a lane if it has memory, and to be put under other lanes.
void open_trace(Job& job) {
  const RecordingStamp stamp = stamp_of(job.path);
  profiler::GpuTrace trace = profiler::read_gpu_trace(job.path);
  const std::optional<profiler::Profile> memory = std::exchange(trace.memory, std::nullopt);
  if (memory) take_lane(job, lane_of(*memory, job.space), stamp);
  job.trace = std::make_shared<profiler::GpuTrace>(std::move(trace));
}

/// Plans a file. Errors name the file: errors about a configuration only name its flags.
Run read_plan(const std::string& path, std::optional<profiler::Space> space) {
  try {
    return planned_run(request_of_file(path), space);
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    throw std::invalid_argument(text.starts_with(path) ? text : fmt::format("{}: {}", path, text));
  }
}

void open_plan(Job& job) {
  Run run = read_plan(job.path, job.space);
  job.name = std::move(run.name);
  job.outlook = std::move(run.outlook);
  job.opened = std::move(run.ranks.front());
  job.opened->path = job.path;
}

void open(Job& job, const std::string& cache_folder, const ReadProgress& tell) {
  try {
    if (job.is_trace) return open_trace(job);
    const bool is_plan = job.path.ends_with(".json") && !is_snapshot(job.path);
    is_plan ? open_plan(job) : open_lane_of(job, cache_folder, tell);
  } catch (const std::exception& error) {
    job.message = error.what();
  }
}

void open_all(std::vector<Job>& jobs, const std::string& cache_folder,
              const ReadProgress& meanwhile) {
  constexpr std::chrono::milliseconds kPause(50);
  constexpr double kReading = 0.7;  // part of a job; pyramid and caching take the rest
  std::atomic<size_t> next = 0;
  std::atomic<bool> is_wanted = true;
  std::vector<std::atomic<double>> parts(jobs.size());
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      open(jobs[i], cache_folder, [&, i](double part) {
        parts[i] = kReading * part;
        return is_wanted.load();
      });
      parts[i] = 1;
    }
  };
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::future<void>> workers;
  for (size_t i = 0; i < std::min(jobs.size(), cores); ++i) {
    workers.push_back(std::async(std::launch::async, work));
  }
  for (const auto& worker : workers) {
    while (meanwhile && worker.wait_for(kPause) != std::future_status::ready) {
      const double done = std::accumulate(parts.begin(), parts.end(), 0.0);
      if (!meanwhile(done / static_cast<double>(jobs.size()))) is_wanted = false;
    }
    worker.wait();
  }
}

/// Returns the runs in a group with the same name that cannot keep that name: all of them, except
/// the only measured run among plans, which most often are plans of that run.
std::vector<Run*> unnamed_runs(const std::vector<Run*>& group) {
  const auto is_plan = [](const Run* run) { return run->is_predicted(); };
  if (std::ranges::count_if(group, is_plan) + 1 != std::ssize(group)) return group;
  std::vector<Run*> plans = group;
  std::erase_if(plans, std::not_fn(is_plan));
  return plans;
}

/// Writes the folder before the names of runs that share a name, if that tells them apart.
void name_by_folder(std::vector<Run>& runs) {
  std::map<std::string, std::vector<Run*>> sharing;
  for (Run& run : runs) sharing[run.name].push_back(&run);
  const auto folder_of = [](const Run* run) {
    return named_by(run->path).parent_path().filename().string();
  };
  for (const auto& [name, group] : sharing) {
    std::set<std::string> folders;
    for (const Run* run : group) folders.insert(folder_of(run));
    if (group.size() == 1 || folders.size() < group.size()) continue;
    for (Run* run : unnamed_runs(group)) run->name = folder_of(run) + "/" + name;
  }
}

/// Makes names unique: a run that still shares its name with an earlier run gets a number, as in
/// "keep (2)".
void tell_apart(std::vector<Run>& runs) {
  name_by_folder(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const bool is_taken =
        std::ranges::any_of(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(i),
                            [&](const Run& other) { return other.name == runs[i].name; });
    if (is_taken) runs[i].name += fmt::format(" ({})", i + 1);
  }
}

}  // namespace

size_t ranks_in(const std::string& folder) {
  try {
    return recordings_in(folder).size();
  } catch (const fs::filesystem_error&) {
    return 0;
  }
}

std::string missing_text(const std::string& path) {
  return fmt::format("{}: no such file or folder; give a run's folder or a .slp file", path);
}

const std::string& Run::key() const { return path.empty() ? request_name : path; }

bool Run::rename(const std::string& wanted) {
  if (opened_name.empty()) opened_name = name;
  const std::string& next = wanted.empty() ? opened_name : wanted;
  if (next == name) return false;
  name = next;
  return true;
}

profiler::Judgement Run::judgement() const {
  profiler::Judgement all;
  for (const RankLane& rank : ranks) all = profiler::joined(all, rank.lane.info().judgement);
  return all;
}

size_t Run::peak_rank() const {
  const auto bytes = [](const RankLane& rank) { return rank.lane.peak().max_bytes; };
  return static_cast<size_t>(std::ranges::max_element(ranks, {}, bytes) - ranks.begin());
}

int64_t Run::capacity_bytes() const {
  const LaneInfo& info = ranks.front().lane.info();
  const bool is_on_device =
      info.space == info.header.space_of_tensors() || info.space == profiler::Space::segment;
  return is_on_device ? info.header.capacity_bytes : 0;
}

std::optional<DeviceUse> Run::device_use(const RankLane& rank) const {
  const int64_t capacity = capacity_bytes();
  if (capacity <= 0) return std::nullopt;
  if (outlook) return DeviceUse{outlook->device_bytes, 0, capacity, false};
  const Lane& lane = rank.lane;
  return DeviceUse{.pytorch_bytes = std::max(lane.reserved_peak(), lane.peak().max_bytes),
                   .beside_bytes = rank.notes.beside_bytes,
                   .capacity_bytes = capacity,
                   .is_out_of_memory = !lane.arrays().failures.empty()};
}

namespace {

std::string beside_text(const DeviceUse& use) {
  if (!use.beside_bytes) return ", without what lies beside PyTorch";
  if (*use.beside_bytes == 0) return "";
  return fmt::format(", including {} beside PyTorch", bytes_text(*use.beside_bytes));
}

}  // namespace

std::string headroom_text(const DeviceUse& use) {
  const std::string taken = fmt::format("{} of {} taken{}", bytes_text(use.used_bytes()),
                                        bytes_text(use.capacity_bytes), beside_text(use));
  if (use.is_out_of_memory) return "none: memory ran out, with " + taken;
  if (use.free_bytes() < 0) return "none: " + taken;
  return fmt::format("{}: {}", bytes_text(use.free_bytes()), taken);
}

bool Run::is_predicted() const {
  return ranks.front().lane.info().header.notice.starts_with("predicted");
}

std::vector<size_t> bases_of(const std::vector<Run>& runs, const std::vector<size_t>& wanted) {
  std::vector<size_t> bases;
  for (const Run& run : runs) {
    const auto is_like = [&](size_t other) {
      return other < runs.size() && runs[other].space() == run.space();
    };
    const auto at = std::ranges::find_if(wanted, is_like);
    const auto first = std::ranges::find(runs, run.space(), &Run::space) - runs.begin();
    bases.push_back(at != wanted.end() ? *at : static_cast<size_t>(first));
  }
  return bases;
}

std::vector<size_t> bases_of(const std::vector<Run>& runs, size_t baseline,
                             const std::vector<size_t>& earlier) {
  std::vector<size_t> wanted = {baseline};
  wanted.insert(wanted.end(), earlier.begin(), earlier.end());
  return bases_of(runs, wanted);
}

OpenedRuns open_runs(const std::vector<std::string>& paths, const OpenOptions& options,
                     const ReadProgress& meanwhile) {
  OpenedRuns opened;
  std::vector<Job> jobs;
  std::vector<Run> runs;
  const auto add = [&](const std::string& path) {
    if (std::ranges::find(options.closed, path) != options.closed.end()) return;
    for (std::string& file : recordings_of(path)) {
      const bool is_trace = profiler::is_gpu_trace(file);
      jobs.push_back({.run = runs.size(),
                      .path = std::move(file),
                      .space = options.space,
                      .device = options.device,
                      .is_trace = is_trace});
    }
    runs.push_back({.path = path, .name = run_name_of(path), .strategy = {}, .ranks = {}});
  };
  for (const std::string& path : paths) {
    std::string message;
    try {
      std::ranges::for_each(runs_of(path, message), add);
    } catch (const std::exception& error) {
      message = error.what();
    }
    if (!message.empty()) opened.messages.push_back(message);
  }
  // A trace of torch.profiler has the times that were recorded.
  const auto is_trace = [](const Job& job) { return job.is_trace; };
  const Clock clock = std::ranges::any_of(jobs, is_trace) ? Clock::recorded : options.clock;
  for (Job& job : jobs) job.clock = clock;
  open_all(jobs, options.cache_folder, meanwhile);
  std::vector<std::shared_ptr<const profiler::GpuTrace>> traces;
  for (Job& job : jobs) {
    if (job.trace) traces.push_back(std::move(job.trace));
    if (!job.message.empty()) opened.messages.push_back(std::move(job.message));
    if (!job.opened) continue;
    runs[job.run].ranks.push_back(std::move(*job.opened));
    if (!job.outlook) continue;
    runs[job.run].outlook = std::move(job.outlook);
    runs[job.run].name = std::move(job.name);
  }
  std::erase_if(runs, [](const Run& run) { return run.ranks.empty(); });
  join_traces(runs, traces, opened.messages);
  for (Run& run : runs) run.strategy = strategy_text(run.ranks.front().lane.info().header.config);
  tell_apart(runs);
  opened.runs = std::move(runs);
  return opened;
}

namespace {

/// True if the recording may still grow. A killed process's recording may seem to: on a file system
/// without locks, a growing recording looks like a killed one.
bool may_grow(const Lane& lane) {
  const profiler::RecordingState state = lane.info().judgement.state;
  return state == profiler::RecordingState::growing || state == profiler::RecordingState::killed;
}

/// True if the rank's recording must be read again. A mapped file changes before its time of change
/// does, so an unchanged file is read too, but more and more rarely: a killed process leaves such a
/// file forever.
bool is_due(RankLane& rank, const RecordingStamp& now) {
  if (!may_grow(rank.lane)) return false;
  if (now != rank.stamp) return true;
  return rank.wait-- <= 0 && stamp_of(rank.path + ".open").bytes > 0;
}

/// Reads the recording again. Returns true if it has more than before.
bool read_again(RankLane& rank, const RecordingStamp& now) {
  constexpr int kMostPatience = 63;
  Lane lane = read_lane(rank.path, rank.lane.info().space);
  const bool has_grown = lane.info().events != rank.lane.info().events ||
                         lane.info().judgement != rank.lane.info().judgement;
  rank.patience = has_grown ? 0 : std::min(kMostPatience, 2 * rank.patience + 1);
  rank.wait = rank.patience;
  rank.stamp = now;
  rank.notes = profiler::notes_beside(rank.path);
  if (has_grown) rank.lane = std::move(lane);
  return has_grown;
}

}  // namespace

bool follow(Run& run) {
  bool has_grown = false;
  for (RankLane& rank : run.ranks) {
    const RecordingStamp now = stamp_of(rank.path);
    if (!is_due(rank, now)) continue;
    try {
      has_grown |= read_again(rank, now);
    } catch (const std::exception&) {
      // The file was replaced or removed: the lane stays on screen as it was read.
    }
  }
  return has_grown;
}

namespace {

/// True if two runs share everything that makes them take the same memory, apart from their
/// schedule.
bool is_same_work(const profiler::Header& a, const profiler::Header& b) {
  const auto first = find_json(a.config, kWritten).value_or(nullptr);
  const auto second = find_json(b.config, kWritten).value_or(nullptr);
  const auto value = [](const nlohmann::json& config, const char* key) {
    return config.is_object() ? config.value(key, nlohmann::json()) : nlohmann::json();
  };
  constexpr std::array kKeys = {"model", "batch", "seq", "optimizer", "attention", "output_dtype"};
  return std::ranges::all_of(
      kKeys, [&](const char* key) { return value(first, key) == value(second, key); });
}

bool is_plan_of(const Run& plan, const Run& run) {
  const profiler::Header& predicted = plan.ranks.front().lane.info().header;
  const profiler::Header& measured = run.ranks.front().lane.info().header;
  return plan.is_predicted() && !run.is_predicted() && !predicted.train.empty() &&
         predicted.train == measured.train && predicted.device == measured.device &&
         is_same_work(predicted, measured);
}

}  // namespace

void join_plans(std::vector<Run>& runs) {
  std::vector<std::optional<size_t>> plan_of(runs.size());  // for each run, the index of its plan
  std::vector<bool> is_joined(runs.size());
  for (size_t plan = 0; plan < runs.size(); ++plan) {
    for (size_t run = 0; run < runs.size() && !is_joined[plan]; ++run) {
      if (plan_of[run] || runs[run].plan || !is_plan_of(runs[plan], runs[run])) continue;
      plan_of[run] = plan;
      is_joined[plan] = true;
    }
  }
  for (size_t run = 0; run < runs.size(); ++run) {
    if (!plan_of[run]) continue;
    Run& plan = runs[*plan_of[run]];
    runs[run].plan = std::move(plan.ranks.front());
    runs[run].plan_name = plan.name;
    runs[run].plan_outlook = std::move(plan.outlook);
  }
  std::vector<Run> kept;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!is_joined[i]) kept.push_back(std::move(runs[i]));
  }
  runs = std::move(kept);
}

void separate_plans(std::vector<Run>& runs) {
  std::vector<Run> all;
  for (Run& run : runs) {
    std::optional<RankLane> lane = std::exchange(run.plan, std::nullopt);
    Run plan{.path = "", .name = run.plan_name, .strategy = {}, .ranks = {}};
    plan.outlook = std::exchange(run.plan_outlook, std::nullopt);
    all.push_back(std::move(run));
    if (!lane) continue;
    plan.strategy = strategy_text(lane->lane.info().header.config);
    plan.path = lane->path;
    plan.ranks.push_back(std::move(*lane));
    all.push_back(std::move(plan));
  }
  runs = std::move(all);
}

std::string strategy_text(const std::string& config_json) {
  const auto config = find_json(config_json, kWritten).value_or(nullptr);
  if (!config.is_object()) return "";
  const auto text = [&](const char* key) {
    const auto at = config.find(key);
    return at != config.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  std::string words = text("strategy");
  const auto add = [&](const std::string& part) {
    if (!part.empty()) words += (words.empty() ? "" : ", ") + part;
  };
  const std::string reshard = text("reshard_after_forward");
  if (words == "fsdp" || words == "hsdp") {
    if (reshard == "false") add("keeps weights");
    if (reshard == "true" || reshard == "auto") add("reshards");
  }
  add(text("param_dtype"));
  const std::string offload = text("offload");
  if (!offload.empty() && offload != "none") add("offload " + offload);
  const std::string recompute = text("recompute");
  if (!recompute.empty() && recompute != "none") add("recompute " + recompute);
  return words;
}

}  // namespace shardlens::viewer
