#include "commands/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/device.h"
#include "base/gpus.h"
#include "base/strict_json.h"
#include "planner/time/calibration.h"
#include "planner/time/step_time.h"
#include "planner/time/time_report.h"
#include "profiler/file/reader.h"
#include "profiler/file/work_layer.h"

namespace shardlens {

namespace {

/// Returns the recorded GPU; null if its rates are not known.
const Gpu* known_gpu(const profiler::Header& header) {
  if (header.device.starts_with(kNullDevice)) {
    const auto found =
        std::ranges::find(gpus(), header.device.substr(kNullDevice.size()), &Gpu::name);
    return found == gpus().end() ? nullptr : &*found;
  }
  return find_displayed_gpu(header.gpu);
}

const Gpu& gpu_of(const std::string& path, const profiler::Header& header) {
  if (const Gpu* const known = known_gpu(header)) return *known;
  throw std::invalid_argument(
      fmt::format("{}: recorded on {}, whose rates are not known; give a GPU with --gpu", path,
                  header.gpu.empty() ? header.device : header.gpu));
}

/// Returns the GPU that is asked for, else the recorded one.
const Gpu& gpu_for(const profiler::TimeRequest& request, const std::string& path,
                   const profiler::Header& header) {
  return request.gpu.empty() ? gpu_of(path, header) : find_gpu(request.gpu);
}

/// Returns nothing if no file is named.
std::optional<planner::TimeCalibration> calibration_of(const std::string& path, const Gpu& gpu) {
  if (path.empty()) return std::nullopt;
  return planner::TimeCalibration::read(path, gpu);
}

/// Returns the settings of a prediction, for as long as the calibration lives.
planner::StepTimeOptions options_of(const profiler::TimeRequest& request,
                                    const std::optional<planner::TimeCalibration>& calibration) {
  return {.host = request.host, .calibration = calibration ? &*calibration : nullptr};
}

/// Throws std::invalid_argument if a recording has none.
profiler::WorkTrace trace_of(const std::string& path) {
  profiler::WorkTrace trace = profiler::read_work(path);
  if (!trace.empty()) return trace;
  throw std::invalid_argument(fmt::format(
      "{}: has no trace of work, from which a step's time is predicted; record again with --time",
      path));
}

/// Returns the slices of one task: what the host waits for, or the launch and what the stream does.
std::vector<profiler::SimulatedSlice> slices_of(const profiler::WorkTrace& trace,
                                                const planner::CostedTask& costed,
                                                const planner::TaskTimes& times) {
  const profiler::Work& work = trace.work_of(trace.items[costed.item]);
  const std::string& from = trace.strings[trace.calls[work.call].name];
  const std::string name =
      trace.name_of(work).empty() ? std::string(to_string(work.kind)) : trace.name_of(work);
  const auto ns = [](double seconds) { return std::llround(seconds * 1e9); };
  switch (costed.task.kind) {
    case planner::TaskKind::run: {
      const int64_t asked = ns(times.asked);
      const int stream = costed.task.stream + 1;
      return {{"ask for " + name, from, 0, asked - ns(costed.task.call_seconds), asked},
              {name, from, stream, ns(times.begin - times.waited), ns(times.end)}};
    }
    case planner::TaskKind::synchronize_event:
    case planner::TaskKind::synchronize_stream:
    case planner::TaskKind::synchronize_device:
      return {{"wait: " + name, from, 0, ns(times.asked), ns(times.end)}};
    default:
      return {};
  }
}

/// A recording's trace of work, and the GPU whose time is asked for.
struct TimedRecording {
  int32_t rank = 0;
  const Gpu& gpu;
  planner::StepTime time;
};

std::vector<profiler::TimePart> parts_of(const planner::StepTime& time) {
  std::vector<profiler::TimePart> parts;
  for (const auto& [name, seconds] : planner::step_parts(time)) {
    parts.push_back({.name = std::string(name), .seconds = seconds});
  }
  return parts;
}

TimedRecording timed(const std::string& path, const profiler::TimeRequest& request) {
  const profiler::Header header = profiler::Reader(path).header();
  const Gpu& gpu = gpu_for(request, path, header);
  const profiler::WorkTrace trace = trace_of(path);
  const auto calibration = calibration_of(request.calibration, gpu);
  return {header.rank, gpu, planner::step_time(trace, gpu, options_of(request, calibration))};
}

std::string event_times_of(const std::string& path, const profiler::TimeRequest& request) {
  const Gpu& gpu = gpu_for(request, path, profiler::Reader(path).header());
  const profiler::WorkTrace trace = trace_of(path);
  const auto calibration = calibration_of(request.calibration, gpu);
  const planner::StepTimeOptions options = options_of(request, calibration);
  return request.json ? json_text(planner::event_times_json(trace, gpu, options))
                      : planner::event_times_text(trace, gpu, options);
}

}  // namespace

std::string step_time_of(const std::string& path, const profiler::TimeRequest& request) {
  if (request.of_events) return event_times_of(path, request);
  const TimedRecording found = timed(path, request);
  if (!request.json) return planner::step_time_text(found.time, found.gpu);
  nlohmann::ordered_json json = planner::step_time_json(found.time, found.gpu);
  json["rank"] = found.rank;
  return json_text(json);
}

std::string world_time_of(const std::vector<std::string>& paths,
                          const profiler::TimeRequest& request) {
  std::vector<profiler::WorkTrace> traces;
  std::vector<int32_t> numbers;
  const Gpu& gpu = gpu_for(request, paths.front(), profiler::Reader(paths.front()).header());
  for (const std::string& path : paths) {
    traces.push_back(trace_of(path));
    numbers.push_back(profiler::Reader(path).header().rank);
  }
  const auto calibration = calibration_of(request.calibration, gpu);
  const planner::WorldTime world =
      planner::world_time(traces, gpu, options_of(request, calibration));
  if (!request.json) return planner::world_time_text(world, numbers, gpu);
  return json_text(planner::world_time_json(world, numbers, gpu));
}

std::optional<profiler::SimulatedStep> simulated_step_of(const std::string& path) {
  const profiler::Header header = profiler::Reader(path).header();
  const Gpu* const gpu = known_gpu(header);
  const profiler::WorkTrace trace = profiler::read_work(path);
  if (gpu == nullptr || trace.empty()) return std::nullopt;
  const planner::StepTasks step = planner::step_tasks(trace, *gpu, {});
  if (step.tasks.empty()) return std::nullopt;
  const std::vector<planner::TaskTimes> times = planner::simulate(simulated_tasks(step));
  const planner::StepTime time = planner::time_of_tasks(trace, *gpu, {}, step, times);
  profiler::SimulatedStep simulated{
      .title = fmt::format("a step as predicted on {}: {}, {}", gpu->display_name,
                           planner::time_with_band(time), planner::basis_of(time)),
      .slices = {}};
  const size_t first = step.first_timed();
  const int64_t recorded_ns = trace.items[step.tasks[first].item].time_ns;
  const int64_t shift_ns = recorded_ns - std::llround(times[first].asked * 1e9);
  for (size_t i = first; i < times.size(); ++i) {
    for (profiler::SimulatedSlice& slice : slices_of(trace, step.tasks[i], times[i])) {
      slice.begin_ns += shift_ns;
      slice.end_ns += shift_ns;
      simulated.slices.push_back(std::move(slice));
    }
  }
  return simulated;
}

profiler::PredictTime times_with(const profiler::RecordOptions& options) {
  const std::string calibration = options.calibration;
  calibration_of(calibration, find_gpu(options.device.gpu));
  return [calibration](const std::string& path) { return predicted_time_of(path, calibration); };
}

profiler::PredictedTime predicted_time_of(const std::string& path, const std::string& calibration) {
  try {
    const Gpu& gpu = gpu_of(path, profiler::Reader(path).header());
    const profiler::WorkTrace trace = trace_of(path);
    const auto measured = calibration_of(calibration, gpu);
    const auto time_with = [&](double host) {
      return planner::step_time(trace, gpu, options_of({.host = host}, measured));
    };
    const planner::StepTime time = time_with(1);
    if (time.seconds <= 0) return {.why = "the trace has no work of a GPU"};
    return {.seconds = time.seconds,
            .text = planner::time_with_band(time),
            .error = time.error,
            .tokens_a_second = time.batch.tokens / time.seconds,
            .samples_a_second = time.batch.samples / time.seconds,
            .basis = planner::basis_of(time),
            .doubts = time.doubts,
            .fast_host_seconds = time_with(1 - profiler::kHostNoise).seconds,
            .slow_host_seconds = time_with(1 + profiler::kHostNoise).seconds,
            .parts = parts_of(time)};
  } catch (const std::exception& error) {
    return {.why = error.what()};
  }
}

}  // namespace shardlens
