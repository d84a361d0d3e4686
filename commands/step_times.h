// Predicts a step's time from a recording's trace of work, for `shardlens profile time`,
// `shardlens record --time`, and the commands that run a program many times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/commands/commands.h"
#include "profiler/exchange/export_perfetto.h"
#include "profiler/record/record_options.h"
#include "profiler/record/time/predicted_time.h"

namespace shardlens {

/// Returns the step's time, or when events happen, in words or in JSON. The GPU is the recorded one
/// if the request names none. Throws std::invalid_argument if the recording has no trace of work,
/// or is of a GPU that is not known.
std::string step_time_of(const std::string& path, const profiler::TimeRequest& request);

/// Returns the time of a step of several ranks, which are simulated together. Throws as
/// step_time_of() does.
std::string world_time_of(const std::vector<std::string>& paths,
                          const profiler::TimeRequest& request);

/// Returns a step as it is predicted to run on the recorded GPU; nothing if the recording has no
/// trace of work, or is of a GPU that is not known.
std::optional<profiler::SimulatedStep> simulated_step_of(const std::string& path);

/// Returns the step's time on the recorded GPU, with the times of a calibration if that is not
/// empty, or why it cannot be predicted.
profiler::PredictedTime predicted_time_of(const std::string& path, const std::string& calibration);

/// Returns predicted_time_of() with the calibration that the options name. Throws
/// std::invalid_argument if that cannot be used, before any program runs.
profiler::PredictTime times_with(const profiler::RecordOptions& options);
/// Returns the same with the times on a faster and a slower host, to be compared with others.
profiler::PredictTime times_to_compare_with(const profiler::RecordOptions& options);

}  // namespace shardlens
