#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "base/fault.h"
#include "profiler/record/python_program.h"
#include "profiler/record/record_options.h"
#include "profiler/record/record_verdict.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

void check_refused(const std::vector<std::string>& arguments, const std::string& part) {
  CHECK_THROWS_MATCHES(parse_record_options(arguments), std::invalid_argument,
                       MessageMatches(ContainsSubstring(part)));
}

/// A peak on a GPU of 80 GiB.
profiler::RankReport report_of_peak(int64_t allocated_gib, int64_t reserved_gib) {
  profiler::Profile profile;
  profile.header.device = "null:h100";
  profile.header.capacity_bytes = 80 * kGiB;
  const auto given = [&](profiler::Space space, int64_t bytes) {
    profile.events.push_back(
        {.address = 1 << 20, .value = bytes, .kind = profiler::EventKind::alloc, .space = space});
  };
  given(profiler::Space::segment, reserved_gib * kGiB);
  given(profiler::Space::device, allocated_gib * kGiB);
  return profiler::analyse(profile);
}

std::string program(const tests::TemporaryFolder& folder, const std::string& name,
                    const std::string& text) {
  const std::string path = folder.file(name);
  tests::write_file(path, text);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

}  // namespace

TEST_CASE("the flags of record end at --, and the command is left as it is") {
  const RecordOptions options = parse_record_options(
      {"--device", "null:h100", "--world", "64",       "--rank",           "5",
       "--steps",  "3",         "--out",   "o",        "--true",           "a.py:3",
       "--true",   "b.py:4",    "--",      "torchrun", "--nproc_per_node", "8",
       "train.py", "--",        "--rank",  "x"});
  CHECK(options.device_name() == "null:h100");
  CHECK(options.world_size == 64);
  CHECK(options.rank == 5);
  CHECK(options.steps == 3);
  CHECK(options.true_at == std::vector<std::string>{"a.py:3", "b.py:4"});
  CHECK(options.command == std::vector<std::string>{"torchrun", "--nproc_per_node", "8", "train.py",
                                                    "--", "--rank", "x"});
}

TEST_CASE("the nodes of a simulated world have up to 8 GPUs, equally many each") {
  const auto gpus = [](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"--device", "null:h100"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.insert(arguments.end(), {"--", "python"});
    return parse_record_options(arguments).gpus();
  };
  CHECK(gpus({}) == 1);
  CHECK(gpus({"--world", "2"}) == 2);
  CHECK(gpus({"--world", "512"}) == 8);
  CHECK(gpus({"--world", "12"}) == 6);
  CHECK(gpus({"--world", "13"}) == 1);
  CHECK(gpus({"--world", "16", "--gpus-per-node", "4"}) == 4);
  CHECK(gpus({"--gpus-per-node", "4"}) == 4);
}

TEST_CASE("a recording goes into a folder of the script's name") {
  const RecordOptions options =
      parse_record_options({"--device", "null:h100", "--", "python", "-u", "a/train.py"});
  CHECK_FALSE(options.world_size);
  CHECK(options.out.starts_with("runs/train-"));
}

TEST_CASE("record attaches to a program on the machine's GPUs if none is named") {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--", "python"}, {"--device", "cuda", "--", "python"}}) {
    const RecordOptions options = parse_record_options(flags);
    CHECK(options.is_attached());
    CHECK(options.device_name() == "cuda");
  }
  CHECK_FALSE(parse_record_options({"--device", "null:h100", "--", "python"}).is_attached());
  check_refused({"--world", "2", "--", "python"}, "--world: only applies to a simulated GPU");
  check_refused({"--rank", "0", "--", "python"}, "such as --device null:h100");
  check_refused({"--capacity", "40GiB", "--", "python"}, "--capacity: ");
  check_refused({"--beside", "700MiB", "--", "python"}, "--beside: ");
  check_refused({"--true", "a.py:1", "--", "python"}, "--true: ");
  check_refused({"--gpus-per-node", "8", "--", "python"}, "--gpus-per-node: ");
}

TEST_CASE("nothing can lie beside PyTorch") {
  const auto beside = [](const std::string& size) {
    return parse_record_options({"--device", "null:h100", "--beside", size, "--", "python"})
        .beside_bytes;
  };
  CHECK(beside("0") == 0);
  CHECK(beside("0MiB") == 0);
  CHECK(beside("1MiB") == 1 << 20);
  CHECK_FALSE(
      parse_record_options({"--device", "null:h100", "--", "python"}).beside_bytes.has_value());
}

TEST_CASE("record refuses what makes no sense, and says why") {
  check_refused({"--device", "null:h100"}, "no command");
  check_refused({"python", "train.py"}, "the command comes after --");
  check_refused({"--device", "cpu", "--", "python"}, "--device cpu");
  check_refused({"--device", "null:h1000", "--", "python"}, "h100");
  check_refused({"--device", "null:h100", "--world", "0", "--", "python"}, "--world 0");
  check_refused({"--device", "null:h100", "--world", "8", "--rank", "8", "--", "python"},
                "--rank 8");
  check_refused({"--device", "null:h100", "--world", "12", "--gpus-per-node", "8", "--", "python"},
                "--gpus-per-node 8");
  check_refused({"--device", "null:h100", "--gpus-per-node", "0", "--", "python"}, "--gpus-per");
  check_refused({"--device", "null:h100", "--beside", "much", "--", "python"}, "--beside much");
  check_refused({"--device", "null:h100", "--capacity", "2TiB", "--", "python"},
                "at most 1.00 TiB; give less");
  check_refused({"--device", "null:h100", "--capacity", "much", "--", "python"}, "--capacity much");
  check_refused({"--device", "null:h100", "--steps", "0", "--", "python"},
                "--steps: give a number above 0, not 0");
  for (const std::string place : {"train.py", ":3", "train.py:", "train.py:x", "a:b:3"}) {
    check_refused({"--device", "null:h100", "--true", place, "--", "python"}, "--true " + place);
  }
}

TEST_CASE("levers on the simulated machine change its options") {
  const RecordOptions options = parse_record_options(
      {"--device", "null:h100", "--world", "8", "--with", "world=16,gpu=l4", "--", "python"});
  CHECK(options.world_size == 16);
  CHECK(options.gpus() == 8);
  CHECK(options.device_name() == "null:l4");
  check_refused(
      {"--device", "null:h100", "--capacity", "40GiB", "--with", "gpu=l4", "--", "python"},
      "give one of them");
  check_refused({"--device", "null:h100", "--rank", "5", "--with", "world=4", "--", "python"},
                "--rank 5");
}

TEST_CASE("a program that takes more than the GPU has does not fit") {
  const RecordFacts facts{.is_known = true};
  CHECK(verdict_of(report_of_peak(60, 70), facts, kGiB, {}).exit_code == 0);
  CHECK(verdict_of(report_of_peak(60, 80), facts, kGiB, {}).exit_code == 4);
  CHECK(verdict_of(report_of_peak(80, 80), facts, kGiB, {}).exit_code == 3);
  CHECK(verdict_of(report_of_peak(80, 80), facts, 0, {}).exit_code == 0);
  const RecordFacts retried{.retries = 1, .is_known = true};
  CHECK(verdict_of(report_of_peak(60, 70), retried, kGiB, {}).exit_code == 4);
  CHECK_THAT(verdict_of(report_of_peak(60, 70), facts, kGiB, {}).line,
             ContainsSubstring("fits: 71.00 GiB of 80.00 GiB (including 1.00 GiB beside PyTorch), "
                               "9.00 GiB free"));
  const RecordFacts shaped{.shapes = 3, .is_known = true};
  const RecordVerdict in_doubt = verdict_of(report_of_peak(60, 70), shaped, kGiB, {});
  CHECK(in_doubt.line == verdict_of(report_of_peak(60, 70), facts, kGiB, {}).line);
  REQUIRE(in_doubt.doubts.size() == 1);
  CHECK_THAT(in_doubt.doubts.front(), ContainsSubstring("shapes depended on values"));
  CHECK_FALSE(in_doubt.is_nearly_full);
  CHECK(verdict_of(report_of_peak(60, 72), facts, kGiB, {}).is_nearly_full);
  CHECK_FALSE(verdict_of(report_of_peak(80, 80), facts, kGiB, {}).is_nearly_full);
}

TEST_CASE("a verdict on retries says what it takes without them, as far as it is known") {
  RecordFacts facts{.retries = 1, .is_known = true};
  // Retries gave memory back, so the recorded peak is too low.
  CHECK_THAT(verdict_of(report_of_peak(60, 70), facts, kGiB, {}).line,
             ContainsSubstring("without them it takes more than 80.00 GiB"));
  facts.replays.unlimited_peak_bytes = 90 * kGiB;
  CHECK_THAT(verdict_of(report_of_peak(60, 70), facts, kGiB, {}).line,
             ContainsSubstring("without them it takes 91.00 GiB (including 1.00 GiB beside "
                               "PyTorch), but there are 80.00 GiB"));
  facts = {.is_known = true};
  CHECK_THAT(verdict_of(report_of_peak(60, 80), facts, kGiB, {}).line,
             ContainsSubstring("without them it takes 81.00 GiB or more"));
}

TEST_CASE("a program that grows is never said to fit without that") {
  RankReport report = report_of_peak(60, 70);
  report.growth = Growth{.bytes_per_step = static_cast<double>(kGiB),
                         .from_step = 2,
                         .last_step = 9,
                         .places = {{.label = "train.py:9 forward", .caller = "train.py:20 step"}}};
  report.take_outside(kGiB);
  const RecordVerdict verdict = verdict_of(report, {.is_known = true}, kGiB, {});
  CHECK_THAT(verdict.line,
             ContainsSubstring("9.00 GiB free, but grows by 1.00 GiB a step from step 2 on: "
                               "train.py:9 forward, called by train.py:20 step; full after about "
                               "19 steps"));
  CHECK(verdict.exit_code == 0);
  CHECK(exit_code_of({.exit_code = 0}, {verdict}, false) == 0);
  CHECK(exit_code_of({.exit_code = 0}, {verdict}, false, /*may_grow=*/false) == 1);
}

TEST_CASE("a verdict has all doubts, its own before the recording's") {
  const RecordFacts facts{.steps = 1, .shapes = 2, .doubts = {"a", "b"}, .is_known = true};
  const std::vector<std::string> doubts =
      verdict_of(report_of_peak(60, 70), facts, kGiB, {}).doubts;
  REQUIRE(doubts.size() == 4);
  CHECK_THAT(doubts[0], ContainsSubstring("shapes depended on values"));
  CHECK_THAT(doubts[1], ContainsSubstring("only one step was recorded"));
  CHECK(doubts[2] == "a");
  CHECK(doubts[3] == "b");
  const RecordFacts of_two_steps{.steps = 2, .is_known = true};
  CHECK(verdict_of(report_of_peak(60, 70), of_two_steps, kGiB, {}).doubts.empty());
  CHECK(
      verdict_of(report_of_peak(80, 80), {.steps = 1, .is_known = true}, kGiB, {}).doubts.empty());
}

TEST_CASE(
    "memory that ran out does not fit, and the figures are those of the request that failed") {
  profiler::RankReport failed = report_of_peak(60, 70);
  failed.out_of_memory_count = 2;
  profiler::OutOfMemory& last = failed.out_of_memory.emplace_back();
  last.at.step = 3;
  last.asked_bytes = 12 * kGiB;
  last.label = "train.py:30 train";
  last.blocks.requested = 55 * kGiB;
  last.blocks.reserved = 68 * kGiB;
  const RecordVerdict verdict = verdict_of(failed, {.is_known = true}, kGiB, {});
  CHECK(verdict.exit_code == 3);
  CHECK(verdict.is_out_of_memory);
  CHECK(verdict.line ==
        "does not fit: out of memory in step 3 at train.py:30 train: 12.00 GiB could not be "
        "allocated, with 55.00 GiB allocated and 68.00 GiB reserved by PyTorch, of 80.00 GiB (1.00 "
        "GiB are taken beside PyTorch); 2 requests failed, this one last; the program went on "
        "without it");
  CHECK_THAT(verdict_of(failed, {}, kGiB, "the program ended with exit code 1").line,
             ContainsSubstring("this one last; the program ended with exit code 1"));
}

TEST_CASE("a program that failed and an incomplete recording give a lower bound") {
  const auto check_no_verdict = [](const profiler::RankReport& report, const RecordFacts& facts,
                                   const Problem& failure, const std::string& why) {
    const RecordVerdict verdict = verdict_of(report, facts, kGiB, failure);
    CHECK(verdict.exit_code == 5);
    CHECK(verdict.line == "no verdict: " + why +
                              "; the peak so far, 60.00 GiB allocated and 70.00 GiB reserved and "
                              "1.00 GiB beside PyTorch, of 80.00 GiB, is a lower bound");
  };
  const RecordFacts whole{.is_known = true};
  profiler::RankReport report = report_of_peak(60, 70);
  check_no_verdict(report, whole, "the program ended with exit code 7",
                   "the program ended with exit code 7, before its first step");
  check_no_verdict(report, {.steps = 1, .is_known = true}, "the program ended with exit code 7",
                   "the program ended with exit code 7, after 1 step");
  check_no_verdict(report, {}, {}, "its process ended without closing the recording");
  report.judgement = {.state = profiler::RecordingState::damaged, .missing_from_ns = 5};
  check_no_verdict(report, whole, {}, profiler::judgement_text(report.judgement));
  CHECK(
      verdict_of(report_of_peak(80, 80), whole, kGiB, "the program ended with exit code 7").line ==
      "does not fit: takes 81.00 GiB or more (including 1.00 GiB beside PyTorch), but there are "
      "80.00 GiB; the program ended with exit code 7");
  profiler::RankReport lossy = report_of_peak(80, 80);
  lossy.judgement.lost_events = 3;
  const RecordVerdict not_exact = verdict_of(lossy, whole, kGiB, {});
  CHECK(not_exact.exit_code == 5);
  CHECK(not_exact.line.ends_with(", of 80.00 GiB, is not exact"));
  profiler::Profile empty;
  empty.header.capacity_bytes = 80 * kGiB;
  CHECK(verdict_of(profiler::analyse(empty), whole, kGiB, {}).exit_code == 5);
}

TEST_CASE("the exit code of record is 3 for memory, else the program's own, else the verdict's") {
  const RecordVerdict fits, retries{.exit_code = 4}, none{.exit_code = 5},
      too_large{.exit_code = 3};
  const RecordVerdict ran_out{.exit_code = 3, .is_out_of_memory = true};
  const CommandEnd well, failed{.exit_code = 7}, killed{.exit_code = 137, .how = "by Killed"};
  CHECK(exit_code_of(well, {fits}, false) == 0);
  CHECK(exit_code_of(well, {fits, retries}, false) == 4);
  CHECK(exit_code_of(well, {retries, none}, false) == 5);
  CHECK(exit_code_of(well, {none, too_large, retries}, false) == 3);
  CHECK(exit_code_of(failed, {none}, false) == 7);
  CHECK(exit_code_of(failed, {too_large}, false) == 7);
  CHECK(exit_code_of(failed, {ran_out, none}, false) == 3);
  CHECK(exit_code_of(killed, {none}, false) == 137);
  CHECK(exit_code_of(killed, {ran_out}, false) == 3);
  CHECK(exit_code_of(failed, {none}, /*is_out_of_memory=*/true) == 3);
  CHECK(exit_code_of(well, {}, false) == 5);
  CHECK(exit_code_of(failed, {}, false) == 5);
  CHECK(exit_code_of(killed, {}, false) == 137);
  CHECK(exit_code_of(failed, {}, /*is_out_of_memory=*/true) == 3);
}

TEST_CASE("a recording's doubts are read with its process's other notes") {
  const tests::TemporaryFolder folder;
  tests::write_file(
      folder.file("rank0.json"),
      R"({"retries": 2, "steps": 3, "doubts": ["classes: why", 7], "values_read": {}})");
  const RecordFacts facts = read_record_facts(folder.file("rank0.slp"));
  CHECK(facts.is_known);
  CHECK(facts.retries == 2);
  CHECK(facts.doubts == std::vector<std::string>{"classes: why"});
  tests::write_file(folder.file("rank1.json"), R"({"retries": 2, "ste)");
  CHECK_FALSE(read_record_facts(folder.file("rank1.slp")).is_known);
}

TEST_CASE("PyTorch's counters stand in for a history that has forgotten events") {
  const RecordFacts facts{.counted = {70 * kGiB, 75 * kGiB}, .is_history = true, .is_known = true};
  profiler::RankReport report = report_of_peak(10, 20);
  report.judgement.lost_events = 3;
  CHECK(verdict_of(report, facts, kGiB, {}).line ==
        "fits: 76.00 GiB of 80.00 GiB (including 1.00 GiB beside PyTorch), 4.00 GiB free");
  CHECK(verdict_of(report, facts, kGiB, {}).doubts ==
        std::vector<std::string>{"the peaks are from PyTorch's own counters, because its memory "
                                 "history has dropped events"});
  CHECK(verdict_of(report, facts, 6 * kGiB, {}).exit_code == 4);
  CHECK(verdict_of(report, facts, 11 * kGiB, {}).exit_code == 3);
  CHECK_THAT(verdict_of(report, facts, kGiB, "it failed").line,
             ContainsSubstring("70.00 GiB allocated and 75.00 GiB reserved and 1.00 GiB beside"));
  RecordFacts uncounted = facts;
  uncounted.counted = {};
  CHECK(verdict_of(report, uncounted, kGiB, {}).exit_code == 5);
  RecordFacts with_recorder = facts;
  with_recorder.is_history = false;
  CHECK(verdict_of(report, with_recorder, kGiB, {}).exit_code == 5);
}

TEST_CASE("a recording says whether PyTorch's own counters agree") {
  const tests::TemporaryFolder folder;
  const std::string recording = folder.file("rank0.slp");
  const profiler::RankReport report = report_of_peak(10, 20);
  const int64_t allocated = 10 * kGiB, reserved = 20 * kGiB;
  CHECK_FALSE(compare_counters(report, {.is_known = true}));
  RecordFacts facts{.counted = {allocated, reserved, 1, allocated, reserved}, .is_known = true};
  CHECK(compare_counters(report, facts)->is_equal);
  CHECK(compare_counters(report, facts)->line == "as PyTorch counted: equal");
  for (std::optional<int64_t>& figure : facts.counted) {
    figure = *figure + 512;
    CHECK_FALSE(compare_counters(report, facts)->is_equal);
    figure = *figure - 512;
  }
  facts.counted[static_cast<size_t>(Figure::peak_reserved)] = reserved + 512;
  facts.counted[static_cast<size_t>(Figure::allocations)] = 2;
  const auto comparison = compare_counters(report, facts);
  CHECK(comparison->line ==
        "not as PyTorch counted: 21474836992 bytes reserved at the peak, not 21474836480; 2 "
        "allocations, not 1");
  tests::write_file(folder.file("rank0.json"), R"({"retries": 2, "allocations": 2})");
  keep_comparison(recording, *comparison);
  const std::string kept = tests::read_file(folder.file("rank0.json"));
  CHECK_THAT(kept, ContainsSubstring(R"("as_pytorch_counted":false)"));
  CHECK_THAT(kept,
             ContainsSubstring(R"("recorded":{"allocated_bytes":10737418240,"allocations":1)"));
  CHECK(read_record_facts(recording).retries == 2);
  CHECK(read_record_facts(recording).counted[static_cast<size_t>(Figure::allocations)] == 2);
}

TEST_CASE("the Python of a command is its program, its first line's, or python3") {
  const tests::TemporaryFolder folder;
  const std::string python =
      program(folder, "python3.11",
              "#!/bin/sh\nprintf '%s\\n' /bin/python /site/torch 2.11.0+cu130 13.0 feedfacecafe\n");
  const std::string script = program(folder, "torchrun", "#!" + python + " -u\n");
  for (const std::string& command : {python, script}) {
    const PythonProgram found = find_python({command, "train.py"});
    CHECK(found.interpreter == python);
    CHECK(found.torch == "/site/torch");
    CHECK(found.torch_version == "2.11.0+cu130");
    CHECK(found.cuda_version == "13.0");
    CHECK(found.wheel == "feedfacecafe");
  }
}

TEST_CASE("Python flags that shut the recorder out are found before its program") {
  const tests::TemporaryFolder folder;
  const std::string python = program(folder, "python3.11", "");
  const auto flag_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), python);
    return isolating_flag(words);
  };
  CHECK(flag_of({"-I", "train.py"}) == "-I");
  CHECK(flag_of({"-u", "-sE", "-m", "train"}) == "-E");
  CHECK(flag_of({"-W", "ignore", "-S", "train.py"}) == "-S");
  CHECK(flag_of({"-Wignore", "-uS"}) == "-S");
  CHECK(flag_of({"train.py", "-I"}).empty());
  CHECK(flag_of({"-c", "pass", "-S"}).empty());
  CHECK(flag_of({"-mSE"}).empty());
  CHECK(flag_of({"-X", "SE", "--check-hash-based-pycs", "never"}).empty());
  CHECK(flag_of({}).empty());
  const std::string script = program(folder, "torchrun", "#!/usr/bin/env " + python + " -sE\n");
  CHECK(isolating_flag({script, "-I"}) == "-E");
  CHECK(isolating_flag({"sh", "-I"}).empty());
}

TEST_CASE("a Python without PyTorch is refused in one line") {
  const tests::TemporaryFolder folder;
  const std::string bare = program(folder, "python3", "#!/bin/sh\nexit 1\n");
  CHECK_THROWS_MATCHES(find_python({bare}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("has no PyTorch")));
  CHECK_THROWS_MATCHES(find_python({folder.file("none")}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("no such command")));
}
