#include "viewer/model/levers/lever_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/process/background_program.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPause(50);

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Removes what an earlier run left in a variant's folder, so that it is not taken for what comes.
void clear(const fs::path& folder, const std::string& recording) {
  const fs::path old = folder / "profiles" / fs::path(recording).filename();
  fs::create_directories(folder);
  fs::remove(old);
  fs::remove(fs::path(old).replace_extension(".json"));
}

BackgroundProgram::Options program_of(const profiler::RecordedProgram& program,
                                      const LeverRuns::Levers& levers, const std::string& record,
                                      const fs::path& folder) {
  std::vector<std::string> command = {record};
  const auto arguments = profiler::arguments_with(program, levers, fs::absolute(folder).string());
  command.insert(command.end(), arguments.begin(), arguments.end());
  BackgroundProgram::Options options{.command = command,
                                     .directory = program.directory,
                                     .log = (fs::absolute(folder) / "log.txt").string()};
  if (program.python.empty()) return options;
  // Words such as `python` mean what they meant when the program was recorded.
  const fs::path python = fs::path(program.directory) / program.python;
  const char* const path = std::getenv("PATH");
  options.environment = {
      fmt::format("PATH={}:{}", python.parent_path().string(), path == nullptr ? "" : path)};
  return options;
}

}  // namespace

LeverRuns::LeverRuns(std::string record, std::string cache_folder,
                     std::optional<profiler::Space> space)
    : record_(std::move(record)),
      cache_folder_(std::move(cache_folder)),
      space_(space),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

void LeverRuns::add(Job job) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(job));
  ++version_;
  changed_.notify_all();
}

void LeverRuns::look_at(const std::string& recording) { add({.recording = recording}); }

void LeverRuns::run(const std::string& recording, const Levers& levers) {
  add({.recording = recording, .levers = levers});
}

void LeverRuns::show(std::optional<profiler::Space> space) {
  const std::lock_guard lock(mutex_);
  space_ = space;
}

void LeverRuns::open(const std::string& folder) { add({.recording = "", .folder = folder}); }

void LeverRuns::stop(const std::string& recording, const Levers& levers) {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const Job& job) {
    return job.recording == recording && job.levers == levers;
  };
  std::erase_if(waiting_, is_it);
  if (current_ && is_it(current_->job)) current_->is_stopped = true;
  ++version_;
  changed_.notify_all();
}

void LeverRuns::stop_all() {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [](const Job& job) { return job.levers.has_value(); });
  if (current_ && current_->job.levers) current_->is_stopped = true;
  ++version_;
  changed_.notify_all();
}

std::optional<ProgramLevers> LeverRuns::levers(const std::string& recording) const {
  const std::lock_guard lock(mutex_);
  const auto found = levers_.find(recording);
  if (found == levers_.end()) return std::nullopt;
  ProgramLevers levers = found->second;
  for (const Job& job : waiting_) {
    const bool is_of_it = job.levers && job.recording == recording;
    if (is_of_it) levers.put({.levers = *job.levers, .state = LeverState::waiting});
  }
  if (current_ && current_->job.levers && current_->job.recording == recording) {
    levers.put({.levers = *current_->job.levers,
                .state = LeverState::running,
                .seconds = seconds_between(current_->since, Clock::now()),
                .expected_seconds = last_seconds_});
  }
  return levers;
}

std::vector<Run> LeverRuns::take_runs() {
  const std::lock_guard lock(mutex_);
  return std::exchange(runs_, {});
}

std::vector<std::string> LeverRuns::take_messages() {
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

uint64_t LeverRuns::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

bool LeverRuns::is_busy() const {
  const std::lock_guard lock(mutex_);
  return current_ || !waiting_.empty();
}

void LeverRuns::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return !current_ && waiting_.empty(); });
}

void LeverRuns::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
    current_ = Current{.job = waiting_.front(), .since = Clock::now()};
    waiting_.pop_front();
    const Job job = current_->job;
    ++version_;
    lock.unlock();
    job.levers ? record(job, stop) : do_quickly(job);
    lock.lock();
    current_.reset();
    ++version_;
    changed_.notify_all();
  }
}

void LeverRuns::do_quickly(const Job& job) {
  job.folder.empty() ? look(job) : open_folder(job.folder);
}

/// Reads what was asked for while a program runs, which may take long.
void LeverRuns::do_what_is_quick() {
  std::unique_lock lock(mutex_);
  const auto is_quick = [](const Job& job) { return !job.levers; };
  const auto next = [&] { return std::ranges::find_if(waiting_, is_quick); };
  for (auto at = next(); at != waiting_.end(); at = next()) {
    const Job job = *at;
    waiting_.erase(at);
    lock.unlock();
    do_quickly(job);
    lock.lock();
    ++version_;
  }
}

void LeverRuns::look(const Job& job) {
  ProgramLevers levers;
  try {
    levers = levers_of(job.recording);
  } catch (const std::exception& error) {
    levers.obstacle = error.what();
  }
  const std::lock_guard lock(mutex_);
  for (const LeverRow& row : ended_[job.recording]) {
    const LeverRow* const known = levers.find(row.levers);
    const bool is_told = known == nullptr || known->state == LeverState::unknown;
    // Where it is known which levers apply, no row finds out any more.
    const bool is_done = known == nullptr && row.levers.empty();
    if (is_told && !is_done) levers.put(row);
  }
  levers_.insert_or_assign(job.recording, std::move(levers));
}

bool LeverRuns::is_unwanted(const std::stop_token& stop) const {
  const std::lock_guard lock(mutex_);
  return stop.stop_requested() || current_->is_stopped;
}

/// Runs the program, and returns how it ended; a row that is unknown if it was stopped.
LeverRow LeverRuns::recorded_row(const Job& job, const ProgramLevers& levers,
                                 const std::stop_token& stop) {
  LeverRow row{.levers = *job.levers};
  try {
    row.folder = profiler::folder_with(levers.program, *job.levers);
    clear(row.folder, job.recording);
    const auto options = program_of(levers.program, *job.levers, record_, row.folder);
    BackgroundProgram program(options);
    while (!program.exit_code()) {
      std::this_thread::sleep_for(kPause);
      if (is_unwanted(stop)) program.stop();
      do_what_is_quick();
    }
    if (is_unwanted(stop)) {
      clear(row.folder, job.recording);
      return {.levers = *job.levers};
    }
    const std::string text = read_file(options.log, kDescription.bytes).text;
    return ended_row(levers, row, *program.exit_code(), text);
  } catch (const std::exception& error) {
    row.state = LeverState::failed;
    row.folder.clear();
    row.why = error.what();
    return row;
  }
}

void LeverRuns::record(const Job& job, const std::stop_token& stop) {
  const std::optional<ProgramLevers> known = levers(job.recording);
  if (!known || known->obstacle) return;
  const auto before = Clock::now();
  const LeverRow row = recorded_row(job, *known, stop);
  const bool has_lane =
      !row.levers.empty() && (row.state == LeverState::measured || row.state == LeverState::full);
  if (has_lane && !row.folder.empty()) open_folder(row.folder);
  keep(job, row);
  look(job);
  const std::lock_guard lock(mutex_);
  if (row.state == LeverState::measured) last_seconds_ = seconds_between(before, Clock::now());
}

/// Keeps how a run has ended in place of how it ended before.
void LeverRuns::keep(const Job& job, const LeverRow& row) {
  const std::lock_guard lock(mutex_);
  std::vector<LeverRow>& ended = ended_[job.recording];
  std::erase_if(ended, [&](const LeverRow& one) { return one.levers == row.levers; });
  if (row.state != LeverState::unknown) ended.push_back(row);
  const bool is_left_out = row.state == LeverState::failed || row.state == LeverState::idle;
  if (is_left_out) messages_.push_back(fmt::format("{}: {}", row.name(), row.why));
}

void LeverRuns::open_folder(const std::string& folder) {
  std::unique_lock lock(mutex_);
  const std::optional<profiler::Space> space = space_;
  lock.unlock();
  OpenedRuns opened = open_runs({folder}, {.cache_folder = cache_folder_, .space = space});
  lock.lock();
  for (Run& run : opened.runs) runs_.push_back(std::move(run));
}

}  // namespace shardlens::viewer
