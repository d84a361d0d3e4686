#include "commands/step_times.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/gpus.h"
#include "base/strict_json.h"
#include "planner/time/calibration.h"
#include "planner/time/rates.h"
#include "planner/time/step_time.h"
#include "planner/time/time_report.h"
#include "profiler/file/reader.h"
#include "profiler/file/work_layer.h"

namespace shardlens {

namespace {

const Gpu& gpu_of(const std::string& path, const profiler::Header& header) {
  if (const Gpu* const known = planner::recorded_gpu(header)) return *known;
  throw std::invalid_argument(
      fmt::format("{}: recorded on {}, whose rates are not known; give a GPU with --gpu", path,
                  header.gpu.empty() ? header.device : header.gpu));
}

/// Returns the GPU that is asked for, else the recorded one.
const Gpu& gpu_for(const profiler::TimeRequest& request, const std::string& path,
                   const profiler::Header& header) {
  return request.gpu.empty() ? gpu_of(path, header) : find_gpu(request.gpu);
}

constexpr const char* kNoStep =
    "has no step: the program asked the GPU for copies at most, so there is no time to predict";

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
  const std::string name = trace.title_of(work);
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

/// A recording's trace of work, and what its time is predicted with.
struct RecordedWork {
  int32_t rank = 0;
  const Gpu& gpu;
  profiler::WorkTrace trace;
  std::optional<planner::TimeCalibration> calibration;
};

RecordedWork work_of(const std::string& path, const profiler::TimeRequest& request) {
  const profiler::Header header = profiler::Reader(path).header();
  const Gpu& gpu = gpu_for(request, path, header);
  return {header.rank, gpu, trace_of(path), calibration_of(request.calibration, gpu)};
}

std::vector<profiler::TimePart> parts_of(const planner::StepTime& time) {
  std::vector<profiler::TimePart> parts;
  for (const auto& [name, seconds] : planner::step_parts(time)) {
    parts.push_back({.name = std::string(name), .seconds = seconds});
  }
  return parts;
}

std::string event_times_of(const RecordedWork& work, const profiler::TimeRequest& request) {
  const planner::StepTimeOptions options = options_of(request, work.calibration);
  return request.json ? json_text(planner::event_times_json(work.trace, work.gpu, options))
                      : planner::event_times_text(work.trace, work.gpu, options);
}

/// Returns the step's time on a host that takes `host` times as long as the recorded one.
planner::StepTime time_on(double host, const RecordedWork& work) {
  return planner::step_time(work.trace, work.gpu, options_of({.host = host}, work.calibration));
}

profiler::PredictedTime time_of_work(const RecordedWork& work) {
  const planner::StepTime time = time_on(1, work);
  if (time.seconds <= 0) return {.why = kNoStep};
  return {.seconds = time.seconds,
          .text = planner::time_with_band(time),
          .error = time.error,
          .tokens_a_second = time.batch.tokens / time.seconds,
          .samples_a_second = time.batch.samples / time.seconds,
          .basis = planner::basis_of(time),
          .doubts = time.doubts,
          .parts = parts_of(time)};
}

/// Returns the time, also on a faster and on a slower host, which takes two more simulations.
profiler::PredictedTime time_to_compare(const RecordedWork& work) {
  profiler::PredictedTime time = time_of_work(work);
  if (!time.is_known()) return time;
  time.fast_host_seconds = time_on(1 - profiler::kHostNoise, work).seconds;
  time.slow_host_seconds = time_on(1 + profiler::kHostNoise, work).seconds;
  return time;
}

/// Throws std::invalid_argument if a recording has no step.
void check_has_step(const planner::StepTime& time, const std::string& path) {
  if (time.seconds <= 0) throw std::invalid_argument(fmt::format("{}: {}", path, kNoStep));
}

using TimeOfWork = profiler::PredictedTime (*)(const RecordedWork&);

/// Returns the time of a recording, or why it cannot be predicted.
profiler::PredictedTime predicted(const std::string& path, const std::string& calibration,
                                  TimeOfWork time_of) {
  try {
    return time_of(work_of(path, {.calibration = calibration}));
  } catch (const std::exception& error) {
    return {.why = error.what()};
  }
}

/// Throws if the calibration cannot be used.
profiler::PredictTime times_by(const profiler::RecordOptions& options, TimeOfWork time_of) {
  const std::string calibration = options.calibration;
  calibration_of(calibration, find_gpu(options.device.gpu));
  return [=](const std::string& path) { return predicted(path, calibration, time_of); };
}

}  // namespace

std::string step_time_of(const std::string& path, const profiler::TimeRequest& request) {
  const RecordedWork work = work_of(path, request);
  if (request.of_events) return event_times_of(work, request);
  const planner::StepTime time = time_on(request.host, work);
  check_has_step(time, path);
  if (!request.json) return planner::step_time_text(time, work.gpu);
  nlohmann::ordered_json json = planner::step_time_json(time, work.gpu);
  json["rank"] = work.rank;
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
  check_has_step(world.ranks[world.slowest], paths[world.slowest]);
  if (!request.json) return planner::world_time_text(world, numbers, gpu);
  return json_text(planner::world_time_json(world, numbers, gpu));
}

std::optional<profiler::SimulatedStep> simulated_step_of(const std::string& path) {
  const profiler::Header header = profiler::Reader(path).header();
  const Gpu* const gpu = planner::recorded_gpu(header);
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
  return times_by(options, time_of_work);
}

profiler::PredictTime times_to_compare_with(const profiler::RecordOptions& options) {
  return times_by(options, time_to_compare);
}

profiler::PredictedTime predicted_time_of(const std::string& path, const std::string& calibration) {
  return predicted(path, calibration, time_of_work);
}

}  // namespace shardlens
