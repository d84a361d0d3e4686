// Strikes one run with a storm of faults: ranks that are killed and stopped, a full disk, damaged
// checkpoints, a store that dies, refused connections. The run must finish with the bits of an
// undisturbed one, and report every fault.
//
// Seeded by SHARDLENS_STORM_SEED if it is set, else by the clock.
//
// There are also short storms of what once ended runs for good: a disk that stays full for a while,
// so that attempts fail before they begin, and ranks that are killed at one step, between two
// checkpoints, again and again.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/support/fault_log.h"
#include "tests/support/supervised_run.h"

using namespace shardlens::tests;
namespace fs = std::filesystem;

namespace {

using Flags = std::vector<std::string>;
using Counts = std::map<std::string, int64_t>;

constexpr int kRanks = 4;
constexpr int64_t kEvery = 5;         // steps between two checkpoints
constexpr int64_t kStepsAFault = 20;  // between two faults
constexpr int64_t kStepsAfter = 120;  // after the last fault, at least

uint64_t storm_seed() {
  const char* const given = std::getenv("SHARDLENS_STORM_SEED");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
}

class Storm {
 public:
  Storm(uint64_t seed, int64_t faults, std::string communicator)
      : random_(seed), faults_(faults), communicator_(std::move(communicator)) {}

  void rage() {
    REQUIRE(run(command(undisturbed_, {})).exit_code == 0);
    Process launcher(command(bench_, {"--max-failures", "-1"}));
    for (int64_t i = 0; i < faults_; ++i) {
      CAPTURE(communicator_, i, injected_);
      REQUIRE(wait_until([&] { return is_on_its_way(launcher, (i + 1) * kStepsAFault); }));
      strike(launcher, i);
    }
    const ProcessEnd ended = launcher.wait();
    CAPTURE(ended.out, ended.err, read_file(bench_.run_file("events.jsonl")));
    REQUIRE(ended.exit_code == 0);
    CHECK(bench_.losses() == undisturbed_.losses());
    CHECK(bench_.tensors() == undisturbed_.tensors());
    CHECK(bench_.result().at("restarts") == count_of(bench_, "restarted"));
    for (const auto& [kind, count] : injected_) {
      CAPTURE(kind);
      CHECK(count_of(bench_, kind) >= count);
    }
  }

  std::string summary() const {
    std::string text = communicator_ + ":";
    for (const auto& [name, count] : struck_) text += " " + name + " " + std::to_string(count);
    text += "; noticed:";
    for (const auto& [kind, count] : injected_) {
      text +=
          " " + kind + " " + std::to_string(count_of(bench_, kind)) + "/" + std::to_string(count);
    }
    return text;
  }

 private:
  Flags command(const TrainBench& bench, const Flags& more) const {
    Flags flags = {"--workers",
                   std::to_string(kRanks),
                   "--batch",
                   "4",
                   "--epochs",
                   "1000000",
                   "--steps",
                   std::to_string(faults_ * kStepsAFault + kStepsAfter),
                   "--timeout",
                   "4",
                   "--keep",
                   "3",
                   "--checkpoint-every",
                   std::to_string(kEvery),
                   "--communicator",
                   communicator_};
    flags.insert(flags.end(), more.begin(), more.end());
    Flags words = watched(bench.command(flags), bench.run_file("checkpoints"), bench.file("log"),
                          "", SHARDLENS_FAULT_AT);
    words.insert(words.begin() + 1, "SHARDLENS_FAULT_NEXT=" + bench.file("next"));
    std::erase_if(words,
                  [](const std::string& word) { return word.starts_with("SHARDLENS_FAULT_LOG="); });
    return words;
  }

  /// True if all ranks train, `steps` steps are done, and there are checkpoints to fall back to.
  bool is_on_its_way(const Process& launcher, int64_t steps) const {
    return static_cast<int64_t>(steps_told(bench_)) >= steps &&
           launcher.children().size() == kRanks && store().list().size() >= 2;
  }

  shardlens::runtime::CheckpointStore store() const {
    return shardlens::runtime::CheckpointStore(bench_.run_file("checkpoints"));
  }

  int any_rank() { return static_cast<int>(random_() % kRanks); }

  void send(const Process& launcher, int rank, int signal) const {
    REQUIRE(::kill(launcher.children().at(static_cast<size_t>(rank)), signal) == 0);
  }

  /// All kinds in turn, then at random.
  void strike(const Process& launcher, int64_t number) {
    const Flags kinds = {"kill", "truncate", "stop", "flip",       "missing",
                         "full", "foreign",  "kill", "dead store", "refuse"};
    const auto count = static_cast<int64_t>(kinds.size());
    const auto index = static_cast<size_t>(number < count ? number : random_() % count);
    std::string kind = kinds[index];
    if (communicator_ != "gloo" && (kind == "dead store" || kind == "refuse")) kind = "kill";
    ++struck_[kind];
    if (kind == "kill") {
      send(launcher, any_rank(), SIGKILL);
      return expect("killed");
    }
    if (kind == "dead store") {  // rank 0 serves it
      send(launcher, 0, SIGKILL);
      return expect("killed");
    }
    if (kind == "stop") {
      send(launcher, any_rank(), SIGSTOP);
      return expect("hung");
    }
    if (kind == "full") {
      write_file(bench_.file("next"), kind);
      return expect("disk_full");
    }
    if (kind == "refuse") {
      write_file(bench_.file("next"), kind);
      send(launcher, any_rank(), SIGKILL);
      expect("killed");
      return expect("connection");
    }
    damage(launcher, kind);
  }

  /// Done while all ranks are stopped, so none replaces it by a newer checkpoint.
  void damage(const Process& launcher, const std::string& kind) {
    for (int rank = 0; rank < kRanks; ++rank) send(launcher, rank, SIGSTOP);
    const auto checkpoints = store().list();
    const fs::path newest = checkpoints.back().path;
    // The manifest comes last: some of its bytes mean nothing, but it must not be missing.
    const std::array kFiles = {"model-00001-of-00001.safetensors",
                               "optimizer-00001-of-00001.safetensors", "state.json",
                               "manifest.json"};
    const fs::path file = newest / kFiles[random_() % (kind == "missing" ? 4 : 3)];
    if (kind == "truncate") fs::resize_file(file, random_() % fs::file_size(file));
    if (kind == "missing") fs::remove(file);
    if (kind == "flip") flip(file);
    if (kind == "foreign") {
      fs::copy_file(checkpoints.front().path / "state.json", newest / "state.json",
                    fs::copy_options::overwrite_existing);
      fs::create_directory(bench_.run_file("checkpoints/step-99999999"));
      write_file(bench_.run_file("checkpoints/step-99999999/thesis.txt"), "another user's");
      ++injected_["checkpoint_damaged"];
    }
    send(launcher, any_rank(), SIGKILL);
    expect("killed");
    expect("checkpoint_damaged");
  }

  void flip(const fs::path& file) {
    std::string bytes = read_file(file.string());
    bytes[random_() % bytes.size()] ^= static_cast<char>(1 << random_() % 8);
    write_file(file.string(), bytes);
  }

  /// Waits until the run has reported all faults of this kind.
  void expect(const std::string& kind) {
    const int64_t count = ++injected_[kind];
    CAPTURE(kind, count, kinds_of(bench_));
    REQUIRE(wait_until([&] { return count_of(bench_, kind) >= count; }));
  }

  std::mt19937_64 random_;
  int64_t faults_;
  std::string communicator_;
  TrainBench undisturbed_;
  TrainBench bench_;
  Counts struck_;    // by what was struck
  Counts injected_;  // by what the run must report
};

// --- full disks that come and go, kills at one step ---------------------------------------------

constexpr int kFewRanks = 3;
constexpr int64_t kFewSteps = 60;

/// Three ranks on 60 steps, a checkpoint every 10.
Flags short_run(const TrainBench& bench) {
  const Flags command =
      bench.command({"--workers", std::to_string(kFewRanks), "--batch", "4", "--epochs", "1000",
                     "--steps", std::to_string(kFewSteps), "--timeout", "20", "--keep", "2",
                     "--checkpoint-every", "10", "--max-failures", "50"});
  Flags words = watched(command, bench.file("runs"), "", "", SHARDLENS_FAULT_AT);
  words.insert(words.begin() + 1, {"SHARDLENS_FAULT_HOLD=" + bench.file("hold"),
                                   "SHARDLENS_FAULT_FULL=" + bench.file("full")});
  std::erase(words, "SHARDLENS_FAULT_LOG=");
  return words;
}

class ShortStorm {
 public:
  explicit ShortStorm(uint64_t seed) : random_(seed) {}

  /// Strikes at three steps without a checkpoint; the first two are struck differently.
  void rage(const TrainBench& undisturbed) {
    const std::array steps = {some_step(0), some_step(20), some_step(40)};
    hold_at(steps[0]);
    Process launcher(short_run(bench_));
    bool kills = random_() % 2 == 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      const int64_t next = i + 1 < steps.size() ? steps[i + 1] : kNowhere;
      kills ? kill_at_one_step(launcher, steps[i], next) : fill_the_disk(launcher, next);
      kills = i == 0 ? !kills : random_() % 2 == 0;
    }
    const ProcessEnd ended = launcher.wait();
    CAPTURE(ended.out, ended.err, kinds_of(bench_));
    REQUIRE(ended.exit_code == 0);
    CHECK(bench_.losses() == undisturbed.losses());
    CHECK(bench_.tensors() == undisturbed.tensors());
    CHECK(count_of(bench_, "killed") == kills_);
    CHECK(count_of(bench_, "disk_full") >= rows_of_fills_);
  }

  std::string summary() const {
    return std::to_string(kills_) + " kills, disk full " + std::to_string(fills_) + " times, " +
           std::to_string(bench_.result().at("restarts").get<int64_t>()) + " restarts";
  }

 private:
  static constexpr int64_t kNowhere = -1;

  int64_t some_step(int64_t from) {
    return from + 1 + static_cast<int64_t>(random_() % 8) + (random_() % 2 == 0 ? 10 : 0);
  }

  /// Makes rank 0 wait after it has done `step` steps, and the others wait for it; a rank that
  /// waited at another step goes on.
  void hold_at(int64_t step) const {
    write_file(bench_.file("next"), "\"step\":" + std::to_string(step) + ",");
    fs::rename(bench_.file("next"), bench_.file("hold"));
  }

  void wait_for_hold(const Process& launcher) const {
    CAPTURE(kills_, fills_, kinds_of(bench_));
    REQUIRE(wait_until([&] { return fs::remove(bench_.file("hold.met")); }));
    REQUIRE(launcher.children().size() == kFewRanks);
  }

  /// Kills any ranks, one after the other: each attempt gets further.
  void kill_at_one_step(const Process& launcher, int64_t step, int64_t next) {
    for (auto left = 2 + random_() % 5; left > 0; --left) {
      wait_for_hold(launcher);
      const int64_t restarts = count_of(bench_, "restarted");
      REQUIRE(::kill(launcher.children().at(random_() % kFewRanks), SIGKILL) == 0);
      ++kills_;
      hold_at(kNowhere);
      REQUIRE(wait_until([&] { return count_of(bench_, "restarted") > restarts; }));
      hold_at(left > 1 ? step : next);
    }
  }

  /// Fills the disk several times, from now on, for up to 2 s: attempts fail before they begin.
  void fill_the_disk(const Process& launcher, int64_t next) {
    wait_for_hold(launcher);
    for (auto left = 1 + random_() % 3; left > 0; --left) {
      write_file(bench_.file("full"), "");
      hold_at(next);
      std::this_thread::sleep_for(std::chrono::milliseconds(500 + random_() % 1500));
      fs::remove(bench_.file("full"));
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 500));
      ++fills_;
    }
    ++rows_of_fills_;
  }

  std::mt19937_64 random_;
  TrainBench bench_;
  int64_t kills_ = 0;
  int64_t fills_ = 0;
  int64_t rows_of_fills_ = 0;
};

/// Runs each storm with its own seed, from `seed` on.
void rage_shortly(uint64_t seed, int storms) {
  const TrainBench undisturbed;
  REQUIRE(run(short_run(undisturbed)).exit_code == 0);
  for (int i = 0; i < storms; ++i) {
    CAPTURE(seed + static_cast<uint64_t>(i));
    ShortStorm storm(seed + static_cast<uint64_t>(i));
    storm.rage(undisturbed);
    WARN("seed " << seed + static_cast<uint64_t>(i) << ": " << storm.summary());
  }
}

void rage(int64_t faults, const std::string& communicator) {
  const uint64_t seed = storm_seed();
  WARN("seed " << seed);
  Storm storm(seed, faults, communicator);
  storm.rage();
  WARN(storm.summary());
}

}  // namespace

TEST_CASE("a run survives a storm of 6 faults with the same bits", "[storm][faults]") {
  rage(6, "gloo");
}

TEST_CASE("a run survives a storm of 60 faults with the same bits", "[storm][faults][long]") {
  rage(30, "local");
  rage(30, "gloo");
}

TEST_CASE("20 storms of kills at one step and full disks end no run", "[storm][faults][long]") {
  rage_shortly(storm_seed(), 20);
}
