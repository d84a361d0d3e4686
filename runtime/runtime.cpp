#include "runtime/runtime.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "base/durable_files.h"
#include "base/process/program.h"
#include "base/shown.h"
#include "base/units.h"
#include "planner/config/arguments.h"
#include "runtime/checkpoint/run_directory.h"
#include "runtime/comm/membership.h"
#include "runtime/execute/device.h"
#include "runtime/launch/attempt.h"
#include "runtime/launch/external_launcher.h"
#include "runtime/launch/rank_process.h"
#include "runtime/launch/setup_checks.h"
#include "runtime/launch/supervisor.h"
#include "runtime/train/job.h"
#include "runtime/train/progress.h"
#include "runtime/train/resume.h"

namespace shardlens::runtime {

namespace {

void introduce(const Job& job, const RunDirectory& directory, const std::vector<std::string>& notes,
               const std::vector<std::string>& resumed) {
  for (const std::string& note : notes) fmt::print("{}\n", note);
  fmt::print("{}: {} parameters in {} tensors, {} on {} rank{}, {} steps of {} x {} samples\n",
             job.spec.name, job.spec.numel(), job.spec.parameters.size(),
             to_string(job.config.strategy), job.strategy.world_size,
             job.strategy.world_size == 1 ? "" : "s", job.steps, job.strategy.world_size,
             job.config.batch);
  if (job.config.solo_rank >= 0) fmt::print("rank {} alone\n", job.config.solo_rank);
  fmt::print("run: {}\n", directory.path().string());
  if (job.init_unverified) {
    fmt::print("--init {}: not verified: {}\n", job.config.init, *job.init_unverified);
  }
  for (const std::string& line : resumed) fmt::print("{}\n", line);
  if (!job.notice.empty()) fmt::print("{}\n", job.notice);
  for (const std::string& warning : warnings_about(job)) fmt::print("warning: {}\n", warning);
}

/// Dies of the signal, so that a shell or a script's loop sees that the user ended the run.
void end_by_signal(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Prints the forecast beside LibTorch's own counts.
void compare(const Forecast& forecast, const RunDirectory& directory) {
  const auto result = nlohmann::json::parse(read_whole_file(directory.result()));
  if (!result.contains("memory")) return;
  const nlohmann::json& peak = result["memory"]["peak"];
  const auto text = [](int64_t allocated_bytes, int64_t reserved_bytes) {
    return fmt::format("{} allocated, {} reserved", bytes_text(allocated_bytes),
                       bytes_text(reserved_bytes));
  };
  const int64_t allocated_bytes = peak["allocated_bytes"], reserved_bytes = peak["reserved_bytes"];
  const bool is_equal =
      allocated_bytes == forecast.allocated_bytes && reserved_bytes == forecast.reserved_bytes;
  fmt::print("memory as planned: {}; measured: {}\n",
             text(forecast.allocated_bytes, forecast.reserved_bytes),
             is_equal ? "the same to the byte" : text(allocated_bytes, reserved_bytes));
}

int refuse_forecast(const Forecast& forecast) {
  fmt::print(stderr,
             "shardlens train: {}; shardlens plan shows what would fit, --anyway starts it\n",
             forecast.verdict);
  return kDoesNotFit;
}

/// Reports a run that did not finish, and returns the exit code.
int report_unfinished(const Job& job, const Outcome& outcome, const RunDirectory& directory) {
  clear_bar();
  if (outcome.end == Outcome::End::preempted) {
    fmt::print("preempted by signal {} after step {}: saved; run the same command to resume\n",
               outcome.signal, outcome.step);
    return kPreempted;
  }
  fmt::print(stderr, "shardlens train: {}\n", shown_lines(outcome.reason));
  if (outcome.fault == Fault::out_of_memory) show_memory(job, directory, outcome.rank);
  if (outcome.signal != 0) end_by_signal(outcome.signal);
  return outcome.fault == Fault::wrong_use ? kWrongUse : kFailed;
}

int run(const planner::Arguments& parsed, const Membership& place,
        const std::vector<std::string>& arguments, const std::optional<OwnTraining>& own,
        const Forecaster& forecaster) {
  check_libtorch_version();
  planner::Config config = planner::with_absolute_inputs(parsed.config);
  choose_device(config);
  const Device device = planner::device_of(config);
  if (device.kind == DeviceKind::null) enter_null_device(device, arguments);
  if (!place.is_alone()) {
    const auto begin = [&](const Job& job, const RunDirectory& directory,
                           const std::vector<std::string>& resumed) {
      introduce(job, directory, parsed.notes, resumed);
    };
    return train_under_launcher({.config = config,
                                 .place = place,
                                 .own = own,
                                 .forecaster = forecaster,
                                 .introduce = begin});
  }
  Job job = prepare_job(config, own);
  expect_room_for_checkpoints(job);
  const auto forecast = forecaster ? forecaster(job.config, job.found_data) : std::nullopt;
  if (forecast && !forecast->fits && !job.config.anyway) return refuse_forecast(*forecast);
  const RunDirectory directory = RunDirectory::open(job.config);
  Supervisor supervisor(job, directory);
  introduce(job, directory, parsed.notes, supervisor.begin());
  if (forecast) fmt::print("plan: {}\n", forecast->verdict);
  const Outcome outcome = supervisor.run();
  if (outcome.ok() && forecast) compare(*forecast, directory);
  return outcome.ok() ? 0 : report_unfinished(job, outcome, directory);
}

int parse_and_run(const std::vector<std::string>& arguments, const std::optional<OwnTraining>& own,
                  const Forecaster& forecaster) {
  return run_program("shardlens train", [&] {
    const Membership place = membership_of(this_environment());
    const planner::Arguments parsed =
        planner::parse_arguments(arguments, place.is_alone() ? 0 : place.world_size);
    if (parsed.help) return fmt::print("{}", planner::help_text("train")), 0;
    return run(parsed, place, arguments, own, forecaster);
  });
}

}  // namespace

int train(const std::vector<std::string>& arguments, const Forecaster& forecaster) {
  return parse_and_run(arguments, {}, forecaster);
}

int train(const std::vector<std::string>& arguments, const OwnTraining& own) {
  return parse_and_run(arguments, own, {});
}

}  // namespace shardlens::runtime
