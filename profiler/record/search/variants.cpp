#include "profiler/record/search/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "base/gpus.h"
#include "base/process/installation.h"
#include "base/units.h"
#include "profiler/record/judged_rank.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kJobsOfWorkers = 8;  // that a search asks for at once

const JudgedRank& fullest_of(const std::vector<JudgedRank>& ranks) {
  return *std::ranges::max_element(ranks, {}, [](const JudgedRank& rank) {
    return rank.report.reserved_peak_bytes().value_or(0) + rank.outside.bytes;
  });
}

std::vector<int64_t> marks_of(const RankReport& report) {
  const SpaceReport* const space = report.main_space();
  if (space == nullptr) return {};
  std::vector<int64_t> marks = {space->allocations, space->peak_bytes, space->peak_asked_bytes,
                                space->end_bytes};
  for (const auto& peak : space->phase_peaks) marks.push_back(peak.value_or(-1));
  return marks;
}

/// Returns the number of steps that the program made, without what it does after the last one.
int64_t steps_of(const RankReport& report, const RecordOptions& options) {
  const int64_t steps = std::ssize(report.steps);
  return options.steps && steps <= *options.steps ? steps : steps - 1;
}

/// Returns the steps to run to see what all `steps` of the program take: up to two that are alike,
/// as are all later ones.
std::optional<int64_t> steps_to_settle(const RankReport& report, int64_t steps) {
  const SpaceReport* const space = report.main_space();
  if (space == nullptr || steps < 2 || report.growth) return std::nullopt;
  const auto last = report.steps.begin() + (steps - 1);
  auto first = last;
  while (first != report.steps.begin() && std::prev(first)->bytes == last->bytes) --first;
  if (first == last) return std::nullopt;
  const int64_t reserved_at = report.reserved_peak ? report.reserved_peak->at.step : 0;
  if (std::max(space->peak_at.step, reserved_at) > first->step) return std::nullopt;
  return first->step + 2;
}

VariantOutcome outcome_of(const std::vector<JudgedRank>& ranks, const RecordedRun& run) {
  const bool ran_out = run.accounts.first_entry("out_of_memory") != nullptr ||
                       std::ranges::any_of(ranks, [](const JudgedRank& rank) {
                         return rank.verdict.is_out_of_memory;
                       });
  if (ran_out) return VariantOutcome::out_of_memory;
  if (run.end.is_failure()) return VariantOutcome::failed;
  if (ranks.empty()) return VariantOutcome::idle;
  const bool is_whole = std::ranges::none_of(
      ranks, [](const JudgedRank& rank) { return rank.verdict.exit_code == kNotRecorded; });
  return is_whole ? VariantOutcome::measured : VariantOutcome::failed;
}

std::vector<std::string> paths_of(const RecordedRun& run) {
  return {run.recordings.begin(), run.recordings.end()};
}

VariantResult result_of(const RecordOptions& options, const RecordedRun& run,
                        const ReplayRun& replay, const PredictTime& predict) {
  const std::vector<JudgedRank> ranks = judge(options, run, replay);
  VariantResult result{.options = options, .outcome = outcome_of(ranks, run)};
  result.exit_code = run.end.exit_code;
  result.host_bytes = run.host_bytes;
  result.was_forked = run.was_forked;
  result.accounts = run.accounts;
  if (!ranks.empty()) {
    const JudgedRank& rank = fullest_of(ranks);
    result.allocated_bytes = rank.report.peak_bytes();
    result.reserved_bytes = rank.report.reserved_peak_bytes().value_or(0);
    result.outside_bytes = rank.outside.bytes;
    result.marks = marks_of(rank.report);
    result.has_retries = rank.facts.retries > 0;
    result.steps = steps_of(rank.report, options);
    result.settled_steps = steps_to_settle(rank.report, result.steps);
    result.why = rank.verdict.line;
    result.bands = rank.report.bands;
    result.doubts = rank.verdict.doubts;
  }
  if (result.outcome == VariantOutcome::measured) {
    result.why.clear();
    if (options.traces_work && predict) result.time = slowest_time(paths_of(run), predict);
  }
  if (result.outcome == VariantOutcome::failed) {
    result.why = failure_text(run.accounts, run.end).value_or(result.why);
  }
  if (ranks.empty() && result.outcome == VariantOutcome::idle) {
    result.why = why_nothing(run.accounts, run.end, options.command, false);
  }
  if (result.outcome == VariantOutcome::out_of_memory && ranks.empty())
    result.why = "out of memory";
  return result;
}

/// Returns the variants that were forked and failed, as processes of their own: programs may fail
/// only because they were forked.
std::vector<RecordOptions> alone_if_failed(const std::vector<RecordOptions>& all,
                                           const std::map<std::string, VariantResult>& by_folder) {
  std::vector<RecordOptions> failed;
  for (RecordOptions one : all) {
    const auto found = by_folder.find(one.out);
    if (found == by_folder.end() || found->second.outcome != VariantOutcome::failed) continue;
    if (!found->second.was_forked) continue;
    one.is_alone = true;
    failed.push_back(std::move(one));
  }
  return failed;
}

}  // namespace

int64_t VariantResult::limit_bytes(int64_t bytes) const {
  const bool has_other_gpu =
      std::ranges::find(options.levers, "gpu", &Lever::name) != options.levers.end();
  return has_other_gpu ? find_gpu(options.device.gpu).memory_bytes : bytes;
}

std::string result_text(const VariantResult& result) {
  if (result.outcome == VariantOutcome::out_of_memory) return "does not fit";
  if (result.outcome != VariantOutcome::measured) return result.why;
  return fmt::format("{} allocated, {} reserved", bytes_text(result.allocated_bytes),
                     bytes_text(result.reserved_bytes));
}

SharedKernels::SharedKernels() {
  std::string name = (fs::temp_directory_path() / "shardlens-kernels-XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) folder_ = name;
}

SharedKernels::~SharedKernels() {
  std::error_code a_process_still_writes;
  if (!folder_.empty()) fs::remove_all(folder_, a_process_still_writes);
}

VariantRunner::VariantRunner(std::string command, const RecordOptions& options, ReplayRun replay,
                             PredictTime predict)
    : command_(std::move(command)),
      program_(find_python(options.command)),
      files_(recorder_for(program_, support_folder("record"), CudaProvider::null_device)),
      replay_(std::move(replay)),
      predict_(std::move(predict)),
      workers_(Workers::of_parent()) {
  if (workers_) jobs_ = kJobsOfWorkers;
  if (files_.doubt) fmt::print(stderr, "shardlens {}: {}\n", command_, *files_.doubt);
}

void VariantRunner::say_progress(const std::string& name, const VariantResult& result,
                                 double seconds) {
  ++runs_;
  seconds_ += seconds;
  if (expected_ > 0) --expected_;
  const double left = seconds_ / static_cast<double>(runs_) * static_cast<double>(expected_);
  const std::string time =
      expected_ == 0 ? "" : fmt::format("; {} more, about {:.0f} s", expected_, std::ceil(left));
  fmt::print(stderr, "shardlens {}: {}: {}{}\n", command_, name, result_text(result), time);
}

/// Keeps what a variant imported, if the process that was started used the GPU, alone, and was not
/// executed again: only such a process can be forked instead. It may start others, to compile.
void VariantRunner::note_imports(const RecordOptions& options, const RecordedRun& run) {
  if (!options.tells_imports || !may_fork_) return;
  const auto& told = run.accounts.told;
  const AccountEntry* const imports = run.accounts.first_entry("imports");
  const auto starts = std::ranges::count_if(told, [&](const AccountEntry& entry) {
    return entry.what == "started" && entry.process == run.process;
  });
  const bool is_alone = std::ranges::count(told, "imports", &AccountEntry::what) == 1;
  const bool is_forkable =
      starts == 1 && is_alone && imports != nullptr && imports->process == run.process;
  imports_ = is_forkable ? imports->text : "";
}

/// Starts the process from which variants are forked, once it saves time: for two or more, or after
/// two of a search that runs one by one. One that has been started stays, unless three need
/// another.
void VariantRunner::warm_up_for(const std::vector<RecordOptions>& part) {
  const auto first = std::ranges::find_if(part, can_be_forked);
  const auto count = std::ranges::count_if(part, can_be_forked);
  const auto suits = [&](const RecordOptions& one) { return warm_->suits(one); };
  const bool is_warm = warm_ && !warm_->why_not();
  if (is_warm && (count < 3 || std::ranges::any_of(part, suits))) return;
  if (imports_.empty() || count == 0 || (count < 2 && runs_ < 2)) return;
  warm_.reset();
  warm_ = warm_up(*first, imports_, program_, files_);
  if (!warm_->why_not()) return;
  fmt::print(stderr, "shardlens {}: each run imports its modules itself: {}\n", command_,
             *warm_->why_not());
  imports_.clear();
}

/// Lets each variant import its modules itself.
void VariantRunner::stop_forking() {
  fmt::print(stderr, "shardlens {}: each run imports its modules itself: forked ones failed\n",
             command_);
  warm_.reset();
  imports_.clear();
  may_fork_ = false;
}

bool VariantRunner::run_part(const std::vector<RecordOptions>& part, const ProgramListener& ended) {
  if (part.empty()) return true;
  if (workers_) return workers_->run(part, ended);
  warm_up_for(part);
  return run_programs(part, program_, files_, jobs_, warm_.get(),
                      [&](const RecordOptions& one, const RecordedRun& run) {
                        note_imports(one, run);
                        jobs_ = jobs_for(run.host_bytes, one.traces_work);
                        ended(one, run);
                      });
}

std::vector<VariantResult> VariantRunner::run(const std::vector<RecordOptions>& all,
                                              const std::vector<std::string>& names) {
  expected_ = all.size();
  std::map<std::string, VariantResult> by_folder;
  std::vector<VariantResult> results;
  auto before = Clock::now();
  const auto ended = [&](const RecordOptions& one, const RecordedRun& run) {
    const VariantResult result = result_of(one, run, replay_, predict_);
    const auto now = Clock::now();
    const auto at = std::ranges::find(all, one.out, &RecordOptions::out) - all.begin();
    say_progress(names[static_cast<size_t>(at)], result,
                 std::chrono::duration<double>(now - before).count());
    before = now;
    by_folder.insert_or_assign(one.out, result);
  };
  // The first variant of all shows what the others can have from it.
  std::vector<RecordOptions> rest = all;
  for (RecordOptions& one : rest) one.kernels = workers_ ? "" : kernels_.folder();
  bool goes_on = true;
  if (runs_ == 0 && !rest.empty() && !workers_) {
    RecordOptions first = rest.front();
    first.tells_imports = true;
    rest.erase(rest.begin());
    goes_on = run_part({first}, ended);
  }
  for (RecordOptions& one : rest) one.tells_imports = warm_ == nullptr && runs_ < 2;
  goes_on = goes_on && run_part(rest, ended);
  const std::vector<RecordOptions> failed = alone_if_failed(rest, by_folder);
  if (goes_on && !failed.empty()) {
    expected_ = failed.size();
    goes_on = run_part(failed, ended);
    const bool was_by_fork = std::ranges::any_of(failed, [&](const RecordOptions& one) {
      return by_folder.at(one.out).outcome != VariantOutcome::failed;
    });
    if (was_by_fork) stop_forking();
  }
  was_interrupted_ = was_interrupted_ || !goes_on;
  for (const RecordOptions& one : all) {
    const auto found = by_folder.find(one.out);
    if (found == by_folder.end()) continue;
    // A variant that was interrupted says nothing about the program.
    if (was_interrupted_ && found->second.outcome == VariantOutcome::failed) continue;
    results.push_back(found->second);
  }
  return results;
}

std::string folder_of(const std::string& name) {
  std::string folder = name;
  std::ranges::replace(folder, ',', '+');
  std::ranges::replace(folder, ':', '-');
  std::ranges::replace(folder, '/', '-');
  return folder;
}

RecordOptions in_folder(const RecordOptions& options, const std::string& name) {
  RecordOptions variant = options;
  variant.out = (fs::path(options.out) / folder_of(name)).string();
  fs::create_directories(variant.out);
  variant.log = (fs::path(variant.out) / "log.txt").string();
  return variant;
}

}  // namespace shardlens::profiler
