// How long a step of a recorded program is expected to take, as the commands that run programs say
// it. The planner predicts it from the recording's trace of work; this room does not know how.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace shardlens::profiler {

/// The part by which the host's time of a step may be off, up or down, in a run of a program. Six
/// recordings of one program on a busy machine had 2.6 to 5.4 ms.
constexpr double kHostNoise = 0.4;

/// A part of a step: "matrix products", "waiting for the host".
struct TimePart {
  std::string name;
  double seconds = 0;
};

struct PredictedTime {
  double seconds = 0;           // of a step; 0: it cannot be predicted
  std::string text = {};        // "63.0 ms +-23 %"
  double error = 0;             // a part of `seconds`: nine of ten are expected within it
  double tokens_a_second = 0;   // of the rank; 0: not known
  double samples_a_second = 0;  // the same
  std::string basis = {};       // "cold", "calibrated"
  std::string why = {};         // it cannot be predicted
  std::vector<std::string> doubts = {};
  double fast_host_seconds = 0;  // if the host takes less time, by kHostNoise; 0: not asked for
  double slow_host_seconds = 0;  // the same for more time
  std::vector<TimePart> parts = {};

  bool is_known() const { return seconds > 0; }
};

/// Predicts the time of a recording. It does not throw: `why` says what is wrong.
using PredictTime = std::function<PredictedTime(const std::string& recording)>;

/// Returns the time of the slowest rank: the others wait for it. A rank without one leaves none.
/// Returns nothing if there is no recording.
std::optional<PredictedTime> slowest_time(const std::vector<std::string>& recordings,
                                          const PredictTime& predict);

/// Returns the time's text; "-" if there is none.
std::string time_text(const std::optional<PredictedTime>& time);

/// Returns "8120 tokens", or "12.3 samples"; "" if neither is known.
std::string rate_text(const std::optional<PredictedTime>& time);

/// Returns what is in doubt about the time, or why there is none, each as a doubt about a run.
std::vector<std::string> time_doubts(const std::optional<PredictedTime>& time);

/// Returns the line that says what the times of several runs rest on, "" if none has a time.
std::string times_basis_text(const std::vector<std::optional<PredictedTime>>& times);

/// Returns null if the time was not asked for.
nlohmann::ordered_json predicted_time_json(const std::optional<PredictedTime>& time);

}  // namespace shardlens::profiler
