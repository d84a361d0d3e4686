#include "profiler/commands/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/process/command_line.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "base/units.h"
#include "profiler/commands/alive_command.h"
#include "profiler/commands/bundle.h"
#include "profiler/commands/exchange_commands.h"
#include "profiler/commands/work_command.h"
#include "profiler/compare/comparability.h"
#include "profiler/compare/diff.h"
#include "profiler/exchange/import_memory_viz.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;

using Arguments = std::vector<std::string>;

struct Command {
  const char* name;
  const char* usage;  // without the program's name
  const char* does;
  CommandOutcome (*run)(const Arguments& arguments, const Recordings& recordings);
};

// --- report --------------------------------------------------------------------------------------

struct AnalysedRanks {
  std::vector<RankReport> ranks;
  std::string failures;  // a line for every file that cannot be read
};

/// Analyses a recording or, as it is, a snapshot that PyTorch made. `device` chooses the GPU of a
/// snapshot of several.
RankReport analyse_file(const std::string& path, const Recordings& recordings,
                        std::optional<int> device = std::nullopt) {
  const bool is_snapshot = is_memory_viz(path);
  if (device && !is_snapshot) {
    throw std::invalid_argument(
        fmt::format("--device {}: only applies to PyTorch's snapshots, and {} is none; remove it",
                    *device, path));
  }
  RankReport report =
      is_snapshot ? analyse(import_memory_viz_file(path, device)) : recordings.analyse(path);
  report.source = path;
  return report;
}

/// Analyses all recordings. An unreadable file becomes a line of `failures`, so that it does not
/// hide the others.
AnalysedRanks analyse_all(const Arguments& names, std::optional<int32_t> rank,
                          std::optional<int> device, const Recordings& recordings) {
  AnalysedRanks analysed;
  for (const std::string& name : names) {
    for (const std::string& file : recordings_of(name, rank)) {
      try {
        RankReport report = analyse_file(file, recordings, device);
        if (rank && report.header.rank != *rank) continue;
        analysed.ranks.push_back(std::move(report));
      } catch (const std::exception& error) {
        if (names.size() == 1 && !fs::is_directory(name)) throw;
        analysed.failures += fmt::format("shardlens profile: {}\n", shown(error.what()));
      }
    }
  }
  if (rank && analysed.ranks.empty() && analysed.failures.empty()) {
    throw std::invalid_argument(
        fmt::format("--rank {}: no recording of this rank in {}", *rank, names.front()));
  }
  return analysed;
}

bool has_time(const RankReport& rank, const Recordings& recordings) {
  return recordings.has_work && !is_memory_viz(rank.source) && recordings.has_work(rank.source);
}

/// Returns how long a step of a rank takes, or why that is not known; null without a trace of work.
nlohmann::ordered_json time_json(const RankReport& rank, const Recordings& recordings) {
  if (!has_time(rank, recordings)) return nullptr;
  try {
    return parse_ordered_json(recordings.time(rank.source, {.json = true}));
  } catch (const std::exception& error) {
    return {{"seconds", nullptr}, {"why", error.what()}};
  }
}

std::string json_with_times(const std::vector<RankReport>& ranks, const Recordings& recordings) {
  std::vector<nlohmann::ordered_json> times;
  for (const RankReport& rank : ranks) times.push_back(time_json(rank, recordings));
  std::string text = report_json(ranks);
  if (std::ranges::all_of(times, [](const auto& time) { return time.is_null(); })) return text;
  nlohmann::ordered_json json = parse_ordered_json(text);
  for (size_t i = 0; i < times.size(); ++i) json["ranks"][i]["time"] = std::move(times[i]);
  return json_text(json);
}

/// Returns how long a step takes, of a report of one rank whose work was traced; else "".
std::string time_of_one(const std::vector<RankReport>& ranks, const Recordings& recordings) {
  if (ranks.size() != 1 || !has_time(ranks.front(), recordings)) return {};
  try {
    return "\n" + recordings.time(ranks.front().source, {});
  } catch (const std::exception& error) {
    return fmt::format("\nstep time: {}\n", shown(error.what()));
  }
}

CommandOutcome report(const Arguments& arguments, const Recordings& recordings) {
  CLI::App app;
  Arguments names;
  std::optional<int32_t> rank;
  bool json = false;
  app.add_option("RUN|FILE", names)->required();
  app.add_option("--rank", rank);
  std::optional<int> device;
  app.add_option("--device", device);
  app.add_flag("--json", json);
  parse_flags(app, arguments);
  const AnalysedRanks analysed = analyse_all(names, rank, device, recordings);
  return {.exit_code = analysed.failures.empty() ? 0 : 1,
          .out = json ? json_with_times(analysed.ranks, recordings)
                      : report_text(analysed.ranks) + time_of_one(analysed.ranks, recordings),
          .error = analysed.failures};
}

// --- time ----------------------------------------------------------------------------------------

CommandOutcome time(const Arguments& arguments, const Recordings& recordings) {
  CLI::App app;
  std::string name;
  std::optional<int32_t> rank;
  TimeRequest request;
  app.add_option("RUN|FILE", name)->required();
  app.add_option("--rank", rank);
  app.add_option("--gpu", request.gpu);
  app.add_option("--host", request.host);
  app.add_option("--calibration", request.calibration);
  app.add_flag("--events", request.of_events);
  app.add_flag("--json", request.json);
  parse_flags(app, arguments);
  if (!(request.host > 0 && request.host <= 100)) {
    throw std::invalid_argument(fmt::format(
        "--host {}: not a factor between 0 and 100 of the recording host's time", request.host));
  }
  check(recordings.time != nullptr, "profile time without a prediction");
  const std::vector<std::string> files = recordings_of(name, rank);
  if (files.empty()) throw std::invalid_argument(fmt::format("{}: has no recording", name));
  if (files.size() == 1) return {.out = recordings.time(files.front(), request), .error = {}};
  if (request.of_events) {
    throw std::invalid_argument(fmt::format(
        "--events: {} has {} ranks; choose one with --rank, such as --rank 0", name, files.size()));
  }
  check(recordings.world_time != nullptr, "profile time without a prediction of several ranks");
  return {.out = recordings.world_time(files, request), .error = {}};
}

// --- diff ----------------------------------------------------------------------------------------

std::vector<RankReport> analyse_side(const std::string& name, const Recordings& recordings) {
  std::vector<RankReport> ranks;
  for (const std::string& file : recordings_of(name))
    ranks.push_back(analyse_file(file, recordings));
  return ranks;
}

CommandOutcome diff(const Arguments& arguments, const Recordings& recordings) {
  CLI::App app;
  std::string a, b, limit_text;
  std::vector<std::string> allow;
  bool json = false;
  app.add_option("A", a)->required();
  app.add_option("B", b)->required();
  app.add_option("--fail-above", limit_text);
  app.add_option("--allow", allow)->delimiter(',')->expected(1)->take_all();
  app.add_flag("--json", json);
  parse_flags(app, arguments);
  const std::vector<Obstacle> allowed = parse_allowed(allow);
  const double limit = limit_text.empty() ? 0 : parse_percent("--fail-above", limit_text);
  const RunDiff found = diff_runs(analyse_side(a, recordings), analyse_side(b, recordings));
  CommandOutcome outcome{.out = json ? diff_json(found) : diff_text(found), .error = {}};
  const std::vector<FoundObstacle> refused = remove_allowed(obstacles_between(found), allowed);
  if (!limit_text.empty() && !refused.empty()) {
    outcome.exit_code = 2;
    outcome.error = fmt::format("shardlens profile: {}\n", refusal(refused));
    return outcome;
  }
  if (!limit_text.empty() && found.worst_pair().growth_percent() > limit) {
    outcome.exit_code = 1;
    outcome.error = fmt::format("shardlens profile: {}; --fail-above allows {} %\n",
                                verdict(found.worst_pair()), limit);
  }
  return outcome;
}

// --- check ---------------------------------------------------------------------------------------

std::string check_text(const std::string& path, const FileReport& file) {
  std::string text =
      fmt::format("{}: version {}.{}, {}, {} events ({} not sealed), {} lost, {}\n", path,
                  file.major, file.minor, bytes_text(static_cast<int64_t>(file.bytes)), file.events,
                  file.open_events, file.lost_events, file.closed ? "closed" : "not closed");
  text += fmt::format("{:>12} {:<10} {:>10} {:>12} {:>12} {:>12}\n", "offset", "block", "count",
                      "bytes", "raw bytes", "until ms");
  for (const BlockReport& block : file.blocks) {
    text += fmt::format("{:>12} {:<10} {:>10} {:>12} {:>12} {:>12.3f}", block.offset, block.type,
                        block.count, block.bytes, block.raw_bytes,
                        static_cast<double>(block.last_ns) / 1e6);
    text += block.problem ? fmt::format("  {}\n", *block.problem) : "\n";
  }
  return text;
}

CommandOutcome check_file(const Arguments& arguments, const Recordings& recordings) {
  CLI::App app;
  std::string path;
  app.add_option("FILE", path)->required();
  parse_flags(app, arguments);
  const FileReport file = recordings.check(path);
  CommandOutcome outcome{.out = check_text(path, file), .error = {}};
  for (const std::string& problem : file.problems) {
    outcome.exit_code = 1;
    outcome.error += fmt::format("shardlens profile: {}\n", shown(problem));
  }
  return outcome;
}

CommandOutcome alive(const Arguments& arguments, const Recordings&) {
  return {.out = alive_command(arguments), .error = {}};
}

CommandOutcome work(const Arguments& arguments, const Recordings&) {
  return {.out = work_command(arguments), .error = {}};
}

CommandOutcome export_recording(const Arguments& arguments, const Recordings& recordings) {
  return {.out = export_command(arguments, recordings.exporters), .error = {}};
}

CommandOutcome import_snapshot(const Arguments& arguments, const Recordings&) {
  return {.out = import_command(arguments), .error = {}};
}

/// Returns judgements_of the run's recordings, or an empty text if the folder has none.
std::string judgements_of_run(const std::string& run) {
  if (!fs::is_directory(fs::path(run) / "profiles")) return {};
  return judgements_of(recordings_of(run));
}

CommandOutcome bundle(const Arguments& arguments, const Recordings&) {
  CLI::App app;
  std::string run, file;
  app.add_option("RUN", run)->required();
  app.add_option("-o,--out", file);
  parse_flags(app, arguments);
  const Bundle made = bundle_run(run, file);
  CommandOutcome outcome{
      .out = fmt::format("{}: {} files, {}, of {}; tar --zstd -xf unpacks it\n", made.file.string(),
                         made.files, bytes_text(made.bytes), bytes_text(made.input_bytes)) +
             judgements_of_run(run),
      .error = {}};
  for (const fs::path& path : made.left_out) {
    outcome.out += fmt::format("left out: {} (it leads out of the run, or is not a file)\n",
                               shown(path.string()));
  }
  return outcome;
}

// --- the table -----------------------------------------------------------------------------------

constexpr std::array kCommands = {
    Command{"report", "RUN|FILE... [--rank R] [--device N] [--json]",
            "show where the memory was at every rank's peak; FILE may be a snapshot that PyTorch "
            "made: if it has several GPUs, --device chooses one",
            report},
    Command{
        "time",
        "RUN|FILE [--rank R] [--gpu NAME] [--host FACTOR] [--calibration FILE] [--events] [--json]",
        "predict how long a step takes, from what `record --time` traced; --gpu: on another GPU; "
        "--host: with a host that takes FACTOR times as long as the one that recorded; "
        "--calibration: with the times that shardlens calibrate wrote to FILE; --events: when each "
        "event of the program happens",
        time},
    Command{"diff", "A B [--fail-above P% [--allow WORD,...]] [--json]",
            "compare two runs or files; exit code 1 if B's peak is more than P percent above A's, "
            "2 if they cannot be compared; see shardlens gate --help",
            diff},
    Command{"alive",
            "RUN|FILE [--rank R] [--at peak|end|SECONDS] [--by stack|module|category]\n"
            "      [--from top|bottom] [--threshold P%] [--json|--folded]",
            "show what is alive at a moment, as a tree; --folded is for flame graph tools", alive},
    Command{"work", "RUN|FILE [--rank R] [--json]",
            "show the kernels, copies and collectives that record --time traced", work},
    Command{"export",
            "RUN|FILE --format memory-viz|memory-viz-json|perfetto|csv|html [--rank R] --out PATH\n"
            "  export RUN|FILE --tensorboard DIR [--rank R]",
            "write a recording for PyTorch's memory viewer, Perfetto, a spreadsheet, a browser or "
            "TensorBoard",
            export_recording},
    Command{
        "import", "SNAPSHOT.pickle [--device N] --out FILE.slp",
        "turn a PyTorch memory snapshot into a recording; if it has several GPUs, --device chooses "
        "one",
        import_snapshot},
    Command{"bundle", "RUN [-o FILE]",
            "pack a run into one file to copy home: all but its checkpoints and model", bundle},
    Command{"check", "FILE", "list a file's blocks and what is damaged; exit code 1 if anything is",
            check_file},
};

std::string usage() {
  std::string text = "usage: shardlens profile COMMAND ...\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {} {}\n      {}\n", command.name, command.usage, command.does);
  }
  return text;
}

bool asks_for_help(std::string_view word) {
  return word == "--help" || word == "-h" || word == "help";
}

}  // namespace

CommandOutcome profile_command(const std::vector<std::string>& arguments,
                               const Recordings& recordings) {
  if (arguments.empty()) return {.exit_code = 2, .out = {}, .error = usage()};
  if (std::ranges::any_of(arguments, asks_for_help)) return {.out = usage(), .error = {}};
  for (const Command& command : kCommands) {
    if (arguments.front() != command.name) continue;
    return command.run(Arguments(arguments.begin() + 1, arguments.end()), recordings);
  }
  throw std::invalid_argument(
      fmt::format("{}: unknown command; see shardlens profile --help", arguments.front()));
}

}  // namespace shardlens::profiler
