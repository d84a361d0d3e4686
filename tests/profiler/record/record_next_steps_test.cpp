// Tests the next steps that a user is advised to take after a program was recorded, and the
// evidence for them that a recording has.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

#include "profiler/record/next_steps.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;

namespace {

using profiler::Category;

constexpr int64_t kGiB = int64_t{1} << 30;

JudgedRank rank_of(const RecordVerdict& verdict, const std::vector<Advice>& advice = {}) {
  return {.report = {}, .facts = {}, .verdict = verdict, .advice = advice};
}

/// Steps of a program that has 10 GiB of parameters and, in each step, makes 2 GiB at one line, of
/// which it keeps what `keeps` says, and frees the rest in the next step.
profiler::RankReport report_of_steps(int steps, bool (*keeps)(int step)) {
  profiler::Profile profile;
  profile.header.device = "null:h100";
  profile.header.libraries = "PyTorch 2.15.0+cu130\nPython 3.11\n";
  profile.strings = {"", "train.py:9 forward"};
  uint64_t address = 0;
  const auto push = [&](profiler::Event event) { profile.events.push_back(event); };
  const auto allocate = [&](int64_t gib, Category category) {
    address += uint64_t{1} << 40;
    push({.address = address,
          .value = gib * kGiB,
          .label = 1,
          .kind = profiler::EventKind::alloc,
          .category = category});
    return address;
  };
  allocate(10, Category::parameter_shard);
  push({.value = static_cast<int64_t>(profiler::Phase::training),
        .kind = profiler::EventKind::phase});
  uint64_t last = 0;
  for (int step = 0; step < steps; ++step) {
    push({.value = step, .kind = profiler::EventKind::step});
    const uint64_t made = allocate(2, Category::activation);
    if (last != 0) push({.address = last, .kind = profiler::EventKind::free});
    last = keeps(step) ? 0 : made;
  }
  return profiler::analyse(profile);
}

}  // namespace

TEST_CASE("a gate is advised if every recording can be compared, a view always") {
  const RecordVerdict roomy{}, none{.exit_code = 5},
      ran_out{.exit_code = 3, .is_out_of_memory = true};
  CHECK(next_steps("runs/a", {rank_of(roomy), rank_of(roomy)}) ==
        "\nnext\n  shardlens view runs/a: see in a window what was alive at any moment\n"
        "  shardlens gate runs/a AFTER --fail-above 2%: check whether a later recording, AFTER, "
        "takes more\n");
  CHECK_THAT(next_steps("a", {rank_of(roomy), rank_of(roomy, {{.text = "do this"}})}),
             ContainsSubstring("next\n  do this\n"));
  for (const RecordVerdict& verdict : {none, ran_out}) {
    const std::string text = next_steps("a", {rank_of(roomy), rank_of(verdict)});
    CHECK_THAT(text, ContainsSubstring("shardlens view a:"));
    CHECK_THAT(text, !ContainsSubstring("gate"));
  }
}

TEST_CASE("a recording tells what earlier steps keep") {
  const auto kept = [](int steps, bool (*keeps)(int)) {
    return evidence_of(report_of_steps(steps, keeps), {}, {}).kept;
  };
  const auto all = kept(5, [](int) { return true; });
  REQUIRE(all.size() == 1);
  CHECK(all.front().label == "train.py:9 forward");
  CHECK(all.front().given_bytes == 8 * kGiB);
  const auto last = kept(5, [](int) { return false; });
  REQUIRE(last.size() == 1);
  CHECK(last.front().oldest_steps == 1);
  CHECK(last.front().given_bytes == 2 * kGiB);
  CHECK(kept(1, [](int) { return true; }).empty());
  const auto first = kept(5, [](int step) { return step == 0; });
  REQUIRE(first.size() == 1);
  CHECK(first.front().oldest_steps == 2);  // the peak is first reached in step 2
  CHECK(evidence_of(report_of_steps(2, [](int) { return true; }), {}, {}).pytorch == "2.15.0");
}

TEST_CASE("the evidence of a rank that ran out of memory is of that moment") {
  profiler::RankReport failed = report_of_steps(3, [](int) { return true; });
  profiler::OutOfMemory& last = failed.out_of_memory.emplace_back();
  last.given[static_cast<size_t>(Category::gradient)] = 20 * kGiB;
  last.asked_bytes = 5 * kGiB;
  last.blocks = {.requested = 20 * kGiB, .split = 4 * kGiB, .reserved = 24 * kGiB};
  const AdviceEvidence evidence =
      evidence_of(failed, {.exit_code = 3, .is_out_of_memory = true}, {});
  CHECK(evidence.is_short);
  CHECK(evidence.largest_category() == Category::gradient);
  CHECK(evidence.reserved_bytes == 24 * kGiB);
  CHECK(evidence.asked_bytes == 5 * kGiB);
  CHECK(!evidence_of(failed, {}, {}).is_short);
}
