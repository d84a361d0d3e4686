#include "profiler/commands/exchange_commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/output_file.h"
#include "base/process/command_line.h"
#include "base/units.h"
#include "profiler/exchange/event_source.h"
#include "profiler/exchange/export_memory_viz.h"
#include "profiler/exchange/export_perfetto.h"
#include "profiler/exchange/export_table.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/exchange/tensorboard/export_tensorboard.h"
#include "profiler/exchange/tensorboard/step_memory.h"
#include "profiler/exchange/timeline.h"
#include "profiler/exchange/write_recording.h"
#include "profiler/file/reader.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;

using Paths = std::vector<std::string>;

constexpr size_t kTablePoints = 10'000;    // for each rank
constexpr size_t kCounterPoints = 20'000;  // for each rank

struct ExportOptions {
  std::string source;
  std::string format;
  std::string out;
  std::string tensorboard;  // a folder
  std::optional<int32_t> rank;
  std::optional<size_t> points;
  Exporters exporters;
};

// --- files ---------------------------------------------------------------------------------------

/// Writes the file so that it is whole or does not appear. Returns the text to print.
std::string publish(const std::string& path, const std::function<void(const std::string&)>& write) {
  write_whole(path, write);
  std::error_code ignored;
  return fmt::format("wrote {} ({})\n", path,
                     bytes_text(static_cast<int64_t>(fs::file_size(path, ignored))));
}

std::string publish_stream(const std::string& path,
                           const std::function<void(std::ostream&)>& write) {
  return publish(path, [&](const std::string& unfinished) {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    if (file) write(file);
    if (!file.flush()) {
      throw std::runtime_error(
          fmt::format("{}: cannot be written; check the free space and permissions", path));
    }
  });
}

/// Returns the recordings of a RUN or FILE; only those of `rank`, if it is given.
Paths sources_of(const ExportOptions& options) {
  Paths paths = recordings_of(options.source);
  if (!options.rank) return paths;
  std::erase_if(
      paths, [&](const std::string& path) { return Reader(path).header().rank != *options.rank; });
  if (paths.empty()) {
    throw std::invalid_argument(
        fmt::format("--rank {}: {} has no recording of this rank", *options.rank, options.source));
  }
  return paths;
}

// --- formats -------------------------------------------------------------------------------------

std::string export_snapshot(const ExportOptions& options, const Paths& paths, bool as_pickle) {
  if (paths.size() > 1) {
    throw std::invalid_argument(
        fmt::format("{}: {} ranks, but a snapshot has one; choose it with --rank", options.source,
                    paths.size()));
  }
  const Profile profile = read_profile(paths.front());
  return publish_stream(options.out, [&](std::ostream& out) {
    const auto writer = as_pickle ? pickle_writer(out) : json_writer(out);
    export_memory_viz(profile, *writer);
  });
}

std::string export_pickle(const ExportOptions& options, const Paths& paths) {
  return export_snapshot(options, paths, true);
}

std::string export_json(const ExportOptions& options, const Paths& paths) {
  return export_snapshot(options, paths, false);
}

std::string export_perfetto(const ExportOptions& options, const Paths& paths) {
  int64_t start_ns = std::numeric_limits<int64_t>::max();
  for (const std::string& path : paths) {
    start_ns = std::min(start_ns, Reader(path).header().start_realtime_ns);
  }
  return publish_stream(options.out, [&](std::ostream& out) {
    PerfettoWriter writer(out, start_ns);
    for (const std::string& path : paths) {
      writer.add(events_in(path), options.points.value_or(kCounterPoints));
      if (!options.exporters.simulate_step) continue;
      const auto step = options.exporters.simulate_step(path);
      if (step) writer.add(Reader(path).header(), *step);
    }
    writer.finish();
  });
}

std::vector<MemoryTimeline> timelines_of(const Paths& paths, size_t points) {
  std::vector<MemoryTimeline> timelines;
  for (const std::string& path : paths) {
    timelines.push_back(timeline_of(events_in(path), points));
  }
  return timelines;
}

std::string export_csv(const ExportOptions& options, const Paths& paths) {
  const std::vector<MemoryTimeline> timelines =
      timelines_of(paths, options.points.value_or(kTablePoints));
  // The rows of the table show the judgement, so without a row it would be lost.
  for (const MemoryTimeline& timeline : timelines) {
    if (is_whole(timeline.judgement) || !timeline.points.empty()) continue;
    throw std::invalid_argument(fmt::format("{}: rank {} has nothing to export: it is {}",
                                            options.source, timeline.header.rank,
                                            judgement_text(timeline.judgement)));
  }
  const fs::path out(options.out);
  const fs::path largest = fs::path(out).replace_extension(".largest" + out.extension().string());
  return publish_stream(options.out, [&](auto& file) { write_timeline_csv(timelines, file); }) +
         publish_stream(largest.string(), [&](auto& file) { write_largest_csv(timelines, file); });
}

std::string export_html(const ExportOptions& options, const Paths&) {
  if (options.points) {
    throw std::invalid_argument("--points: a page has every allocation; remove it");
  }
  return publish_stream(options.out, [&](auto& file) {
    options.exporters.write_page(options.source, options.rank, file);
  });
}

/// Writes a rank's steps into its folder, which TensorBoard shows as a run.
std::string export_rank_to_tensorboard(const ExportOptions& options, const std::string& path) {
  const EventSource source = events_in(path);
  const std::vector<StepMemory> steps = step_memory(source);
  if (steps.empty()) {
    throw std::invalid_argument(
        fmt::format("{}: rank {} has no training steps, of which TensorBoard would show the peaks",
                    options.source, source.header.rank));
  }
  const fs::path folder = fs::path(options.tensorboard) / fmt::format("rank{}", source.header.rank);
  fs::create_directories(folder);
  return publish_stream((folder / tensorboard_file(source.header)).string(),
                        [&](auto& out) { export_tensorboard(source.header, steps, out); });
}

std::string export_to_tensorboard(const ExportOptions& options, const Paths& paths) {
  if (options.points) {
    throw std::invalid_argument("--points: TensorBoard gets every step; remove it");
  }
  std::string text;
  for (const std::string& path : paths) text += export_rank_to_tensorboard(options, path);
  return text;
}

struct Format {
  const char* name;
  std::string (*write)(const ExportOptions& options, const Paths& paths);
};
constexpr std::array kFormats = {
    Format{"memory-viz", export_pickle}, Format{"memory-viz-json", export_json},
    Format{"perfetto", export_perfetto}, Format{"csv", export_csv},
    Format{"html", export_html},
};

const Format& format_of(const std::string& name) {
  std::string known;
  for (const Format& format : kFormats) {
    if (name == format.name) return format;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", format.name);
  }
  throw std::invalid_argument(fmt::format("--format {}: choose one of {}", name, known));
}

// --- import --------------------------------------------------------------------------------------

Judgement judgement_of(const std::string& path) {
  Reader reader(path);
  std::vector<Event> events;
  while (reader.next(events)) {
  }
  return reader.judgement();
}

/// Returns the judgement of the recording in one line; empty if it is whole.
std::string judgement_line(const std::string& path) {
  const auto unreadable = [](const std::exception& error) {
    return fmt::format("damaged, or not a recording: {}\n", error.what());
  };
  try {
    const Judgement judgement = judgement_of(path);
    return is_whole(judgement) ? "" : fmt::format("{}: {}\n", path, judgement_text(judgement));
  } catch (const std::invalid_argument& error) {
    return unreadable(error);
  } catch (const std::runtime_error& error) {
    return unreadable(error);
  }
}

}  // namespace

std::string judgements_of(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text += judgement_line(path);
  return text;
}

std::string export_command(const std::vector<std::string>& arguments, const Exporters& exporters) {
  CLI::App app;
  ExportOptions options;
  options.exporters = exporters;
  app.add_option("SOURCE", options.source)->required();
  CLI::Option* const format_flag = app.add_option("--format", options.format);
  CLI::Option* const out_flag = app.add_option("--out", options.out)->needs(format_flag);
  format_flag->needs(out_flag);
  app.add_option("--tensorboard", options.tensorboard)->excludes(format_flag);
  app.add_option("--rank", options.rank);
  app.add_option("--points", options.points)->check(CLI::Range(2, 100'000'000));
  parse_flags(app, arguments);
  if (options.format.empty() && options.tensorboard.empty()) {
    throw std::invalid_argument(
        "an export needs --format with --out, or --tensorboard; see --help");
  }
  if (!options.tensorboard.empty()) {
    const Paths paths = sources_of(options);
    return export_to_tensorboard(options, paths) + judgements_of(paths);
  }
  const Format& format = format_of(options.format);
  const Paths paths = sources_of(options);
  return format.write(options, paths) + judgements_of(paths);
}

std::string import_command(const std::vector<std::string>& arguments) {
  CLI::App app;
  std::string source;
  std::string out;
  std::optional<int> device;
  app.add_option("SNAPSHOT", source)->required();
  app.add_option("--device", device);
  app.add_option("--out", out)->required();
  parse_flags(app, arguments);
  const Profile profile = import_memory_viz_file(source, device);
  return publish(out, [&](const std::string& path) { write_recording(profile, path); });
}

}  // namespace shardlens::profiler
