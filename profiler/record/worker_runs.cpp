#include "profiler/record/worker_runs.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/output_file.h"
#include "base/process/awaited_signals.h"
#include "base/strict_json.h"
#include "profiler/record/search/command_again.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSocketVariable = "SHARDLENS_WORKERS";      // a descriptor
constexpr const char* kWorkerVariable = "SHARDLENS_AS_A_WORKER";  // set: this process is one

fs::path file_of(const RecordOptions& options) { return fs::path(options.out) / "run.json"; }

/// Returns the words with which a worker runs a command as these options say.
std::vector<std::string> worker_words(const RecordOptions& options) {
  std::vector<std::string> words = flags_again(options, memory_bytes_of(options.device));
  words.insert(words.begin(), "record");
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  if (!options.levers.empty()) add("--with", levers_text(options.levers));
  if (options.timeout_s) add("--timeout", fmt::format("{}", *options.timeout_s));
  if (options.looks) words.push_back("--find-levers");
  if (options.finds_holders) words.push_back("--holders");
  if (options.traces_work) words.push_back("--time");
  if (!options.calibration.empty()) {
    add("--calibration", fs::absolute(options.calibration).string());
  }
  add("--out", fs::absolute(options.out).string());
  words.push_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

nlohmann::json run_json(const RecordedRun& run) {
  nlohmann::json told = nlohmann::json::array(), recordings = nlohmann::json::array();
  for (const AccountEntry& entry : run.accounts.told) {
    told.push_back({{"process", entry.process},
                    {"time_s", entry.time_s},
                    {"what", entry.what},
                    {"text", entry.text}});
  }
  for (const fs::path& file : run.recordings) recordings.push_back(file.filename().string());
  return {{"exit_code", run.end.exit_code},
          {"how", run.end.how},
          {"was_interrupted", run.end.was_interrupted},
          {"recordings", recordings},
          {"told", told},
          {"host_bytes", run.host_bytes}};
}

RecordedRun read_run(const RecordOptions& options) {
  const auto json =
      parse_strict_json(read_file(file_of(options).string(), kDescription.bytes).text);
  RecordedRun run;
  run.end = {.exit_code = json.at("exit_code").get<int>(),
             .how = json.at("how").get<std::string>(),
             .was_interrupted = json.at("was_interrupted").get<bool>()};
  run.host_bytes = json.at("host_bytes").get<int64_t>();
  for (const auto& name : json.at("recordings")) {
    run.recordings.push_back(fs::path(options.out) / "profiles" / name.get<std::string>());
  }
  for (const auto& entry : json.at("told")) {
    run.accounts.told.push_back({.process = entry.at("process").get<int>(),
                                 .time_s = entry.at("time_s").get<double>(),
                                 .what = entry.at("what").get<std::string>(),
                                 .text = entry.at("text").get<std::string>()});
  }
  return run;
}

RecordedRun failed_run(const std::string& why) {
  RecordedRun run;
  run.end = {.exit_code = 1, .how = why};
  return run;
}

RecordedRun run_of_worker(const RecordOptions& options, const std::string& error) {
  if (!error.empty()) return failed_run("no worker could run it: " + error);
  try {
    return read_run(options);
  } catch (const std::exception& problem) {
    return failed_run(fmt::format("its worker left no {} that can be read: {}",
                                  file_of(options).string(), problem.what()));
  }
}

}  // namespace

std::optional<Workers> Workers::of_parent() {
  const char* const text = std::getenv(kSocketVariable);
  if (text == nullptr) return std::nullopt;
  int socket = -1;
  const std::string_view digits = text;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), socket);
  const bool is_number = error == std::errc() && end == digits.end();
  const int own = is_number ? ::fcntl(socket, F_DUPFD_CLOEXEC, 0) : -1;
  if (own < 0) {
    throw std::invalid_argument(
        fmt::format("{}={}: not an open socket; unset the variable", kSocketVariable, text));
  }
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);  // programs that this process starts have none
  return Workers(LineSocket(own));
}

bool Workers::ask_for(const std::vector<RecordOptions>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    fs::create_directories(all[i].out);
    fs::remove(file_of(all[i]));
    const nlohmann::json request = {
        {"run", i}, {"words", worker_words(all[i])}, {"log", fs::absolute(all[i].log).string()}};
    if (!parent_.send(request.dump())) return false;
  }
  return true;
}

bool Workers::run(const std::vector<RecordOptions>& all, const ProgramListener& ended) {
  const AwaitedSignals signals;
  if (!ask_for(all)) return false;
  for (size_t left = all.size(); left > 0;) {
    if (signals.next()) return false;
    while (const auto line = parent_.receive(std::chrono::milliseconds(0))) {
      const auto reply = parse_strict_json(*line);
      const RecordOptions& one = all.at(reply.at("run").get<size_t>());
      ended(one, run_of_worker(one, reply.at("error").get<std::string>()));
      --left;
    }
    if (left > 0 && !parent_.is_open()) return false;
  }
  return true;
}

void keep_run_of_worker(const RecordOptions& options, const RecordedRun& run) {
  if (std::getenv(kWorkerVariable) == nullptr) return;
  write_text(file_of(options).string(), json_text(run_json(run)));
}

}  // namespace shardlens::profiler
