#include "planner/config/recording.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>
#include <string_view>

namespace shardlens::planner {

namespace {

[[noreturn]] void refuse_steps(const Config& config, std::string_view why) {
  throw std::invalid_argument(fmt::format(
      "--profile {}: {}; give off, on, or FIRST:LAST such as 3:5", config.profile, why));
}

int64_t step_number(const Config& config, std::string_view text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) refuse_steps(config, "not a range of steps");
  if (number < 1) refuse_steps(config, "steps count from 1");
  return number;
}

}  // namespace

Recording recording_of(const Config& config) {
  const std::string_view text = config.profile;
  if (text == "off" || text == "on") return {.wanted = text == "on", .steps = {}};
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) refuse_steps(config, "not a valid value");
  const StepRange steps{.first = step_number(config, text.substr(0, colon)),
                        .last = step_number(config, text.substr(colon + 1))};
  if (steps.last < steps.first) refuse_steps(config, "the last step comes before the first");
  return {.wanted = true, .steps = steps};
}

}  // namespace shardlens::planner
