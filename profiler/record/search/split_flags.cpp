#include "profiler/record/search/split_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace shardlens::profiler {

std::vector<std::string> parse_own_flags(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto dashes = std::ranges::find(arguments, "--");
  std::vector<std::string> flags(arguments.begin(), dashes);
  std::ranges::reverse(flags);  // CLI11 takes the last argument first
  app.allow_extras();
  try {
    app.parse(flags);
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(
        fmt::format("{}; the command comes after --, see --help", error.what()));
  }
  std::vector<std::string> others = app.remaining();
  others.insert(others.end(), dashes, arguments.end());
  return others;
}

bool parse_by_time(const std::string& text) {
  if (text.empty() || text == "cost" || text == "time") return text == "time";
  throw std::invalid_argument(
      fmt::format("--by {}: give time, for the fastest that fits, or cost", text));
}

RecordOptions parse_simulated(const char* command, const std::vector<std::string>& flags) {
  RecordOptions options = parse_record_options(flags);
  if (options.is_attached()) {
    throw std::invalid_argument(fmt::format(
        "--device: {} runs the program many times, on a simulated GPU; name one, such as "
        "--device null:h100",
        command));
  }
  if (options.ranks) {
    throw std::invalid_argument(fmt::format("--ranks: {} runs one rank; give --rank", command));
  }
  return options;
}

}  // namespace shardlens::profiler
