#include "commands/step_times.h"

#include <fmt/format.h>

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

const Gpu& gpu_of(const std::string& path, const profiler::Header& header) {
  if (header.device.starts_with(kNullDevice)) {
    return find_gpu(header.device.substr(kNullDevice.size()));
  }
  if (const Gpu* const known = find_displayed_gpu(header.gpu)) return *known;
  throw std::invalid_argument(
      fmt::format("{}: recorded on {}, whose rates are not known; give a GPU with --gpu", path,
                  header.gpu.empty() ? header.device : header.gpu));
}

/// Returns nothing if no file is named.
std::optional<planner::TimeCalibration> calibration_of(const std::string& path, const Gpu& gpu) {
  if (path.empty()) return std::nullopt;
  return planner::TimeCalibration::read(path, gpu);
}

/// Throws std::invalid_argument if a recording has none.
profiler::WorkTrace trace_of(const std::string& path) {
  profiler::WorkTrace trace = profiler::read_work(path);
  if (!trace.empty()) return trace;
  throw std::invalid_argument(fmt::format(
      "{}: has no trace of work, from which a step's time is predicted; record again with --time",
      path));
}

/// A recording's trace of work, and the GPU whose time is asked for.
struct TimedRecording {
  int32_t rank = 0;
  const Gpu& gpu;
  planner::StepTime time;
};

TimedRecording timed(const std::string& path, const profiler::TimeRequest& request) {
  const profiler::Header header = profiler::Reader(path).header();
  const Gpu& gpu = request.gpu.empty() ? gpu_of(path, header) : find_gpu(request.gpu);
  const profiler::WorkTrace trace = trace_of(path);
  const std::optional<planner::TimeCalibration> calibration =
      calibration_of(request.calibration, gpu);
  const planner::StepTimeOptions options{.host = request.host,
                                         .calibration = calibration ? &*calibration : nullptr};
  return {header.rank, gpu, planner::step_time(trace, gpu, options)};
}

}  // namespace

std::string step_time_of(const std::string& path, const profiler::TimeRequest& request) {
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
  const profiler::Header first = profiler::Reader(paths.front()).header();
  const Gpu& gpu = request.gpu.empty() ? gpu_of(paths.front(), first) : find_gpu(request.gpu);
  for (const std::string& path : paths) {
    traces.push_back(trace_of(path));
    numbers.push_back(profiler::Reader(path).header().rank);
  }
  const std::optional<planner::TimeCalibration> calibration =
      calibration_of(request.calibration, gpu);
  const planner::WorldTime world = planner::world_time(
      traces, gpu, {.host = request.host, .calibration = calibration ? &*calibration : nullptr});
  if (!request.json) return planner::world_time_text(world, numbers, gpu);
  return json_text(planner::world_time_json(world, numbers, gpu));
}

profiler::PredictTime times_with(const profiler::RecordOptions& options) {
  const std::string calibration = options.calibration;
  calibration_of(calibration, find_gpu(options.device.gpu));
  return [calibration](const std::string& path) { return predicted_time_of(path, calibration); };
}

profiler::PredictedTime predicted_time_of(const std::string& path, const std::string& calibration) {
  try {
    const planner::StepTime time = timed(path, {.calibration = calibration}).time;
    if (time.seconds <= 0) return {.why = "the trace has no work of a GPU"};
    return {.seconds = time.seconds,
            .text = planner::time_with_band(time),
            .error = time.error,
            .tokens_a_second = time.batch.tokens / time.seconds,
            .samples_a_second = time.batch.samples / time.seconds,
            .basis = planner::basis_of(time),
            .doubts = time.doubts};
  } catch (const std::exception& error) {
    return {.why = error.what()};
  }
}

}  // namespace shardlens
