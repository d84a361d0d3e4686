#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "runtime/record/python_program.h"
#include "runtime/record/record_options.h"
#include "runtime/record/record_verdict.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::runtime;
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

std::string program(const test::TemporaryFolder& folder, const std::string& name,
                    const std::string& text) {
  const std::string path = folder.file(name);
  test::write_file(path, text);
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

TEST_CASE("the nodes of a world that is not there have up to 8 GPUs, equally many") {
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

TEST_CASE("record attaches to a program on the GPUs of the machine where none is named") {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--", "python"}, {"--device", "cuda", "--", "python"}}) {
    const RecordOptions options = parse_record_options(flags);
    CHECK(options.is_attached());
    CHECK(options.device_name() == "cuda");
  }
  CHECK_FALSE(parse_record_options({"--device", "null:h100", "--", "python"}).is_attached());
  check_refused({"--world", "2", "--", "python"}, "--world: the program runs on this machine's");
  check_refused({"--rank", "0", "--", "python"}, "such as --device null:h100");
  check_refused({"--capacity", "40GiB", "--", "python"}, "--capacity: ");
  check_refused({"--true", "a.py:1", "--", "python"}, "--true: ");
  check_refused({"--gpus-per-node", "8", "--", "python"}, "--gpus-per-node: ");
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
  check_refused({"--device", "null:h100", "--steps", "0", "--", "python"}, "--steps");
  for (const std::string place : {"train.py", ":3", "train.py:", "train.py:x"}) {
    check_refused({"--device", "null:h100", "--true", place, "--", "python"}, "--true " + place);
  }
}

TEST_CASE("a program that takes more than the GPU has does not fit") {
  const RecordFacts facts{.is_known = true};
  CHECK(verdict_of(report_of_peak(60, 70), facts, kGiB).exit_code == 0);
  CHECK(verdict_of(report_of_peak(60, 80), facts, kGiB).exit_code == 4);
  CHECK(verdict_of(report_of_peak(80, 80), facts, kGiB).exit_code == 3);
  CHECK(verdict_of(report_of_peak(80, 80), facts, 0).exit_code == 0);
  CHECK(verdict_of(report_of_peak(60, 70), {.retries = 1, .is_known = true}, kGiB).exit_code == 4);
  profiler::RankReport failed = report_of_peak(60, 70);
  failed.out_of_memory_count = 1;
  CHECK(verdict_of(failed, facts, kGiB).exit_code == 3);
  CHECK_THAT(verdict_of(report_of_peak(60, 70), facts, kGiB).line,
             ContainsSubstring("fits: 71.00 GiB of 80.00 GiB (1.00 GiB of it beside PyTorch), 9.00 "
                               "GiB free"));
  CHECK_THAT(verdict_of(report_of_peak(60, 70), {.shapes = 3, .is_known = true}, kGiB).line,
             ContainsSubstring("9.00 GiB free; shapes depended on values"));
}

TEST_CASE("the Python of a command is its program, its first line's, or python3") {
  const test::TemporaryFolder folder;
  const std::string python =
      program(folder, "python3.11",
              "#!/bin/sh\nprintf '/site/torch\\n2.11.0+cu130\\n13.0\\nfeedfacecafe\\n'\n");
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

TEST_CASE("a Python without PyTorch is refused in a line") {
  const test::TemporaryFolder folder;
  const std::string bare = program(folder, "python3", "#!/bin/sh\nexit 1\n");
  CHECK_THROWS_MATCHES(find_python({bare}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("has no PyTorch")));
  CHECK_THROWS_MATCHES(find_python({folder.file("none")}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("no such command")));
}
