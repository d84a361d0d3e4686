// Runs of the tiny bench that a test strikes or another launcher starts, and runs to compare them
// with.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/launch/events.h"
#include "tests/support/train_bench.h"

namespace shardlens::tests {

/// A command line, or a part of one.
using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Long enough to be struck: 160 steps.
inline const Words kLong = {"--epochs", "40", "--checkpoint-every", "40", "--timeout", "20"};

inline bool has_checkpoint(const TrainBench& bench) {
  return std::filesystem::exists(bench.run_file("checkpoints/LATEST"));
}

inline std::string weights(const TrainBench& bench, const std::string& run) {
  return read_file(bench.file("runs/" + run + "/model/model.safetensors"));
}

/// The result of an undisturbed run by our own launcher.
inline std::string undisturbed(const TrainBench& bench, const Words& flags,
                               const std::string& workers) {
  const ProcessEnd ended = bench.train(
      flags + Words{"--workers", workers, "--communicator", "gloo", "--name", "undisturbed"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return weights(bench, "undisturbed");
}

/// "GENERATION kind" of each event, in order.
inline Words told_by_attempt(const TrainBench& bench) {
  Words events;
  for (const runtime::RunEvent& event : runtime::read_events(bench.run_file("events.jsonl"))) {
    events.push_back(std::to_string(event.generation) + " " + event.kind);
  }
  return events;
}

/// A run that exceeds a null device's memory, says so, and is recorded.
inline Words too_much(const TrainBench& bench) {
  return Words{SHARDLENS_TRAIN, "--device", "null:h200"} +
         Words{"--data", "synthetic", "--storage", bench.file("runs"), "--name", "r"} +
         Words{"--model", "vit-l16", "--batch", "32", "--steps", "3", "--capacity", "9GiB"} +
         Words{"--anyway", "--profile", "on"};
}

}  // namespace shardlens::tests
