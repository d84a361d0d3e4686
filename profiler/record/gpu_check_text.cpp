#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/units.h"
#include "profiler/record/gpu_check.h"

namespace shardlens::profiler {

namespace {

std::string difference_text(const AllocatorComparison& events) {
  const std::string one = events.one.empty() ? "nothing more" : events.one.front();
  const std::string other = events.other.empty() ? "nothing more" : events.other.front();
  return fmt::format("event {} of {}: {} on the GPU, {} on the simulated one",
                     fmt::group_digits(events.equal_events + 1),
                     fmt::group_digits(events.one_events), one, other);
}

std::string peaks_text(const CheckedRecording& recording) {
  return fmt::format("{} allocated, {} reserved", bytes_text(recording.allocated_bytes),
                     bytes_text(recording.reserved_bytes));
}

std::string same_text(const CheckedProgram& program) {
  const CheckedRecording& gpu = *program.on_gpu;
  std::string text = fmt::format("{} events; peak {}", fmt::group_digits(program.events.one_events),
                                 peaks_text(gpu));
  if (gpu.retries + gpu.failures > 0) {
    text += fmt::format("; {} retries, {} failures", gpu.retries, gpu.failures);
  }
  return text;
}

/// Says whether other addresses explain the peaks of the GPU; nothing if that is not known, or if
/// addresses decide nothing.
std::string range_text(const CheckedProgram& program) {
  const std::optional<PeakBands>& bands = program.simulated->bands;
  if (!bands || bands->orders == 1) return {};
  const std::string range = bands_text(*bands);
  return fmt::format("; the GPU's peaks are {} what other addresses lead to{}{}",
                     program.on_gpu->is_in_bands_of(*program.simulated) ? "within" : "outside",
                     range.empty() ? "" : ", ", range);
}

std::string said_of(const CheckedProgram& program) {
  if (program.outcome == CheckOutcome::same) return same_text(program);
  if (program.outcome == CheckOutcome::differs) return difference_text(program.events);
  if (program.outcome != CheckOutcome::same_requests) return program.reason;
  return fmt::format("in other blocks; peak {} on the GPU, {} on the simulated one{}",
                     peaks_text(*program.on_gpu), peaks_text(*program.simulated),
                     range_text(program));
}

std::string program_text(const CheckedProgram& program) {
  std::string word(to_string(program.outcome));
  std::ranges::replace(word, '_', ' ');
  return fmt::format("  {:<13} {:<13} {}\n", word, program.name, said_of(program));
}

int64_t count(const GpuCheck& check, CheckOutcome outcome) {
  return std::ranges::count(check.programs, outcome, &CheckedProgram::outcome);
}

std::string verdict_line(const GpuCheck& check) {
  const auto programs = static_cast<int64_t>(check.programs.size());
  if (check.is_same()) {
    return fmt::format("the same, event by event: {} of {} programs\n", programs, programs);
  }
  std::string text = fmt::format("not the same: of {} programs", programs);
  const char* separator = " ";
  for (size_t i = 0; i < kWords<CheckOutcome>.size(); ++i) {
    const auto outcome = static_cast<CheckOutcome>(i);
    if (count(check, outcome) == 0) continue;
    text += fmt::format("{}{} {}", separator, count(check, outcome), to_string(outcome));
    separator = ", ";
  }
  std::ranges::replace(text, '_', ' ');
  text += "\n";
  if (count(check, CheckOutcome::same_requests) > 0) {
    text += "with PyTorch up to 2.11 the driver's addresses decide which free block is taken\n";
  }
  return text;
}

/// Returns the most that any program took of the GPU beside PyTorch.
int64_t most_beside(const GpuCheck& check) {
  int64_t most = 0;
  for (const CheckedProgram& program : check.programs) {
    if (program.on_gpu) most = std::max(most, program.on_gpu->beside_bytes);
  }
  return most;
}

nlohmann::ordered_json json_of(const CheckedRecording& recording) {
  return {{"peak_allocated_bytes", recording.allocated_bytes},
          {"peak_reserved_bytes", recording.reserved_bytes},
          {"beside_pytorch_bytes", recording.beside_bytes},
          {"retries", recording.retries},
          {"failures", recording.failures},
          {"bands", bands_json(recording.bands)}};
}

/// Returns the reason with the last names of paths only. A program of the user's own is not quoted.
std::string reason_without_paths(const CheckedProgram& program) {
  if (program.name == kOwnProgram) return {};
  std::string text;
  std::istringstream reason(program.reason);
  for (std::string word; reason >> word;) {
    if (!text.empty()) text += ' ';
    text += word.substr(word.rfind('/') + 1);
  }
  return text;
}

nlohmann::ordered_json json_of(const CheckedProgram& program) {
  nlohmann::ordered_json json = {{"name", program.name},
                                 {"outcome", to_string(program.outcome)},
                                 {"reason", reason_without_paths(program)},
                                 {"seconds", program.seconds}};
  if (program.on_gpu) json["on_gpu"] = json_of(*program.on_gpu);
  if (!program.simulated) return json;
  json["simulated"] = json_of(*program.simulated);
  if (program.simulated->bands) {
    json["is_within_bands"] = program.on_gpu->is_in_bands_of(*program.simulated);
  }
  json["events"] = {{"on_gpu", program.events.one_events},
                    {"simulated", program.events.other_events},
                    {"equal", program.events.equal_events},
                    {"has_same_requests", program.events.has_same_requests},
                    {"then_on_gpu", program.events.one},
                    {"then_simulated", program.events.other}};
  return json;
}

}  // namespace

bool GpuCheck::is_same() const {
  return !programs.empty() && std::ranges::all_of(programs, [](const CheckedProgram& program) {
    return program.outcome == CheckOutcome::same;
  });
}

std::string gpu_check_text(const GpuCheck& check) {
  std::string text;
  if (!check.gpu.name.empty()) {
    text = fmt::format("{}, PyTorch {}, beside {}\n", check.gpu.name, check.gpu.torch_version,
                       check.gpu.simulated.empty() ? "nothing" : "null:" + check.gpu.simulated);
  }
  for (const CheckedProgram& program : check.programs) text += program_text(program);
  if (const int64_t beside = most_beside(check); beside > 0) {
    text += fmt::format("  beside PyTorch, at most {}; the GPU has {}", bytes_text(beside),
                        bytes_text(check.gpu.capacity_bytes));
    const int64_t more = check.gpu.known_bytes - check.gpu.capacity_bytes;
    if (check.gpu.known_bytes > 0 && more != 0) {
      text += fmt::format(", {} {} than null:{}", bytes_text(std::abs(more)),
                          more > 0 ? "less" : "more", check.gpu.simulated);
    }
    text += "\n";
  }
  return text + verdict_line(check);
}

std::string gpu_check_json(const GpuCheck& check) {
  nlohmann::ordered_json json = {{"schema", "shardlens.gpu_check/1"},
                                 {"gpu", check.gpu.name},
                                 {"simulated", check.gpu.simulated},
                                 {"capacity_bytes", check.gpu.capacity_bytes},
                                 {"simulated_capacity_bytes", check.gpu.known_bytes},
                                 {"driver", check.gpu.driver_version},
                                 {"torch", check.gpu.torch_version},
                                 {"is_same", check.is_same()},
                                 {"was_interrupted", check.was_interrupted},
                                 {"programs", nlohmann::ordered_json::array()}};
  for (const CheckedProgram& program : check.programs) json["programs"].push_back(json_of(program));
  return json.dump(1) + "\n";
}

}  // namespace shardlens::profiler
