// Rows of the table in docs/runs.md, each with how long a run took to go on after an engine, or a
// test, had struck it. tests/docs/engine_table.py makes it of the files in SHARDLENS_ENGINE_ROWS.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/launch/events.h"
#include "tests/support/train_bench.h"

namespace shardlens::tests {

/// When a run was struck, and the steps of the newest checkpoint that it had then.
struct Strike {
  std::string time;  // as in events.jsonl
  int64_t saved_steps = 0;
};

/// Returns the steps of a checkpoint by its name (step-00000040); 0 if there is none.
inline int64_t steps_of_checkpoint(const std::string& name) {
  const size_t digits = name.find_first_of("123456789");
  return digits == std::string::npos ? 0 : std::stoll(name.substr(digits));
}

/// Returns the last strike that `note_strike` of cases.sh has written beside the run "r".
inline Strike noted_strike(const TrainBench& bench) {
  std::ifstream file(bench.file("runs/r.struck"));
  Strike strike;
  std::string latest;
  REQUIRE(file >> strike.time);
  file >> latest;
  strike.saved_steps = steps_of_checkpoint(latest);
  return strike;
}

/// Returns the time that `note_end` has written.
inline std::string noted_end(const TrainBench& bench) {
  std::ifstream file(bench.file("runs/r.ended"));
  std::string time;
  REQUIRE(file >> time);
  return time;
}

inline Strike strike_now(const TrainBench& bench) {
  const std::string note = ". " SHARDLENS_SOURCE_DIR "/tests/support/engines/cases.sh; note_strike";
  REQUIRE(
      run({"/usr/bin/env", "RUN=" + bench.file("runs/r"), "/bin/bash", "-euc", note}).exit_code ==
      0);
  return noted_strike(bench);
}

/// Returns the events of the run "r" after the strike.
inline std::vector<runtime::RunEvent> events_after(const TrainBench& bench, const Strike& strike) {
  std::vector<runtime::RunEvent> events = runtime::read_events(bench.run_file("events.jsonl"));
  std::erase_if(events, [&](const auto& event) { return event.time < strike.time; });
  return events;
}

/// Keeps a row of the table. `until` is the moment at which the situation is over.
inline void keep_engine_row(const std::string& engine, const std::string& situation,
                            const Strike& strike, const std::string& until,
                            const std::vector<std::string>& said) {
  const char* folder = std::getenv("SHARDLENS_ENGINE_ROWS");
  if (folder == nullptr) return;
  std::ofstream(std::filesystem::path(folder) / (engine + ", " + situation + ".json"))
      << nlohmann::json{{"engine", engine},
                        {"situation", situation},
                        {"from", strike.time},
                        {"until", until},
                        {"events", said}};
}

/// Requires that an event of this kind came after the strike and, if the run was resumed, that no
/// step up to its newest checkpoint was lost; keeps that as a row.
inline void check_comes(const TrainBench& bench, const std::string& engine,
                        const std::string& situation, const Strike& strike,
                        const std::string& kind) {
  std::vector<std::string> said;
  for (const runtime::RunEvent& event : events_after(bench, strike)) {
    said.push_back(event.kind + (event.rank ? " of " + std::to_string(*event.rank) : ""));
    if (event.kind != kind) continue;
    if (kind == "resumed") CHECK(event.step.value_or(0) >= strike.saved_steps);
    return keep_engine_row(engine, situation, strike, event.time, said);
  }
  FAIL("no event '" << kind << "' after " << strike.time);
}

}  // namespace shardlens::tests
