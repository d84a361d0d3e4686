// Compares what the planner predicts for runs on a user's own files, including evaluations and
// checkpoints, with what the program records: every block from the first step on, and the peaks.
// These runs are so short that the simulation leaves out no step; for longer ones the peaks are
// compared.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/config/arguments.h"
#include "planner/prepared_run.h"
#include "profiler/file/reader.h"
#include "tests/support/idx_files.h"
#include "tests/support/image_files.h"
#include "tests/support/process.h"
#include "tests/support/recordings/memory_events.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::tests;
using Flags = std::vector<std::string>;

namespace {

constexpr int kPx = 8;
constexpr int64_t kImageBytes = 3 * kPx * kPx;  // no other block has this size
constexpr int64_t kNumberBytes = 8;
constexpr const char* kCheckpointed = "checkpoint";

/// A folder with data, and a model that takes such images.
class Bench {
 public:
  /// IDX files.
  explicit Bench(const IdxSizes& sizes) : Bench(1) { write_idx_dataset(folder_.path(), sizes); }

  /// Image files in two classes.
  Bench(int train, int test) : Bench(3) {
    for (int i = 0; i < train + test; ++i) {
      const std::string split = i < train ? "train" : "val";
      write_picture(folder_.file(fmt::format("{}/{}/{}.png", split, i % 2 == 0 ? "a" : "b", i)),
                    plain_picture(kPx, kPx, static_cast<uint8_t>(i), 1, 2));
    }
  }

  Flags words(const Flags& more) const {
    Flags words = {"--model", models_.file("model.json"), "--data", folder_.path(), "--batch", "8"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

 private:
  explicit Bench(int channels) {
    const nlohmann::json model = {{"family", "vit"}, {"image_px", kPx},      {"patch_px", 4},
                                  {"layers", 2},     {"heads", 2},           {"width", 32},
                                  {"mlp_width", 40}, {"channels", channels}, {"classes", 4}};
    write_file(models_.file("model.json"), model.dump());
  }

  TemporaryFolder folder_;
  TemporaryFolder models_;
};

struct RecordedCase {
  profiler::Profile profile;
  nlohmann::json memory;  // of result.json
};

RecordedCase record(const Flags& flags, int rank) {
  const TemporaryFolder folder;
  Flags words = {SHARDLENS_TRAIN,     "--profile", "on", "--storage",
                 folder.file("runs"), "--name",    "r"};
  words.insert(words.end(), flags.begin(), flags.end());
  const ProcessEnd ended = run(words);
  INFO(ended.out << ended.err);
  REQUIRE(ended.exit_code == 0);
  RecordedCase recorded;
  recorded.profile =
      profiler::read_profile(folder.file(fmt::format("runs/r/profiles/rank{}.slp", rank)));
  const auto result = nlohmann::json::parse(read_file(folder.file("runs/r/result.json")));
  if (result.contains("memory")) recorded.memory = result.at("memory");
  return recorded;
}

planner::PreparedRun prepared(const Flags& flags) {
  const planner::Config config = planner::parse_arguments(flags).config;
  return prepare(planner::spec_of(config), config, target_of(config, ""), {});
}

int64_t staged_bytes(const MemoryEvents& events) {
  int64_t bytes = 0;
  for (const MemoryEvent& event : events.list()) {
    if (event.taken && event.label == kCheckpointed) bytes += event.bytes;
  }
  return bytes;
}

/// Leaves out what one image takes before it is in its batch, and numbers of which operators make
/// tensors: on a GPU's host the planner leaves those out.
std::vector<MemoryEvent> comparable(const MemoryEvents& events, int64_t passing_bytes) {
  std::vector<MemoryEvent> list = events.list();
  std::erase_if(list, [&](const MemoryEvent& event) {
    return event.bytes == kImageBytes || event.bytes <= passing_bytes;
  });
  while (!list.empty() && !list.back().taken) list.pop_back();  // as MemoryEvents does
  return passing_bytes > 0 ? without_passing(list) : renumbered(list);
}

/// `rank`: the rank whose recording is taken.
void check_on_cpu(const Flags& flags, int rank, bool is_checkpointed) {
  INFO(fmt::format("{}", nlohmann::json(flags).dump()));
  const planner::PreparedRun run = prepared(flags);
  const planner::RunResult predicted = simulate(run, {});
  const RecordedCase recorded = record(flags, rank);
  const planner::Timeline& timeline = predicted.simulation->timeline();
  const MemoryEvents ours(timeline.events(), timeline.strings(), profiler::Space::host,
                          ComparisonStart::first_step);
  const MemoryEvents theirs(recorded.profile.events, recorded.profile.strings,
                            profiler::Space::host, ComparisonStart::first_step);
  CHECK(first_difference(comparable(theirs, 0), comparable(ours, 0)) == "");
  CHECK(ours.peak_bytes() == theirs.peak_bytes());
  CHECK(predicted.simulation->peak().allocated_bytes == theirs.peak_bytes());
  CHECK(staged_bytes(ours) == staged_bytes(theirs));
  CHECK((staged_bytes(theirs) > 0) == is_checkpointed);
}

planner::SimulatedPeak peak_of(const nlohmann::json& memory, const char* which) {
  return {memory.at(which).at("allocated_bytes"), memory.at(which).at("reserved_bytes")};
}

/// Sizes of the pinned memory that is taken: the recorded driver knows nothing else about pinned
/// memory.
std::vector<int64_t> taken_bytes(const MemoryEvents& events) {
  std::vector<int64_t> bytes;
  for (const MemoryEvent& event : events.list()) {
    if (event.taken) bytes.push_back(event.bytes);
  }
  return bytes;
}

void check_on_null_device(const Flags& flags, int rank) {
  INFO(fmt::format("{}", nlohmann::json(flags).dump()));
  const planner::PreparedRun run = prepared(flags);
  const planner::RunResult predicted = simulate(run, {});
  const RecordedCase recorded = record(flags, rank);
  const auto ours = [&](profiler::Space space) {
    const planner::Timeline& timeline = predicted.simulation->timeline();
    return MemoryEvents(timeline.events(), timeline.strings(), space, ComparisonStart::start);
  };
  const auto theirs = [&](profiler::Space space) {
    return MemoryEvents(recorded.profile.events, recorded.profile.strings, space,
                        ComparisonStart::start);
  };
  using profiler::Space;
  CHECK(first_difference(theirs(Space::device).list(), ours(Space::device).list()) == "");
  CHECK(taken_bytes(ours(Space::pinned)) == taken_bytes(theirs(Space::pinned)));
  CHECK(predicted.simulation->pinned_peak_bytes() == theirs(Space::pinned).peak_bytes());
  CHECK(first_difference(comparable(theirs(Space::host), kNumberBytes),
                         comparable(ours(Space::host), kNumberBytes)) == "");
  CHECK(predicted.simulation->host_peak_bytes() == theirs(Space::host).peak_bytes());
  CHECK(predicted.simulation->peak() == peak_of(recorded.memory, "peak"));
  CHECK(predicted.simulation->step_peak() == peak_of(recorded.memory, "step_peak"));
}

/// Three steps an epoch, the last one with fewer samples; three batches to test with.
constexpr IdxSizes kShort = {.train = 20, .test = 20, .px = kPx, .classes = 4};

Flags with_flags(const Flags& flags, const Flags& more) {
  Flags all = flags;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const Flags kOnCpu = {"--device", "cpu", "--epochs", "2", "--steps", "4"};

}  // namespace

TEST_CASE("runs on IDX files are predicted on the CPU, with their checkpoints", "[prediction]") {
  const Bench bench(kShort);
  const auto check = [&](const Flags& more, bool is_checkpointed = true) {
    check_on_cpu(bench.words(with_flags(kOnCpu, more)), 0, is_checkpointed);
  };
  check({"--checkpoint-every", "none"}, false);
  check({});
  check({"--checkpoint-async", "off"});
  check({"--checkpoint-every", "2"});
  check({"--checkpoint-every", "1"});
  check({"--checkpoint-every", "100"});  // only at the end
  check({"--optimizer", "sgd", "--momentum", "0.9"});
  check({"--optimizer", "sgd", "--freeze", ".*ln_[12]"});
  check({"--accumulate", "2", "--steps", "3", "--log-every", "1"});
  check({"--clip-norm", "1", "--loss-scale", "auto"});
  check({"--offload", "all"});
}

TEST_CASE("the rank that copies the most for a checkpoint is predicted", "[prediction]") {
  const Bench bench({.train = 60, .test = 60, .px = kPx, .classes = 4});
  for (const Flags& strategy : {Flags{"--strategy", "ddp"}, Flags{"--strategy", "fsdp"},
                                Flags{"--strategy", "fsdp", "--ignore", "module:heads"}}) {
    check_on_cpu(bench.words(with_flags(with_flags(kOnCpu, {"--workers", "3"}), strategy)), 2,
                 true);
  }
}

TEST_CASE("runs on image files are predicted on the CPU", "[prediction]") {
  const Bench bench(20, 20);
  check_on_cpu(bench.words(kOnCpu), 0, true);
  check_on_cpu(bench.words(with_flags(kOnCpu, {"--checkpoint-every", "none"})), 0, false);
}

TEST_CASE("peaks of runs are those of the few simulated steps", "[prediction]") {
  const Bench bench({.train = 160, .test = 50, .px = kPx, .classes = 4});
  for (const Flags& more :
       {Flags{}, Flags{"--log-every", "1"}, Flags{"--log-every", "2"}, Flags{"--batch", "6"},
        Flags{"--checkpoint-every", "10"}, Flags{"--checkpoint-every", "33"},
        Flags{"--checkpoint-every", "35", "--steps", "35"}, Flags{"--epochs", "1"},
        Flags{"--checkpoint-every", "none", "--log-every", "7"}}) {
    const Flags flags = bench.words(with_flags({"--device", "cpu", "--epochs", "3"}, more));
    INFO(fmt::format("{}", nlohmann::json(flags).dump()));
    const planner::PreparedRun run = prepared(flags);
    const RecordedCase recorded = record(flags, 0);
    const MemoryEvents theirs(recorded.profile.events, recorded.profile.strings,
                              profiler::Space::host, ComparisonStart::first_step);
    CHECK(simulate(run, {}).simulation->peak().allocated_bytes == theirs.peak_bytes());
  }
}

TEST_CASE("peaks on a device are those of the few simulated steps", "[null][prediction]") {
  const Bench bench({.train = 480, .test = 150, .px = kPx, .classes = 4});
  for (const Flags& more :
       {Flags{}, Flags{"--log-every", "1"}, Flags{"--log-every", "2"}, Flags{"--batch", "6"},
        Flags{"--steps", "35"}, Flags{"--epochs", "1"}, Flags{"--param-dtype", "bf16"},
        Flags{"--offload", "all"}, Flags{"--recompute", "full", "--batch", "7"}}) {
    const Flags flags = bench.words(with_flags(
        {"--device", "null:h200", "--world", "3", "--solo-rank", "1", "--epochs", "3"}, more));
    INFO(fmt::format("{}", nlohmann::json(flags).dump()));
    const planner::PreparedRun run = prepared(flags);
    const planner::RunResult predicted = simulate(run, {});
    const RecordedCase recorded = record(flags, 1);
    const MemoryEvents pinned(recorded.profile.events, recorded.profile.strings,
                              profiler::Space::pinned, ComparisonStart::start);
    CHECK(predicted.simulation->peak() == peak_of(recorded.memory, "peak"));
    CHECK(predicted.simulation->step_peak() == peak_of(recorded.memory, "step_peak"));
    CHECK(predicted.simulation->pinned_peak_bytes() == pinned.peak_bytes());
  }
}

TEST_CASE("runs on a user's files are predicted", "[null][prediction]") {
  const Bench idx({.train = 60, .test = 60, .px = kPx, .classes = 4});
  const Bench files(60, 60);
  const Flags device = {"--device", "null:h200", "--world", "3", "--solo-rank", "1"};
  for (const Bench* bench : {&idx, &files}) {
    for (const Flags& strategy :
         {Flags{"--strategy", "ddp"}, Flags{"--strategy", "fsdp"},
          Flags{"--strategy", "fsdp", "--offload", "all"},
          Flags{"--strategy", "fsdp", "--offload", "optimizer", "--param-dtype", "bf16"}}) {
      const Flags steps = {"--epochs", "2", "--steps", "4"};
      check_on_null_device(bench->words(with_flags(with_flags(device, strategy), steps)), 1);
    }
  }
}
