// Programs by construction: what they hold at each moment is drawn, so whether they grow is known.

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "profiler/program/steady_rise.h"
#include "profiler/program/step_pattern.h"
#include "profiler/report/report.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// Returns what is held from each moment on, as a function of the moment says.
std::vector<HeldBytes> held_by(int64_t moments, const std::function<int64_t(int64_t)>& bytes) {
  std::vector<HeldBytes> held;
  for (int64_t i = 0; i < moments; ++i) {
    const int64_t now = bytes(i);
    if ((held.empty() ? 0 : held.back().bytes) != now) held.push_back({i, now});
  }
  return held;
}

std::optional<SteadyRise> rise_of(int64_t moments, const std::function<int64_t(int64_t)>& bytes) {
  return find_steady_rise(held_by(moments, bytes), moments - 1);
}

/// A recording of steps, each with an activation that is freed at its end.
class Steps {
 public:
  Steps() {
    profile_.header = {.device = "null:h100", .gpu = "", .capacity_bytes = 80 * 1024 * kMiB};
    profile_.strings = {"", "train.py:9 forward", "train.py:12 forward"};
    add({.value = 4096 * kMiB, .kind = EventKind::alloc, .space = Space::segment});
    add({.value = static_cast<int64_t>(Phase::training), .kind = EventKind::phase});
  }

  /// Removes the marks of steps and the phase, as a snapshot of PyTorch lacks them.
  void drop_marks() {
    std::erase_if(profile_.events, [](const Event& event) {
      return event.kind == EventKind::step || event.kind == EventKind::phase;
    });
  }
  /// Begins and ends a part of the program.
  void run(ProgramPart part) {
    for (const EventKind kind : {EventKind::action_begin, EventKind::action_end}) {
      add({.action = static_cast<int32_t>(part), .kind = kind});
    }
  }
  void begin() { add({.value = step_++, .kind = EventKind::step}); }
  uint64_t alloc(int64_t bytes, uint32_t label = 1) {
    const uint64_t address = next_ += 64 * kMiB;
    add({.address = address,
         .value = bytes,
         .label = label,
         .kind = EventKind::alloc,
         .space = Space::device,
         .category = Category::activation});
    return address;
  }
  void free(uint64_t address) {
    add({.address = address, .kind = EventKind::free, .space = Space::device});
  }
  /// Gives a label the stack Trainer.step, train.py:20 -> Net.forward, train.py:9.
  void add_stack() {
    const auto text = [this](const char* one) {
      profile_.strings.emplace_back(one);
      return static_cast<uint32_t>(profile_.strings.size() - 1);
    };
    const uint32_t file = text("/home/me/train.py");
    profile_.stacks.frames.push_back({.file = file, .function = text("Trainer.step"), .line = 20});
    profile_.stacks.frames.push_back(
        {.caller = 1, .file = file, .function = text("Net.forward"), .line = 9});
    profile_.stacks.of_label = {0, 2};
  }
  RankReport report() const { return analyse(profile_); }

 private:
  void add(const Event& event) { profile_.events.push_back(event); }

  Profile profile_;
  int64_t step_ = 0;
  uint64_t next_ = uint64_t{1} << 40;
};

}  // namespace

TEST_CASE("a steady rise is told from what settles, alternates or is given back") {
  const auto rise = rise_of(12, [](int64_t i) { return i * kMiB; });
  REQUIRE(rise);
  CHECK(rise->first == 1);
  CHECK(rise->last == 11);
  CHECK(rise->bytes_per_moment == kMiB);
  const auto fourth = rise_of(20, [](int64_t i) { return i / 4 * kMiB; });
  REQUIRE(fourth);
  CHECK(fourth->every == 4);
  CHECK(fourth->bytes_per_moment == kMiB / 4);
  CHECK(rise_of(30, [](int64_t i) { return std::max<int64_t>(0, i - 10) * kMiB; }));  // from 10 on

  CHECK_FALSE(rise_of(12, [](int64_t) { return kMiB; }));
  CHECK_FALSE(rise_of(12, [](int64_t i) { return std::min<int64_t>(i, 8) * kMiB; }));  // settles
  CHECK_FALSE(rise_of(12, [](int64_t i) { return i % 2 * kMiB; }));                    // alternates
  CHECK_FALSE(rise_of(20, [](int64_t i) { return i % 7 * kMiB; }));                    // epochs
  CHECK_FALSE(rise_of(20, [](int64_t i) { return std::min<int64_t>(i / 4, 3) * kMiB; }));
  CHECK_FALSE(rise_of(4, [](int64_t i) { return i * kMiB; }));  // too few to say
  CHECK_FALSE(rise_of(0, [](int64_t) { return 0; }));
}

TEST_CASE("random leaks are found, and random memory without a leak is not called one") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 engine(seed);
  const auto up_to = [&engine](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(engine);
  };
  for (int round = 0; round < 500; ++round) {
    const int64_t moments = 24 + up_to(100), every = up_to(4), size = up_to(100) * kMiB;
    const int64_t noise = up_to(200);
    CAPTURE(round, moments, every, size, noise);
    const auto leak = rise_of(moments, [&](int64_t i) { return i / every * size; });
    REQUIRE(leak);
    CHECK(leak->every == every);
    CHECK(std::llround(leak->bytes_per_moment * static_cast<double>(every)) == size);
    CHECK_FALSE(rise_of(moments, [&](int64_t) { return up_to(noise) * kMiB; }));
    const int64_t settles = moments / 2;
    CHECK_FALSE(rise_of(moments, [&](int64_t i) { return std::min(i, settles) * size; }));
    const int64_t tooth = 2 + up_to(moments / 5);
    CHECK_FALSE(rise_of(moments, [&](int64_t i) { return i % tooth * size; }));
  }
}

TEST_CASE("a report names what grows, who keeps it and when the GPU is full") {
  Steps steps;
  steps.add_stack();
  std::vector<uint64_t> outs;
  for (int step = 0; step < 10; ++step) {
    steps.begin();
    steps.alloc(32 * kMiB);  // is never freed
    if (!outs.empty()) steps.free(outs.back());
    outs.push_back(steps.alloc(16 * kMiB, 2));  // lives until the next step
  }
  RankReport report = steps.report();
  REQUIRE(report.growth);
  CHECK(report.growth->bytes_per_step == 32 * kMiB);
  CHECK(report.growth->every == 1);
  CHECK(report.growth->from_step == 2);
  REQUIRE(report.growth->places.size() == 1);
  CHECK(report.growth->places[0].label == "train.py:9 forward");
  CHECK(report.growth->places[0].caller == "train.py:20 step");
  CHECK_FALSE(report.growth->places[0].is_replaced);
  // 80 GiB, less 16 GiB for others and 4 GiB that are reserved, are 60 GiB: 1920 steps more.
  report.take_outside(16 * 1024 * kMiB);
  CHECK(report.growth->full_after_steps == 1930);
  CHECK(growth_text(*report.growth) ==
        "grows by 32.00 MiB a step from step 2 on: train.py:9 forward, called by train.py:20 step; "
        "full after about 1,900 steps");
  // Kept blocks are up to nine steps old, and one step old is what each step replaces.
  REQUIRE(report.kept.size() == 2);
  CHECK(report.kept[0].given_bytes == 9 * 32 * kMiB);
  CHECK(report.kept[0].oldest_steps == 9);
  CHECK(report.kept[1].given_bytes == 16 * kMiB);
  CHECK(report.kept[1].oldest_steps == 1);
  CHECK_THAT(report_text({report}), ContainsSubstring("kept from earlier steps: 304.00 MiB"));
  const auto json = nlohmann::json::parse(report_json({report})).at("ranks").at(0);
  CHECK(json.at("growth").at("bytes_per_step") == 32 * kMiB);
  CHECK(json.at("at_peak").at("kept_from_earlier_steps").size() == 2);
}

TEST_CASE("an optimizer that meets its parameters is not called growth") {
  Steps steps;
  steps.add_stack();  // label 1 is in a forward
  std::vector<uint64_t> activations;
  for (int layer = 0; layer < 12; ++layer) activations.push_back(steps.alloc(kMiB));
  for (const uint64_t one : activations) steps.free(one);
  const auto meet_parameters = [&] {
    for (int parameter = 0; parameter < 24; ++parameter) {
      steps.alloc(8 * kMiB, 2);  // a moment, which stays
      steps.free(steps.alloc(kMiB, 2));
    }
  };
  meet_parameters();
  steps.drop_marks();
  CHECK_FALSE(steps.report().growth);
  // The same where the model runs in each round is a leak.
  Steps rounds;
  rounds.add_stack();
  for (int round = 0; round < 24; ++round) {
    rounds.free(rounds.alloc(kMiB));
    rounds.alloc(8 * kMiB, 2);
  }
  rounds.drop_marks();
  CHECK(rounds.report().growth);
}

TEST_CASE("a model that is built layer by layer is not called growth") {
  const auto build = [](Steps& steps) {
    for (int layer = 0; layer < 24; ++layer) {
      steps.free(steps.alloc(kMiB, 3));
      steps.alloc(8 * kMiB, 2);
    }
  };
  const auto run = [](Steps& steps) {
    for (int layer = 0; layer < 24; ++layer) steps.free(steps.alloc(kMiB));
  };
  for (const bool runs : {false, true}) {
    Steps steps;
    steps.add_stack();  // label 1 is in a forward
    build(steps);
    if (runs) run(steps);
    steps.drop_marks();
    CAPTURE(runs);
    CHECK_FALSE(steps.report().growth);
  }
}

TEST_CASE("rounds of a program without modules are those in which it calls backward") {
  for (const bool calls_backward : {false, true}) {
    Steps steps;
    for (int round = 0; round < 24; ++round) {
      steps.free(steps.alloc(kMiB, 1));
      if (calls_backward) steps.run(ProgramPart::backward);
      steps.alloc(8 * kMiB, 2);
    }
    steps.drop_marks();
    CAPTURE(calls_backward);
    CHECK(steps.report().growth.has_value() == calls_backward);
  }
}

TEST_CASE("what each step replaces is growth only if it gets larger, and the program does not") {
  const auto grows = [](bool all_grow) {
    Steps steps;
    uint64_t last = 0;
    for (int64_t step = 0; step < 16; ++step) {
      steps.begin();
      const uint64_t batch = steps.alloc((all_grow ? 1 + step : 1) * kMiB, 2);
      const uint64_t now = steps.alloc((1 + step) * kMiB);
      if (last != 0) steps.free(last);
      steps.free(batch);
      last = now;
    }
    return steps.report().growth;
  };
  const auto replaced = grows(false);  // all = torch.cat([all, one])
  REQUIRE(replaced);
  CHECK(replaced->places.at(0).is_replaced);
  CHECK_FALSE(grows(true));  // longer and longer sequences
}

TEST_CASE("numbers that are kept of each step do not count as growth") {
  Steps steps;
  for (int step = 0; step < 20; ++step) {
    steps.begin();
    steps.alloc(4);  // losses.append(loss.detach())
  }
  CHECK_FALSE(steps.report().growth);
  CHECK(nlohmann::json::parse(report_json({steps.report()}))
            .at("ranks")
            .at(0)
            .at("growth")
            .is_null());
}

TEST_CASE("steps that are higher in a rhythm are found") {
  const auto pattern_of = [](int64_t steps, const std::function<int64_t(int64_t)>& bytes) {
    std::vector<StepHeight> heights;
    for (int64_t i = 0; i < steps; ++i) heights.push_back({.step = i + 2, .bytes = bytes(i)});
    return find_step_pattern(heights);
  };
  const auto sixteenth = pattern_of(50, [](int64_t i) { return i % 16 == 13 ? 448 : 210; });
  REQUIRE(sixteenth);
  CHECK(sixteenth->every == 16);
  CHECK(sixteenth->first_step == 15);
  CHECK(sixteenth->high_bytes == 448);
  CHECK(sixteenth->low_bytes == 210);
  CHECK_FALSE(pattern_of(50, [](int64_t) { return 210; }));
  CHECK_FALSE(pattern_of(50, [](int64_t i) { return i == 20 ? 448 : 210; }));
  CHECK_FALSE(pattern_of(50, [](int64_t i) { return 200 + i; }));
  CHECK_FALSE(pattern_of(0, [](int64_t) { return 0; }));
}

TEST_CASE("a holder says what it holds, how much a step, and whether a graph is kept") {
  const auto holders = read_holders(nlohmann::json::parse(R"([
    {"variable": "meter.values", "where": "main of train.py", "container": "list", "tensors": 8,
     "tensor_bytes": 2097152, "tensors_per_step": 1.0, "has_graph": true},
    {"variable": "cache", "where": "serve.py", "container": "dict", "tensors": 12,
     "tensor_bytes": 4, "tensors_per_step": null, "has_graph": false},
    {"variable": "past", "where": "f of train.py", "container": "deque", "tensors": 3,
     "tensor_bytes": 1024, "tensors_per_step": 0.25, "has_graph": false},
    {"where": "no variable"}, 7])"));
  REQUIRE(holders.size() == 3);
  CHECK(
      holder_text(holders[0]) ==
      "meter.values, a list in main of train.py: 1 tensor of 2.00 MiB a step, with the graph that "
      "made it");
  CHECK(holder_text(holders[1]) == "cache, a dict in serve.py: 12 tensors of 4 B");
  CHECK(holder_text(holders[2]) ==
        "past, a deque in f of train.py: 0.2 tensors of 1.00 KiB a step");
  CHECK(holders_json(holders).size() == 3);
  CHECK(read_holders(holders_json(holders)).size() == 3);
  CHECK(read_holders(nlohmann::json("none")).empty());
}
