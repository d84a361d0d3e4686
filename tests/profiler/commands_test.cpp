#include "profiler/commands/commands.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/recordings/small_recording.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// Files whose content is the MiB of their activations; the name has the rank.
RankReport analyse_small(const std::string& path) {
  const std::string content = tests::read_file(path);
  if (content.empty()) throw std::runtime_error(path + ": cut off at offset 0");
  const std::string name = std::filesystem::path(path).filename().string();
  const auto rank = static_cast<int32_t>(std::stoi(name.substr(4)));
  return analyse(tests::small_recording(rank, std::stoll(content) << 20));
}

FileReport check_small(const std::string& path) {
  FileReport report;
  report.major = 1;
  report.blocks = {{.offset = 64, .type = "events", .problem = {}}};
  if (tests::read_file(path).empty()) {
    report.blocks.front().problem = "checksum";
    report.problems = {path + ": offset 64: checksum"};
  }
  return report;
}

std::string time_of(const std::string& path, const TimeRequest& request) {
  return std::filesystem::path(path).filename().string() + " " + request.gpu + " " +
         std::to_string(request.host) + (request.json ? " json" : "");
}

std::string time_of_ranks(const std::vector<std::string>& paths, const TimeRequest& request) {
  return std::to_string(paths.size()) + " ranks from " + time_of(paths.front(), request);
}

CommandOutcome command(const std::vector<std::string>& arguments) {
  return profile_command(arguments, {.analyse = analyse_small,
                                     .check = check_small,
                                     .time = time_of,
                                     .world_time = time_of_ranks});
}

/// A run with a recording of each size, rank by rank.
struct Run {
  explicit Run(const std::vector<std::string>& contents) {
    std::filesystem::create_directory(folder.file("profiles"));
    for (size_t rank = 0; rank < contents.size(); ++rank) {
      tests::write_file(file(rank), contents[rank]);
    }
  }
  std::string file(size_t rank) const {
    return folder.file("profiles/rank" + std::to_string(rank) + ".slp");
  }
  std::string path() const { return folder.path(); }

  tests::TemporaryFolder folder;
};

void check_refused(const std::vector<std::string>& arguments, const std::string& part) {
  CHECK_THROWS_MATCHES(command(arguments), std::invalid_argument,
                       MessageMatches(ContainsSubstring(part)));
}

}  // namespace

TEST_CASE("report reads a run's ranks in their order, or one, or a file") {
  const Run run({"3", "3", "3", "3", "3", "3", "3", "3", "3", "3", "5"});
  const auto json = nlohmann::json::parse(command({"report", run.path(), "--json"}).out);
  REQUIRE(json.at("ranks").size() == 11);
  CHECK(json.at("ranks").at(10).at("rank") == 10);
  CHECK(json.at("ranks").at(10).at("source") == run.file(10));
  CHECK(command({"report", run.path()}).out.starts_with("rank 10 of"));
  const auto one =
      nlohmann::json::parse(command({"report", "--rank", "3", "--json", run.path()}).out);
  REQUIRE(one.at("ranks").size() == 1);
  CHECK(one.at("ranks").at(0).at("rank") == 3);
  CHECK(command({"report", run.file(7)}).out.starts_with("rank 7 of"));
  CHECK(command({"report", run.file(7), run.file(1)}).exit_code == 0);
}

TEST_CASE("one unreadable recording of a run is a line, and the exit code is 1") {
  const Run run({"3", ""});
  const CommandOutcome outcome = command({"report", run.path()});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out.starts_with("rank 0 of"));
  CHECK(outcome.error == "shardlens profile: " + run.file(1) + ": cut off at offset 0\n");
  CHECK_THROWS_AS(command({"report", run.file(1)}), std::runtime_error);
}

TEST_CASE("a report has the time of each rank whose work was traced") {
  const Run run({"3", "3", "3"});
  const Recordings recordings{
      .analyse = analyse_small,
      .check = check_small,
      .time = [&](const std::string& path, const TimeRequest& request) -> std::string {
        if (path == run.file(2)) throw std::invalid_argument("its GPU is not known");
        return request.json ? R"({"seconds": 2})" : "step time: 2 s\n";
      },
      .has_work = [&](const std::string& path) { return path != run.file(1); }};
  const auto text = profile_command({"report", run.path(), "--json"}, recordings).out;
  const auto ranks = nlohmann::json::parse(text).at("ranks");
  CHECK(ranks.at(0).at("time").at("seconds") == 2);
  CHECK(ranks.at(1).at("time").is_null());
  CHECK(ranks.at(2).at("time").at("seconds").is_null());
  CHECK(ranks.at(2).at("time").at("why") == "its GPU is not known");
  const auto report = [&](size_t rank) {
    return profile_command({"report", run.file(rank)}, recordings).out;
  };
  CHECK(report(0).ends_with("\nstep time: 2 s\n"));
  CHECK(report(1).find("step time") == std::string::npos);
  CHECK(report(2).ends_with("\nstep time: its GPU is not known\n"));
}

TEST_CASE("diff fails only above the limit") {
  const Run a({"3", "3"});
  const Run b({"3", "5"});
  CHECK(command({"diff", a.path(), b.path()}).exit_code == 0);
  CHECK(command({"diff", a.path(), b.path(), "--fail-above", "28%"}).exit_code == 1);
  CHECK(command({"diff", a.path(), b.path(), "--fail-above", "29%"}).exit_code == 0);
  CHECK(command({"diff", b.path(), a.path(), "--fail-above", "0"}).exit_code == 0);
  CHECK(command({"diff", a.path(), a.path(), "--fail-above", "0%"}).exit_code == 0);
  const CommandOutcome failed = command({"diff", a.path(), b.path(), "--fail-above=2%"});
  CHECK(failed.error ==
        "shardlens profile: B's peak is 2.00 MiB above A's (+28.6 %): +2.00 MiB activation; "
        "--fail-above allows 2 %\n");
  CHECK(nlohmann::json::parse(command({"diff", a.path(), b.path(), "--json"}).out).at("schema") ==
        "shardlens.profile_diff/2");
}

TEST_CASE("check lists the blocks and fails if one is damaged") {
  const Run run({"3", ""});
  const CommandOutcome whole = command({"check", run.file(0)});
  CHECK(whole.exit_code == 0);
  CHECK_THAT(whole.out, ContainsSubstring("events"));
  const CommandOutcome damaged = command({"check", run.file(1)});
  CHECK(damaged.exit_code == 1);
  CHECK(damaged.error == "shardlens profile: " + run.file(1) + ": offset 64: checksum\n");
}

TEST_CASE("time asks for one rank of a run, on a GPU and with a host") {
  const Run run({"1", "2"});
  CHECK(command({"time", run.path()}).out == "2 ranks from rank0.slp  1.000000");
  CHECK(command({"time", run.path(), "--rank", "1", "--gpu", "h200", "--host", "0.5", "--json"})
            .out == "rank1.slp h200 0.500000 json");
  CHECK_THROWS_AS(command({"time", run.path(), "--host", "0"}), std::invalid_argument);
  CHECK_THROWS_AS(command({"time", run.path(), "--host", "nan"}), std::invalid_argument);
}

TEST_CASE("wrong usage of profile is refused in a line that says how to fix it") {
  const Run run({"3"});
  const tests::TemporaryFolder empty;
  check_refused({"rapport"}, "unknown command; see shardlens profile --help");
  check_refused({"report"}, "see --help");
  check_refused({"report", run.path(), "--yaml"}, "see --help");
  check_refused({"report", empty.path()}, "train with --profile");
  check_refused({"report", run.path() + "/none"}, "no such file or folder");
  check_refused({"report", run.path(), "--rank", "5"}, "--rank 5: no recording of this rank");
  check_refused({"diff", run.path()}, "see --help");
  for (const char* share : {"2%%", "-1%", "much", "nan", "inf"}) {
    check_refused({"diff", run.path(), run.path(), "--fail-above", share}, "--fail-above");
  }
  CHECK(command({}).exit_code == 2);
  CHECK(command({"--help"}).out.starts_with("usage: shardlens profile"));
  CHECK(command({"diff", "--help"}).exit_code == 0);
}

TEST_CASE("a run is put into one file, which is never replaced") {
  const Run run({"1", "2"});
  const tests::TemporaryFolder home;
  const CommandOutcome made = command({"bundle", run.path(), "-o", home.file("b")});
  CHECK(made.exit_code == 0);
  CHECK_THAT(made.out, ContainsSubstring("b: 2 files, "));
  CHECK_THAT(made.out, ContainsSubstring("damaged, or not a recording: " + run.file(1)));
  CHECK_THROWS_MATCHES(command({"bundle", run.path(), "-o", home.file("b")}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("already exists")));
  CHECK_THROWS_AS(command({"bundle"}), std::invalid_argument);
}
