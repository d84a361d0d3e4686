#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/commands.h"
#include "profiler/reader.h"

namespace {

using namespace shardlens::profiler;

RankReport analyse_recording(const std::string& path) {
  Reader reader(path);
  Analysis analysis;
  std::vector<Event> events;
  while (reader.next(events)) {
    for (const Event& event : events) analysis.take(event);
  }
  return analysis.finish(reader.header(), reader.strings(), reader.lost_events(),
                         reader.diagnostics());
}

int fail(const std::exception& error, int exit_code) {
  fmt::print(stderr, "shardlens profile: {}\n", error.what());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const CommandOutcome outcome = profile_command(
        {argv + 1, argv + argc}, {.analyse = analyse_recording, .check = check_profile});
    fmt::print("{}", outcome.out);
    fmt::print(stderr, "{}", outcome.error);
    return outcome.exit_code;
  } catch (const std::invalid_argument& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}
